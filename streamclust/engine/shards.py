"""Shards: what is kept of a stream, in one part or in several."""

from __future__ import annotations

import zlib
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.engine import schedule
from streamclust.engine.present import as_of_now, drifted
from streamclust.engine.settings import Settings
from streamclust.engine.watch import STRIDE, WINDOW, Watch
from streamclust.families import family as family_named
from streamclust.tree import SummaryTree, merge_all

RECENT = schedule.LOOK // STRIDE
"""A look judges by the events watched since the last."""


@dataclass
class Shard:
    """What is kept of one part of the stream: a partition of a topic, say."""

    tree: SummaryTree
    watch: Watch
    n_seen: int = 0

    def watched_weights(self, n: int, half_life: float | None) -> Floats:
        """What the latest n watched events weigh now, where the tree forgets by event count."""
        weight = self.watch.weights(n)
        if half_life is None or self.tree.timed or not len(weight):
            return weight
        number = self.watch.numbers()[-len(weight) :]
        return np.asarray(weight * np.exp2((number - number[-1]) / half_life))


class Shards(dict[Hashable, Shard]):
    """The parts of a stream by key, each opened when its first event comes."""

    def __init__(self, n_features: int, settings: Settings) -> None:
        super().__init__()
        self.n_features = n_features
        self.settings = settings
        self._strays: Watch | None = None

    def __missing__(self, key: Hashable) -> Shard:
        self[key] = Shard(self._empty_tree(key), Watch(self.n_features))
        return self[key]

    def _empty_tree(self, key: Hashable) -> SummaryTree:
        s = self.settings
        return SummaryTree(
            self.n_features, family_named(s.family).scatter, s.max_leaves, half_life=s.half_life,
            seed=shard_seed(s.seed, key), leaf_size=s.leaf_size,
        )  # fmt: skip

    # ---------------------------------------------------------------- changing

    def fill(self, row: Floats, shard: Hashable) -> Floats:
        """A row with its missing values (NaN) taken from the nearest leaf of its shard, or of another."""
        trees = [self[shard].tree, *(part.tree for part in self.values())]
        return next((tree for tree in trees if tree.n_events), trees[0]).fill(row)

    def widen(self, values: Floats) -> None:
        """Add features that no event had until now; all events so far count as having these values."""
        for part in self.values():
            part.tree.widen(values)
            part.watch.widen(values)
        self.strays.widen(values)
        self.n_features += len(values)

    def merge(self, other: Shards) -> None:
        """Learn all that another stream's shards have learnt, each into the one of the same key."""
        for key, theirs in other.items():
            ours = self[key]
            ours.tree.merge(theirs.tree)
            ours.watch.merge(theirs.watch)
            ours.n_seen += theirs.n_seen
        self.strays.merge(other.strays)

    # ---------------------------------------------------------------- watched events

    @property
    def strays(self) -> Watch:
        """Watched events that lay outside every large cluster: what rare clusters are made of."""
        if self._strays is None or not self._strays.rows.shape[1]:  # asked for before there were features
            self._strays = Watch(self.n_features)
        return self._strays

    def latest(self, n: int = WINDOW) -> Floats:
        """The latest watched events of every shard, at most n of each."""
        return np.concatenate([part.watch.latest(n) for part in self.values()])

    def latest_weights(self, n: int = WINDOW) -> Floats:
        """What each of them weighs now; if forgetting goes by time, what it weighed when it came."""
        half_life = self.settings.half_life
        return np.concatenate([part.watched_weights(n, half_life) for part in self.values()])

    def changing(self, tree: SummaryTree) -> bool:
        """Whether the latest events are spread otherwise than all that the tree has learnt."""
        return tree.n_events > 0 and drifted(tree, self.latest(), self.latest_weights())

    def recent(self) -> Floats:
        """The events that a look judges by."""
        return self.latest(RECENT // max(1, len(self)))

    def recent_weights(self) -> Floats:
        """What each of them weighs."""
        return self.latest_weights(RECENT // max(1, len(self)))

    # ---------------------------------------------------------------- trees

    def merged_tree(self) -> SummaryTree:
        """One tree of all shards, of its own."""
        return merge_all([self[key].tree for key in sorted(self, key=str)] or [self._empty_tree(0)])

    def present_tree(self) -> SummaryTree:
        """One tree of all shards, to read: where the stream has drifted, its leaves weigh what they weigh of late."""
        return self.present()[0]

    def present(self) -> tuple[SummaryTree, bool]:
        """That tree, and whether the stream has drifted."""
        tree = self.merged_tree()
        if not self.changing(tree):
            return tree, False
        return as_of_now(tree, self.latest(), self.latest_weights()), True


def shard_seed(seed: int, key: Hashable) -> int:
    """A seed for each shard, the same in every process; shard 0 has the engine's own."""
    return seed if key == 0 else seed + 1 + zlib.crc32(repr(key).encode())
