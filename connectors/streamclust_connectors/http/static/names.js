// Names that people gave to clusters; they stand beside the ids everywhere.

import { literal } from "./format.js";

const PIXELS = 22; // of the width of a picture for a character of a name
let names = new Map();

/** The names of the clusters that there are now. */
export function keepNames(clusters) {
  names = new Map(clusters.filter((c) => c.name).map((c) => [c.id, c.name]));
}

export const nameOf = (id) => names.get(id) ?? "";

/** The id of a cluster and its name, as text. */
export const called = (id, name = nameOf(id)) => (name ? `${id} ${name}` : String(id));

/** The same for a picture of this width: long names are cut, and tags are none. */
export function written(id, width, name = nameOf(id)) {
  const most = Math.max(6, Math.floor(width / PIXELS));
  return literal(called(id, name.length > most ? `${name.slice(0, most - 1)}…` : name));
}
