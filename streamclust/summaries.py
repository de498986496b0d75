"""Summaries that are built apart from a clusterer: on the executors of a cluster, or in other processes.

>>> import numpy as np
>>> trees = [empty_tree(n_features=2, shard=part) for part in range(4)]
>>> for tree in trees:
...     tree.insert(np.random.default_rng(0).normal(size=(100, 2)))
>>> merge_all(trees).n_events
400

`StreamClusterer.shards.learn_tree` learns what they have learnt.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from streamclust._kernels.types import Floats
from streamclust.checkpoint import State, decode, encode
from streamclust.engine.shard import empty_tree
from streamclust.families import FamilyLike
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import check_points
from streamclust.tree import SummaryTree, merge_all
from streamclust.tree.rows import check_rows
from streamclust.utils.values import MAX_MAGNITUDE

__all__ = [
    "MAX_MAGNITUDE",
    "Moments",
    "SummaryTree",
    "checked_rows",
    "empty_tree",
    "merge_all",
    "tree_from_bytes",
    "tree_to_bytes",
]


def checked_rows(
    family: FamilyLike,
    n_features: int,
    rows: ArrayLike,
    weight: ArrayLike | None = None,
    time: ArrayLike | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Rows, weights and times for `SummaryTree.insert_checked`, without rows of weight 0.

    ValueError for what is no number, too large, or cannot have come from the family.
    """
    kept = check_rows(n_features, rows, weight, time)
    check_points(family, kept[0])
    return kept


def tree_to_bytes(tree: SummaryTree) -> bytes:
    """A tree as a checkpoint writes it: arrays, no pickles."""
    return encode(State(tree.to_arrays(), {}))


def tree_from_bytes(content: bytes) -> SummaryTree:
    """The tree that `tree_to_bytes` was given."""
    return SummaryTree.from_arrays(decode(content).arrays)
