// The river: shares of the clusters over time, stacked, and what happened to them.

import { area, placed } from "./labels.js";
import { QUIET } from "./novelty.js";
import { clock, draw, legend, muted, pattern, shade } from "./theme.js";
import { address, compact, duration, element, literal, local } from "./format.js";
import { called } from "./names.js";

const SIZE = 13; // pixels of the ids
const INSTANT = 0.001; // seconds between the last sample of a band and its end
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

/** The samples without those of pauses, in which no events came: the river ends where one begins. */
export function flowing({ at, events, shares }) {
  const kept = { at: [], events: [], shares: [] };
  const add = (moment, n, now) => { kept.at.push(moment); kept.events.push(n); kept.shares.push(now); };
  for (let i = 0; i < at.length; i++) {
    let last = i;
    while (events[last + 1] === events[i]) last++;
    add(at[i], events[i], shares[i]);
    if (at[last] - at[i] >= QUIET) {
      add(at[i] + INSTANT, events[i], {});
      if (last + 1 < at.length) add(at[last + 1] - INSTANT, events[i], {});
    } else for (let j = i + 1; j <= last; j++) add(at[j], events[j], shares[j]);
    i = last;
  }
  return kept;
}

export function showLifecycle(chart, note, all, changes, chosen) {
  const first = Math.max(0, all.shares.findIndex((now) => Object.keys(now).length));
  const history = flowing({ at: all.at.slice(first), events: all.events.slice(first), shares: all.shares.slice(first) });
  const times = history.at.map(local);
  const silence = (all.at.at(-1) ?? 0) - all.at[Math.max(0, all.events.indexOf(all.events.at(-1)))];
  note.textContent = silence >= QUIET ? `No events for ${duration(silence)}: the bands end there.` : "";
  const ids = new Set(history.shares.flatMap((now) => Object.keys(now).map(Number)));
  const order = bandOrder(ids, changes);
  river = { ...history, order };
  const bands = order.map((id) => ({
    type: "scatter", mode: "lines", stackgroup: "shares", name: `cluster ${id}`, x: times, showlegend: false,
    y: history.shares.map((now) => now[id] ?? 0), line: { width: 0.5, color: shade(id, chosen) },
    fillcolor: shade(id, chosen),
    fillpattern: { shape: pattern(id), bgcolor: shade(id, chosen), fgcolor: "rgba(255,255,255,.5)", size: 6 },
    hovertemplate: `cluster ${literal(called(id)).replaceAll("%{", "% {")}: %{y:.1%}<extra></extra>`,
  }));
  const placed = changes.map((change) => place(change, history, order)).filter(Boolean);
  const marks = Object.keys(SYMBOLS).map((kind) => {
    const mine = placed.filter((p) => p.change.kind === kind);
    return {
      type: "scatter", mode: "markers", name: kind, cliponaxis: false,
      x: mine.map((p) => times[p.at]), y: mine.map((p) => p.y),
      marker: { symbol: SYMBOLS[kind], size: 12, color: "#ffffff", line: { color: "#101319", width: 2 } },
      text: mine.map((p) => literal(sentence(p.change))), hovertemplate: "%{text}<extra></extra>",
    };
  });
  draw(chart, [...bands, ...marks, ends(chart, history, order, times, chosen)], {
    showlegend: true, legend, margin: { l: 48, r: 28, t: 40, b: 28 },
    xaxis: { ...clock(chart, all.at.at(-1) - history.at[0]), showgrid: false, range: [times[0], local(all.at.at(-1))] },
    yaxis: { range: [0, 1], tickformat: ".0%", showgrid: false },
  });
  const latest = changes.length ? ` The latest change: ${sentence(changes.at(-1))}.` : "";
  chart.setAttribute("aria-label", `Shares of ${order.length} clusters over time.${latest}`);
}

/** The ids of the bands at their ends, the chosen one and the widest where there is no room for all. */
function ends(chart, history, order, times, chosen) {
  const last = history.shares.findLastIndex((now) => Object.keys(now).length);
  const now = history.shares[last] ?? {};
  const height = area(chart, [48, 28, 40, 28])[1];
  let below = 0;
  const labels = order.map((id) => {
    below += now[id] ?? 0;
    return { id, share: now[id] ?? 0, text: String(id), places: [[0, (below - (now[id] ?? 0) / 2) * height]] };
  }).filter(({ share }) => share > 0);
  labels.sort((a, b) => (b.id === chosen) - (a.id === chosen) || b.share - a.share);
  const shown = placed(labels, SIZE);
  const { color } = getComputedStyle(document.body);
  return {
    type: "scatter", mode: "text", name: "ids", cliponaxis: false, textposition: "middle right", hoverinfo: "skip",
    showlegend: false, x: shown.map(() => times[last]), y: shown.map(({ place }) => place[1] / height),
    text: shown.map(({ text }) => ` <b>${text}</b>`),
    textfont: { size: SIZE, color: shown.map(({ id }) => (chosen === null || id === chosen ? color : muted())) },
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

/** Parents and children, each with the names that they had before or have since. */
const sides = ({ parents, children, parent_names: before = [], child_names: after = [] }) =>
  [[parents, new Map(before)], [children, new Map(after)]];

export function sentence(change) {
  const [before, after] = sides(change).map(([side, names]) => side.map(([id]) => called(id, names.get(id) ?? "")).join(", "));
  return `${change.kind} ${before}${before && after ? " → " : ""}${after}${pause(change)}`;
}

export function listChanges(list, changes) {
  const shown = JSON.stringify(changes);
  if (list.dataset.shown === shown) return; // links keep their focus
  list.dataset.shown = shown;
  list.replaceChildren(...changes.toReversed().map((change) => element("li", {},
    element("span", { class: "muted" }, `event ${compact(change.at)}`),
    element("span", { "aria-hidden": "true" }, `${SIGNS[change.kind] ?? "·"} `),
    ...linkedSentence(change))));
}

/** The sentence with a link to each cluster. */
function linkedSentence(change) {
  const { kind, parents, children } = change;
  const [before, after] = sides(change).map(([side, names]) => side.flatMap(([id], i) =>
    [i ? ", " : "", element("a", { href: address(id) }, called(id, names.get(id) ?? ""))]));
  return [`${kind} `, ...before, parents.length && children.length ? " → " : "", ...after, pause(change)];
}
