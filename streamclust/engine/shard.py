"""Shard: the tree and the watched events of one part of a stream, a partition of a topic for instance."""

from __future__ import annotations

import zlib
from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.event_ring import KeptEvents, side_by_side
from streamclust.engine.model import Model
from streamclust.engine.tuning import TUNING
from streamclust.engine.watched_events import WatchedEvents
from streamclust.families import FamilyLike
from streamclust.families import family as family_named
from streamclust.sketch import CoordinateMap, TransformChange
from streamclust.tree import SummaryTree
from streamclust.utils.state import State, prefixed, under

MAX_HALF_LIVES = 64.0
"""Half-lives after which watched events weigh 0: less than a rounding error of the latest."""


@dataclass
class Shard:
    """Everything that is kept of one part of a stream."""

    tree: SummaryTree
    watch: WatchedEvents
    n_seen: int = 0
    learnt_here: bool = True
    """Whether every event of the tree came one by one: as long as the watch holds them all, it can be built anew."""

    @classmethod
    def like(cls, tree: SummaryTree, seed: int) -> Self:
        """An empty shard whose tree has the parameters of another."""
        empty = SummaryTree(
            tree.n_features, tree.scatter, tree.max_leaves, half_life=tree.half_life, seed=seed,
            leaf_size=tree.leaf_size,
        )  # fmt: skip
        return cls(empty, WatchedEvents(tree.n_features))

    def to_state(self) -> State:
        """State of the shard."""
        arrays = prefixed("tree.", self.tree.to_arrays()) | prefixed("watch.", self.watch.to_arrays())
        values = {"n_seen": self.n_seen, "watched": self.watch.count, "learnt_here": self.learnt_here}
        return State(arrays, values)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The shard that `to_state` saved."""
        tree = SummaryTree.from_arrays(under(state.arrays, "tree."))
        watch = WatchedEvents(tree.n_features)
        watch.restore(under(state.arrays, "watch."), state.values["watched"])
        return cls(tree, watch, state.values["n_seen"], state.values.get("learnt_here", False))

    def watched_weights(self, n: int, half_life: float | None) -> Floats:
        """Present weights of the latest n watched events, if the tree forgets by event count."""
        weight = self.watch.weights(n)
        if half_life is None or self.tree.timed or not len(weight):
            return weight
        number = self.watch.numbers()[-len(weight) :]
        half_lives = (number[-1] - number) / half_life
        return np.where(half_lives < MAX_HALF_LIVES, weight * np.exp2(-half_lives), 0.0)

    def widen(self, values: Floats, unknown: bool = False) -> None:
        """Add columns in which every event so far has these values; `unknown`: the values are filled in."""
        self.tree.widen(values)
        self.watch.widen(values, unknown)

    def reorder(self, columns: Ints) -> None:
        """Put the features in another order: the new column j is the old columns[j]."""
        spare = np.arange(len(columns), self.tree.n_features)
        whole = np.concatenate([columns, spare]).astype(np.int64)
        self.tree.reorder(whole)
        self.watch.reorder(whole)

    def reproject(self, change: CoordinateMap) -> None:
        """Map the tree and the events to other coordinates."""
        self.tree = self.tree.carried(change)
        self.watch.reproject(change)
        self.learnt_here = False

    def retransform(self, change: TransformChange) -> None:
        """Map the tree and the events to the coordinates of another transform; a small tree is built anew."""
        self.watch.replace_rows(change.points(self.watch.rows))
        if self.is_replayable:
            self.tree = self.tree.relearnt(self.watch.latest(), self.watch.weights())
        else:
            self.tree = self.tree.carried(change)

    def narrowed(self, n_features: int) -> Shard:
        """A shard of its own with the first features alone: the others are spare, and 0 for every event."""
        watch = copy(self.watch)
        watch.rows = self.watch.rows[:, :n_features].copy()
        if watch.missing is not None:
            watch.missing = watch.missing[:, :n_features].copy()
        watch._kept = watch._sums = None
        return Shard(self.tree.narrowed(n_features), watch, self.n_seen, self.learnt_here)

    def learn(
        self, rows: Floats, weight: Floats, time: Floats, at: int, missing: Bools | None = None
    ) -> None:
        """Learn checked rows, of which the first is number `at` of the stream; no weights or times: an empty array.

        `missing` are values that were filled in.
        """
        self.tree.insert_checked(rows, weight, time)
        self.watch.see(rows, self.n_seen, weight if len(weight) else None, at, missing)
        self.n_seen += len(rows)

    @property
    def is_replayable(self) -> bool:
        """Whether the watch holds all that the tree was made of. It does not hold times, by which a tree may forget."""
        held = (
            self.watch.count <= TUNING.window_events and self.watch.count == self.n_seen == self.tree.n_events
        )
        return held and self.learnt_here and not (self.tree.timed and self.tree.half_life is not None)

    def impute(self, model: Model, log_share: Floats, seed: int) -> None:
        """Draw missing values anew, from this model; as long as all events are watched, in the tree too."""
        self.watch.impute(model, log_share, seed)
        if self.watch.missing is not None and self.is_replayable:
            self.tree = self.tree.relearnt(self.watch.latest(), self.watch.weights())

    def merge(self, other: Shard, n: int, n_other: int) -> None:
        """Learn everything another shard has learnt, as if the streams, of n and `n_other` events, ran together."""
        self.tree.merge(other.tree)
        self.learnt_here = False
        self.n_seen += other.n_seen
        both = side_by_side(self.watch.kept(), n, other.watch.kept(), n_other)
        self.watch.refill(both, WatchedEvents.due(self.n_seen))

    @classmethod
    def of_tree(cls, tree: SummaryTree) -> Self:
        """A shard that has learnt what a tree has; as many events as would be watched are drawn from its sample."""
        watch = WatchedEvents(tree.n_features)
        watch.count = WatchedEvents.due(tree.n_events)
        at = tree.n_events - np.cumsum(watch.stands_for()[::-1].astype(np.int64))[::-1]
        watch.refill(KeptEvents(drawn(tree, len(at)), np.ones(len(at)), at), watch.count)
        return cls(tree, watch, tree.n_events, learnt_here=False)

    def widened(self, more: int) -> Shard:
        """The shard with `more` columns of zeros: a copy, if any."""
        if not more:
            return self
        twin = Shard(self.tree.copy(), copy(self.watch), self.n_seen, self.learnt_here)
        twin.widen(np.zeros(more))
        return twin


def empty_tree(
    n_features: int,
    family: FamilyLike = "gaussian",
    max_leaves: int | None = None,
    half_life: float | None = None,
    seed: int = 0,
    shard: Hashable = 0,
    leaf_size: int = 16,
) -> SummaryTree:
    """The summary of a shard before its first event, of 512 leaves at most unless `max_leaves` says otherwise.

    Different shards draw different random numbers.
    """
    max_leaves = TUNING.first_leaves if max_leaves is None else max_leaves
    return SummaryTree(
        n_features, family_named(family).scatter, max_leaves, half_life=half_life,
        seed=shard_seed(seed, shard), leaf_size=leaf_size,
    )  # fmt: skip


def drawn(tree: SummaryTree, n: int) -> Floats:
    """n of a tree's events, as good as at random: its sample, each point as often as the weight it stands for says.

    Evenly spaced along the points' masses, then shuffled: a tree lists its points leaf by leaf.
    """
    points, weight = tree.sample()
    if not len(points) or n < 1:
        return np.empty((0, tree.n_features))
    reached = np.cumsum(weight)
    places = (np.arange(n) + 0.5) / n * reached[-1]
    chosen = points[np.searchsorted(reached, places)]
    return np.random.default_rng([tree.seed, n]).permutation(chosen)


def shard_seed(seed: int, key: Hashable) -> int:
    """A seed for each shard, the same in every process; shard 0 has the engine's own."""
    return seed if key == 0 else seed + 1 + zlib.crc32(repr(key).encode())
