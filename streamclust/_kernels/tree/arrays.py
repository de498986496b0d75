"""The summary tree as arrays: types, descent, absorbing an event, the leaf sample.

Coordinates: boxes and sampled points are as they came. Means, directions and thresholds are relative to
`origin`, the first event ever seen, so that data far from zero keep all their digits. Moments are in the events' own
units; whatever chooses (where to cut, what to dissolve) compares features in deviations, see `inverse`.
"""

import math
from typing import NamedTuple

import numpy as np

from streamclust._kernels.compile import inlined, kernel, kernel_with_free_sums, part, shared_part
from streamclust._kernels.types import Floats, Ints


class Tree(NamedTuple):
    """Nodes come in pairs (2p + 1, 2p + 2); node 0 is the root. Leaves own slots."""

    # per node
    child: Ints  # left child (the right one is next to it), or ~slot of a leaf
    parent: Ints
    axis: Ints  # feature that splits the node, or -1 where a direction does
    direction: Floats
    threshold: Floats  # a point goes right where its projection exceeds this
    # per leaf slot
    node: Ints  # the slot's node, or -1 where the slot is free
    weight: Floats
    mean: Floats
    scatter: Floats  # flattened, see _kernels.moments
    spread: Floats  # trace of the full scatter in deviations, kept for every kind of scatter
    lo: Floats
    hi: Floats
    gain: Floats  # the spread a split would take away, as estimated when ...
    gain_spread: Floats  # ... the spread was this
    # the sample of each slot: the events with the smallest keys
    points: Floats
    point_weight: Floats
    key: Floats
    count: Ints  # type: ignore[assignment]  # a tuple's count() is not missed
    cutoff: Floats  # every event of the leaf with a key below this is in the sample; inf: all of them
    # free lists and counters
    free_pair: Ints
    free_slot: Ints
    counts: Ints
    clock: Floats
    origin: Floats
    inverse: Floats  # one over each feature's deviation; 0 while it has none
    far: Floats  # an event so far from the box of its leaf, in a feature, gets a leaf of its own; inf while unknown


LEAVES, FREE_PAIRS, FREE_SLOTS, EVENTS, DEEP = 0, 1, 2, 3, 4  # in Tree.counts; DEEP: a leaf too deep, or -1
LANDMARK, NOW = 0, 1  # in Tree.clock


@part
def project(direction: Floats, node: int, x: Floats, row: int) -> float:
    """direction[node] · x[row]."""
    total = 0.0
    for j in range(x.shape[1]):
        total += direction[node, j] * x[row, j]
    return total


@part
def descend(
    child: Ints, axis: Ints, direction: Floats, threshold: Floats, start: int, x: Floats, row: int
) -> int:
    """The slot of the leaf below node `start` in whose cell x[row] (relative to the origin) falls."""
    node = start
    below = child[node]
    while below >= 0:
        projection = x[row, axis[node]] if axis[node] >= 0 else project(direction, node, x, row)
        node = below + (1 if projection > threshold[node] else 0)
        below = child[node]
    return ~below


GROUP = 32


@kernel_with_free_sums
def descend_rows(
    child: Ints, axis: Ints, direction: Floats, threshold: Floats, x: Floats, n: int, slots: Ints
) -> None:
    """The leaf slot of each of the first n rows, relative to the origin.

    Rows go down in groups, one level of all of them at a time: their memory accesses overlap.
    """
    d = x.shape[1]
    node = np.zeros(GROUP, dtype=np.uint64)  # unsigned: spares the check for indices from the end
    for start in range(0, n, GROUP):
        size = min(GROUP, n - start)
        for k in range(size):
            node[k] = 0
        moving = True
        while moving:
            moving = False
            for k in range(size):
                here = node[k]
                below = child[here]
                if below >= 0:
                    moving = True
                    if axis[here] >= 0:
                        projection = x[start + k, axis[here]]
                    else:
                        projection = 0.0
                        for j in range(d):
                            projection += direction[here, j] * x[start + k, j]
                    node[k] = below + (1 if projection > threshold[here] else 0)
        for k in range(size):
            slots[start + k] = ~child[node[k]]


ABSORBED_ROWS = 4


