"""Splitting a leaf of the summary tree: where, and what becomes of its events."""

import math

import numpy as np

from streamclust._kernels.compile import inlined, part, shared_part
from streamclust._kernels.moments import add_outer, dot, scaled_square
from streamclust._kernels.tree.arrays import (
    DEEP,
    FREE_PAIRS,
    FREE_SLOTS,
    LEAVES,
    NEGLIGIBLE,
    Tree,
    sample_mass,
)
from streamclust._kernels.types import Floats, Ints

POWER_STEPS = 12
"""Power iterations for a principal direction: where the two largest eigenvalues are too close for it, either
direction splits as well."""

CLEARLY = 1.0 + 1e-9
"""Of features that vary equally, as all do at the root in their own deviations, the first is taken: rounding, which
depends on their units, must not choose."""

FAR_SQUARE = 1.0
"""Squared distance, in deviations, that events count for where they are `far` from each other: some wild events must
not take the leaves of all others."""

MAX_BETWEEN = 0.95
"""An apportioned split may explain at most this part of the scatter along its direction."""

# ------------------------------------------------------------------ where


@part
def sample_deviations(tree: Tree, slot: int) -> tuple[Floats, Floats]:
    """The leaf's sampled points relative to their own mean, and the mass of each."""
    n = tree.count[slot]
    d = tree.mean.shape[1]
    mass = np.empty(n)
    points = np.empty((n, d))
    total = 0.0
    for k in range(n):
        mass[k] = sample_mass(tree.point_weight[slot, k], tree.cutoff[slot])
        total += mass[k]
    for j in range(d):
        centre = 0.0
        for k in range(n):
            points[k, j] = tree.points[slot, k, j] - tree.origin[j]
            centre += mass[k] * points[k, j]
        centre = centre / total if total > 0.0 else 0.0
        for k in range(n):
            points[k, j] -= centre
    return points, mass


@inlined
def unit_vector(v: Floats, axis: int) -> None:
    """Write the unit vector of an axis into v; zeros for axis -1."""
    for j in range(v.size):
        v[j] = 1.0 if j == axis else 0.0


@part
def multiply_scatter(
    scatter: Floats, slot: int, points: Floats, mass: Floats, v: Floats, out: Floats
) -> None:
    """out = S v, from the scatter where the full matrix is kept, else from the sample."""
    d = v.size
    for j in range(d):
        out[j] = 0.0
    if scatter.shape[1] == d * d:
        for i in range(d):  # symmetric: by rows, so that the inner loop has no sum to wait for
            for j in range(d):
                out[j] += scatter[slot, i * d + j] * v[i]
        return
    for k in range(mass.size):
        along = 0.0
        for j in range(d):
            along += points[k, j] * v[j]
        for j in range(d):
            out[j] += mass[k] * along * points[k, j]


@part
def principal_direction(
    scatter: Floats, slot: int, points: Floats, mass: Floats, inverse: Floats, v: Floats
) -> None:
    """Write into v the vector whose product with an event is its place along the principal direction in deviations."""
    d = v.size
    image = np.empty(d)
    widest = 0
    best = 0.0
    for j in range(d):  # start from the feature of largest scatter
        if scatter.shape[1] == d * d:
            along = scatter[slot, j * d + j] * inverse[j] * inverse[j]
        else:
            along = 0.0
            for k in range(mass.size):
                scaled = points[k, j] * inverse[j]
                along += mass[k] * scaled * scaled
        if along > CLEARLY * best:
            best = along
            widest = j
    unit_vector(v, widest)
    v[widest] = inverse[widest]
    for _ in range(POWER_STEPS):
        multiply_scatter(scatter, slot, points, mass, v, image)
        for j in range(d):
            image[j] *= inverse[j]
        length = math.sqrt(dot(image, image))
        if not length > 0.0:
            return
        for j in range(d):
            v[j] = inverse[j] * (image[j] / length)


