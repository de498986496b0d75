"""Creates a clusterer from a summary tree."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np  # noqa: F401  # for the example

from streamclust.sketch import Sketch
from streamclust.streaming import StreamClusterer
from streamclust.summaries import SummaryTree

SHARD = "spark"
"""Name of the shard that holds the merged trees."""


def clusterer_of(
    tree: SummaryTree,
    names: Sequence[Hashable],
    sketch: Sketch | None = None,
    **parameters: Any,
) -> StreamClusterer:
    """A clusterer with the content of a tree, whose features have these names; it has found the clusters.

    `sketch` is that of the `FrameSummary`, for wide rows.

    >>> tree = SummaryTree(n_features=2)
    >>> rng = np.random.default_rng(0)
    >>> tree.insert(rng.normal(size=(5000, 2)) + 9.0 * rng.integers(3, size=(5000, 1)))
    >>> clusterer_of(tree, ["x", "y"]).n_clusters
    3
    """
    settings = {"max_leaves": tree.max_leaves, "half_life": tree.half_life} | parameters
    if sketch is not None and sketch.unit:
        settings["scale"] = "unit"
    clusterer = StreamClusterer(**settings)
    clusterer.shards.learn_tree(tree, names, SHARD, sketch)
    return clusterer
