// Leaves as dots, the components of clusters as ellipses, over two axes.

import { area, placed } from "./labels.js";
import { colour, dash, draw, muted, shade } from "./theme.js";
import { element, literal, percent } from "./format.js";
import { called, written as labelOf } from "./names.js";

const PRINCIPAL = "";
const SIZE = 15; // pixels of the ids
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

export function showView(chart, note, view, chosen) {
  const { leaves, clusters } = view;
  const heaviest = Math.max(...leaves.weight);
  const dots = {
    type: "scatter", mode: "markers", x: leaves.x, y: leaves.y, hoverinfo: "skip",
    marker: {
      size: leaves.weight, sizemode: "area", sizeref: (2 * heaviest) / MAX_DOT_PIXELS ** 2, sizemin: 1.5,
      color: leaves.cluster.map(colour), line: { width: 0 },
      opacity: leaves.cluster.map((id) => (chosen === null || id === chosen ? 0.45 : 0.1)),
    },
  };
  const lines = (c, curves, line) => curves.map((curve) => ({
    type: "scatter", mode: "lines", name: `cluster ${c.id}`, ...curve, hoverinfo: "skip",
    line: { color: shade(c.id, chosen), ...line, width: line.width * (c.id === chosen ? 1.6 : 1) },
  }));
  const ellipses = clusters.flatMap((c) => (c.outline.length
    ? [...lines(c, c.ellipses, { width: 0.75 }), ...lines(c, c.outline, { width: 2.5, dash: dash(c.id) })]
    : lines(c, c.ellipses, { width: 2.5, dash: dash(c.id) })));
  const centres = {
    type: "scatter", mode: "markers", x: clusters.map((c) => c.x), y: clusters.map((c) => c.y),
    hovertext: clusters.map((c) => `cluster ${literal(called(c.id))}: ${percent(c.share)}`), hoverinfo: "text",
    marker: { symbol: "cross", size: 8, color: clusters.map((c) => shade(c.id, chosen)) },
  };
  const all = (axis) => [...leaves[axis], ...clusters.flatMap((c) => [c[axis], ...c.ellipses.flatMap((curve) => curve[axis])])];
  const axis = (name, label) => (
    { title: { text: literal(label) }, range: steady(`${name} ${label}`, all(name)), fixedrange: false }
  );
  const [across, up] = [axis("x", view.labels[0]), axis("y", view.labels[1])];
  const zoomed = chart.layout?.uirevision === view.labels.join() && chart.layout;
  const names = written(chart, clusters, chosen, [zoomed?.xaxis?.range ?? across.range, zoomed?.yaxis?.range ?? up.range]);
  draw(chart, [dots, ...ellipses, centres, names], {
    uirevision: view.labels.join(),
    dragmode: matchMedia("(pointer: fine)").matches ? "zoom" : false,
    xaxis: across,
    yaxis: { ...up, showticklabels: view.labels[1] !== "" },
  });
  chart.setAttribute("aria-label", `${clusters.length} clusters over ${view.labels.filter(Boolean).join(" and ")}`);
  const mark = ellipses.length ? "An ellipse holds most of a cluster (two standard deviations); a bold line around several makes them one cluster."
    : "A cross is the mean of a cluster.";
  note.textContent = `A dot stands for events that lie close together: the larger, the more. ${mark}` +
    (view.explained ? ` The axes are the two directions in which events differ most, with ${percent(view.explained[0] + view.explained[1])} of the variance.` : "");
}

/** The ids, each beside its ellipse where no other is in the way: the chosen one first, then the heaviest. */
function written(chart, clusters, chosen, [[left, right], [low, high]]) {
  const [width, height] = area(chart);
  const pixel = ([x, y]) => [((x - left) * width) / (right - left), ((y - low) * height) / (high - low)];
  const labels = clusters.map((c) => {
    const ends = c.ellipses[0] ?? { x: [c.x], y: [c.y] };
    const [[west, south], [east, north]] = [Math.min, Math.max].map((end) => pixel([end(...ends.x), end(...ends.y)]));
    const text = labelOf(c.id, width);
    const reach = Math.min(0.32 * SIZE * text.length, width / 2);
    const [middle, y] = pixel([c.x, c.y]);
    const x = middle > 0 && middle < width ? Math.min(Math.max(middle, reach), width - reach) : middle;
    const beside = SIZE * 0.65;
    return { id: c.id, share: c.share, text,
      places: [[x, north + beside], [x, south - beside], [east + beside, y], [west - beside, y], [east, north], [west, south]] };
  }).filter(({ places: [[x, y]] }) => x > 0 && x < width && y > 0 && y < height);
  labels.sort((a, b) => (b.id === chosen) - (a.id === chosen) || b.share - a.share);
  const shown = placed(labels, SIZE);
  const { color } = getComputedStyle(document.body);
  return {
    type: "scatter", mode: "text", name: "ids", hoverinfo: "skip", cliponaxis: false,
    x: shown.map(({ place }) => left + (place[0] * (right - left)) / width),
    y: shown.map(({ place }) => low + (place[1] * (high - low)) / height),
    text: shown.map(({ text }) => `<b>${text}</b>`), textposition: "middle center",
    textfont: { size: SIZE, color: shown.map(({ id }) => (chosen === null || id === chosen ? color : muted())) },
  };
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
