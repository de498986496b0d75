"""A tree to read without outliers: single events, far from all others, that would decide the scale of a feature."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.moments import group_rows
from streamclust._kernels.tree.arrays import Tree, empty_leaf, sample_masses
from streamclust._kernels.types import Bools, Ints
from streamclust.tree.units import near_leaves
from streamclust.utils.outliers import outlying


def outliers(tree: Tree, slots: Ints) -> Bools:
    """(leaves, leaf size): which sampled events of these leaves are outliers."""
    held = np.arange(tree.key.shape[1]) < tree.count[slots][:, None]
    found = np.zeros(held.shape, dtype=bool)
    found[held] = outlying(tree.points[slots][held], sample_masses(tree, slots)[held])
    return found


def trim(tree: Tree, slots: Ints, found: Bools) -> None:
    """Take outliers out of the leaves in these slots.

    A leaf that held others too, or that reaches far out though no sampled event is there, gets the moments of those
    sampled events that stay.
    """
    held = np.arange(tree.key.shape[1]) < tree.count[slots][:, None]
    kept = held & ~found
    touched = found.any(axis=1)
    blurred = ~near_leaves(tree, slots).all(axis=1) & ~touched
    mass = sample_masses(tree, slots)
    for i in np.flatnonzero(touched | blurred):
        slot, mine = slots[i], kept[i]
        n = int(mine.sum())
        if n == 0 or not mass[i, mine].sum() > 0.0:
            tree.mean[slot] = 0.0
            empty_leaf(tree, slot)
            continue
        for values in (tree.points, tree.point_weight, tree.key):
            values[slot, :n] = values[slot, mine]
        tree.count[slot] = n
        points = tree.points[slot, :n]
        weight, mean, scatter = group_rows(
            mass[i, mine],
            points - tree.origin,
            np.zeros((n, 0)),
            np.zeros(n, dtype=np.int64),
            1,
            tree.scatter.shape[1],
        )
        tree.weight[slot], tree.mean[slot], tree.scatter[slot] = weight[0], mean[0], scatter[0]
        gaps = (points - tree.origin - mean[0]) * tree.inverse
        tree.spread[slot] = mass[i, mine] @ (gaps**2).sum(axis=1)
        tree.lo[slot], tree.hi[slot] = points.min(axis=0), points.max(axis=0)
