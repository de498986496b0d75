"""SummaryTree: a bounded tree of sufficient statistics over a stream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamclust._kernels.tree import (
    DEEP,
    EVENTS,
    FREE_SLOTS,
    LANDMARK,
    LEAVES,
    NOW,
    descend_rows,
    sample_masses,
)
from streamclust._kernels.tree_learn import PERIOD, insert_rows, sum_nodes
from streamclust._kernels.tree_swap import SWAPS, swap_leaves
from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments, Scatter, scatter_width
from streamclust.tree import storage
from streamclust.tree.balance import rebalance
from streamclust.tree.merging import UNLIMITED, aligned, of_all_events, of_all_leaves
from streamclust.tree.rows import (
    check_links,
    check_positive,
    check_rows,
    check_shapes,
    check_values,
    whole_number,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Split = Literal["principal", "widest"]


def generator(seed: int, draws: int = 0) -> np.random.Generator:
    """The random numbers of a tree, after so many of them.

    Not those of `default_rng(seed)`: events drawn from that, with the same seed, would choose their own keys.
    """
    entropy = np.random.SeedSequence([seed, *b"summary tree"])
    return np.random.Generator(np.random.PCG64(entropy).advance(draws))


class NodeRows(NamedTuple):
    """Moments and boxes of every node, relative to the tree's origin and in forward-decay units."""

    weight: Floats
    mean: Floats
    scatter: Floats
    spread: Floats
    lo: Floats
    hi: Floats


