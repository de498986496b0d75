"""Capacity of summaries: leaves follow the number of clusters, within a bound of memory."""

from __future__ import annotations

from streamclust.engine.tuning import TUNING


def leaves_for(n_clusters: int, leaf_bytes: int) -> int:
    """Number of leaves of a summary of `n_clusters` clusters, in steps of `first_leaves` so that it changes rarely.

    >>> [leaves_for(k, leaf_bytes=2_000) for k in (1, 64, 65, 200, 10_000)]
    [512, 512, 1024, 2048, 4096]
    >>> leaves_for(10_000, leaf_bytes=50_000), leaves_for(10_000, leaf_bytes=500_000)
    (1024, 512)
    """
    wanted = -(-TUNING.leaves_per_cluster * n_clusters // TUNING.first_leaves)
    affordable = TUNING.max_summary_bytes // (leaf_bytes * TUNING.first_leaves)
    return TUNING.first_leaves * max(1, min(wanted, affordable, TUNING.max_leaves // TUNING.first_leaves))
