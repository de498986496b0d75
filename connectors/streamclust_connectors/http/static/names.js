// Names that people gave to clusters; they stand beside the ids everywhere.

import { literal } from "./format.js";

const MOST = 22; // characters of a name in a picture
let names = new Map();

/** The names of the clusters that there are now. */
export function keepNames(clusters) {
  names = new Map(clusters.filter((c) => c.name).map((c) => [c.id, c.name]));
}

export const nameOf = (id) => names.get(id) ?? "";

/** The id of a cluster and its name, as text. */
export const called = (id, name = nameOf(id)) => (name ? `${id} ${name}` : String(id));

/** The same for a picture: long names are cut, and tags are none. */
export function written(id) {
  const name = nameOf(id);
  return literal(called(id, name.length > MOST ? `${name.slice(0, MOST - 1)}…` : name));
}
