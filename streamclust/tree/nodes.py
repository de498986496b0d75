"""Nodes of a summary tree: their moments and boxes, and the cuts that refits read."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from streamclust._kernels.tree.arrays import Tree
from streamclust._kernels.tree.learn import sum_nodes
from streamclust._kernels.types import Floats, Ints
from streamclust.tree.rows import check_positive, whole_number


class NodeRows(NamedTuple):
    """Moments and boxes of every node, relative to the tree's origin and in forward-decay units."""

    weight: Floats
    mean: Floats
    scatter: Floats
    spread: Floats
    lo: Floats
    hi: Floats


def node_rows(tree: Tree) -> NodeRows:
    """Sum the leaves' moments and join their boxes, up to the root."""
    nodes, d = len(tree.child), len(tree.origin)
    rows = NodeRows(
        np.zeros(nodes), np.zeros((nodes, d)), np.zeros((nodes, tree.scatter.shape[1])), np.zeros(nodes),
        np.full((nodes, d), np.inf), np.full((nodes, d), -np.inf),
    )  # fmt: skip
    sum_nodes(tree, *rows)
    return rows


def cut_at(child: Ints, level: int) -> Ints:
    """The nodes at a depth, and the leaves above it."""
    cut = np.zeros(1, dtype=np.int64)
    for _ in range(whole_number("level", level, least=0)):
        before, cut = cut, refined(child, cut, cut)
        if len(cut) == len(before):
            break
    return cut


def cut_by_spread(child: Ints, spread: Floats, tolerance: float) -> Ints:
    """Nodes that have at most a fraction `tolerance` of the root's spread, and leaves."""
    check_positive("tolerance", tolerance)
    cut = np.zeros(1, dtype=np.int64)
    while len(wide := cut[(spread[cut] > tolerance * spread[0]) & (child[cut] >= 0)]):
        cut = refined(child, cut, wide)
    return cut


def cut_within(child: Ints, spread: Floats, budget: int) -> Ints:
    """At most `budget` nodes: the node of largest spread is opened first."""
    budget = whole_number("budget", budget, least=1)
    heap = [(-spread[0], 0)]
    done: list[int] = []
    while heap and len(heap) + len(done) < budget:
        _, node = heapq.heappop(heap)
        if child[node] < 0:
            done.append(node)
            continue
        for part in (int(child[node]), int(child[node]) + 1):
            heapq.heappush(heap, (-spread[part], part))
    return np.array(sorted(done + [node for _, node in heap]), dtype=np.int64)


def refined(child: Ints, cut: Ints, nodes: Ints) -> Ints:
    """The cut with the given nodes replaced by their children, in place; leaves stay."""
    opened = np.isin(cut, nodes) & (child[cut] >= 0)
    left = child[cut]
    parts = np.where(opened[:, None], np.stack([left, left + 1], axis=1), np.stack([cut, cut], axis=1))
    keep = np.stack([np.ones_like(opened), opened], axis=1)
    return parts[keep]
