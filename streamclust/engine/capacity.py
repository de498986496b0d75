"""How large a summary may be: its leaves follow the number of clusters, within a bound of memory."""

from __future__ import annotations

FIRST_LEAVES = 512
"""Leaves of a summary of few clusters."""
LEAVES_PER_CLUSTER = 8
"""With fewer, clusters share leaves, and too few of their events are sampled to tell their number."""
MAX_LEAVES = 4096
"""Leaves at most: the time of a refit is proportional to them and to the number of clusters."""
MAX_SUMMARY_BYTES = 2**26
"""Memory of one summary at most; it has FIRST_LEAVES in any case."""


def leaves_for(n_clusters: int, leaf_bytes: int) -> int:
    """How many leaves a summary of so many clusters may have, in steps of FIRST_LEAVES so that it changes rarely.

    >>> [leaves_for(k, leaf_bytes=2_000) for k in (1, 64, 65, 200, 10_000)]
    [512, 512, 1024, 2048, 4096]
    >>> leaves_for(10_000, leaf_bytes=50_000), leaves_for(10_000, leaf_bytes=500_000)
    (1024, 512)
    """
    wanted = -(-LEAVES_PER_CLUSTER * n_clusters // FIRST_LEAVES)
    affordable = MAX_SUMMARY_BYTES // (leaf_bytes * FIRST_LEAVES)
    return FIRST_LEAVES * max(1, min(wanted, affordable, MAX_LEAVES // FIRST_LEAVES))