@shared_part
def propose(tree: Tree, slot: int, principal: bool, v: Floats, right: Ints) -> tuple[int, float, bool]:
    """Where to split the leaf: (axis or -1, threshold, whether its sample can be told apart).

    `principal`: through the mean, across the principal direction [chunky greedy EM §3.1.1].
    Otherwise: by the middle of the box's widest side [Moore 1999].
    The direction is written into v; `right` marks the sampled points that would go right.
    """
    d = v.size
    axis = -1
    if principal and (tree.scatter.shape[1] != d or d == 1):
        points, mass = sample_deviations(tree, slot)
        principal_direction(tree.scatter, slot, points, mass, tree.inverse, v)
        threshold = 0.0
        for j in range(d):
            threshold += v[j] * tree.mean[slot, j]
    else:
        side = 0.0
        axis = 0
        for j in range(d):
            if principal:
                here = tree.scatter[slot, j] * tree.inverse[j] * tree.inverse[j]
            else:
                here = (tree.hi[slot, j] - tree.lo[slot, j]) * tree.inverse[j]
            if here > CLEARLY * side:
                side = here
                axis = j
        unit_vector(v, axis)
        lo = tree.lo[slot, axis] - tree.origin[axis]
        hi = tree.hi[slot, axis] - tree.origin[axis]
        threshold = tree.mean[slot, axis] if principal else lo + 0.5 * (hi - lo)
        if threshold >= hi:
            threshold = lo
    count = tree.count[slot]
    n_right = sides(tree.points, slot, count, tree.origin, axis, v, threshold, right)
    if n_right == 0 or n_right == count:
        axis, threshold = widest_sample_side(tree, slot, v)
        if axis < 0:
            return axis, threshold, False
        sides(tree.points, slot, count, tree.origin, axis, v, threshold, right)
    return axis, threshold, True


@part
def sides(
    points: Floats, slot: int, count: int, origin: Floats, axis: int, v: Floats, threshold: float, right: Ints
) -> int:
    """Mark the sampled points that go right; return how many do."""
    n_right = 0
    for k in range(count):
        projection = 0.0
        if axis >= 0:
            projection = points[slot, k, axis] - origin[axis]
        else:
            for j in range(v.size):
                projection += v[j] * (points[slot, k, j] - origin[j])
        right[k] = 1 if projection > threshold else 0
        n_right += right[k]
    return n_right


@part
def widest_sample_side(tree: Tree, slot: int, v: Floats) -> tuple[int, float]:
    """The axis and the middle of the sample's own widest side; axis -1 if all its points are equal.

    A feature that had no deviation until now counts only where no other tells the points apart.
    """
    axis = -1
    side = 0.0
    threshold = 0.0
    for j in range(v.size):
        lo = hi = tree.points[slot, 0, j] - tree.origin[j]
        for k in range(1, tree.count[slot]):
            value = tree.points[slot, k, j] - tree.origin[j]
            lo = min(lo, value)
            hi = max(hi, value)
        here = (hi - lo) * tree.inverse[j]
        if here > CLEARLY * side or (axis < 0 and hi > lo):
            side = here
            axis = j
            threshold = lo + 0.5 * (hi - lo)
            if threshold >= hi:
                threshold = lo
    unit_vector(v, axis)
    return axis, threshold


# ------------------------------------------------------------------ splitting


@shared_part
def split_leaf(tree: Tree, slot: int, principal: bool) -> bool:
    """Split a leaf in two; False if nothing in its sample tells its events apart."""
    v = np.empty(tree.mean.shape[1])
    right = np.empty(tree.key.shape[1], dtype=np.int64)
    axis, threshold, possible = propose(tree, slot, principal, v, right)
    if possible:
        other = open_leaf(tree, slot, axis, v, threshold)
        cut_leaf(tree, slot, other, right, v, threshold)
    return possible


@part
def split_whole_leaf(tree: Tree, slot: int, principal: bool) -> None:
    """Split a leaf whose sample is all its events, so that no moments need to be shared out."""
    v = np.empty(tree.mean.shape[1])
    right = np.empty(tree.key.shape[1], dtype=np.int64)
    axis, threshold, possible = propose(tree, slot, principal, v, right)
    if possible:
        halve_whole_leaf(tree, slot, open_leaf(tree, slot, axis, v, threshold), right)


@inlined
def halve_whole_leaf(tree: Tree, slot: int, other: int, right: Ints) -> None:
    """Deal the events of a leaf that has them all to itself and a free slot."""
    deal_points(tree, slot, other, right)
    recount(tree, slot)
    recount(tree, other)


@inlined
def cut_leaf(tree: Tree, slot: int, other: int, right: Ints, v: Floats, threshold: float) -> None:
    """Give part of a leaf to a free slot."""
    if tree.cutoff[slot] < np.inf:
        apportion(tree, slot, other, right, v)
        clip_boxes(tree, slot, other, v, threshold)
        deal_points(tree, slot, other, right)
    else:
        halve_whole_leaf(tree, slot, other, right)


@inlined
def open_leaf(tree: Tree, slot: int, axis: int, v: Floats, threshold: float) -> int:
    """Give a leaf's node two children: the left one keeps the slot, the right one's new slot is returned."""
    tree.counts[FREE_PAIRS] -= 1
    tree.counts[FREE_SLOTS] -= 1
    tree.counts[LEAVES] += 1
    left = 2 * tree.free_pair[tree.counts[FREE_PAIRS]] + 1
    other = tree.free_slot[tree.counts[FREE_SLOTS]]
    node = tree.node[slot]
    tree.child[node] = left
    tree.axis[node] = axis
    tree.threshold[node] = threshold
    for j in range(v.size):
        tree.direction[node, j] = v[j]
    tree.parent[left] = tree.parent[left + 1] = node
    tree.child[left], tree.child[left + 1] = ~slot, ~other
    tree.node[slot], tree.node[other] = left, left + 1
    tree.gain_spread[slot] = tree.gain_spread[other] = 0.0
    note_depth(tree, slot)
    return other


