"""Many trees become one: their leaves are pooled, and a new tree is grown over the pool from its root."""

import math

import numpy as np

from streamclust._kernels.compile import inlined, kernel, part
from streamclust._kernels.moments import add_outer, dot
from streamclust._kernels.tree.arrays import FREE_PAIRS, FREE_SLOTS, LEAVES, Tree, project
from streamclust._kernels.tree.split import (
    CLEARLY,
    POWER_STEPS,
    cut_leaf,
    note_depth,
    sides,
    unit_vector,
)
from streamclust._kernels.tree.swap import clear_slot, merge_slot
from streamclust._kernels.types import Floats, Ints

CLOSED = -1.0
"""The gain of a group that is not split any more."""


@kernel
def regroup(tree: Tree, size: int, kept: int, limit: int, principal: bool) -> None:
    """Make a tree of at most `limit` leaves of those in the first `size` slots.

    The first `kept` of them hang on nodes (the first 2 · kept - 1) and stay whole; the others are dealt to these. The
    leaf of each node and what has come to it form a group; with nothing kept, all leaves are one. The group of largest
    scatter along the direction of its cut is cut in two through its mean, until there are `limit` groups; each becomes
    a leaf. A leaf that lies on both sides of a cut is cut with it, while there are free slots: else the leaves of many
    trees, which overlap, would make leaves twice as wide.
    """
    following = np.full(tree.node.size, -1, dtype=np.int64)  # groups are lists of slots
    first = np.full(2 * limit - 1, -1, dtype=np.int64)
    gain = np.full(2 * limit - 1, CLOSED)
    right = np.empty(tree.key.shape[1], dtype=np.int64)
    for slot in range(kept, size):
        following[slot] = first[0]
        first[0] = slot
    used = deal_to_leaves(tree, first, following, size, kept, right)
    groups = max(kept, 1)
    for node in range(2 * groups - 1):
        if first[node] >= 0:
            gain[node] = plan(tree, node, first[node], following, principal)
    while groups < limit:
        node = int(np.argmax(gain))
        if not gain[node] > 0.0:
            break
        gain[node] = CLOSED
        left = 2 * groups - 1
        used = deal_group(tree, node, first, left, following, used, kept, right)
        if first[left] < 0 or first[left + 1] < 0:  # means that rounding puts on one side
            first[node] = max(first[left], first[left + 1])
            first[left] = first[left + 1] = -1
            continue
        groups += 1
        tree.child[node] = left
        for side in (left, left + 1):
            tree.parent[side] = node
            gain[side] = plan(tree, side, first[side], following, principal)
    join_groups(tree, first, following, 2 * groups - 1)


@inlined
def deal_to_leaves(tree: Tree, first: Ints, following: Ints, used: int, kept: int, right: Ints) -> int:
    """Deal the leaves of the root's group down the nodes there are, to join the leaf kept at each."""
    node_of = np.zeros(max(2 * kept - 1, 1), dtype=np.int64)  # from the root, level by level
    n = 1
    k = 0
    while k < n and kept > 0:
        node = node_of[k]
        left = tree.child[node]
        if left >= 0:
            used = deal_group(tree, node, first, left, following, used, kept, right)
            node_of[n] = left
            node_of[n + 1] = left + 1
            n += 2
        else:
            following[~left] = first[node]
            first[node] = ~left
        k += 1
    return used


@part
def plan(tree: Tree, node: int, start: int, following: Ints, principal: bool) -> float:
    """Write where to cut the group of a node; return the scatter along that direction, CLOSED if it stays whole.

    Through the mean; `principal`: across the principal direction, else across the feature of largest scatter.
    """
    d = tree.mean.shape[1]
    if following[start] < 0 or fits_one_leaf(tree, start, following):
        return CLOSED
    weight = 0.0
    mean = np.zeros(d)
    slot = start
    while slot >= 0:
        weight += tree.weight[slot]
        share = tree.weight[slot] / weight if weight > 0.0 else 0.0
        for j in range(d):
            mean[j] += share * (tree.mean[slot, j] - mean[j])
        slot = following[slot]
    scatter = group_scatter(tree, start, following, mean)
    v = tree.direction[node]
    axis = 0
    inverse = tree.inverse
    for j in range(d):
        for i in range(d):
            scatter[i * d + j] *= inverse[i] * inverse[j]
    for j in range(1, d):
        if scatter[j * d + j] > CLEARLY * scatter[axis * d + axis]:
            axis = j
    unit_vector(v, axis)
    image = np.empty(d)
    for _ in range(POWER_STEPS if principal else 0):
        multiply(scatter, v, image)
        length = math.sqrt(dot(image, image))
        if not length > 0.0:
            break
        for j in range(d):
            v[j] = image[j] / length
    multiply(scatter, v, image)
    gain = dot(v, image)
    if principal:
        for j in range(d):
            v[j] *= inverse[j]
    tree.axis[node] = -1 if principal else axis
    tree.threshold[node] = dot(v, mean)
    return gain


