"""Carrying a tree over to other coordinates: the same leaves, mapped, under a new tree."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.tree.arrays import EVENTS, LEAVES, Tree
from streamclust.moments import Moments, Scatter, scatter_width
from streamclust.sketch import CoordinateMap, TransformChange
from streamclust.tree import storage
from streamclust.tree.merging import grown_over

BOX_DEVIATIONS = 3.0
"""Deviations from a leaf's mean that its new box reaches, besides its sample: its other events are gone."""
SAME = ("weight", "point_weight", "key", "count", "cutoff")


def carried(
    tree: Tree,
    change: CoordinateMap | TransformChange,
    kind: Scatter,
    limit: int,
    principal: bool,
    rng: np.random.Generator,
) -> Tree:
    """A tree of the same events in other coordinates, of at most `limit` leaves; what these add is drawn by `rng`."""
    slots = np.flatnonzero((tree.node >= 0) & (tree.weight > 0))
    d = change.n_directions
    leaves = storage.empty_tree(d, scatter_width(kind, d), tree.key.shape[1], max(1, len(slots)))
    leaves.clock[:] = tree.clock
    leaves.counts[EVENTS], leaves.counts[LEAVES] = tree.counts[EVENTS], max(1, len(slots))
    rows = Moments.from_flat(tree.weight[slots], tree.mean[slots], tree.scatter[slots], kind)
    mapped, leaves.origin[:] = change.about(rows, tree.origin)
    if not len(slots):
        return leaves
    leaves.node[:] = 0  # all are leaves: `grown_over` gives them nodes
    for name in SAME:
        getattr(leaves, name)[:] = getattr(tree, name)[slots]
    leaves.mean[:] = mapped.mean
    leaves.scatter[:] = mapped.flat_scatter
    leaves.spread[:] = mapped.trace  # in one unit: `grown_over` compares features in their deviations
    leaves.points[:] = change.points(tree.points[slots], rng)
    set_boxes(leaves, mapped)
    return grown_over(leaves, limit, principal)


def set_boxes(leaves: Tree, rows: Moments) -> None:
    """Bound the events of each leaf by its sample and its deviations."""
    spread = rows.covariance
    if rows.kind == "full":
        spread = np.einsum("rii->ri", spread)
    elif rows.kind == "scalar":
        spread = spread[:, None]
    reach = BOX_DEVIATIONS * np.sqrt(np.maximum(spread, 0.0))
    mean = leaves.mean + leaves.origin
    held = (np.arange(leaves.key.shape[1]) < leaves.count[:, None])[..., None]
    leaves.lo[:] = np.minimum(mean - reach, np.where(held, leaves.points, np.inf).min(axis=1))
    leaves.hi[:] = np.maximum(mean + reach, np.where(held, leaves.points, -np.inf).max(axis=1))
