// Leaves as dots, the components of clusters as ellipses, over two axes.

import { colour, dash, draw } from "./theme.js";
import { element, literal, percent } from "./format.js";

const PRINCIPAL = "";
const MAX_DOT_PIXELS = 34; // pixels across of the heaviest dot
let ranges = {};

/** Fill the two selectors; a stream of two features is shown as it is, one of more by its principal axes. */
export function offerAxes(selects, features) {
  if (selects[0].dataset.features === features.join("\n")) return;
  selects.forEach((select, i) => {
    select.dataset.features = features.join("\n");
    select.replaceChildren(
      element("option", { value: PRINCIPAL }, `principal axis ${i + 1}`),
      ...features.map((name) => element("option", { value: name }, name)));
    select.value = features.length === 2 ? features[i] : PRINCIPAL;
  });
  selects[0].closest(".controls").hidden = features.length < 2;
}

/** Both selectors name a feature, or neither does: what one was given, the other follows. */
export function pairAxes(selects, changed) {
  const other = selects[1 - changed];
  const value = selects[changed].value;
  if (value === PRINCIPAL) other.value = PRINCIPAL;
  else if (other.value === PRINCIPAL || other.value === value) {
    other.value = [...other.options].map((o) => o.value).find((name) => name !== PRINCIPAL && name !== value);
  }
}

export function viewQuery(selects) {
  const [x, y] = selects.map((select) => select.value);
  return x === PRINCIPAL ? "view" : `view?${new URLSearchParams({ x, y })}`;
}

export function showView(chart, note, view) {
  const { leaves, clusters } = view;
  const heaviest = Math.max(...leaves.weight);
  const dots = {
    type: "scatter", mode: "markers", x: leaves.x, y: leaves.y, hoverinfo: "skip",
    marker: {
      size: leaves.weight, sizemode: "area", sizeref: (2 * heaviest) / MAX_DOT_PIXELS ** 2, sizemin: 1.5,
      color: leaves.cluster.map(colour), opacity: 0.45, line: { width: 0 },
    },
  };
  const lines = (c, curves, line) => curves.map((curve) => ({
    type: "scatter", mode: "lines", ...curve, hoverinfo: "skip", line: { color: colour(c.id), ...line },
  }));
  const ellipses = clusters.flatMap((c) => (c.outline.length
    ? [...lines(c, c.ellipses, { width: 0.75 }), ...lines(c, c.outline, { width: 2.5, dash: dash(c.id) })]
    : lines(c, c.ellipses, { width: 2.5, dash: dash(c.id) })));
  const names = {
    type: "scatter", mode: "text",
    x: clusters.map((c) => c.x), y: clusters.map((c) => Math.max(c.y, ...(c.ellipses[0]?.y ?? []))),
    text: clusters.map((c) => `<b>${c.id}</b>`), textposition: "top center", textfont: { size: 15 }, hoverinfo: "skip",
  };
  const centres = {
    type: "scatter", mode: "markers", x: clusters.map((c) => c.x), y: clusters.map((c) => c.y),
    hovertext: clusters.map((c) => `cluster ${c.id}: ${percent(c.share)}`), hoverinfo: "text",
    marker: { symbol: "cross", size: 8, color: clusters.map((c) => colour(c.id)) },
  };
  const all = (axis) => [...leaves[axis], ...clusters.flatMap((c) => [c[axis], ...c.ellipses.flatMap((curve) => curve[axis])])];
  const axis = (name, label) => (
    { title: { text: literal(label) }, range: steady(`${name} ${label}`, all(name)), fixedrange: false }
  );
  draw(chart, [dots, ...ellipses, centres, names], {
    uirevision: view.labels.join(),
    dragmode: matchMedia("(pointer: fine)").matches ? "zoom" : false,
    xaxis: axis("x", view.labels[0]),
    yaxis: { ...axis("y", view.labels[1]), showticklabels: view.labels[1] !== "" },
  });
  chart.setAttribute("aria-label", `${clusters.length} clusters over ${view.labels.filter(Boolean).join(" and ")}`);
  const mark = ellipses.length ? "an ellipse reaches two standard deviations, and those within one outline are one cluster" : "a cross is the mean of a cluster";
  note.textContent = `Each dot is a leaf of the summary, its area its weight; ${mark}.` +
    (view.explained ? ` The two axes carry ${percent(view.explained[0] + view.explained[1])} of the variance.` : "");
}

/** A range that holds the values and changes seldom: only if they leave it or need far less of it. */
function steady(name, values) {
  const [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const room = 0.08 * (high - low) || 1;
  const kept = ranges[name];
  if (!kept || low < kept[0] || high > kept[1] || high - low < 0.6 * (kept[1] - kept[0])) {
    ranges = { ...ranges, [name]: [low - room, high + room] };
  }
  return ranges[name];
}