@shared_part
def absorb_rows(
    tree: Tree,
    raw: Floats,
    first: int,
    x: Floats,
    order: Ints,
    slots: Ints,
    weights: Floats,
    uniforms: Floats,
) -> None:
    """Add events to the moments (Welford), the box and the sample of their leaves.

    Event r is raw[first + r], x[r] relative to the origin, with uniforms[first + r]. This is where the time goes: up to
    four events in a row of one leaf are added to its scatter in one pass. Every number is summed in the order of the
    events, so that it does not matter which of them came together.
    """
    d = x.shape[1]
    weight, mean, spread, lo, hi, inverse = (
        tree.weight,
        tree.mean,
        tree.spread,
        tree.lo,
        tree.hi,
        tree.inverse,
    )
    cutoff = tree.cutoff
    deviation = np.empty((ABSORBED_ROWS, d))
    factor = np.empty(ABSORBED_ROWS)
    squares = np.empty(ABSORBED_ROWS)
    done = 0
    while done < order.size:
        slot = slots[order[done]]
        n = 0
        while done < order.size and n < ABSORBED_ROWS and slots[order[done]] == slot:
            r = order[done]
            done += 1
            more = weights[r]
            if not more > 0.0:
                continue  # so late an event that nothing of it is left
            row = first + r
            before = weight[slot]
            total = before + more
            share = more / total
            factor[n] = before * share
            weight[slot] = total
            for j in range(d):
                gap = x[r, j] - mean[slot, j]
                deviation[n, j] = gap
                mean[slot, j] += share * gap
            if before <= 0.0:  # an empty leaf has no mean of its own: the first event's is exact
                for j in range(d):
                    mean[slot, j] = x[r, j]
            outside = 0
            for j in range(d):
                outside += int(raw[row, j] < lo[slot, j]) + int(raw[row, j] > hi[slot, j])
            if outside > 0:
                for j in range(d):
                    lo[slot, j] = min(lo[slot, j], raw[row, j])
                    hi[slot, j] = max(hi[slot, j], raw[row, j])
            uniform = uniforms[row]
            if uniform < more * cutoff[slot]:  # else its key, at least uniform / more, is too large
                offer(
                    tree.points, tree.point_weight, tree.key, tree.count, cutoff,
                    slot, raw, row, more, sample_key(uniform, more),
                )  # fmt: skip
            n += 1
        for k in range(ABSORBED_ROWS):
            squares[k] = 0.0
        for j in range(d):
            for k in range(ABSORBED_ROWS):  # rows past n are not read: a fixed number is quicker
                scaled_gap = deviation[k, j] * inverse[j]
                squares[k] += scaled_gap * scaled_gap
        for k in range(n):
            spread[slot] += factor[k] * squares[k]
        add_scatter(tree.scatter, slot, deviation, factor, squares, n)


@part
def add_scatter(
    scatter: Floats, slot: int, deviation: Floats, factor: Floats, squares: Floats, n: int
) -> None:
    """Add what the first n deviations, each times its factor, make of a leaf's scatter, one after the other."""
    d, width = deviation.shape[1], scatter.shape[1]
    if width == 1 and d > 1:
        for k in range(n):
            scatter[slot, 0] += factor[k] * squares[k]
    elif width == d and d > 1:
        for k in range(n):
            for i in range(d):
                scatter[slot, i] += factor[k] * deviation[k, i] * deviation[k, i]
    elif width == d * d:
        for i in range(d):
            row = i * d
            k = 0
            if n == 4:
                a, b = factor[0] * deviation[0, i], factor[1] * deviation[1, i]
                e, f = factor[2] * deviation[2, i], factor[3] * deviation[3, i]
                for j in range(d):
                    total = scatter[slot, row + j] + a * deviation[0, j]
                    total += b * deviation[1, j]
                    total += e * deviation[2, j]
                    scatter[slot, row + j] = total + f * deviation[3, j]
                k = 4
            elif n >= 2:
                a, b = factor[0] * deviation[0, i], factor[1] * deviation[1, i]
                for j in range(d):
                    total = scatter[slot, row + j] + a * deviation[0, j]
                    scatter[slot, row + j] = total + b * deviation[1, j]
                k = 2
            if k < n:
                a = factor[k] * deviation[k, i]
                for j in range(d):
                    scatter[slot, row + j] += a * deviation[k, j]


@inlined
def sample_key(uniform: float, weight: float) -> float:
    """An exponential variate over the weight: keeping the smallest keys samples in proportion to weight."""
    return -math.log1p(-uniform) / weight