def too_deep(depth: int, leaves: int) -> bool:
    """Whether a leaf lies deeper than a reasonably balanced tree of that number of leaves would have it."""
    return depth > 2.0 * math.log2(leaves) + 6.0


is_too_deep = inlined(too_deep)


@inlined
def note_depth(tree: Tree, slot: int) -> None:
    """Remember a leaf that has come to lie too deep: streams sorted in space grow a chain, not a tree."""
    depth = 0
    node = tree.node[slot]
    while node > 0:
        node = tree.parent[node]
        depth += 1
    if is_too_deep(depth, tree.counts[LEAVES]):
        tree.counts[DEEP] = slot


@inlined
def deal_points(tree: Tree, slot: int, other: int, right: Ints) -> None:
    """Move the sampled points marked `right` from one slot to the other."""
    n = tree.count[slot]
    kept = 0
    moved = 0
    for k in range(n):
        to = other if right[k] == 1 else slot
        place = moved if right[k] == 1 else kept
        for j in range(tree.mean.shape[1]):
            tree.points[to, place, j] = tree.points[slot, k, j]
        tree.point_weight[to, place] = tree.point_weight[slot, k]
        tree.key[to, place] = tree.key[slot, k]
        moved += right[k]
        kept += 1 - right[k]
    tree.count[slot] = kept
    tree.count[other] = moved
    tree.cutoff[other] = tree.cutoff[slot]


@shared_part
def recount(tree: Tree, slot: int) -> None:
    """Moments and box of a leaf whose sample holds all its events, from those."""
    d = tree.mean.shape[1]
    for j in range(tree.scatter.shape[1]):
        tree.scatter[slot, j] = 0.0
    tree.spread[slot] = 0.0
    weight = 0.0
    for k in range(tree.count[slot]):
        weight += tree.point_weight[slot, k]
    tree.weight[slot] = weight
    for j in range(d):
        total = 0.0
        lo = hi = tree.points[slot, 0, j]
        for k in range(tree.count[slot]):
            value = tree.points[slot, k, j]
            total += tree.point_weight[slot, k] * (value - tree.origin[j])
            lo = min(lo, value)
            hi = max(hi, value)
        tree.mean[slot, j] = total / weight
        tree.lo[slot, j] = lo
        tree.hi[slot, j] = hi
    deviation = np.empty(d)
    for k in range(tree.count[slot]):
        for j in range(d):
            deviation[j] = (tree.points[slot, k, j] - tree.origin[j]) - tree.mean[slot, j]
        tree.spread[slot] += tree.point_weight[slot, k] * scaled_square(deviation, tree.inverse)
        add_outer(tree.scatter[slot], deviation, tree.point_weight[slot, k])


@part
def gap_between(tree: Tree, slot: int, right: Ints, v: Floats, gap: Floats) -> float:
    """Write how far apart the means of the two halves are; return the fraction p of the weight that goes right.

    A leaf that holds all its events tells exactly. Else the sample tells p and the gap along v, and regressing
    on the scatter gives the gap in every other direction, S v / (vᵀ S v) per unit; it may explain at most
    MAX_BETWEEN of the scatter, so that what is left within stays positive.
    """
    d = v.size
    width = tree.scatter.shape[1]
    points, mass = sample_deviations(tree, slot)
    total = 0.0
    mass_left, mass_right = 0.0, 0.0  # each summed: the difference of total and one would cancel
    for k in range(mass.size):
        total += mass[k]
        mass_left += mass[k] * (1 - right[k])
        mass_right += mass[k] * right[k]
    for j in range(d):
        gap[j] = 0.0
    if not (mass_left > 0.0 and 0.0 < mass_right < total):  # one side has decayed to nothing
        return 0.5
    p = mass_right / total
    for k in range(mass.size):
        factor = mass[k] / mass_right if right[k] == 1 else -mass[k] / mass_left
        for j in range(d):
            gap[j] += factor * points[k, j]
    if tree.cutoff[slot] == np.inf:
        return p
    between = max(tree.weight[slot] * p * (1.0 - p), NEGLIGIBLE)
    if width == d * d:
        image = np.empty(d)
        multiply_scatter(tree.scatter, slot, points, mass, v, image)
        along = dot(v, image)
        distance = dot(v, gap)
        most = math.sqrt(MAX_BETWEEN * max(along, 0.0) / between)
        for j in range(d):
            gap[j] = image[j] / along * max(-most, min(most, distance)) if along > 0.0 else 0.0
        return p
    limit = math.sqrt(MAX_BETWEEN * tree.spread[slot] / between)
    length = math.sqrt(scaled_square(gap, tree.inverse))
    shrink = limit / length if length > limit else 1.0
    for j in range(d):  # means stay inside the box, so that counts stay counts
        gap[j] *= shrink
        mean = tree.mean[slot, j] + tree.origin[j]
        below = mean - tree.lo[slot, j]
        above = tree.hi[slot, j] - mean
        if gap[j] > 0.0:
            gap[j] = max(0.0, min(gap[j], below / p, above / (1.0 - p)))
        else:
            gap[j] = -max(0.0, min(-gap[j], above / p, below / (1.0 - p)))
        if width == d:
            most = math.sqrt(MAX_BETWEEN * max(0.0, tree.scatter[slot, j]) / between)
            gap[j] = max(-most, min(most, gap[j]))
    return p


