"""Rebalancing: streams sorted in space would grow a chain of nodes, not a tree."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.tree.arrays import DEEP, FREE_PAIRS, Tree
from streamclust._kernels.tree.merge import note_depths
from streamclust._kernels.tree.split import CLEARLY, too_deep
from streamclust._kernels.types import Ints


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


def _rebuild(tree: Tree, top: int) -> None:
    """A balanced subtree over the same leaves: by the median of their means along the widest axis."""
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
        means = tree.mean[part]
        sides = np.ptp(means, axis=0) * tree.inverse
        axis = int(np.argmax(sides * CLEARLY >= sides.max()))
        order = np.argsort(means[:, axis], kind="stable")
        middle = len(part) // 2
        below, above = means[order[middle - 1], axis], means[order[middle], axis]
        threshold = below + 0.5 * (above - below)
        tree.axis[node] = axis
        tree.threshold[node] = below if threshold >= above else threshold
        tree.direction[node] = 0.0
        tree.direction[node, axis] = 1.0
        tree.counts[FREE_PAIRS] -= 1
        child = 2 * int(tree.free_pair[tree.counts[FREE_PAIRS]]) + 1
        tree.child[node] = child
        tree.parent[child : child + 2] = node
        stack += [(child, part[order[:middle]]), (child + 1, part[order[middle:]])]
