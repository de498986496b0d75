"""Trees that were made elsewhere become what a clusterer has learnt."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.checkpoint import State, shard_state
from streamclust.engine import Engine, schedule
from streamclust.engine.shards import Shard
from streamclust.engine.watch import STRIDE, WINDOW, Watch
from streamclust.schema import Schema
from streamclust.streaming import StreamClusterer
from streamclust.tree import SummaryTree

SHARD = "spark"
"""The part of a clusterer's stream that came as trees."""


def clusterer_of(
    tree: SummaryTree,
    names: Sequence[Hashable],
    **parameters: Any,  # noqa: ANN401
) -> StreamClusterer:
    """A clusterer that has learnt what a tree has, under these names of features, and found the clusters.

    >>> tree = SummaryTree(n_features=2)
    >>> rng = np.random.default_rng(0)
    >>> tree.insert(rng.normal(size=(5000, 2)) + 9.0 * rng.integers(3, size=(5000, 1)))
    >>> clusterer_of(tree, ["x", "y"]).n_clusters
    3
    """
    settings = {"max_leaves": tree.max_leaves, "half_life": tree.half_life} | parameters
    clusterer = StreamClusterer(**settings)
    learn_tree(clusterer, tree, names)
    return clusterer


def learn_tree(clusterer: StreamClusterer, tree: SummaryTree, names: Sequence[Hashable]) -> None:
    """Learn everything that a tree has learnt, and refit at once."""
    if len(names) != tree.n_features:
        raise ValueError(f"the tree has {tree.n_features} features, got {len(names)} names")
    if SHARD not in clusterer.shards:
        open_shard(clusterer, tree, names)
    engine: Engine = clusterer._engine
    part = engine.shards[SHARD]
    part.tree.merge(tree)
    part.n_seen += tree.n_events
    engine.n_seen += tree.n_events
    watch(part, tree)
    engine.next_look = schedule.next_look(engine.n_seen)
    clusterer.settle()


def watch(part: Shard, tree: SummaryTree) -> None:
    """Watch as many of a tree's events as would have been watched, had they come one by one."""
    due = min(part.n_seen, WINDOW + max(part.n_seen - WINDOW, 0) // STRIDE)
    more = due - part.watch.count
    size = min(more, WINDOW)
    part.watch.count += more - size  # those would be gone by now
    part.watch.see(drawn(tree, size), first=0)


def open_shard(clusterer: StreamClusterer, tree: SummaryTree, names: Sequence[Hashable]) -> None:
    """Let a clusterer expect trees of these features."""
    part = Shard(
        SummaryTree(
            tree.n_features, tree.scatter, tree.max_leaves, half_life=tree.half_life, seed=clusterer.seed,
            leaf_size=tree.leaf_size,
        ),
        Watch(tree.n_features),
    )  # fmt: skip
    arrays, values = shard_state(part)
    clusterer.adopt(SHARD, State(arrays, values | {"schema": Schema(names, clusterer.missing).to_dict()}))


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