@part
def split_gain(tree: Tree, slot: int, principal: bool) -> float:
    """The spread that splitting the leaf would take away."""
    d = tree.mean.shape[1]
    if tree.count[slot] < 2:
        return 0.0
    v = np.empty(d)
    gap = np.empty(d)
    right = np.empty(tree.key.shape[1], dtype=np.int64)
    _, _, possible = propose(tree, slot, principal, v, right)
    if not possible:
        return 0.0
    p = gap_between(tree, slot, right, v, gap)
    square = scaled_square(gap, tree.inverse)
    for j in range(d):
        if abs(gap[j]) > tree.far[j]:
            square = min(square, FAR_SQUARE)
    return tree.weight[slot] * p * (1.0 - p) * square


@part
def apportion(tree: Tree, slot: int, other: int, right: Ints, v: Floats) -> None:
    """Share out the moments of a leaf that has absorbed more than its sample holds.

    Both halves get the scatter that is left within, in proportion. Totals are the parent's, and nothing turns
    negative.
    """
    d = v.size
    gap = np.empty(d)
    p = gap_between(tree, slot, right, v, gap)
    weight = tree.weight[slot]
    between = weight * p * (1.0 - p)
    add_outer(tree.scatter[slot], gap, -between)
    tree.spread[slot] = max(0.0, tree.spread[slot] - between * scaled_square(gap, tree.inverse))
    for j in range(tree.scatter.shape[1]):
        tree.scatter[other, j] = p * tree.scatter[slot, j]
        tree.scatter[slot, j] -= tree.scatter[other, j]
    tree.spread[other] = p * tree.spread[slot]
    tree.spread[slot] -= tree.spread[other]
    tree.weight[other] = p * weight
    tree.weight[slot] = weight - tree.weight[other]
    for j in range(d):
        tree.mean[other, j] = tree.mean[slot, j] + (1.0 - p) * gap[j]
        tree.mean[slot, j] -= p * gap[j]


@part
def clip_boxes(tree: Tree, slot: int, other: int, v: Floats, threshold: float) -> None:
    """Boxes of the two halves of a leaf's box, cut by the plane v · x = threshold."""
    d = v.size
    least = 0.0
    most = 0.0
    for j in range(d):
        tree.lo[other, j] = tree.lo[slot, j]
        tree.hi[other, j] = tree.hi[slot, j]
        a = v[j] * (tree.lo[slot, j] - tree.origin[j])
        b = v[j] * (tree.hi[slot, j] - tree.origin[j])
        least += min(a, b)
        most += max(a, b)
    slack = 1e-12 * (abs(least) + abs(most) + abs(threshold))
    for j in range(d):
        if v[j] == 0.0:
            continue
        a = v[j] * (tree.lo[other, j] - tree.origin[j])
        b = v[j] * (tree.hi[other, j] - tree.origin[j])
        reach = tree.origin[j] + (threshold - (least - min(a, b)) + slack) / v[j]  # left: v · x <= threshold
        start = tree.origin[j] + (threshold - (most - max(a, b)) - slack) / v[j]  # right: v · x > threshold
        if v[j] > 0.0:
            tree.hi[slot, j] = min(tree.hi[slot, j], reach)
            tree.lo[other, j] = max(tree.lo[other, j], start)
        else:
            tree.lo[slot, j] = max(tree.lo[slot, j], reach)
            tree.hi[other, j] = min(tree.hi[other, j], start)
    for s in (slot, other):  # the regression may put a mean a little outside: a box holds its mean
        for j in range(d):
            mean = tree.mean[s, j] + tree.origin[j]
            tree.lo[s, j] = min(tree.lo[s, j], mean)
            tree.hi[s, j] = max(tree.hi[s, j], mean)
