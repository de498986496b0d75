"""A tree laid out for descents: nodes depth first, and the sampled points leaf by leaf in the same order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamclust._kernels.tree.arrays import sample_masses
from streamclust._kernels.tree.descent import lay_out
from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments, Scatter
from streamclust.tree.nodes import NodeRows
from streamclust.tree.summary import SummaryTree


class Layout(NamedTuple):
    """A copy of the data that descents read, independent of later inserts.

    A node's left child follows it, the right one comes `after` the left. The sampled points below a node are
    those from its `first` to the `first` of the node that comes after.
    """

    node: Ints
    """The nodes' numbers in the tree."""
    after: Ints
    first: Ints
    box: Floats
    """(nodes, 2, D): centres and half-widths."""
    depth: int
    weight: Floats
    mean: Floats
    """Relative to the origin, like all means of the tree."""
    scatter: Floats
    points: Floats
    mass: Floats
    place: Ints
    """Where each point stands in the tree's table of samples."""
    origin: Floats
    present: float
    """Factor from forward-decay units to present weights."""
    kind: Scatter

    def moments(self, positions: Ints) -> Moments:
        """One row for each node, in units of forward decay."""
        rows = (self.weight[positions], self.mean[positions] + self.origin, self.scatter[positions])
        return Moments.from_flat(*rows, self.kind)

    def in_sample_order(self, values: Ints) -> Ints:
        """Values of the points, none below 0, in the order of `tree.sample()`."""
        table = np.full(self.place.max(initial=-1) + 1, -1, dtype=np.int64)
        table[self.place] = values
        return table[table >= 0]


def layout(tree: SummaryTree) -> Layout:
    """The tree's layout, worked out when first asked for after an insert."""
    kept: tuple[NodeRows, Layout] | None = tree.__dict__.get("_layout")
    sums = tree._sums
    if kept is not None and kept[0] is sums:  # an insert leaves the tree with new sums
        return kept[1]
    arrays = tree._tree
    n_nodes, n_points, d = 2 * tree.n_leaves - 1, int(arrays.count[arrays.node >= 0].sum()), tree.n_features
    mass = sample_masses(arrays, np.arange(len(arrays.node)))
    node, after = np.empty(n_nodes, dtype=np.int64), np.empty(n_nodes, dtype=np.int64)
    first, box = np.empty(n_nodes + 1, dtype=np.int64), np.empty((n_nodes, 2, d))
    points, point_mass = np.empty((n_points, d)), np.empty(n_points)
    place = np.empty(n_points, dtype=np.int64)
    _, n, depth = lay_out(
        arrays.child, arrays.count, mass * tree._present > 0, arrays.points, mass, sums.lo, sums.hi,
        node, after, first, box, points, point_mass, place,
    )  # fmt: skip
    laid_out = Layout(
        node, after, first, box, depth, sums.weight[node], sums.mean[node], sums.scatter[node],
        points[:n], point_mass[:n], place[:n], arrays.origin.copy(), tree._present, tree.scatter,
    )  # fmt: skip
    tree.__dict__["_layout"] = (sums, laid_out)
    return laid_out
