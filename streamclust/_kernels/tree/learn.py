"""Events into the summary tree, and one tree into another."""

import numpy as np

from streamclust._kernels.compile import inlined, kernel, shared_part
from streamclust._kernels.moments import merge_into, scaled_square
from streamclust._kernels.tree.arrays import (
    DEEP,
    EVENTS,
    FREE_SLOTS,
    LANDMARK,
    LEAVES,
    NOW,
    Tree,
    absorb_rows,
    descend,
    descend_rows,
    fold_duplicates,
    is_one_point,
    offer,
)
from streamclust._kernels.tree.far import first_far, make_far_room, open_far_leaf
from streamclust._kernels.tree.split import split_whole_leaf
from streamclust._kernels.types import Floats, Ints

PERIOD = 2048
"""Events between two looks at the shape of a full tree."""

UNLIMITED = 2**62
"""The limit of a tree that holds all its events in leaves."""

HORIZON = 64.0
"""Half-lives after which weights are rescaled: 2^64 is far from overflow, and rescaling stays rare."""


def rescales(events: int) -> bool:
    """Whether the features' deviations are taken anew at this event count: at powers of two."""
    return events & (events - 1) == 0


is_rescaling = inlined(rescales)


@kernel
def insert_rows(
    tree: Tree,
    rows: Floats,
    weights: Floats,
    times: Floats,
    uniforms: Floats,
    start: int,
    half_life: float,
    limit: int,
    principal: bool,
    scaled: bool,
) -> int:
    """Insert rows[start:] up to the next change of shape; returns the first row not inserted.

    It stops where the arrays must grow, where a period ends, where a leaf has come to lie too deep, where the landmark
    of forward decay must move or, if `scaled`, where the features' deviations are taken anew. `weights` and `times` may
    be empty: every event weighs 1, and the clock counts events. `half_life` is inf where nothing is forgotten.
    """
    n, d = rows.shape
    most = min(n - start, PERIOD)
    x = np.empty((most, d))
    block_weights = np.empty(most)
    slots = np.empty(most, dtype=np.int64)
    order = np.empty(most, dtype=np.int64)
    i = start
    while i < n and tree.counts[DEEP] < 0:
        growing = tree.counts[LEAVES] < limit
        if growing and tree.counts[FREE_SLOTS] == 0:
            break
        # A tree that may still grow can change at every event; a full one only at the end of a period.
        size = 1 if growing else min(n - i, PERIOD - tree.counts[EVENTS] % PERIOD)
        if scaled and tree.counts[EVENTS] < PERIOD:  # powers of two come at short intervals
            size = 1
        now = tree.clock[NOW]
        size = forward_weights(tree, weights, times, i, size, half_life, block_weights)
        if size == 0:
            break
        for r in range(size):
            for j in range(d):
                x[r, j] = rows[i + r, j] - tree.origin[j]
        descend_rows(tree.child, tree.axis, tree.direction, tree.threshold, x, size, slots)
        far = size if limit == UNLIMITED else first_far(tree, rows, i, size, slots, block_weights)
        if 0 < far < size:  # rows before it first
            tree.clock[NOW] = now
            size = forward_weights(tree, weights, times, i, far, half_life, block_weights)
        elif far == 0 and size > 0:
            if size > 1:
                tree.clock[NOW] = now
                size = forward_weights(tree, weights, times, i, 1, half_life, block_weights)
            if make_far_room(tree, limit):
                slots[0] = descend(tree.child, tree.axis, tree.direction, tree.threshold, 0, x, 0)
                if first_far(tree, rows, i, 1, slots, block_weights) == 0:  # the leaf may have become another
                    slots[0] = open_far_leaf(tree, slots[0], rows, i)
        order_by_leaf(slots, size, tree.node.size, order)
        absorb_rows(tree, rows, i, x, order[:size], slots, block_weights, uniforms)
        if growing and is_full(tree, slots[0]):
            make_room(tree, slots[0], principal)
        i += size
        tree.counts[EVENTS] += size
        if tree.counts[EVENTS] % PERIOD == 0 or (scaled and is_rescaling(tree.counts[EVENTS])):
            break
    return i


@inlined
def forward_weights(
    tree: Tree, weights: Floats, times: Floats, first: int, size: int, half_life: float, out: Floats
) -> int:
    """Weights in forward-decay units of `size` events from `first`; fewer where the landmark has to move.

    Returns how many; 0 if the landmark has to move before the first.
    An event at time t weighs 2^((t - landmark) / half_life) of one at the landmark, so that nothing learnt
    before has to shrink.
    """
    for r in range(size):
        weight = weights[first + r] if weights.size else 1.0
        if half_life < np.inf:
            time = times[first + r] if times.size else tree.clock[NOW] + 1.0
            now = max(tree.clock[NOW], time)
            if (now - tree.clock[LANDMARK]) / half_life > HORIZON:
                return r
            tree.clock[NOW] = now
            weight *= 2.0 ** ((time - tree.clock[LANDMARK]) / half_life)
        out[r] = weight
    return size


