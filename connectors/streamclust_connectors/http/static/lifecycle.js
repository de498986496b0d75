// The river: shares of the clusters over time, stacked, and what happened to them.

import { clock, colour, draw, legend, pattern } from "./theme.js";
import { address, compact, element, local } from "./format.js";

const LISTED = 100;
const NARROW = 0.03; // a share too small to write an id beside
const SYMBOLS = { born: "circle", returned: "triangle-right", split: "triangle-up", merged: "triangle-down", died: "x" };
const SIGNS = { born: "●", returned: "▶", split: "▲", merged: "▼", died: "✕" };

let river = null;

/** What the river shows: moments, shares at each, and the bands from the bottom up; null before it was drawn. */
export const drawnRiver = () => river;

/** Ids from the bottom of the river to its top: what splits off flows beside what it came from. */
export function bandOrder(ids, changes) {
  const order = [];
  for (const change of changes) {
    const before = change.parents.map(([id]) => id);
    const fresh = change.children.map(([id]) => id).filter((id) => !order.includes(id));
    const beside = Math.max(...before.map((id) => order.indexOf(id)), -1);
    order.splice(beside < 0 ? order.length : beside + 1, 0, ...fresh);
  }
  const told = order.filter((id) => ids.has(id));
  return [...[...ids].filter((id) => !told.includes(id)).sort((a, b) => a - b), ...told];
}

export function showLifecycle(chart, all, changes) {
  const first = Math.max(0, all.shares.findIndex((now) => Object.keys(now).length));
  const history = { at: all.at.slice(first), events: all.events.slice(first), shares: all.shares.slice(first) };
  const times = history.at.map(local);
  const ids = new Set(history.shares.flatMap((now) => Object.keys(now).map(Number)));
  const order = bandOrder(ids, changes);
  river = { ...history, order };
  const bands = order.map((id) => ({
    type: "scatter", mode: "lines", stackgroup: "shares", name: `cluster ${id}`, x: times, showlegend: false,
    y: history.shares.map((now) => now[id] ?? 0), line: { width: 0.5, color: colour(id) },
    fillcolor: colour(id),
    fillpattern: { shape: pattern(id), bgcolor: colour(id), fgcolor: "rgba(255,255,255,.5)", size: 6 },
    hovertemplate: `cluster ${id}: %{y:.1%}<extra></extra>`,
  }));
  const placed = changes.map((change) => place(change, history, order)).filter(Boolean);
  const marks = Object.keys(SYMBOLS).map((kind) => {
    const mine = placed.filter((p) => p.change.kind === kind);
    return {
      type: "scatter", mode: "markers", name: kind, cliponaxis: false,
      x: mine.map((p) => times[p.at]), y: mine.map((p) => p.y),
      marker: { symbol: SYMBOLS[kind], size: 12, color: "#ffffff", line: { color: "#101319", width: 2 } },
      text: mine.map((p) => sentence(p.change)), hovertemplate: "%{text}<extra></extra>",
    };
  });
  draw(chart, [...bands, ...marks, ends(history, order, times)], {
    showlegend: true, legend, margin: { l: 48, r: 28, t: 40, b: 28 },
    xaxis: { ...clock(chart), showgrid: false, range: [times[0], times.at(-1)] },
    yaxis: { range: [0, 1], tickformat: ".0%", showgrid: false },
  });
  const latest = changes.length ? ` The latest change: ${sentence(changes.at(-1))}.` : "";
  chart.setAttribute("aria-label", `Shares of ${order.length} clusters over time.${latest}`);
}

/** The ids of the bands that reach the present, at their ends. */
function ends(history, order, times) {
  const now = history.shares.at(-1) ?? {};
  let below = 0;
  const middle = order.map((id) => (below += now[id] ?? 0) - (now[id] ?? 0) / 2);
  const wide = order.map((id, i) => [id, middle[i]]).filter(([id]) => now[id] > NARROW);
  return {
    type: "scatter", mode: "text", x: wide.map(() => times.at(-1)), y: wide.map(([, y]) => y), cliponaxis: false,
    text: wide.map(([id]) => ` <b>${id}</b>`), textposition: "middle right", hoverinfo: "skip", showlegend: false,
  };
}

/** Where in the river a change shows: at the samples about it, amid the band that it made or ended, if one is wide. */
function place(change, history, order) {
  const after = history.events.findIndex((events) => events >= change.at);
  if (after < 0 || change.at < history.events[0]) return null;
  const ids = [...change.children.toReversed(), ...change.parents].map(([id]) => id);
  const samples = [after, after + 1, after - 1].filter((i) => history.shares[i]);
  const [at, id] = samples.flatMap((i) => ids.map((each) => [i, each])).find(([i, each]) => history.shares[i][each] > 0)
    ?? [after, ids[0]];
  const shares = order.map((each) => history.shares[at][each] ?? 0);
  const own = order.indexOf(id);
  return { change, at, y: Math.min(0.98, shares.slice(0, own).reduce((a, b) => a + b, 0) + (shares[own] ?? 0) / 2) };
}

/** How long a cluster that returned was away. */
const pause = ({ away }) => (away == null ? "" : ` after ${compact(away)} events`);

export function sentence(change) {
  const [before, after] = [change.parents, change.children].map((side) => side.map(([id]) => id).join(", "));
  return `${change.kind} ${before}${before && after ? " → " : ""}${after}${pause(change)}`;
}

export function listChanges(list, changes) {
  const shown = JSON.stringify(changes.slice(-LISTED));
  if (list.dataset.shown === shown) return; // links keep their focus
  list.dataset.shown = shown;
  list.replaceChildren(...changes.slice(-LISTED).reverse().map((change) => element("li", {},
    element("span", { class: "muted" }, `at ${compact(change.at)}`),
    element("span", { "aria-hidden": "true" }, `${SIGNS[change.kind] ?? "·"} `),
    ...linkedSentence(change))));
}

/** The sentence with a link to each cluster. */
function linkedSentence(change) {
  const { kind, parents, children } = change;
  const links = (side) => side.flatMap(([id], i) => [i ? ", " : "", element("a", { href: address(id) }, String(id))]);
  return [`${kind} `, ...links(parents), parents.length && children.length ? " → " : "", ...links(children), pause(change)];
}
