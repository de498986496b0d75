"""Shards: the trees and recent events of a stream, in one part or in several."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Self

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.capacity import leaves_for
from streamclust.engine.event_ring import KeptEvents, in_order
from streamclust.engine.imputation import fitted_shares
from streamclust.engine.model import Model
from streamclust.engine.recent_events import RecentEvents
from streamclust.engine.settings import EngineSettings
from streamclust.engine.shard import Shard, drawn, empty_tree
from streamclust.engine.tuning import TUNING
from streamclust.engine.watched_events import WatchedEvents
from streamclust.families import is_discrete
from streamclust.sketch import CoordinateMap, TransformChange
from streamclust.tree import SummaryTree, merge_all
from streamclust.utils.interrupts import HeldInterrupts
from streamclust.utils.state import State, prefixed, under

MERGED = "merged"
"""Key of the one shard of a state whose shards were merged."""


def key_of(part: Mapping[str, Any]) -> Hashable:
    """The key of a saved shard; JSON turns tuples into lists."""
    return tuple(part["key"]) if isinstance(part["key"], list) else part["key"]


class Shards(dict[Hashable, Shard]):
    """The parts of a stream by key, each opened when its first event comes."""

    def __init__(self, n_features: int, settings: EngineSettings) -> None:
        super().__init__()
        self.n_features = n_features
        self.capacity = n_features
        """The columns that trees and watches have: those past `n_features` are spare, and 0 for every event."""
        self.settings = settings
        self.recent = RecentEvents(self)

    def to_state(self, merged: bool = False) -> State:
        """State of all shards and recent events; `merged` into one shard if asked to."""
        parts: Mapping[Hashable, Shard] = {MERGED: self.merged()} if merged else self
        arrays, values = self.recent.to_state()
        values["n_features"] = self.n_features
        values["capacity"] = self.n_features if merged else self.capacity
        values["shards"] = []
        for i, (key, part) in enumerate(parts.items()):
            more, kept = part.to_state()
            values["shards"].append({"key": key} | kept)
            arrays |= prefixed(f"shard{i}.", more)
        return State(arrays, values)

    @classmethod
    def from_state(cls, state: State, settings: EngineSettings) -> Self:
        """The shards that `to_state` saved."""
        arrays, values = state
        shards = cls(values["n_features"], settings)
        shards.capacity = values.get("capacity", shards.n_features)
        for i, part in enumerate(values["shards"]):
            shards[key_of(part)] = Shard.from_state(State(under(arrays, f"shard{i}."), part))
        shards.recent.restore(state)
        return shards

    def empty(self, key: Hashable) -> Shard:
        """A shard before its first event, not yet among these."""
        return Shard(self._empty_tree(key), WatchedEvents(self.capacity))

    def __missing__(self, key: Hashable) -> Shard:
        self[key] = self.empty(key)
        self.make_room()
        return self[key]

    def _empty_tree(self, key: Hashable) -> SummaryTree:
        s = self.settings
        return empty_tree(self.capacity, s.family, s.max_leaves, s.half_life, s.seed, key, s.leaf_size)

    # ---------------------------------------------------------------- changing

    def make_room(self, n_clusters: int = 1) -> None:
        """Let every tree have the leaves that `n_clusters` clusters need, or as many as the largest.

        Not where `max_leaves` is given. Trees never give room back: clusters that were here may be again.
        """
        trees = [part.tree for part in self.values()]
        if self.settings.max_leaves is None and trees:
            most = max(leaves_for(n_clusters, trees[0].leaf_bytes), *(tree.max_leaves or 0 for tree in trees))
            with HeldInterrupts():
                for tree in trees:
                    tree.raise_max_leaves(most)

    def impute(self, model: Model) -> None:
        """Draw missing values anew, from this model: those of the watched and the latest events.

        Trees of few events, which are all watched, are built anew, too: the first models are wrong, and what was drawn
        from them would stay. Trees of more events keep the values drawn before.
        """
        events = self.recent.gaps()
        if events is None:
            return
        share = fitted_shares(model, events)
        for part in self.values():
            part.impute(model, share, self.settings.seed)
        self.recent.ring.impute(model, share, self.settings.seed)
        if self.is_replayable:  # no stray is older
            latest = self.recent.watched_rows()
            strays = WatchedEvents(self.n_features)
            strays.see(latest[model.large.outside(latest)], first=0)
            self.recent.replace_strays(strays)

    @property
    def is_replayable(self) -> bool:
        """Whether all events are watched, and trees could be built anew from them."""
        return all(part.is_replayable for part in self.values())

    def fill(self, row: Floats, shard: Hashable) -> Floats:
        """A row with its missing values (NaN) taken from the nearest leaf of its shard, or of another."""
        trees = [self[shard].tree, *(part.tree for part in self.values())]
        return next((tree for tree in trees if tree.n_events), trees[0]).fill(row)

    @property
    def hold_events(self) -> bool:
        """Whether any shard holds an event."""
        return any(part.tree.n_events for part in self.values())

    def begin(self, n_features: int) -> None:
        """The features of the first event."""
        self.n_features = self.capacity = n_features

    def widen(self, values: Floats, unknown: bool = True) -> None:
        """Add features that no event had until now; all events so far count as having these values.

        `unknown`: the values are filled in.
        """
        self.recent.strays.widen(values)
        self._widen_parts(values, unknown)
        self.n_features += len(values)
        self.capacity = self.n_features

    def widen_by_zeros(self, n_features: int) -> None:
        """Widen to `n_features` features; new ones are 0 for all events so far.

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
        self.recent.widen(values, unknown)

    def reorder(self, columns: Ints) -> None:
        """Put the features of all shards in another order: the new column j is the old columns[j]."""
        for part in self.values():
            part.reorder(columns)
        self.recent.reorder(columns)

    def reproject(self, change: CoordinateMap) -> None:
        """Map trees and events to other coordinates."""
        for part in self.values():
            part.reproject(change)
        self.recent.reproject(change)
        self.begin(change.n_directions)

    def retransform(self, change: TransformChange) -> None:
        """Map trees and events to the coordinates of another transform."""
        for part in self.values():
            part.retransform(change)
        self.recent.retransform(change)

    def with_spare(self, rows: Floats) -> Floats:
        """Rows with zeros in the spare columns."""
        spare = self.capacity - rows.shape[1]
        return np.pad(rows, ((0, 0), (0, spare))) if spare else rows

    def make_alike(self, part: Shard, n_features: int, zeros: bool, means: Callable[[], Floats]) -> None:
        """Give a shard from elsewhere, of `n_features` features, and those here the same columns.

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
        """Learn everything that a tree has learnt into one shard; n events have been learnt before, in all shards."""
        if not is_discrete(self.settings.family) or self.capacity <= TUNING.max_whole_counts:
            latest = min(tree.n_events, TUNING.look_events)
            at = np.arange(tree.n_events - latest, tree.n_events)
            self.recent.merge_latest(KeptEvents(drawn(tree, latest), np.ones(latest), at), n, tree.n_events)
        self._merge_parts({key: Shard.of_tree(tree)}, n, tree.n_events)

    def _merge_parts(self, parts: Mapping[Hashable, Shard], n: int, n_other: int) -> None:
        """Learn the shards of a stream of `n_other` events, each into the one of the same key; n were learnt before."""
        for key, theirs in parts.items():
            self[key].merge(theirs, n, n_other)
        for key in self.keys() - parts.keys():
            self[key].watch.spread(n, n + n_other)

    def merge(self, other: Shards, n: int, n_other: int) -> None:
        """Learn everything that another stream's shards have learnt, each into the one of the same key.

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
        self.recent.merge(other.recent, n, n_other)

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
        """`merged_tree` without a copy if there is one shard; read-only."""
        if len(self) == 1 and self.capacity == self.n_features:
            return next(iter(self.values())).tree
        return self.merged_tree()

    def merged(self) -> Shard:
        """Merge all shards into a new one, with the latest watched events of each."""
        n_seen, watch = sum(part.n_seen for part in self.values()), WatchedEvents(self.n_features)
        if self:
            weights = [
                part.watched_weights(TUNING.window_events, self.settings.half_life) for part in self.values()
            ]
            parts = [part.watch.kept().narrowed(self.n_features) for part in self.values()]
            parts = [part._replace(weight=weight) for part, weight in zip(parts, weights, strict=True)]
            watch.refill(in_order(parts), WatchedEvents.due(n_seen))
        return Shard(self.merged_tree(), watch, n_seen, learnt_here=False)

    def tree_of(self, key: Hashable) -> SummaryTree:
        """A copy of one shard's tree, without spare columns; KeyError if there is no such shard."""
        if key not in self:
            raise KeyError(f"there is no shard {key!r}; there are {list(self)}")
        tree = self[key].tree.copy()
        return tree if self.capacity == self.n_features else tree.narrowed(self.n_features)