@inlined
def order_by_leaf(slots: Ints, size: int, n_slots: int, order: Ints) -> None:
    """Rows sorted by leaf, each leaf's in the order they came: a leaf is brought into the cache once."""
    if size == 1:
        order[0] = 0
        return
    place = np.zeros(n_slots + 1, dtype=np.int64)
    for r in range(size):
        place[slots[r] + 1] += 1
    for slot in range(n_slots):
        place[slot + 1] += place[slot]
    for r in range(size):
        order[place[slots[r]]] = r
        place[slots[r]] += 1


@inlined
def is_full(tree: Tree, slot: int) -> bool:
    """Whether the leaf's sample, so far all its events, is full."""
    return tree.count[slot] == tree.key.shape[1] and tree.cutoff[slot] == np.inf


@shared_part
def make_room(tree: Tree, slot: int, principal: bool) -> None:
    """Split a full leaf, or fold its events into one if all are equal."""
    if is_one_point(tree, slot):
        fold_duplicates(tree, slot)
    else:
        split_whole_leaf(tree, slot, principal)


@kernel
def insert_events(tree: Tree, source: Tree, start: int, limit: int, principal: bool) -> int:
    """Insert the events of another tree's leaves, which hold all of theirs; returns the first slot not inserted.

    It stops where the arrays must grow, or where a leaf has come to lie too deep. The events bring their own keys.
    """
    d = tree.mean.shape[1]
    x = np.empty((1, d))
    one = np.zeros(1, dtype=np.int64)
    slots = np.empty(1, dtype=np.int64)
    more = np.empty(1)
    never = np.empty(source.key.shape[1])
    for k in range(never.size):
        never[k] = np.inf  # as uniforms: no other keys are drawn
    for other in range(start, source.node.size):
        if source.node[other] < 0:
            continue
        if tree.counts[DEEP] >= 0 or (tree.counts[FREE_SLOTS] < tree.key.shape[1] and tree.node.size < limit):
            return other
        points = source.points[other]
        for k in range(source.count[other]):
            for j in range(d):
                x[0, j] = points[k, j] - tree.origin[j]
            slot = descend(tree.child, tree.axis, tree.direction, tree.threshold, 0, x, 0)
            slots[0] = slot
            more[0] = source.point_weight[other, k]
            absorb_rows(tree, points, k, x, one, slots, more, never)
            if more[0] > 0.0:
                offer(
                    tree.points, tree.point_weight, tree.key, tree.count, tree.cutoff,
                    slot, points, k, more[0], source.key[other, k],
                )  # fmt: skip
            if tree.counts[LEAVES] < limit and tree.counts[FREE_SLOTS] > 0 and is_full(tree, slot):
                make_room(tree, slot, principal)
    return source.node.size


@kernel
def sum_nodes(
    tree: Tree, weight: Floats, mean: Floats, scatter: Floats, spread: Floats, lo: Floats, hi: Floats
) -> None:
    """Moments and boxes of every node, leaves first, each inner node from its children."""
    n_nodes = weight.size
    order = np.empty(n_nodes, dtype=np.int64)
    order[0] = 0
    n = 1
    k = 0
    while k < n:  # breadth first; read backwards, children come before parents
        child = tree.child[order[k]]
        if child >= 0:
            order[n] = child
            order[n + 1] = child + 1
            n += 2
        k += 1
    deviation = np.empty(mean.shape[1])
    for k in range(n - 1, -1, -1):
        node = order[k]
        child = tree.child[node]
        if child < 0:
            slot = ~child
            weight[node] = tree.weight[slot]
            spread[node] = tree.spread[slot]
            for j in range(scatter.shape[1]):
                scatter[node, j] = tree.scatter[slot, j]
            for j in range(mean.shape[1]):
                mean[node, j] = tree.mean[slot, j]
                lo[node, j] = tree.lo[slot, j]
                hi[node, j] = tree.hi[slot, j]
            continue
        weight[node] = 0.0
        spread[node] = spread[child] + spread[child + 1]
        total = weight[child] + weight[child + 1]
        if total > 0.0:
            for j in range(mean.shape[1]):
                deviation[j] = mean[child + 1, j] - mean[child, j]
            between = weight[child] * (weight[child + 1] / total)
            spread[node] += between * scaled_square(deviation, tree.inverse)
        for c in (child, child + 1):
            merge_into(weight, mean, scatter, node, weight[c], mean[c], scatter[c])
        for j in range(mean.shape[1]):
            lo[node, j] = min(lo[child, j], lo[child + 1, j])
            hi[node, j] = max(hi[child, j], hi[child + 1, j])
