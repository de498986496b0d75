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

/** Share of each published cluster of a snapshot, by id. */
function shares({ children, weight, ids }) {
  const n = weight.length;
  const mass = [...weight];
  for (const [a, b] of children) mass.push(mass[a] + mass[b]);
  const total = mass[2 * n - 2];
  const found = new Map();
  ids.forEach((id, node) => {
    if (id >= 0) found.set(id, Math.max(found.get(id) ?? 0, mass[node] / total));
  });
  return found;
}

/** What became of the clusters from one snapshot to another, in words. */
export function compared(before, after) {
  const [old, now] = [shares(before.dendrogram), shares(after.dendrogram)];
  const born = [...now.keys()].filter((id) => !old.has(id));
  const gone = [...old.keys()].filter((id) => !now.has(id));
  const moved = [...now.keys()].filter((id) => old.has(id)).map((id) => [id, 100 * (now.get(id) - old.get(id))]);
  moved.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const told = [`Since snapshot ${before.version}, ${count(Math.abs(after.events - before.events))} events apart:`];
  told.push(born.length ? `new ${born.join(", ")};` : "no new cluster;");
  told.push(gone.length ? `gone ${gone.join(", ")};` : "none gone;");
  const most = moved.slice(0, 3).map(([id, by]) => `${id} ${by >= 0 ? "+" : "−"}${Math.abs(by).toFixed(1)}`);
  told.push(`shares that moved most, in percentage points: ${most.join(", ") || "none"}.`);
  return told.join(" ");
}
