"""ME iterations through an exact tree of the points: whole nodes find their cluster at once [BKM section 9.1]."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from streamclust._kernels.types import Ints
from streamclust.families.cost_form import CostForm
from streamclust.moments import Moments, Scatter
from streamclust.tree import SummaryTree
from streamclust.tree.descent import Ownership, own

Assign = Literal["auto", "tree", "blas"]
"""How ME iterations find the cheapest cluster of each point: by descents of an exact tree, or all costs in blocks.

"auto" computes all costs. By benchmarks/bkm_speedup.py a tree, its building included, makes whole fits about twice as
fast for 20,000 points in the plane, pays there at 5,000, not at 1,000, and is about even for 20,000 at D = 3.
"""


def check_assign(assign: str) -> None:
    """Raise ValueError for a way of assigning there is not."""
    if assign not in get_args(Assign):
        raise ValueError(f"assign must be one of {', '.join(get_args(Assign))}, got {assign!r}")


class RowTree:
    """Weighted points in an exact kd-tree, built once for many ME iterations.

    >>> from streamclust.families.cost_form import Quadratic
    >>> tree = RowTree(Moments.rows_of_points([[5.0], [0.0], [1.0], [5.0]]), "full")
    >>> form = Quadratic(np.array([[0.0], [4.0]]), np.ones((2, 1, 1)), np.zeros(2))
    >>> tree.labels(tree.descend(form), before=np.zeros(4, dtype=np.int64))
    array([1, 0, 0, 1])
    """

    def __init__(self, rows: Moments, scatter: Scatter) -> None:
        self.n_descents = 0
        """How often the tree was descended."""
        self._rows = np.flatnonzero(rows.weight > 0)
        points, weight = rows.mean[self._rows], rows.weight[self._rows]
        # Equal points are inserted once: an exact tree keeps no more than a sample of many at the same place.
        order = np.lexsort(points.T[::-1])
        new = np.ones(len(points), dtype=bool)
        new[1:] = np.any(points[order[1:]] != points[order[:-1]], axis=1)
        place = np.empty(len(points), dtype=np.int64)
        place[order] = np.cumsum(new) - 1
        first = np.sort(order[new])
        self._tree = SummaryTree(rows.n_features, scatter, max_leaves=None, split="widest")
        self._tree.insert(points[first], np.bincount(place, weight)[place[first]])
        self._sampled = np.lexsort(self._tree.sample()[0].T[::-1])[place]
        """Where each point stands in the tree's sample."""

    def descend(self, form: CostForm) -> Ownership:
        """Every point to the cluster of least cost, the first of equals, whole nodes at a time."""
        self.n_descents += 1
        return own(self._tree, form)

    def labels(self, ownership: Ownership, before: Ints) -> Ints:
        """The cluster of each row; rows of weight 0 stay where they were `before`."""
        labels = before.copy()
        labels[self._rows] = ownership.labels[self._sampled]
        return labels
