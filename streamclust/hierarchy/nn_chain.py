"""Nearest-neighbour chain: O(n²) time, O(n) memory, for costs that are reducible or nearly so [relaxed BHC]."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from streamclust._kernels.hierarchy.search import ACTIVE, EVALUATIONS, MERGED, NOBODY, follow_chain
from streamclust._kernels.types import Ints
from streamclust.hierarchy.problem import MergeProblem, Merges, stages


def chain_merges(
    problem: MergeProblem, merges: Merges, threshold: float = np.inf, node: Ints | None = None, done: int = 0
) -> Generator[int, None, None]:
    """Merge all rows; yields how many merges are done.

    With a threshold, mutual neighbours that cost more become roots [relaxed BHC, the chain with a threshold];
    the roots then merge with each other, in a storey of their own. `node` and `done` say which nodes the
    rows are, and after how many merges, where another search has begun the tree.
    """
    node = np.arange(problem.n_leaves) if node is None else node
    active = np.arange(problem.n_leaves)
    if threshold < np.inf:
        done = yield from _follow(problem, merges, threshold, node, active, done)
        merges.first_storey = done
        active = np.flatnonzero(~np.isin(node, merges.pairs[:done]))  # a node that has merged is no root
    yield from _follow(problem, merges, np.inf, node, active, done)


def _follow(
    problem: MergeProblem, merges: Merges, threshold: float, node: Ints, active: Ints, done: int
) -> Generator[int, None, int]:
    """One chain over the active rows; returns the merges done in all."""
    size = problem.n_leaves
    place = np.full(size, NOBODY)
    place[active] = np.arange(len(active))
    active = active.copy()
    chain, position = np.empty(size, dtype=np.int64), np.full(size, NOBODY)
    state = np.array([len(active), done, 0, 0])
    for stop in stages(done, done + len(active) - 1):
        follow_chain(
            *problem.arguments, node, active, place, chain, position, state, threshold,
            merges.pairs, merges.costs, stop,
        )  # fmt: skip
        yield int(state[MERGED])
        if state[ACTIVE] < 2:
            break
    merges.evaluations += int(state[EVALUATIONS])
    return int(state[MERGED])
