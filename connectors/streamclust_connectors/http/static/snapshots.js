// The snapshots that are kept: which to show, and what has changed between two of them.

import { dot } from "./clusters.js";
import { address, count, element, percent } from "./format.js";
import { called, nameOf } from "./names.js";

const label = ({ version, at, n_clusters: k }) =>
  `${version}: ${new Date(1000 * at).toLocaleTimeString()}, ${count(k)} cluster${k === 1 ? "" : "s"}`;

/** Offer the kept snapshots, the latest first; keeps what is chosen. */
export function offerSnapshots(select, kept, chosen, none) {
  const options = kept.toReversed().map((each) => new Option(label(each), each.version));
  if (none) options.unshift(new Option(none, ""));
  select.replaceChildren(...options);
  select.value = chosen ?? "";
}

/** Where the service tells what changed between two snapshots, whichever was taken first. */
export const changesOf = (one, other) => `snapshots/${Math.max(one, other)}/changes?since=${Math.min(one, other)}`;

/** A row for each cluster that changed from one snapshot to the next, and how many did not. */
export function showChanged(box, found) {
  box.hidden = !found;
  if (!found) return;
  const { since, until, clusters } = found;
  const changed = clusters.filter(({ kinds }) => !kinds.includes("same"));
  const rest = clusters.length - changed.length;
  const same = changed.length ? `${count(rest)} other${rest === 1 ? "" : "s"} did not change` : "no cluster changed";
  box.querySelector("p").textContent = `From snapshot ${since.version} to ${until.version}, ` +
    `${count(until.events - since.events)} events later${rest || !changed.length ? `: ${same}` : ""}.`;
  box.querySelector("table").hidden = !changed.length;
  box.querySelector("tbody").replaceChildren(...changed.map(changedRow));
}

function changedRow({ before, now, name, share_before: then, share_now: share, words }) {
  const id = now ?? before;
  const link = element("a", { href: address(id) }, dot(id), called(id, nameOf(id) || (name ?? "")));
  return element("tr", {},
    element("td", {}, link),
    element("td", {}, before === null ? "–" : percent(then)),
    element("td", {}, now === null ? "–" : percent(share)),
    element("td", {}, words));
}