@part
def offer(
    points: Floats, point_weight: Floats, keys: Floats, count: Ints, cutoff: Floats,
    slot: int, raw: Floats, row: int, weight: float, key: float,
) -> None:  # fmt: skip
    """Let an event into the leaf's sample if its key is among the smallest."""
    if key >= cutoff[slot]:
        return
    size = keys.shape[1]
    place = count[slot]
    if place < size:
        count[slot] += 1
    else:
        place = 0
        for k in range(1, size):
            if keys[slot, k] > keys[slot, place]:
                place = k
        if key >= keys[slot, place]:
            cutoff[slot] = key
            return
        cutoff[slot] = keys[slot, place]
    for j in range(raw.shape[1]):
        points[slot, place, j] = raw[row, j]
    point_weight[slot, place] = weight
    keys[slot, place] = key


@inlined
def sample_mass(weight: float, cutoff: float) -> float:
    """Mass that a sampled event stands for: its weight over the chance 1 - exp(-weight · cutoff) of being sampled."""
    chance = weight * cutoff
    if chance < 1e-12:  # so far in the past, or so rare, that 1 - exp(-chance) is chance
        return 1.0 / cutoff if weight > 0.0 else 0.0
    return weight / -math.expm1(-chance)


@kernel
def sample_masses(tree: Tree, slots: Ints) -> Floats:
    """The mass of each sampled event of the given leaves, adding up to the leaf's weight."""
    out = np.zeros((slots.size, tree.key.shape[1]))
    for s in range(slots.size):
        slot = slots[s]
        total = 0.0
        for k in range(tree.count[slot]):
            out[s, k] = sample_mass(tree.point_weight[slot, k], tree.cutoff[slot])
            total += out[s, k]
        for k in range(tree.count[slot]):
            out[s, k] *= tree.weight[slot] / total if total > 0.0 else 0.0
    return out


@inlined
def is_one_point(tree: Tree, slot: int) -> bool:
    """Whether all events of the leaf are equal."""
    for j in range(tree.lo.shape[1]):
        if tree.lo[slot, j] < tree.hi[slot, j]:
            return False
    return True


@inlined
def fold_duplicates(tree: Tree, slot: int) -> None:
    """A full sample of equal events becomes one point of their weight: nothing is lost, and there is room."""
    for k in range(1, tree.count[slot]):
        tree.point_weight[slot, 0] += tree.point_weight[slot, k]
        tree.key[slot, 0] = min(tree.key[slot, 0], tree.key[slot, k])
    tree.count[slot] = 1


NEGLIGIBLE = 1e-250
"""A leaf or a sampled event of less weight is forgotten for good: its weight would soon be no number to divide by."""


@inlined
def empty_leaf(tree: Tree, slot: int) -> None:
    """A leaf that has nothing left: no weight, no sample, no box. Its mean stays, to say where it lies."""
    tree.weight[slot] = 0.0
    tree.spread[slot] = 0.0
    tree.gain[slot] = 0.0
    tree.gain_spread[slot] = 0.0
    tree.count[slot] = 0
    tree.cutoff[slot] = np.inf
    for j in range(tree.scatter.shape[1]):
        tree.scatter[slot, j] = 0.0
    for j in range(tree.lo.shape[1]):
        tree.lo[slot, j] = np.inf
        tree.hi[slot, j] = -np.inf


@kernel
def rescale(tree: Tree, factor: float) -> None:
    """Multiply every weight by `factor`: with a power of two, no digit changes."""
    for slot in range(tree.weight.size):
        tree.weight[slot] *= factor
        if tree.weight[slot] <= NEGLIGIBLE:
            empty_leaf(tree, slot)
            continue
        tree.spread[slot] *= factor
        tree.gain[slot] *= factor
        tree.gain_spread[slot] *= factor
        tree.cutoff[slot] /= factor
        for j in range(tree.scatter.shape[1]):
            tree.scatter[slot, j] *= factor
        kept = 0
        for k in range(tree.count[slot]):
            weight = tree.point_weight[slot, k] * factor
            if weight > NEGLIGIBLE:
                tree.point_weight[slot, kept] = weight
                tree.key[slot, kept] = tree.key[slot, k] / factor
                for j in range(tree.points.shape[2]):
                    tree.points[slot, kept, j] = tree.points[slot, k, j]
                kept += 1
        tree.count[slot] = kept


@kernel
def move_landmark(tree: Tree, half_life: float, now: float) -> None:
    """Move the landmark of forward decay up to the next event, by whole half-lives, and all weights with it."""
    steps = np.floor((now - tree.clock[LANDMARK]) / half_life)
    if steps <= 1000.0:
        rescale(tree, 2.0**-steps)
        tree.clock[LANDMARK] += steps * half_life
    else:  # nothing is left, and no number of half-lives so large would be exact
        for slot in range(tree.weight.size):
            empty_leaf(tree, slot)
        tree.clock[LANDMARK] = now
