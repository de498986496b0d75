"""Rebalancing: streams sorted in space would grow a chain of nodes, not a tree."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.tree.arrays import DEEP, FREE_PAIRS, Tree
from streamclust._kernels.tree.merge import note_depths
from streamclust._kernels.tree.split import CLEARLY, too_deep
from streamclust._kernels.types import Floats, Ints

TIED = 1e-12
"""Means nearer than this part of the largest are equal but for rounding."""


def balance(tree: Tree) -> None:
    """Rebuild subtrees until no leaf lies too deep."""
    note_depths(tree)
    while tree.counts[DEEP] >= 0:
        rebalance(tree)
        note_depths(tree)


def rebalance(tree: Tree) -> None:
    """Rebuild the smallest subtree above the leaf noted as too deep that is too deep for its size.

    As in a scapegoat tree, this costs O(log n) per event on average. The leaves stay as they are; only the inner
    nodes above them change.
    """
    slot = int(tree.counts[DEEP])
    tree.counts[DEEP] = -1
    node, height = int(tree.node[slot]), 0
    while node > 0:
        node, height = int(tree.parent[node]), height + 1
        slots, _ = _below(tree, node)
        if too_deep(height, len(slots)):
            _rebuild(tree, node)
            return


def _below(tree: Tree, top: int) -> tuple[Ints, list[int]]:
    """Slots of the leaves below a node, and the pairs of nodes between."""
    slots: list[int] = []
    pairs: list[int] = []
    stack = [top]
    while stack:
        child = int(tree.child[stack.pop()])
        if child < 0:
            slots.append(~child)
        else:
            pairs.append((child - 1) // 2)
            stack += [child, child + 1]
    return np.array(slots, dtype=np.int64), pairs


def _halves(means: Floats, inverse: Floats) -> tuple[int, Floats, Ints, float]:
    """Where to cut leaves in two, by the median of their means: axis or -1, direction, order, threshold.

    Along the widest axis or, where means tie at the median, as those of 0 and 1 do, across all axes: events must be
    found where they were put.
    """
    d = means.shape[1]
    sides = np.ptp(means, axis=0) * inverse
    widest = int(np.argmax(sides * CLEARLY >= sides.max()))
    for axis, direction in ((widest, np.eye(d)[widest]), (-1, inverse * np.cos(np.arange(1.0, d + 1.0)))):
        place = means[:, axis] if axis >= 0 else (means * direction).sum(axis=1)
        order = np.argsort(place, kind="stable")
        below, above = place[order[len(order) // 2 - 1]], place[order[len(order) // 2]]
        if above - below > TIED * np.abs(place).max():
            break
    threshold = below + 0.5 * (above - below)
    return axis, direction, order, float(below if threshold >= above else threshold)


def _rebuild(tree: Tree, top: int) -> None:
    """A balanced subtree over the same leaves."""
    slots, pairs = _below(tree, top)
    free = int(tree.counts[FREE_PAIRS])
    tree.free_pair[free : free + len(pairs)] = pairs
    tree.counts[FREE_PAIRS] += len(pairs)
    stack = [(top, slots)]
    while stack:
        node, part = stack.pop()
        if len(part) == 1:
            tree.child[node] = ~part[0]
            tree.node[part[0]] = node
            continue
        tree.axis[node], tree.direction[node], order, tree.threshold[node] = _halves(
            tree.mean[part], tree.inverse
        )
        middle = len(part) // 2
        tree.counts[FREE_PAIRS] -= 1
        child = 2 * int(tree.free_pair[tree.counts[FREE_PAIRS]]) + 1
        tree.child[node] = child
        tree.parent[child : child + 2] = node
        stack += [(child, part[order[:middle]]), (child + 1, part[order[middle:]])]
