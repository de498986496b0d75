"""Shards: what is kept of a stream, in one part or in several."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np

from streamclust._kernels.engine.windows import block_sums
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine import schedule
from streamclust.engine.capacity import FIRST_LEAVES, leaves_for
from streamclust.engine.dependence import RecentSequence
from streamclust.engine.imputing import Gaps, fitted_shares
from streamclust.engine.model import Model, Seen
from streamclust.engine.present import as_of_now, drifted, kish
from streamclust.engine.settings import EngineSettings
from streamclust.engine.watch import (
    BLOCK_EVENTS,
    WINDOW_EVENTS,
    KeptEvents,
    Ring,
    Watch,
    in_order,
    side_by_side,
)
from streamclust.families import FamilyLike, is_discrete
from streamclust.families import family as family_named
from streamclust.interrupts import HeldInterrupts
from streamclust.sketch import CoordinateMap
from streamclust.tree import SummaryTree, merge_all

WHOLE_EVENTS = 2048
"""Number of latest events that are all kept, not only sampled."""
MAX_WHOLE_COUNTS = 1024
"""Features of counts, at most, of which the latest events are all kept: vocabularies can be wide."""
LOOK_SAMPLE_EVENTS = schedule.LOOK_EVENTS // BLOCK_EVENTS
"""Number of watched events between two looks, by which a look judges."""

MAX_MEDIAN_WEIGHTS = 4.0
"""An event counts for at most so many median ones in decisions: half of the events are evidence then even if weights
have infinite variance. More would let single events look like clusters, fewer change shapes where weights are alike."""
MAX_HALF_LIVES = 64.0
"""Watched events weigh nothing after so many half-lives: beside the latest, less than a rounding error."""


@dataclass
class Shard:
    """What is kept of one part of the stream: a partition of a topic, say."""

    tree: SummaryTree
    watch: Watch
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
        return cls(empty, Watch(tree.n_features))

    def watched_weights(self, n: int, half_life: float | None) -> Floats:
        """What the latest n watched events weigh now, where the tree forgets by event count."""
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

    def carry(self, change: CoordinateMap) -> None:
        """Have everything in other coordinates."""
        self.tree = self.tree.carried(change)
        self.watch.carry(change)
        self.learnt_here = False

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
        held = self.watch.count <= WINDOW_EVENTS and self.watch.count == self.n_seen == self.tree.n_events
        return held and self.learnt_here and not (self.tree.timed and self.tree.half_life is not None)

    def impute(self, model: Model, log_share: Floats, seed: int) -> None:
        """Draw missing values anew, from this model; as long as all events are watched, in the tree too."""
        self.watch.impute(model, log_share, seed)
        if self.watch.missing is not None and self.is_replayable:
            self.tree = self.tree.relearnt(self.watch.latest(), self.watch.weights())

    def merge(self, other: Shard, n: int, n_other: int) -> None:
        """Learn all that another shard has learnt, as if their streams, of n and `n_other` events, had run together."""
        self.tree.merge(other.tree)
        self.learnt_here = False
        self.n_seen += other.n_seen
        both = side_by_side(self.watch.kept(), n, other.watch.kept(), n_other)
        self.watch.refill(both, Watch.due(self.n_seen))

    @classmethod
    def of_tree(cls, tree: SummaryTree) -> Self:
        """A shard that has learnt what a tree has; as many events as would be watched are drawn from its sample."""
        watch = Watch(tree.n_features)
        watch.count = Watch.due(tree.n_events)
        at = tree.n_events - np.cumsum(watch.stands_for()[::-1].astype(np.int64))[::-1]
        watch.refill(KeptEvents(drawn(tree, len(at)), np.ones(len(at)), at), watch.count)
        return cls(tree, watch, tree.n_events, learnt_here=False)

    def widened(self, more: int) -> Shard:
        """The shard with so many columns of zeros more: a copy, if any."""
        if not more:
            return self
        twin = Shard(self.tree.copy(), copy(self.watch), self.n_seen, self.learnt_here)
        twin.widen(np.zeros(more))
        return twin


class Shards(dict[Hashable, Shard]):
    """The parts of a stream by key, each opened when its first event comes."""

    def __init__(self, n_features: int, settings: EngineSettings) -> None:
        super().__init__()
        self.n_features = n_features
        self.capacity = n_features
        """The columns that trees and watches have: those past `n_features` are spare, and 0 for every event."""
        self.settings = settings
        self._strays: Watch | None = None
        self.whole = Ring(0, WHOLE_EVENTS)
        """The latest events of all shards; counts of very many features are not kept."""

    @classmethod
    def restored(
        cls,
        n_features: int,
        capacity: int,
        settings: EngineSettings,
        parts: Mapping[Hashable, Shard],
        strays: Watch,
        whole: Ring,
    ) -> Self:
        """The parts of a stream as they were saved."""
        shards = cls(n_features, settings)
        shards.capacity, shards._strays, shards.whole = capacity, strays, whole
        shards.update(parts)
        return shards

    def empty(self, key: Hashable) -> Shard:
        """A shard before its first event, not yet among these."""
        return Shard(self._empty_tree(key), Watch(self.capacity))

    def __missing__(self, key: Hashable) -> Shard:
        self[key] = self.empty(key)
        self.make_room()
        return self[key]

    def _empty_tree(self, key: Hashable) -> SummaryTree:
        s = self.settings
        return empty_tree(self.capacity, s.family, s.max_leaves, s.half_life, s.seed, key, s.leaf_size)

    # ---------------------------------------------------------------- changing

    def make_room(self, n_clusters: int = 1) -> None:
        """Let every tree have as many leaves as so many clusters need, or as the one that may have most.

        Not where `max_leaves` is given. Trees never give room back: clusters that were here may be again.
        """
        trees = [part.tree for part in self.values()]
        if self.settings.max_leaves is None and trees:
            most = max(leaves_for(n_clusters, trees[0].leaf_bytes), *(tree.max_leaves or 0 for tree in trees))
            with HeldInterrupts():
                for tree in trees:
                    tree.raise_max_leaves(most)

    def keep(self, rows: Floats, weight: Floats | None, at: int, missing: Bools | None = None) -> None:
        """Keep the latest events whole, the first of which is number `at` of the stream."""
        if is_discrete(self.settings.family) and self.capacity > MAX_WHOLE_COUNTS:
            self.whole = Ring(0, WHOLE_EVENTS)
            return
        if not self.whole.count:
            self.whole = Ring(self.capacity, WHOLE_EVENTS)
        first = max(0, len(rows) - WHOLE_EVENTS)
        self.whole.count += first  # those would be gone by now
        self.whole.add(
            rows[first:],
            None if weight is None else weight[first:],
            np.arange(at + first, at + len(rows)),
            None if missing is None else missing[first:],
        )

    def impute(self, model: Model) -> None:
        """Draw missing values anew, from this model: those of the watched and the latest events.

        Trees of few events, which are all watched, are built anew, too: the first models are wrong, and what was drawn
        from them would stay. Trees of more events keep the values drawn before.
        """
        events = self.gaps()
        if events is None:
            return
        share = fitted_shares(model, events)
        for part in self.values():
            part.impute(model, share, self.settings.seed)
        self.whole.impute(model, share, self.settings.seed)
        if self.is_replayable:  # no stray is older
            latest = self.latest()
            strays = Watch(self.n_features)
            strays.see(latest[model.large.outside(latest)], first=0)
            self.replace_strays(strays)

    @property
    def is_replayable(self) -> bool:
        """Whether all events are watched, and trees could be built anew from them."""
        return all(part.is_replayable for part in self.values())

    def gaps(self) -> Gaps | None:
        """The watched events; None if no value of theirs was missing."""
        if all(part.watch.missing is None for part in self.values()):
            return None
        missing = [part.watch.latest_missing()[:, : self.n_features] for part in self.values()]
        return Gaps(self.latest(), np.concatenate(missing), self.latest_weights())

    def replace_strays(self, strays: Watch) -> None:
        """Have other strays."""
        self._strays = strays

    def fill(self, row: Floats, shard: Hashable) -> Floats:
        """A row with its missing values (NaN) taken from the nearest leaf of its shard, or of another."""
        trees = [self[shard].tree, *(part.tree for part in self.values())]
        return next((tree for tree in trees if tree.n_events), trees[0]).fill(row)

    def begin(self, n_features: int) -> None:
        """The features of the first event."""
        self.n_features = self.capacity = n_features

    def widen(self, values: Floats) -> None:
        """Add features that no event had until now; all events so far count as having these values."""
        self.strays.widen(values)
        self._widen_parts(values, unknown=True)
        self.n_features += len(values)
        self.capacity = self.n_features

    def widen_by_zeros(self, n_features: int) -> None:
        """Have that many features; those that are new are 0 for all events so far.

        Widening copies everything. So a stream that has brought features once gets spare columns for more of them, a
        quarter of those there are: a vocabulary that grows word by word is widened a few times in all, at events that
        no batching changes.
        """
        if n_features > self.capacity:
            spare = max(1, n_features // 4) if self.capacity else 0
            self._widen_parts(np.zeros(n_features + spare - self.capacity))
            self.capacity = n_features + spare
        self.n_features = max(self.n_features, n_features)

    def _widen_parts(self, values: Floats, unknown: bool = False) -> None:
        for part in self.values():
            part.widen(values, unknown)
        if self.whole.count:
            self.whole.widen(values, unknown)

    def reorder(self, columns: Ints) -> None:
        """Put the features of all shards in another order: the new column j is the old columns[j]."""
        for part in self.values():
            part.reorder(columns)
        self.strays.reorder(columns)
        if self.whole.count:
            self.whole.reorder(np.concatenate([columns, np.arange(len(columns), self.whole.rows.shape[1])]))

    def carry(self, change: CoordinateMap) -> None:
        """Have everything in other coordinates."""
        for part in self.values():
            part.carry(change)
        self.strays.carry(change)
        if self.whole.count:
            self.whole.carry(change)
        self.begin(change.n_directions)

    def with_spare(self, rows: Floats) -> Floats:
        """Rows with zeros in the spare columns."""
        spare = self.capacity - rows.shape[1]
        return np.pad(rows, ((0, 0), (0, spare))) if spare else rows

    def make_alike(self, part: Shard, n_features: int, zeros: bool, means: Callable[[], Floats]) -> None:
        """Give a shard from elsewhere, of so many features, and those here the same columns.

        What is new to either side is 0 or, without `zeros`, the mean of the other side: `means`, of those here.
        """
        width = part.tree.n_features
        if not zeros:
            if width > self.n_features and self:
                self.widen(part.tree.total.mean[0, self.n_features :])
            elif width < self.n_features:
                part.widen(means()[width:], unknown=True)
            self.begin(max(self.n_features, width))
            return
        short = width - self.capacity
        if short > 0:
            self._widen_parts(np.zeros(short))
            self.capacity += short
        elif short < 0:
            part.widen(np.zeros(-short))
        self.n_features = max(self.n_features, n_features)

    def merge_tree(self, key: Hashable, tree: SummaryTree, n: int) -> None:
        """Learn all that a tree has learnt into one shard; n events have been learnt before, in all shards."""
        if not is_discrete(self.settings.family) or self.capacity <= MAX_WHOLE_COUNTS:
            latest = min(tree.n_events, WHOLE_EVENTS)
            at = np.arange(tree.n_events - latest, tree.n_events)
            self._merge_whole(KeptEvents(drawn(tree, latest), np.ones(latest), at), n, tree.n_events)
        self._merge_parts({key: Shard.of_tree(tree)}, n, tree.n_events)

    def _merge_parts(self, parts: Mapping[Hashable, Shard], n: int, n_other: int) -> None:
        """Learn the shards of a stream of `n_other` events, each into the one of the same key; n were learnt before."""
        for key, theirs in parts.items():
            self[key].merge(theirs, n, n_other)
        for key in self.keys() - parts.keys():
            self[key].watch.spread(n, n + n_other)

    def _merge_whole(self, latest: KeptEvents, n: int, n_other: int) -> None:
        """Keep the latest events of both streams, of n and `n_other` events, in the order they would have come in."""
        if not self.whole.count:
            self.whole = Ring(self.capacity, WHOLE_EVENTS)
        both = side_by_side(self.whole.kept(), n, latest, n_other)
        self.whole.refill(both, self.whole.count + len(latest.at))

    def merge(self, other: Shards, n: int, n_other: int) -> None:
        """Learn all that another stream's shards have learnt, each into the one of the same key.

        They have learnt `n_other` events, those here n; both streams count as having run side by side.
        """
        if other.capacity > self.capacity:
            self._widen_parts(np.zeros(other.capacity - self.capacity))
            self.capacity = other.capacity
        parts = {key: theirs.widened(self.capacity - other.capacity) for key, theirs in other.items()}
        for key, theirs in parts.items():
            if self.settings.max_leaves is None:
                self[key].tree.raise_max_leaves(theirs.tree.max_leaves or 0)
        self._merge_parts(parts, n, n_other)
        self.make_room()
        if other.whole.count:
            latest = other.whole.kept()
            more = ((0, 0), (0, self.capacity - latest.rows.shape[1]))
            missing = None if latest.missing is None else np.pad(latest.missing, more)
            self._merge_whole(latest._replace(rows=np.pad(latest.rows, more), missing=missing), n, n_other)
        ours, more_strays = (Ring.kept(ring).ranked(ring.count) for ring in (self.strays, other.strays))
        both = side_by_side(ours, self.strays.count, more_strays, other.strays.count)
        self.strays.refill(both, self.strays.count + other.strays.count)

    # ---------------------------------------------------------------- watched events

    @property
    def strays(self) -> Watch:
        """Watched events that lay outside every large cluster: what rare clusters are made of."""
        if self._strays is None or not self._strays.rows.shape[1]:  # asked for before there were features
            self._strays = Watch(self.n_features)
        if (short := self.n_features - self._strays.rows.shape[1]) > 0:
            self._strays.widen(np.zeros(short))
        return self._strays

    def latest(self, n: int = WINDOW_EVENTS) -> Floats:
        """The latest watched events of every shard, at most n of each."""
        return np.concatenate([part.watch.latest(n)[:, : self.n_features] for part in self.values()])

    def latest_weights(self, n: int = WINDOW_EVENTS) -> Floats:
        """What each of them weighs now; if forgetting goes by time, what it weighed when it came."""
        half_life = self.settings.half_life
        return np.concatenate([part.watched_weights(n, half_life) for part in self.values()])

    def near(self, n: int = WHOLE_EVENTS) -> tuple[Floats, Floats]:
        """The latest events in a row, of all shards, the oldest first, and what each weighed when it came."""
        return self.whole.latest(n)[:, : self.n_features], self.whole.weights(n)

    def latest_numbers(self) -> Ints:
        """The numbers of the events that `near` gives."""
        return self.whole.last(self.whole.at, WHOLE_EVENTS)

    def watched(self) -> tuple[Floats, Floats, Ints]:
        """The latest watched events of all shards in their order, what each weighed, and its number."""
        parts = list(self.values())
        order = self._order()
        at = np.concatenate([part.watch.last(part.watch.at) for part in parts])
        weight = np.concatenate([part.watch.weights() for part in parts])
        return self.latest()[order], weight[order], at[order]

    def stands_for(self) -> Floats:
        """How many events each that `watched()` gives stands for."""
        return np.concatenate([part.watch.stands_for() for part in self.values()])[self._order()]

    def _order(self) -> Ints | slice:
        """How the watched events of all shards follow each other."""
        if len(self) == 1:
            return slice(None)
        at = np.concatenate([part.watch.last(part.watch.at) for part in self.values()])
        return np.argsort(at, kind="stable")[-WINDOW_EVENTS:]

    def seen_by(self, model: Model) -> Seen:
        """The watched events as a model sees them, in the order of `watched()`; each is labelled once."""
        return self.latest_seen_by(model).some(self._order())

    def latest_seen_by(self, model: Model, n: int = WINDOW_EVENTS) -> Seen:
        """The events that `latest` gives as a model sees them; each is labelled once."""
        parts = [part.watch.seen_by(model, n) for part in self.values()]
        return (
            parts[0]
            if len(parts) == 1
            else Seen(*(np.concatenate(kept) for kept in zip(*parts, strict=True)))
        )

    def sums_by(self, model: Model, size: int) -> Floats:
        """`block_sums` of the events that `watched()` gives, as a model sees them."""
        if len(self) == 1:
            return next(iter(self.values())).watch.sums_by(model, size)
        return block_sums(*self.seen_by(model), self.watched()[1], len(model.rows) + 1, size)

    def sequence(self, since: int = 0) -> RecentSequence:
        """Recent events in their order, those that came before event number `since` left out."""
        if not self or not len(self.whole):
            return RecentSequence(np.empty((0, self.n_features)), 1.0, np.empty((0, self.n_features)))
        watched, _, at = self.watched()
        latest = self.near()[0][self.latest_numbers() >= since]
        rows, stride = self.evenly_watched(at >= since)
        return RecentSequence(watched[rows], stride, latest)

    def evenly_watched(self, chosen: Bools) -> tuple[Ints, float]:
        """Places, in `watched()`, of those chosen that stand for as many events each as most do; and for how many.

        The first events are all watched, later ones in part: those are two sequences.
        """
        held = self.stands_for()
        stride = float(np.median(held[chosen])) if chosen.any() else 1.0
        return np.flatnonzero(chosen & (held == stride)), stride

    def changing(self, tree: SummaryTree, evidence: float = 1.0) -> bool:
        """Whether the latest events are spread otherwise than all that the tree has learnt; no, if drift is ignored.

        An event counts for `evidence` independent ones.
        """
        follows = self.settings.follows and tree.n_events > 0
        if not follows:
            return False
        held = float(self.stands_for()[-1])
        return drifted(tree, self.latest(), self._represented(), min(1.0, held * evidence))

    # ---------------------------------------------------------------- trees

    @property
    def weight(self) -> float:
        """The weight of everything learnt."""
        return sum(part.tree.weight for part in self.values())

    def merged_tree(self) -> SummaryTree:
        """Merge all shards into a new tree, without spare columns."""
        tree = merge_all([self[key].tree for key in sorted(self, key=str)] or [self._empty_tree(0)])
        return tree if self.capacity == self.n_features else tree.narrowed(self.n_features)

    def live_tree(self) -> SummaryTree:
        """The same to read at once: the tree itself where there is but one."""
        if len(self) == 1 and self.capacity == self.n_features:
            return next(iter(self.values())).tree
        return self.merged_tree()

    def merged(self) -> Shard:
        """Merge all shards into a new one, with the latest watched events of each."""
        n_seen, watch = sum(part.n_seen for part in self.values()), Watch(self.n_features)
        if self:
            weights = [part.watched_weights(WINDOW_EVENTS, self.settings.half_life) for part in self.values()]
            parts = [part.watch.kept().narrowed(self.n_features) for part in self.values()]
            parts = [part._replace(weight=weight) for part, weight in zip(parts, weights, strict=True)]
            watch.refill(in_order(parts), Watch.due(n_seen))
        return Shard(self.merged_tree(), watch, n_seen, learnt_here=False)

    def tree_of(self, key: Hashable) -> SummaryTree:
        """A copy of one shard's tree, without spare columns; KeyError if there is no such shard."""
        if key not in self:
            raise KeyError(f"there is no shard {key!r}; there are {list(self)}")
        tree = self[key].tree.copy()
        return tree if self.capacity == self.n_features else tree.narrowed(self.n_features)

    def tree_of_rows(self, rows: Floats, weight: Floats) -> SummaryTree:
        """A tree of some events alone, to read, that weighs as much as all shards do."""
        s = self.settings
        tree = SummaryTree(
            self.n_features, family_named(s.family).scatter, None, leaf_size=s.leaf_size, seed=s.seed
        )
        tree.insert(rows, weight)
        tree = tree.without_outliers()
        return tree.reweighted(np.full(len(tree.leaves()), self.weight / tree.weight), worth=kish(weight))

    def present(self, evidence: float = 1.0) -> tuple[SummaryTree, bool]:
        """Merge all shards into a tree to read, and say whether the stream has drifted.

        If it has, leaves weigh what they weigh of late. An event counts for `evidence` independent ones.
        """
        tree = self.merged_tree().without_outliers()
        if not self.changing(tree, evidence):
            return tree, False
        return as_of_now(tree, self.latest(), self._represented()), True

    def _represented(self) -> Floats:
        """Weight of the events that each of `latest()` stands for: itself or, later, all of its block."""
        held = np.concatenate([part.watch.stands_for() for part in self.values()])
        return np.asarray(np.minimum(self.latest_weights(), self.most_weight) * held)

    @property
    def most_weight(self) -> float:
        """The most that an event may weigh in decisions about clusters: a weighted event is one observation.

        Where a few events have most of the weight, all others would be evidence of nothing. Infinite where weights
        differ little.
        """
        given = np.concatenate([part.watch.weights() for part in self.values()] or [np.ones(1)])
        most = MAX_MEDIAN_WEIGHTS * float(np.median(given))
        return most if len(given) and given.max() > most > 0.0 else np.inf


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
    max_leaves = FIRST_LEAVES if max_leaves is None else max_leaves
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
