// The dendrogram of a snapshot, and where it is cut.

import { area, placed } from "./labels.js";
import { draw, faint, muted, shade } from "./theme.js";
import { count } from "./format.js";
import { nameOf, written as labelOf } from "./names.js";

const SIZE = 12; // pixels of the ids
const ROOM = 1.06; // height of the chart in units of the highest join
const BRANCHES = 120; // what lies below so many branches is drawn as one
export const MOST = 40; // clusters that the slider can cut into

/** A stored dendrogram made ready to draw: sums, places and heights of its nodes. */
export function prepare({ children, height, weight, ids }) {
  const n = weight.length;
  const lowest = Math.min(height[0] ?? 0, 0);
  const level = [...new Array(n).fill(0), ...height.map((h) => h - lowest)];
  const mass = [...weight];
  const heaviest = ids.slice(0, n); // the heaviest published cluster at or below each node
  const best = weight.map((w, i) => (ids[i] >= 0 ? w : 0));
  children.forEach(([a, b], t) => {
    const node = n + t;
    mass.push(mass[a] + mass[b]);
    const heavier = best[a] >= best[b] ? a : b;
    best.push(ids[node] >= 0 ? mass[node] : best[heavier]);
    heaviest.push(ids[node] >= 0 ? ids[node] : heaviest[heavier]);
  });
  const tree = { n, children, ids, level, mass, heaviest };
  const ends = new Set(tops(tree, Math.min(BRANCHES, n)));
  const place = new Array(2 * n - 1).fill(null);
  let next = 0;
  const stack = [2 * n - 2];
  while (stack.length) {
    const node = stack.pop();
    if (ends.has(node)) place[node] = next++;
    else stack.push(...children[node - n]);
  }
  children.forEach(([a, b], t) => {
    if (place[a] !== null && place[b] !== null) place[n + t] = (place[a] + place[b]) / 2;
  });
  return { ...tree, ends, place };
}

/** The nodes that a cut into k clusters leaves on top: merges come in the order of their heights. */
export function tops({ n, children }, k) {
  const first = 2 * n - k; // nodes from here on are undone
  if (k === 1) return [2 * n - 2];
  return children.slice(n - k).flat().filter((node) => node < first);
}

/** The cluster, by number, that each node belongs to under a cut; -1 above it. */
function groups({ n, children }, cut) {
  const group = new Array(2 * n - 1).fill(-1);
  cut.forEach((node, i) => { group[node] = i; });
  for (let t = n - 2; t >= 0; t--) {
    if (group[n + t] >= 0) for (const child of children[t]) group[child] = group[n + t];
  }
  return group;
}

/** For each cluster of a cut the published one that it mostly is, or is the heaviest part of; the rest take free ids. */
function likenesses(tree, cut) {
  const owner = new Array(tree.mass.length).fill(-1); // the published cluster that a node lies in
  for (let node = tree.mass.length - 1; node >= 0; node--) {
    if (tree.ids[node] >= 0) owner[node] = tree.ids[node];
    if (node >= tree.n) for (const child of tree.children[node - tree.n]) owner[child] = owner[node];
  }
  const like = new Map(); // id -> which of the cut
  const others = [];
  for (const node of cut.toSorted((a, b) => tree.mass[b] - tree.mass[a])) {
    const id = Math.max(tree.heaviest[node], owner[node], 0);
    if (like.has(id)) others.push(node);
    else like.set(id, node);
  }
  let next = 0;
  for (const node of others) {
    while (like.has(next)) next++;
    like.set(next, node);
  }
  const id = new Map([...like].map(([each, node]) => [node, each]));
  return cut.map((node) => id.get(node));
}

export function showHierarchy(chart, note, snapshot, tree, k, chosen) {
  const cut = tops(tree, k);
  const group = groups(tree, cut);
  const shown = likenesses(tree, cut);
  const lines = new Map();
  tree.children.forEach(([a, b], t) => {
    const node = tree.n + t;
    if (tree.place[node] === null || tree.ends.has(node)) return;
    const line = lines.get(group[node]) ?? lines.set(group[node], { x: [], y: [] }).get(group[node]);
    const foot = (child) => (tree.ends.has(child) ? 0 : tree.level[child]);
    line.x.push(tree.place[a], tree.place[a], tree.place[b], tree.place[b], null);
    line.y.push(foot(a), tree.level[node], tree.level[node], foot(b), null);
  });
  const branches = [...lines].map(([i, line]) => ({
    type: "scatter", mode: "lines", ...line, hoverinfo: "skip", name: i < 0 ? "above the cut" : `group ${i}`,
    line: { color: i < 0 ? faint() : shade(shown[i], chosen), width: i < 0 ? 1.5 : shown[i] === chosen ? 4 : 2 },
  }));
  const published = tree.ids.map((id, node) => [id, node]).filter(([id, node]) => id >= 0 && tree.place[node] !== null);
  const [width, height] = area(chart);
  const then = new Map(snapshot.dendrogram.names);
  const room = Math.min(width / 2, (8 * width) / published.length); // for names: less where there are many
  const unit = [width / (tree.ends.size + 1), height / (tree.level[2 * tree.n - 2] * ROOM || 1)]; // pixels
  const labels = published.map(([id, node]) => {
    const [x, y] = [(tree.place[node] + 1) * unit[0], tree.level[node] * unit[1] + SIZE * 0.65];
    const texts = [labelOf(id, room, nameOf(id) || (then.get(id) ?? "")), String(id)];
    return { id, mass: tree.mass[node], texts, places: [[x, y], [x, y + SIZE], [x, y + 2 * SIZE]] };
  });
  labels.sort((a, b) => (b.id === chosen) - (a.id === chosen) || b.mass - a.mass);
  const written = placed(labels, SIZE, width);
  const { color } = getComputedStyle(document.body);
  const names = {
    type: "scatter", mode: "text", name: "ids", hoverinfo: "skip", textposition: "middle center", cliponaxis: false,
    x: written.map(({ place }) => place[0] / unit[0] - 1), y: written.map(({ place }) => place[1] / unit[1]),
    text: written.map(({ text }) => `<b>${text}</b>`),
    textfont: { size: SIZE, color: written.map(({ id }) => (chosen === null || id === chosen ? color : muted())) },
  };
  const above = tree.level[2 * tree.n - k], below = tree.level[2 * tree.n - 1 - k];
  const line = k > 1 ? (above + below) / 2 : above;
  const style = { color: faint(), width: 1, dash: "dash" };
  draw(chart, [...branches, names], {
    shapes: k > 1 ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: line, y1: line, line: style }] : [],
    xaxis: { visible: false, range: [-1, tree.ends.size] },
    yaxis: { title: { text: "difference" }, range: [0, (tree.level[2 * tree.n - 2] || 1) * ROOM] },
  });
  chart.setAttribute("aria-label", `Dendrogram of snapshot ${snapshot.version}, cut into ${k} clusters`);
  note.textContent = `The lower two branches join, the more alike they are. Snapshot ${snapshot.version}, after ` +
    `${count(snapshot.events)} events: ${count(snapshot.n_clusters)} clusters, whose ids are written at their branches.`;
}
