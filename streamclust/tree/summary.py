"""SummaryTree: a bounded tree of sufficient statistics over a stream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamclust._kernels.tree.arrays import DEEP, EVENTS, FREE_SLOTS, LANDMARK, NOW, move_landmark
from streamclust._kernels.tree.learn import HORIZON, PERIOD, UNLIMITED, insert_rows, rescales
from streamclust._kernels.tree.swap import SWAPS, swap_leaves
from streamclust._kernels.types import Floats
from streamclust.moments import Scatter, scatter_width
from streamclust.sketch import CoordinateMap, TransformChange
from streamclust.tree import storage
from streamclust.tree.balance import balance, rebalance
from streamclust.tree.coordinate_change import carried
from streamclust.tree.merging import aligned, of_all_events, of_all_leaves
from streamclust.tree.packed_arrays import packed, unpacked
from streamclust.tree.reading import TreeReading
from streamclust.tree.rows import check_positive, check_rows, check_values, whole_number
from streamclust.tree.trimming import outliers, trim
from streamclust.tree.units import rescaled, set_deviations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Split = Literal["principal", "widest"]


def generator(seed: int, draws: int = 0) -> np.random.Generator:
    """Random generator of a tree, advanced by `draws` numbers.

    Not those of `default_rng(seed)`: events drawn from that, with the same seed, would choose their own keys.
    """
    entropy = np.random.SeedSequence([seed, *b"summary tree"])
    return np.random.Generator(np.random.PCG64(entropy).advance(draws))


class SummaryTree(TreeReading):
    """A binary tree over events, of bounded size, that loses none of their weight, mean or scatter.

    Each leaf keeps the moments and the box of its own events and a small uniform sample of them: all of them
    at first. A full tree follows the stream by dissolving the leaves that matter least and splitting those
    that gain most.

    Parameters
    ----------
    n_features
        D, the number of columns.
    scatter
        Second moments to keep: "full", "diagonal", "scalar" or "none", as the family needs.
    max_leaves
        The bound on the number of leaves. None keeps every event in the leaves (exact mode).
    split
        "principal": through the mean, across the principal direction. "widest": by the middle of the box's
        widest side.
    half_life
        Events after which an event's weight halves, or time if `insert` is given times. None never
        forgets.
    seed
        Of the leaf samples. Give trees that will be merged different seeds.
    leaf_size
        Number of events in a leaf's sample.

    Examples
    --------
    >>> import numpy as np
    >>> events = np.random.default_rng(1).normal(size=(10_000, 2))
    >>> tree = SummaryTree(n_features=2, max_leaves=64)
    >>> tree.insert(events)
    >>> tree
    SummaryTree(10000 events in 64 of at most 64 leaves, 2 features, full scatter)
    >>> bool(np.allclose(tree.total.mean, events.mean(axis=0)))
    True
    >>> points, weights = tree.sample()
    >>> float(round(weights.sum(), 6))
    10000.0
    >>> len(tree.moments(tree.cut(budget=10)))
    10
    """

    def __init__(
        self,
        n_features: int,
        scatter: Scatter = "full",
        max_leaves: int | None = 512,
        split: Split = "principal",
        half_life: float | None = None,
        seed: int = 0,
        leaf_size: int = 16,
    ) -> None:
        n_features = whole_number("n_features", n_features, least=1)
        max_leaves = None if max_leaves is None else whole_number("max_leaves", max_leaves, least=1)
        leaf_size = whole_number("leaf_size", leaf_size, least=2)
        if half_life is not None:
            check_positive("half_life", half_life, "; use None to never forget")
        if split not in ("principal", "widest"):
            raise ValueError(f"split must be 'principal' or 'widest', got {split!r}")
        self.n_features = n_features
        self.scatter: Scatter = scatter
        self.max_leaves = max_leaves
        self.split: Split = split
        self.half_life = None if half_life is None else float(half_life)
        self.seed = whole_number("seed", seed, least=0)
        self.leaf_size = leaf_size
        self._limit = UNLIMITED if max_leaves is None else max_leaves
        width = scatter_width(scatter, n_features)
        capacity = min(self._limit, storage.FIRST_CAPACITY)
        self._tree = storage.empty_tree(n_features, width, leaf_size, capacity)
        self.worth = math.inf
        self.n_independent = math.inf
        """Number of independent events that those learnt are worth, if that is known: fewer, where they depend."""
        """Effective number of events behind its weights; infinite unless the tree was reweighted."""
        self._timed: bool | None = None
        self._draws = 0
        self._generator = generator(self.seed)

    @property
    def sample_capacity(self) -> int:
        """How many events its sample can hold."""
        return self._limit * self.leaf_size

    # ---------------------------------------------------------------- learning

    def insert(self, rows: ArrayLike, weight: ArrayLike | None = None, time: ArrayLike | None = None) -> None:
        """Learn rows of numbers, each with a weight (1) and, where forgetting goes by event time, a time.

        All rows are learnt or, if one of them is refused, none. Rows of weight 0 change nothing. A late
        event, of a time before the latest one seen, gets the weight it would have by now.
        """
        self.insert_checked(*check_rows(self.n_features, rows, weight, time))

    def insert_checked(self, x: Floats, w: Floats, t: Floats) -> None:
        """Learn rows, weights and times that `check_rows` has passed; no weights or no times is an empty array."""
        if len(x) == 0:
            return
        self._check_clock(len(t) > 0)
        tree = self._tree
        if self.n_events == 0:
            tree.origin[:] = x[0]
            tree.clock[:] = t[0] if len(t) else 0.0
        self._timed = len(t) > 0
        uniforms = self._generator.random(len(x))
        self._draws += len(x)
        half_life, principal = self.half_life or np.inf, self.split == "principal"
        measured = tree.scatter.shape[1] > 0
        done = 0
        while done < len(x):
            before = done
            self._keep_landmark(t[done] if len(t) else None)
            done = insert_rows(tree, x, w, t, uniforms, done, half_life, self._limit, principal, measured)
            events = int(tree.counts[EVENTS])
            if measured and done > before and rescales(events):
                tree = self._tree = rescaled(tree, self._limit, principal)
            if done > before and events % PERIOD == 0 and self.max_leaves is not None:
                if measured and not tree.inverse.all():
                    set_deviations(tree, tree.node >= 0, only_new=True)
                swap_leaves(tree, self.max_leaves, principal, SWAPS)
            if tree.counts[DEEP] >= 0:
                rebalance(tree)
            if tree.counts[FREE_SLOTS] == 0 and self.n_leaves < self._limit:
                tree = self._tree = storage.grow(tree, self._limit)
        self._forget_sums()

    def _keep_landmark(self, time: float | None) -> None:
        """Move the landmark of forward decay if the next event, of that time, lies too far from it."""
        if self.half_life is not None:
            clock = self._tree.clock
            now = max(clock[NOW], clock[NOW] + 1.0 if time is None else time)
            if (now - clock[LANDMARK]) / self.half_life > HORIZON:
                move_landmark(self._tree, self.half_life, now)

    def merge(self, *others: SummaryTree) -> None:
        """Learn everything other trees have learnt. Totals are exact, whatever the order of merging.

        Several at once make a better tree than one after the other, in less time. By event time, all trees keep their
        clocks; by event count, all are taken to be at the present.
        """
        for i, other in enumerate(others):
            self._check_mergeable(other, others[:i])
        learnt = [tree for tree in (self, *others) if tree.n_events]
        if learnt in ([], [self]):
            return
        self._timed = learnt[0]._timed
        parts = aligned([tree._tree for tree in learnt], self.half_life, bool(self._timed))
        if self.max_leaves is None:
            self._tree = of_all_events(parts, self.split == "principal")
        else:
            self._tree = of_all_leaves(parts, self.max_leaves, self.split == "principal")
        self._forget_sums()

    def raise_max_leaves(self, max_leaves: int) -> None:
        """Allow more leaves than until now; a full tree splits those that gain most until it has as many.

        The sample does not grow at once: new leaves share the samples of those they were split from, and fill up as
        the stream goes on.

        >>> tree = SummaryTree(n_features=2, max_leaves=64)
        >>> tree.insert(np.random.default_rng(1).normal(size=(10_000, 2)))
        >>> tree.raise_max_leaves(128)
        >>> tree
        SummaryTree(10000 events in 128 of at most 128 leaves, 2 features, full scatter)
        """
        if self.max_leaves is None or max_leaves <= self.max_leaves:
            return
        full = self.n_leaves >= self.max_leaves
        self.max_leaves = self._limit = max_leaves
        if full:
            while len(self._tree.node) < max_leaves:
                self._tree = storage.grow(self._tree, max_leaves)
            swap_leaves(self._tree, max_leaves, self.split == "principal", max_leaves - self.n_leaves)
            balance(self._tree)
            self._forget_sums()

    def relearnt(self, rows: Floats, weight: Floats) -> SummaryTree:
        """A tree of its own, with the same parameters, room and clock, that has learnt these checked rows instead."""
        twin = SummaryTree(
            self.n_features,
            self.scatter,
            self.max_leaves,
            self.split,
            self.half_life,
            self.seed,
            self.leaf_size,
        )
        twin.insert_checked(rows, weight, np.empty(0))
        twin._timed = self._timed
        twin._tree.clock[:] = self._tree.clock
        return twin

    def copy(self) -> SummaryTree:
        """A tree of its own with the same state: both continue alike, bit for bit."""
        twin = copy(self)
        twin._tree = storage.copy(self._tree)
        twin._generator = generator(self.seed, self._draws)
        twin._forget_sums()
        return twin

    def widen(self, values: ArrayLike) -> None:
        """Add features, one for each value, that no event so far had: all of them count as having that value."""
        column = check_values(values)
        self._tree = storage.widen(
            self._tree, column, scatter_width(self.scatter, self.n_features + len(column))
        )
        self.n_features += len(column)
        self._forget_sums()

    def narrowed(self, n_features: int) -> SummaryTree:
        """A tree of its own with the first features alone: no event has anything but 0 in the others."""
        twin = self.copy()
        twin._tree = storage.narrow(self._tree, n_features, scatter_width(self.scatter, n_features))
        twin.n_features = n_features
        return twin

    def carried(self, change: CoordinateMap | TransformChange) -> SummaryTree:
        """A tree of its own of the same events in other coordinates: what it keeps is mapped, and grouped anew.

        Its totals are the mapped totals; sampled events have what the old coordinates left out of them drawn at random.
        """
        twin = self.copy()
        twin.n_features = change.n_directions
        rng = generator(self.seed, self._draws + self.n_events)
        limit = max(self.n_leaves, 1) if self.max_leaves is None else self.max_leaves
        twin._tree = carried(self._tree, change, self.scatter, limit, self.split == "principal", rng)
        return twin

    def reorder(self, columns: ArrayLike) -> None:
        """Put the features in another order: the new feature j is the old one of number columns[j].

        >>> tree = SummaryTree(n_features=2)
        >>> tree.insert([[1.0, 20.0], [3.0, 40.0]])
        >>> tree.reorder([1, 0])
        >>> tree.total.mean
        array([[30.,  2.]])
        """
        order = np.asarray(columns, dtype=np.int64)
        if sorted(order.tolist()) != list(range(self.n_features)):
            raise ValueError(f"columns must be an order of {self.n_features} features, got {columns!r}")
        self._tree = storage.reorder(self._tree, order)
        self._forget_sums()

    def reweighted(self, factor: Floats, worth: float = math.inf) -> SummaryTree:
        """A tree to read, never to insert into, in which leaf i of `leaves()` weighs factor[i] times as much.

        `worth`: how many events the factors were estimated from; its sample tells no more than those.
        """
        twin = self.copy()
        twin.worth = min(self.worth, worth)
        twin.n_independent = self.n_independent
        slots, tree = self._live_slots(), twin._tree
        for values in (tree.weight, tree.spread, tree.scatter):
            values[slots] *= factor.reshape(-1, *[1] * (values.ndim - 1))
        return twin

    def without_outliers(self) -> SummaryTree:
        """A tree to read, never to insert into, without the events far from all others; itself where there are none.

        >>> tree = SummaryTree(n_features=1)
        >>> tree.insert([*([x] for x in range(100)), [1e9]])
        >>> tree.without_outliers().total.mean
        array([[49.5]])
        """
        slots = self._live_slots()
        found = outliers(self._tree, slots)
        if not found.any():
            return self
        twin = self.copy()
        trim(twin._tree, slots, found)
        return twin

    def capped(self, weight: float) -> SummaryTree:
        """A tree to read, never to insert into, in which no event weighs more than that at present; or itself."""
        slots, most = self._live_slots(), weight / self._present
        held = np.arange(self.leaf_size) < self._tree.count[slots][:, None]
        excess = np.where(held, np.maximum(self._tree.point_weight[slots] - most, 0.0), 0.0)
        if not excess.any():
            return self
        twin = self.copy()
        tree = twin._tree
        tree.point_weight[slots] = np.where(excess > 0.0, most, tree.point_weight[slots])
        # a leaf weighs at least what its sampled events do
        least = np.where(held, tree.point_weight[slots], 0.0).sum(axis=1)
        factor = np.maximum(tree.weight[slots] - excess.sum(axis=1), least) / tree.weight[slots]
        for values in (tree.weight, tree.spread, tree.scatter):
            values[slots] *= factor.reshape(-1, *[1] * (values.ndim - 1))
        return twin

    def redate(self, by: float) -> None:
        """Move the clock, and all that was learnt with it, by so much time: weights stay as they are now."""
        self._tree.clock[:] += by

    def fill(self, row: ArrayLike) -> Floats:
        """The row with each missing value (NaN) taken from the leaf that is nearest in the features it has."""
        filled = np.array(row, dtype=float)
        known = ~np.isnan(filled)
        if filled.shape != (self.n_features,) or not known.any():
            raise ValueError(
                f"a row to fill has {self.n_features} values, not all of them missing, got {row!r}"
            )
        slots = self._live_slots()
        if not len(slots):
            raise ValueError("a tree without events knows no value to fill in")
        means = self._tree.mean[slots]
        gaps = (means - (filled - self._tree.origin))[:, known] * self._tree.inverse[known]
        nearest = np.einsum("ri,ri->r", gaps, gaps).argmin()
        filled[~known] = (means[nearest] + self._tree.origin)[~known]
        return filled

    # ---------------------------------------------------------------- saving

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The whole state as arrays, without pickles; `from_arrays` continues bit for bit."""
        return packed(
            self._tree,
            {
                "scatter": self.scatter,
                "max_leaves": self.max_leaves,
                "split": self.split,
                "half_life": self.half_life,
                "seed": self.seed,
                "timed": None if self._timed is None else int(self._timed),
                "draws": self._draws,
            },
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SummaryTree:
        """The tree that `to_arrays` was called on."""
        kept, settings = unpacked(arrays)
        timed, draws = settings.pop("timed"), settings.pop("draws")
        try:
            tree = cls(n_features=len(kept.origin), leaf_size=kept.key.shape[1], **settings)
        except ValueError as wrong:
            raise ValueError(f"not a summary tree: {wrong}") from None
        if tree.max_leaves is not None and len(kept.node) > tree.max_leaves:
            raise ValueError(f"not a summary tree: its arrays hold more than {tree.max_leaves} leaves")
        if kept.scatter.shape[1] != tree._tree.scatter.shape[1]:
            raise ValueError(f"not a summary tree: its arrays do not hold a {tree.scatter} scatter")
        tree._tree, tree._timed, tree._draws = kept, timed, draws
        tree._generator = generator(tree.seed, draws)
        return tree

    # ---------------------------------------------------------------- for people

    def plot(self, **options: Any) -> Axes:
        """The leaves over two features: see `streamclust.plots.plot_tree`."""
        from streamclust.plots import plot_tree

        return plot_tree(self, **options)

    # ---------------------------------------------------------------- refusing

    def _check_clock(self, timed: bool) -> None:
        if timed and self.half_life is None:
            raise ValueError("times only matter to a tree that forgets: give it a half_life")
        if self.half_life is not None and self._timed is not None and timed != self._timed:
            kind = "event times" if self._timed else "event counts"
            raise ValueError(f"this tree forgets by {kind}: give every batch a time, or none")

    def _check_mergeable(self, other: SummaryTree, before: Sequence[SummaryTree]) -> None:
        if not isinstance(other, SummaryTree):
            raise ValueError(f"only a SummaryTree can be merged, got {type(other).__name__}")
        for what in ("n_features", "scatter", "half_life", "leaf_size"):
            if getattr(self, what) != getattr(other, what):
                both = f"{getattr(self, what)} and {getattr(other, what)}"
                raise ValueError(f"cannot merge trees of different {what}: {both}")
        if None not in (self._timed, other._timed) and self._timed != other._timed:
            raise ValueError("cannot merge a tree that forgets by event times with one that counts events")
        if other is self:
            raise ValueError("cannot merge a tree with itself: its events would count twice")
        if any(other is tree for tree in before):
            raise ValueError("cannot merge the same tree twice: its events would count twice")
        if self.max_leaves is None and np.any(np.isfinite(other._tree.cutoff[other._tree.node >= 0])):
            raise ValueError(
                "an exact tree (max_leaves=None) cannot take a tree that has let events go; "
                "merge the other way"
            )
