"""Reading a summary tree: totals, leaves, samples, and cuts through its nodes."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.tree.arrays import (
    EVENTS,
    LANDMARK,
    LEAVES,
    NOW,
    Tree,
    descend_rows,
    sample_masses,
)
from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments, Scatter
from streamclust.tree import storage
from streamclust.tree.nodes import NodeRows, cut_at, cut_by_spread, cut_within, node_rows, refined
from streamclust.tree.rows import check_rows


class TreeReading:
    """The part of `SummaryTree` that changes nothing."""

    n_features: int
    scatter: Scatter
    max_leaves: int | None
    half_life: float | None
    leaf_size: int
    _tree: Tree
    _timed: bool | None

    @property
    def n_events(self) -> int:
        """How many events were learnt."""
        return int(self._tree.counts[EVENTS])

    @property
    def timed(self) -> bool:
        """Whether events came with times."""
        return bool(self._timed)

    @property
    def n_leaves(self) -> int:
        """How many leaves there are now."""
        return int(self._tree.counts[LEAVES])

    @property
    def weight(self) -> float:
        """The weight of everything learnt (decayed to the present where the tree forgets)."""
        return float(self._tree.weight[self._live_slots()].sum() * self._present)

    @property
    def total(self) -> Moments:
        """One row: the moments of everything learnt (decayed to the present where the tree forgets)."""
        return self.moments(np.zeros(1, dtype=np.int64))

    def leaves(self) -> Moments:
        """One row for each leaf that has any weight."""
        slots = self._live_slots()
        tree = self._tree
        rows = Moments.from_flat(tree.weight[slots], tree.mean[slots], tree.scatter[slots], self.scatter)
        return rows.scale(self._present).shift(tree.origin)

    def leaf_weights(self) -> Floats:
        """The weight of each leaf that has any, in the order of `leaves()`."""
        return np.asarray(self._tree.weight[self._live_slots()] * self._present)

    def sample(self) -> tuple[Floats, Floats]:
        """The stratified sample: points (rows, D), and the weight that each stands for.

        Within a leaf the sample is uniform (in proportion to weight); the weights of a leaf's points add up
        to the leaf's. In exact mode it is every event.
        """
        slots = self._live_slots()
        tree = self._tree
        points, counts = tree.points[slots], tree.count[slots]
        mass = sample_masses(tree, slots) * self._present
        taken = (np.arange(tree.key.shape[1]) < counts[:, None]) & (mass > 0)
        return points[taken], mass[taken]

    def sample_size(self) -> float:
        """How many events drawn one by one would tell as much as the sample does [Kish].

        A leaf whose events are all equal is known whole: it tells as much as all of its events.
        """
        tree, slots = self._tree, self._live_slots()
        taken = np.arange(tree.key.shape[1]) < tree.count[slots][:, None]
        mass = np.where(taken, sample_masses(tree, slots) * self._present, 0.0)
        weight, squares = mass.sum(axis=1), (mass**2).sum(axis=1)
        equal = np.all(tree.lo[slots] == tree.hi[slots], axis=1)
        squares = np.where(equal, np.minimum(squares, weight), squares)
        return float(weight.sum() ** 2 / squares.sum())

    def shares(self, rows: ArrayLike, weight: ArrayLike | None = None) -> Floats:
        """How much of the rows' weight falls into the cell of each leaf, in the order of `leaves()`; sums to 1 or less.

        A row can fall to a leaf that has lost all its weight: that is in no share.
        """
        x, w, _ = check_rows(self.n_features, rows, weight, None)
        w = w if len(w) else np.ones(len(x))
        tree = self._tree
        slots = np.empty(len(x), dtype=np.int64)
        descend_rows(tree.child, tree.axis, tree.direction, tree.threshold, x - tree.origin, len(x), slots)
        return np.asarray(np.bincount(slots, w, len(tree.node))[self._live_slots()] / w.sum())

    # ---------------------------------------------------------------- cuts

    def cut(
        self, *, level: int | None = None, budget: int | None = None, tolerance: float | None = None
    ) -> Ints:
        """Nodes that together hold every event once: the partition that refits read.

        level: the nodes at that depth, and leaves above it. budget: at most that many nodes, the ones of
        largest spread opened first. tolerance: opened until no node but leaves has more than this fraction
        of the whole's spread. Nodes are valid until the next insert; `moments` and `boxes` read them,
        `refine` opens them.
        """
        if sum(rule is not None for rule in (level, budget, tolerance)) != 1:
            raise ValueError("give exactly one of level, budget and tolerance")
        child = self._tree.child
        if level is not None:
            return cut_at(child, level)
        if tolerance is not None:
            return cut_by_spread(child, self._sums.spread, tolerance)
        assert budget is not None
        return cut_within(child, self._sums.spread, budget)

    def refine(self, cut: Ints, nodes: Ints) -> Ints:
        """The cut with the given nodes replaced by their children, in place; leaves stay."""
        return refined(self._tree.child, cut, nodes)

    def moments(self, nodes: Ints) -> Moments:
        """One row for each node."""
        rows = self._sums
        moments = Moments.from_flat(rows.weight[nodes], rows.mean[nodes], rows.scatter[nodes], self.scatter)
        return moments.scale(self._present).shift(self._tree.origin)

    def boxes(self, nodes: Ints) -> tuple[Floats, Floats]:
        """Lower and upper corners of each node's box, the bounds of its events."""
        return self._sums.lo[nodes], self._sums.hi[nodes]

    @cached_property
    def _sums(self) -> NodeRows:
        """Every node's moments, worked out when first asked for after an insert."""
        return node_rows(self._tree)

    def _forget_sums(self) -> None:
        self.__dict__.pop("_sums", None)

    @property
    def _present(self) -> float:
        """Factor from forward-decay units to present weights: the latest event counts 1."""
        if self.half_life is None:
            return 1.0
        return math.exp2(-(self._tree.clock[NOW] - self._tree.clock[LANDMARK]) / self.half_life)

    def _live_slots(self) -> Ints:
        return np.flatnonzero((self._tree.node >= 0) & (self._tree.weight * self._present > 0))

    @property
    def leaf_bytes(self) -> int:
        """About how much memory a leaf takes."""
        return storage.leaf_bytes(self.n_features, self._tree.scatter.shape[1], self.leaf_size)

    # ---------------------------------------------------------------- for people

    def __repr__(self) -> str:
        bound = "unlimited" if self.max_leaves is None else f"at most {self.max_leaves}"
        memory = "" if self.half_life is None else f", half-life {self.half_life:g}"
        return (
            f"SummaryTree({self.n_events} events in {self.n_leaves} of {bound} leaves, "
            f"{self.n_features} features, {self.scatter} scatter{memory})"
        )
