// The snapshots that are kept: which to show, and what has changed since another.

import { count } from "./format.js";

const label = ({ version, at, n_clusters: k }) =>
  `${version}: ${new Date(1000 * at).toLocaleTimeString()}, ${count(k)} cluster${k === 1 ? "" : "s"}`;

/** Offer the kept snapshots, the latest first; keeps what is chosen. */
export function offerSnapshots(select, kept, chosen, none) {
  const options = kept.toReversed().map((each) => new Option(label(each), each.version));
  if (none) options.unshift(new Option(none, ""));
  select.replaceChildren(...options);
  select.value = chosen ?? "";
}

const MIN_SHIFT = 0.5; // standard deviations by which a mean must differ to be told
const MIN_ERRORS = 4; // and standard errors

/** The published cluster of each leaf; -1 for none. */
function owners({ children, weight: { length: n }, ids }) {
  const owner = [...ids];
  for (let t = children.length - 1; t >= 0; t--)
    for (const child of children[t]) if (owner[child] < 0) owner[child] = owner[n + t];
  return owner.slice(0, n);
}

/** Sum of squares of feature j within a leaf. */
function squares(scatter, j, d) {
  if (scatter.length === d * d) return scatter[j * d + j];
  if (scatter.length === d) return scatter[j];
  return scatter.length ? scatter[0] / d : 0;
}

/** Weight, share, means and standard deviations of each published cluster of a snapshot, by id. */
export function portraits(tree) {
  const found = new Map();
  const [owner, d] = [owners(tree), tree.mean[0].length];
  tree.weight.forEach((w, i) => {
    if (!found.has(owner[i])) found.set(owner[i], { weight: 0, mean: Array(d).fill(0), square: Array(d).fill(0) });
    const one = found.get(owner[i]);
    one.weight += w;
    for (let j = 0; j < d; j++) {
      const gap = tree.mean[i][j] - one.mean[j];
      const step = (gap * w) / one.weight;
      one.mean[j] += step;
      one.square[j] += w * gap * (gap - step) + squares(tree.scatter?.[i] ?? [], j, d);
    }
  });
  const total = tree.weight.reduce((sum, w) => sum + w, 0);
  found.delete(-1);
  for (const one of found.values()) {
    one.share = one.weight / total;
    one.deviation = one.square.map((square) => Math.sqrt(square / one.weight));
  }
  return found;
}

/** The feature whose mean moved most, and by how many standard deviations; null where that may be chance. */
export function shift(old, now) {
  let most = { j: 0, by: 0 };
  for (let j = 0; j < Math.min(old.mean.length, now.mean.length); j++) {
    const spread = Math.sqrt((old.deviation[j] ** 2 + now.deviation[j] ** 2) / 2);
    const by = spread > 0 ? (now.mean[j] - old.mean[j]) / spread : 0;
    if (Math.abs(by) > Math.abs(most.by)) most = { j, by };
  }
  const error = Math.sqrt(1 / Math.max(old.weight, 1) + 1 / Math.max(now.weight, 1));
  return Math.abs(most.by) >= Math.max(MIN_SHIFT, MIN_ERRORS * error) ? most : null;
}

const signed = (value) => `${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(1)}`;

/** What became of the clusters from one snapshot to another, in words; `features` are the names of the features. */
export function compared(before, after, features) {
  const [old, now] = [portraits(before.dendrogram), portraits(after.dendrogram)];
  const born = [...now.keys()].filter((id) => !old.has(id));
  const gone = [...old.keys()].filter((id) => !now.has(id));
  const both = [...now.keys()].filter((id) => old.has(id));
  const grown = both.map((id) => [id, 100 * (now.get(id).share - old.get(id).share)]);
  grown.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const moved = both.map((id) => [id, shift(old.get(id), now.get(id))]).filter(([, most]) => most);
  moved.sort((a, b) => Math.abs(b[1].by) - Math.abs(a[1].by));
  const told = [`Since snapshot ${before.version}, ${count(Math.abs(after.events - before.events))} events apart:`];
  told.push(born.length ? `new ${born.join(", ")};` : "no new cluster;");
  told.push(gone.length ? `gone ${gone.join(", ")};` : "none gone;");
  const ways = moved.slice(0, 3).map(([id, { j, by }]) => `${id} (${features[j] ?? j} ${signed(by)} deviations)`);
  told.push(ways.length ? `moved ${ways.join(", ")}${moved.length > 3 ? ` and ${moved.length - 3} more` : ""};` : "none moved;");
  const most = grown.slice(0, 3).map(([id, by]) => `${id} ${signed(by)}`);
  told.push(`shares that changed most, in percentage points: ${most.join(", ") || "none"}.`);
  return told.join(" ");
}
