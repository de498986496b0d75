// The table of clusters. Rows are kept from one moment to the next, so that focus and clicks are not lost.

import { colour, dash } from "./theme.js";
import { address, compact, element, percent } from "./format.js";
import { called } from "./names.js";

const BORDERS = { solid: "solid", dash: "dashed", dot: "dotted" };
const STEADY = 0.0005; // a change of the share that is none
const rows = new Map();

/** The sign of a cluster: its colour, and its dashes. */
export function dot(id) {
  const made = element("span", { class: "dot", "aria-hidden": "true" });
  made.style.border = `3px ${BORDERS[dash(id)]} ${colour(id)}`;
  if (dash(id) === "solid") made.style.background = colour(id);
  return made;
}

export function showClusters(body, clusters, chosen) {
  const largest = Math.max(...clusters.map((c) => c.share));
  const wanted = clusters.map((c) => filled(rows.get(c.id) ?? newRow(c.id), c, largest, c.id === chosen));
  rows.forEach((row, id) => { if (!wanted.includes(row)) rows.delete(id); });
  if (wanted.length === body.children.length && wanted.every((row, i) => body.children[i] === row)) return;
  const focused = document.activeElement;
  const kept = body.contains(focused);
  body.replaceChildren(...wanted);
  if (kept) focused.focus({ preventScroll: true });
}

function newRow(id) {
  const link = element("a", { href: address(id) });
  const row = element("tr", { "data-cluster": id }, element("td", {}, link));
  row.addEventListener("click", () => { location.hash = address(id); });
  rows.set(id, row);
  return row;
}

function filled(row, c, largest, chosen) {
  const bar = element("span", { class: "bar" });
  bar.style.cssText = `width: ${(100 * c.share) / largest}%; background: ${colour(c.id)}`;
  row.title = c.name ? `${c.name}: ${c.words}` : c.words;
  const first = row.firstElementChild;
  first.firstElementChild.replaceChildren(dot(c.id), called(c.id, c.name));
  first.firstElementChild.setAttribute("aria-label", `Cluster ${called(c.id, c.name)} in detail`);
  if (chosen) first.firstElementChild.setAttribute("aria-current", "true");
  else first.firstElementChild.removeAttribute("aria-current");
  while (row.children.length > 1) row.lastElementChild.remove();
  row.append(
    element("td", {}, percent(c.share), bar),
    element("td", { class: "more" }, compact(c.weight)),
    element("td", { class: "more" }, compact(c.age)),
    trendCell(c.trend));
  return row;
}

/** A change of a share in words, with its arrow and, unless it is steady, percentage points. */
export function trendOf(change) {
  if (Math.abs(change) < STEADY) return { words: "steady", arrow: "→", points: "" };
  const points = `${change > 0 ? "+" : "−"}${(100 * Math.abs(change)).toFixed(1)}`;
  return change > 0 ? { words: "growing", arrow: "↗", points } : { words: "shrinking", arrow: "↘", points };
}

function trendCell(change) {
  const { words, arrow, points } = trendOf(change);
  return element("td", {}, `${points} `,
    element("span", { "aria-hidden": "true" }, arrow),
    element("span", { class: "quiet" }, words));
}
