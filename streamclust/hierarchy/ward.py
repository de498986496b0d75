"""Ward's tree, which is spherical RBHC's, by rounds of mutual nearest neighbours: exact, and mostly far below O(n²)."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from streamclust._kernels.hierarchy import costs as kernels
from streamclust._kernels.hierarchy.pairs import (
    LEAF_SIZE,
    bound_nodes,
    find_by_scan,
    find_in_tree,
    merge_pairs,
    sort_into_tree,
)
from streamclust._kernels.types import Floats, Ints
from streamclust.families.priors import spread_indices
from streamclust.hierarchy.nn_chain import chain_merges
from streamclust.hierarchy.problem import MergeProblem, Merges

TRIAL_ROWS = 100
"""Rows of the trial that shows whether the kd-tree prunes enough."""
MAX_VISITED_SHARE = 0.15
"""If the kd-tree visits more than this share of the rows, a plain scan is faster."""
MIN_MERGED_SHARE = 0.02
"""If a round merges a smaller share of the rows, the nearest-neighbour chain takes over."""


def ward_merges(problem: MergeProblem, merges: Merges) -> Generator[int, None, None]:
    """Merge all rows of a spherical RBHC problem; yields how many merges are done."""
    d = problem.n_features
    weight = problem.weight.copy()
    mean = problem.rows[:, kernels.STATISTIC : kernels.STATISTIC + d].copy()
    node, neighbour = np.arange(len(weight)), np.full(len(weight), -1)
    cost = np.full(len(weight), np.inf)
    done, pruning = 0, True
    while len(weight) > 1:
        if pruning:
            order, start = _tree_order(mean)
            weight, mean, node, cost = weight[order], mean[order], node[order], cost[order]
            neighbour = _follow_order(neighbour[order], order)
            pruning = _find(weight, mean, start, neighbour, cost)
        else:
            find_by_scan(np.flatnonzero(neighbour < 0), weight, mean, neighbour, cost)
        before, done = (
            done,
            merge_pairs(weight, mean, node, neighbour, cost, merges.pairs, merges.costs, done),
        )
        yield done
        left = np.flatnonzero(weight > 0)
        weight, mean, node, cost = weight[left], mean[left], node[left], cost[left]
        neighbour = _follow_order(neighbour[left], left)
        if done - before < MIN_MERGED_SHARE * len(weight):
            rest = MergeProblem(
                problem.method, problem.family, _rows(weight, mean), d, problem.prior, problem.table
            )
            yield from chain_merges(rest, merges, node=node, done=done)
            return


def _rows(weight: Floats, mean: Floats) -> Floats:
    return np.column_stack([np.zeros(len(weight)), weight, mean, np.zeros(len(weight))])


def _follow_order(neighbour: Ints, order: Ints) -> Ints:
    """Neighbour indices after reordering the rows."""
    place = np.empty(order.max() + 1, dtype=np.int64)
    place[order] = np.arange(len(order))
    return np.where(neighbour >= 0, place[neighbour], -1)


def _tree_order(mean: Floats) -> tuple[Ints, Ints]:
    """The rows in the order of a kd-tree's leaves, and where its nodes begin."""
    levels = int(np.ceil(np.log2(max(len(mean) / LEAF_SIZE, 1.0))))
    start = np.empty(2 ** (levels + 1), dtype=np.int64)
    order = np.arange(len(mean))
    sort_into_tree(mean, order, start)
    return order, start


def _find(weight: Floats, mean: Floats, start: Ints, neighbour: Ints, cost: Floats) -> bool:
    """Find the missing neighbours, through the tree if a trial shows that it pays; returns whether it did."""
    nodes = len(start) - 1
    lo, hi, lightest = np.empty((nodes, mean.shape[1])), np.empty((nodes, mean.shape[1])), np.empty(nodes)
    bound_nodes(weight, mean, start, lo, hi, lightest)
    wanted = np.flatnonzero(neighbour < 0)
    if len(wanted) > 2 * TRIAL_ROWS:
        trial = wanted[spread_indices(len(wanted), TRIAL_ROWS)]
        looked = find_in_tree(trial, weight, mean, start, lo, hi, lightest, neighbour, cost)
        if looked > MAX_VISITED_SHARE * len(trial) * len(weight):
            neighbour[trial] = -1
            find_by_scan(wanted, weight, mean, neighbour, cost)
            return False
        wanted = np.flatnonzero(neighbour < 0)
    find_in_tree(wanted, weight, mean, start, lo, hi, lightest, neighbour, cost)
    return True
