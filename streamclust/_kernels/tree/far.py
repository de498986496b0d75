"""Leaves of their own for events far from all others: in another leaf, one would take the digits of its moments."""

import numpy as np

from streamclust._kernels.compile import inlined, shared_part
from streamclust._kernels.tree.arrays import FREE_PAIRS, FREE_SLOTS, LEAVES, Tree
from streamclust._kernels.tree.split import note_depth
from streamclust._kernels.tree.swap import dissolve_leaf, dissolve_losses, place_node
from streamclust._kernels.types import Floats, Ints

MAX_LONE_SHARE = 0.125
"""At most this share of the leaves may hold one event each for being far: beyond it deviations are out of date."""


@inlined
def first_far(tree: Tree, raw: Floats, first: int, size: int, slots: Ints, weights: Floats) -> int:
    """The first of `size` events that lies far from the box of its leaf; `size` if none does."""
    for r in range(size):
        slot = slots[r]
        if tree.weight[slot] > 0.0 and weights[r] > 0.0:
            for j in range(tree.far.size):
                value = raw[first + r, j]
                if tree.lo[slot, j] - value > tree.far[j] or value - tree.hi[slot, j] > tree.far[j]:
                    return r
    return size


@shared_part
def make_far_room(tree: Tree, limit: int) -> bool:
    """Have a free leaf, if need be by dissolving the one that matters least; False where that cannot be."""
    lone = 0
    for slot in range(tree.node.size):
        if tree.node[slot] >= 0 and tree.count[slot] == 1 and tree.cutoff[slot] == np.inf:
            lone += 1
    if lone >= MAX_LONE_SHARE * limit:
        return False
    if tree.counts[LEAVES] < limit:
        return tree.counts[FREE_SLOTS] > 0
    loss = np.empty(tree.node.size)
    dissolve_losses(tree, loss)
    least = 0
    for slot in range(loss.size):
        if loss[slot] < loss[least]:
            least = slot
    if not loss[least] < np.inf:
        return False
    dissolve_leaf(tree, least)
    return True


@shared_part
def open_far_leaf(tree: Tree, slot: int, raw: Floats, row: int) -> int:
    """A new leaf for an event that lies far from the box of leaf `slot`; returns its slot.

    It is cut off at the root where the event is far from all others, so that later ones out there find it; else beside
    the leaf. The cut lies half as far from the box as an event that is far.
    """
    d = tree.far.size
    axis = 0
    most = -1.0
    for j in range(d):
        gap = max(tree.lo[slot, j] - raw[row, j], raw[row, j] - tree.hi[slot, j]) / tree.far[j]
        if gap > most:
            most = gap
            axis = j
    lo = np.inf
    hi = -np.inf
    for s in range(tree.node.size):
        if tree.node[s] >= 0 and tree.weight[s] > 0.0:
            lo = min(lo, tree.lo[s, axis])
            hi = max(hi, tree.hi[s, axis])
    node = 0
    if lo - raw[row, axis] <= tree.far[axis] and raw[row, axis] - hi <= tree.far[axis]:
        node = tree.node[slot]
        lo = tree.lo[slot, axis]
        hi = tree.hi[slot, axis]
    above = raw[row, axis] > hi
    threshold = hi + 0.5 * tree.far[axis] if above else lo - 0.5 * tree.far[axis]
    other = insert_above(tree, node, axis, threshold - tree.origin[axis], above)
    for s in range(tree.node.size):
        if tree.node[s] >= 0:
            note_depth(tree, s)
    return other


@inlined
def insert_above(tree: Tree, node: int, axis: int, threshold: float, above: bool) -> int:
    """Put a cut in the place of a node, which becomes one of its sides; returns the new leaf on the other.

    `above`: the new leaf lies where values exceed the threshold.
    """
    tree.counts[FREE_PAIRS] -= 1
    tree.counts[FREE_SLOTS] -= 1
    tree.counts[LEAVES] += 1
    left = 2 * tree.free_pair[tree.counts[FREE_PAIRS]] + 1
    other = tree.free_slot[tree.counts[FREE_SLOTS]]
    old, new = (left, left + 1) if above else (left + 1, left)
    place_node(tree, old, node)
    tree.child[node] = left
    tree.axis[node] = axis
    tree.threshold[node] = threshold
    for j in range(tree.direction.shape[1]):
        tree.direction[node, j] = 1.0 if j == axis else 0.0
    tree.parent[left] = tree.parent[left + 1] = node
    tree.child[new] = ~other
    tree.node[other] = new
    tree.gain_spread[other] = 0.0
    return other
