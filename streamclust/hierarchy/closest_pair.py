"""Greedy merges by a conga line, the dynamic closest pair that the paper uses [BKM section 9.2].

O(n² log n) time for any cost, O(n) memory. The lazy list gives the same merges sooner.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from streamclust._kernels.hierarchy.conga import MOST_SUBSETS, follow_conga_line
from streamclust._kernels.hierarchy.search import EVALUATIONS, MERGED
from streamclust.hierarchy.problem import MergeProblem, Merges, stages

EDGES_PER_NODE = 8
"""Space reserved for edges, per node; when it is exhausted, all graphs are rebuilt as one."""


def conga_merges(problem: MergeProblem, merges: Merges) -> Generator[int, None, None]:
    """Merge the cheapest pair of all until one is left; yields how many merges are done."""
    n = problem.n_leaves
    node, active, place = np.arange(n), np.arange(n), np.arange(n)
    subset = np.zeros(n, dtype=np.int64)
    sizes, stale = np.zeros(MOST_SUBSETS, dtype=np.int64), np.zeros(MOST_SUBSETS, dtype=np.int64)
    sizes[0], stale[0] = n, 1
    edges, lengths = np.empty((EDGES_PER_NODE * n, 3), dtype=np.int64), np.empty(EDGES_PER_NODE * n)
    state = np.array([n, 0, 0, 0])
    for stop in stages(0, n - 1):
        follow_conga_line(
            *problem.arguments, node, active, place, subset, sizes, stale, edges, lengths, state,
            merges.pairs, merges.costs, stop,
        )  # fmt: skip
        yield int(state[MERGED])
    merges.evaluations += int(state[EVALUATIONS])