class SummaryTree:
    """A binary tree over events, of bounded size, that loses none of their weight, mean or scatter.

    Each leaf keeps the moments and the box of its own events and a small uniform sample of them: all of them
    at first. A full tree follows the stream by dissolving the leaves that matter least and splitting those
    that gain most.

    Parameters
    ----------
    n_features
        D, the number of columns.
    scatter
        What second moments to keep: "full", "diagonal", "scalar" or "none", as the family needs.
    max_leaves
        The bound on the number of leaves. None keeps every event in the leaves (exact mode).
    split
        "principal": through the mean, across the principal direction. "widest": by the middle of the box's
        widest side.
    half_life
        An event's weight halves after so many events, or so much time if `insert` is given times. None never
        forgets.
    seed
        Of the leaf samples. Give trees that will be merged different seeds.
    leaf_size
        How many events a leaf's sample holds.

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
        """How many events its weights are worth at most: all, unless it was reweighted."""
        self._timed: bool | None = None
        self._draws = 0
        self._generator = generator(self.seed)

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
        done = 0
        while done < len(x):
            before = done
            done = insert_rows(tree, x, w, t, uniforms, done, half_life, self._limit, principal)
            if done > before and tree.counts[EVENTS] % PERIOD == 0 and self.max_leaves is not None:
                swap_leaves(tree, self.max_leaves, principal, SWAPS)
            if tree.counts[DEEP] >= 0:
                rebalance(tree)
            if tree.counts[FREE_SLOTS] == 0 and self.n_leaves < self._limit:
                tree = self._tree = storage.grow(tree, self._limit)
        self._forget_sums()

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
        gaps = means[:, known] - (filled - self._tree.origin)[known]
        nearest = np.einsum("ri,ri->r", gaps, gaps).argmin()
        filled[~known] = (means[nearest] + self._tree.origin)[~known]
        return filled

    # ---------------------------------------------------------------- reading

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
    def total(self) -> Moments:
        """One row: the moments of everything learnt (decayed to the present where the tree forgets)."""
        return self.moments(np.zeros(1, dtype=np.int64))

    def leaves(self) -> Moments:
        """One row for each leaf that has any weight."""
        slots = self._live_slots()
        tree = self._tree
        rows = Moments.from_flat(tree.weight[slots], tree.mean[slots], tree.scatter[slots], self.scatter)
        return rows.scale(self._present).shift(tree.origin)

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

    def reweighted(self, factor: Floats, worth: float = math.inf) -> SummaryTree:
        """A tree to read, never to insert into, in which leaf i of `leaves()` weighs factor[i] times as much.

        `worth`: how many events the factors were estimated from; its sample tells no more than those.
        """
        twin = self.copy()
        twin.worth = min(self.worth, worth)
        slots, tree = self._live_slots(), twin._tree
        for values in (tree.weight, tree.spread, tree.scatter):
            values[slots] *= factor.reshape(-1, *[1] * (values.ndim - 1))
        return twin

    # ---------------------------------------------------------------- cuts

    def cut(
        self, *, level: int | None = None, budget: int | None = None, tolerance: float | None = None
    ) -> Ints:
        """Nodes that together hold every event once: the partition that refits read.

        level: the nodes at that depth, and leaves above it. budget: at most so many nodes, the ones of
        largest spread opened first. tolerance: opened until no node but leaves has more than this fraction
        of the whole's spread. Nodes are valid until the next insert; `moments` and `boxes` read them,
        `refine` opens them.
        """
        if sum(rule is not None for rule in (level, budget, tolerance)) != 1:
            raise ValueError("give exactly one of level, budget and tolerance")
        cut = np.zeros(1, dtype=np.int64)
        if level is not None:
            for _ in range(whole_number("level", level, least=0)):
                before, cut = cut, self.refine(cut, cut)
                if len(cut) == len(before):
                    break
            return cut
        spread = self._sums.spread
        if tolerance is not None:
            check_positive("tolerance", tolerance)
            while len(wide := cut[(spread[cut] > tolerance * spread[0]) & (self._tree.child[cut] >= 0)]):
                cut = self.refine(cut, wide)
            return cut
        assert budget is not None
        return self._widest_first(whole_number("budget", budget, least=1))

    def refine(self, cut: Ints, nodes: Ints) -> Ints:
        """The cut with the given nodes replaced by their children, in place; leaves stay."""
        child = self._tree.child
        opened = np.isin(cut, nodes) & (child[cut] >= 0)
        left = child[cut]
        parts = np.where(opened[:, None], np.stack([left, left + 1], axis=1), np.stack([cut, cut], axis=1))
        keep = np.stack([np.ones_like(opened), opened], axis=1)
        return parts[keep]

    def moments(self, nodes: Ints) -> Moments:
        """One row for each node."""
        rows = self._sums
        moments = Moments.from_flat(rows.weight[nodes], rows.mean[nodes], rows.scatter[nodes], self.scatter)
        return moments.scale(self._present).shift(self._tree.origin)

    def boxes(self, nodes: Ints) -> tuple[Floats, Floats]:
        """Lower and upper corners of each node's box, the bounds of its events."""
        return self._sums.lo[nodes], self._sums.hi[nodes]

    def _widest_first(self, budget: int) -> Ints:
        """The cut of at most `budget` nodes that opens the node of largest spread first."""
        import heapq

        spread, child = self._sums.spread, self._tree.child
        heap = [(-spread[0], 0)]
        done: list[int] = []
        while heap and len(heap) + len(done) < budget:
            _, node = heapq.heappop(heap)
            if child[node] < 0:
                done.append(node)
                continue
            for part in (int(child[node]), int(child[node]) + 1):
                heapq.heappush(heap, (-spread[part], part))
        return np.array(sorted(done + [node for _, node in heap]), dtype=np.int64)

    @cached_property
    def _sums(self) -> NodeRows:
        """Every node's moments, worked out when first asked for after an insert."""
        tree = self._tree
        nodes, d = len(tree.child), self.n_features
        rows = NodeRows(
            np.zeros(nodes), np.zeros((nodes, d)), np.zeros((nodes, tree.scatter.shape[1])), np.zeros(nodes),
            np.full((nodes, d), np.inf), np.full((nodes, d), -np.inf),
        )  # fmt: skip
        sum_nodes(tree, *rows)
        return rows

    def _forget_sums(self) -> None:
        self.__dict__.pop("_sums", None)

    @property
    def _present(self) -> float:
        """What forward-decay units are worth now: the latest event counts 1."""
        if self.half_life is None:
            return 1.0
        return math.exp2(-(self._tree.clock[NOW] - self._tree.clock[LANDMARK]) / self.half_life)

    def _live_slots(self) -> Ints:
        return np.flatnonzero((self._tree.node >= 0) & (self._tree.weight * self._present > 0))

    # ---------------------------------------------------------------- saving

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The whole state as arrays, without pickles; `from_arrays` continues bit for bit."""
        settings: dict[str, Any] = {
            "scatter": self.scatter,
            "max_leaves": -1 if self.max_leaves is None else self.max_leaves,
            "split": self.split,
            "half_life": np.inf if self.half_life is None else self.half_life,
            "seed": self.seed,
            "timed": -1 if self._timed is None else int(self._timed),
            "draws": self._draws,
        }
        arrays = {name: value.copy() for name, value in self._tree._asdict().items()}
        return arrays | {f"setting_{name}": np.array(value) for name, value in settings.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SummaryTree:
        """The tree that `to_arrays` was called on."""
        check_shapes(arrays)
        arrays_tree = storage.from_arrays(arrays)
        check_links(arrays_tree)
        try:
            settings = {name[8:]: a.item() for name, a in arrays.items() if name.startswith("setting_")}
            tree = cls(
                n_features=len(arrays_tree.origin),
                scatter=settings["scatter"],
                max_leaves=None if settings["max_leaves"] == -1 else settings["max_leaves"],
                split=settings["split"],
                half_life=None if settings["half_life"] == np.inf else settings["half_life"],
                seed=settings["seed"],
                leaf_size=arrays_tree.key.shape[1],
            )
            tree._timed = None if settings["timed"] == -1 else bool(settings["timed"])
            tree._draws = whole_number("draws", settings["draws"], least=0)
        except KeyError as missing:
            raise ValueError(f"not a summary tree: setting {missing} is missing") from None
        except ValueError as wrong:
            raise ValueError(f"not a summary tree: {wrong}") from None
        if tree.max_leaves is not None and len(arrays_tree.node) > tree.max_leaves:
            raise ValueError(f"not a summary tree: its arrays hold more than {tree.max_leaves} leaves")
        if arrays_tree.scatter.shape[1] != tree._tree.scatter.shape[1]:
            raise ValueError(f"not a summary tree: its arrays do not hold a {tree.scatter} scatter")
        tree._tree = arrays_tree
        tree._generator = generator(tree.seed, tree._draws)
        return tree

    # ---------------------------------------------------------------- for people

    def plot(self, **options: Any) -> Axes:  # noqa: ANN401
        """The leaves over two features: see `streamclust.plots.plot_tree`."""
        from streamclust.plots import plot_tree

        return plot_tree(self, **options)

    def __repr__(self) -> str:
        bound = "unlimited" if self.max_leaves is None else f"at most {self.max_leaves}"
        memory = "" if self.half_life is None else f", half-life {self.half_life:g}"
        return (
            f"SummaryTree({self.n_events} events in {self.n_leaves} of {bound} leaves, "
            f"{self.n_features} features, {self.scatter} scatter{memory})"
        )

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