@inlined
def fits_one_leaf(tree: Tree, start: int, following: Ints) -> bool:
    """Whether the events of a group are all at hand and one leaf's sample holds them."""
    count = 0
    slot = start
    while slot >= 0 and tree.cutoff[slot] == np.inf and count <= tree.key.shape[1]:
        count += tree.count[slot]
        slot = following[slot]
    return slot < 0 and count <= tree.key.shape[1]


@inlined
def group_scatter(tree: Tree, start: int, following: Ints, mean: Floats) -> Floats:
    """A group's full scatter as far as known: of its leaves' means, and the leaves' own in the kind they keep."""
    d = mean.size
    width = tree.scatter.shape[1]
    scatter = np.zeros(d * d)
    deviation = np.empty(d)
    slot = start
    while slot >= 0:
        for j in range(d):
            deviation[j] = tree.mean[slot, j] - mean[j]
        add_outer(scatter, deviation, tree.weight[slot])
        if width == d * d:
            for j in range(width):
                scatter[j] += tree.scatter[slot, j]
        else:
            for j in range(d):
                scatter[j * d + j] += tree.scatter[slot, j] if width == d else tree.spread[slot] / d
        slot = following[slot]
    return scatter


@inlined
def multiply(scatter: Floats, v: Floats, out: Floats) -> None:
    """out = S v, for a flattened symmetric S."""
    d = v.size
    for j in range(d):
        out[j] = 0.0
    for i in range(d):
        for j in range(d):
            out[j] += scatter[i * d + j] * v[i]


@part
def deal_group(
    tree: Tree, node: int, first: Ints, left: int, following: Ints, used: int, kept: int, right: Ints
) -> int:
    """Deal a group's leaves to the two children of its node by their means; returns how many slots are used then.

    A leaf whose sample lies on both sides becomes two, as in any split, unless it is one of the first `kept`.
    """
    v = tree.direction[node]
    axis = tree.axis[node]
    threshold = tree.threshold[node]
    slot = first[node]
    first[node] = -1
    while slot >= 0:
        after = following[slot]
        other = -1
        if slot >= kept and used < tree.node.size:
            n_right = sides(tree.points, slot, tree.count[slot], tree.origin, axis, v, threshold, right)
            if 0 < n_right < tree.count[slot]:
                other = used
                used += 1
                cut_leaf(tree, slot, other, right, v, threshold)
        for half in (slot, other):
            if half >= 0:
                projection = (
                    tree.mean[half, axis] if axis >= 0 else project(tree.direction, node, tree.mean, half)
                )
                side = left + (1 if projection > threshold else 0)
                following[half] = first[side]
                first[side] = half
        slot = after
    return used


@inlined
def join_groups(tree: Tree, first: Ints, following: Ints, nodes: int) -> None:
    """Merge each group into its first slot, and hang that on its node; count what is left free."""
    none = np.zeros(tree.mean.shape[1])
    for slot in range(tree.node.size):
        tree.node[slot] = -1
    leaves = 0
    for node in range(nodes):
        to = first[node]
        if to < 0:
            continue
        slot = following[to]
        while slot >= 0:
            merge_slot(tree, to, tree, slot, none, 1.0)
            clear_slot(tree, slot)
            slot = following[slot]
        tree.gain_spread[to] = 0.0
        tree.child[node] = ~to
        tree.node[to] = node
        leaves += 1
    free = tree.node.size - leaves
    tree.counts[LEAVES] = leaves
    tree.counts[FREE_PAIRS] = tree.counts[FREE_SLOTS] = free
    place = 0
    for slot in range(tree.node.size - 1, -1, -1):
        if tree.node[slot] < 0:
            tree.free_slot[place] = slot
            place += 1
    for k in range(free):
        tree.free_pair[k] = tree.node.size - 2 - k


@kernel
def note_depths(tree: Tree) -> None:
    """Remember one of the leaves that lie too deep, if any does."""
    for slot in range(tree.node.size):
        if tree.node[slot] >= 0:
            note_depth(tree, slot)
