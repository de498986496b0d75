"""How the summary tree changes its shape: split a leaf, dissolve a leaf, swap one for the other, rebalance."""

import math

import numpy as np
from streamclust._kernels.compile import kernel

from streamclust._kernels.moments import add_outer
from streamclust._kernels.tree import (
    FREE_PAIRS,
    FREE_SLOTS,
    LEAVES,
    NEGLIGIBLE,
    Tree,
    descend,
    project,
    sample_mass,
)
from streamclust._kernels.types import Floats, Ints

POWER_STEPS = 12
"""Power iterations for a principal direction: where the two largest eigenvalues are too close for it, either
direction splits as well."""

MAX_BETWEEN = 0.95
"""An apportioned split may explain at most this part of the scatter along its direction."""

SWAPS = 64
"""At most so many leaves change place at a time."""

MARGIN = 1.3
"""A swap must gain so many times what it loses. (For a Gaussian leaf split through its mean this is the gain
n · λ_max against twice the loss: such a split takes away 2/π of the scatter along its direction.)"""

STALE = 1.1
STALE_GAIN = 1.5
"""A leaf's gain is worked out anew when its spread has grown by STALE and its gain, times STALE_GAIN, matters."""


# ------------------------------------------------------------------ where to split


@kernel
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


@kernel
def multiply_scatter(scatter: Floats, slot: int, points: Floats, mass: Floats, v: Floats, out: Floats) -> None:
    """out = S v, from the scatter where the full matrix is kept, else from the sample."""
    d = v.size
    out[:] = 0.0
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


@kernel
def principal_direction(scatter: Floats, slot: int, points: Floats, mass: Floats, v: Floats) -> None:
    """Write the leaf's principal direction into v."""
    d = v.size
    image = np.empty(d)
    widest = 0
    best = -1.0
    for j in range(d):  # start from the feature of largest scatter
        if scatter.shape[1] == d * d:
            along = scatter[slot, j * d + j]
        else:
            along = 0.0
            for k in range(mass.size):
                along += mass[k] * points[k, j] * points[k, j]
        if along > best:
            best = along
            widest = j
    v[:] = 0.0
    v[widest] = 1.0
    for _ in range(POWER_STEPS):
        multiply_scatter(scatter, slot, points, mass, v, image)
        length = math.sqrt(np.dot(image, image))
        if not length > 0.0:
            return
        for j in range(d):
            v[j] = image[j] / length


@kernel
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
        principal_direction(tree.scatter, slot, points, mass, v)
        threshold = project(v.reshape((1, d)), 0, tree.mean, slot)
    else:
        side = -1.0
        for j in range(d):
            here = tree.scatter[slot, j] if principal else tree.hi[slot, j] - tree.lo[slot, j]
            if here > side:
                side = here
                axis = j
        v[:] = 0.0
        v[axis] = 1.0
        lo = tree.lo[slot, axis] - tree.origin[axis]
        hi = tree.hi[slot, axis] - tree.origin[axis]
        threshold = tree.mean[slot, axis] if principal else lo + 0.5 * (hi - lo)
        if threshold >= hi:
            threshold = lo
    n_right = sides(tree, slot, axis, v, threshold, right)
    if n_right == 0 or n_right == tree.count[slot]:
        axis, threshold = widest_sample_side(tree, slot, v)
        if axis < 0:
            return axis, threshold, False
        sides(tree, slot, axis, v, threshold, right)
    return axis, threshold, True


@kernel
def sides(tree: Tree, slot: int, axis: int, v: Floats, threshold: float, right: Ints) -> int:
    """Mark the sampled points that go right; return how many do."""
    d = v.size
    n_right = 0
    x = np.empty((1, d))
    direction = v.reshape((1, d))
    for k in range(tree.count[slot]):
        for j in range(d):
            x[0, j] = tree.points[slot, k, j] - tree.origin[j]
        projection = x[0, axis] if axis >= 0 else project(direction, 0, x, 0)
        right[k] = 1 if projection > threshold else 0
        n_right += right[k]
    return n_right


@kernel
def widest_sample_side(tree: Tree, slot: int, v: Floats) -> tuple[int, float]:
    """The axis and the middle of the sample's own widest side; axis -1 if all its points are equal."""
    axis = -1
    side = 0.0
    threshold = 0.0
    for j in range(v.size):
        lo = hi = tree.points[slot, 0, j] - tree.origin[j]
        for k in range(1, tree.count[slot]):
            value = tree.points[slot, k, j] - tree.origin[j]
            lo = min(lo, value)
            hi = max(hi, value)
        if hi - lo > side:
            side = hi - lo
            axis = j
            threshold = lo + 0.5 * (hi - lo)
            if threshold >= hi:
                threshold = lo
    v[:] = 0.0
    if axis >= 0:
        v[axis] = 1.0
    return axis, threshold


@kernel
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
    mass_right = 0.0
    for k in range(mass.size):
        total += mass[k]
        mass_right += mass[k] * right[k]
    gap[:] = 0.0
    if not 0.0 < mass_right < total:  # one side has decayed to nothing
        return 0.5
    p = mass_right / total
    for k in range(mass.size):
        factor = mass[k] / mass_right if right[k] == 1 else -mass[k] / (total - mass_right)
        for j in range(d):
            gap[j] += factor * points[k, j]
    if tree.cutoff[slot] == np.inf:
        return p
    between = tree.weight[slot] * p * (1.0 - p)
    if not between > 0.0:
        gap[:] = 0.0
        return p
    if width == d * d:
        image = np.empty(d)
        multiply_scatter(tree.scatter, slot, points, mass, v, image)
        along = np.dot(v, image)
        distance = np.dot(v, gap)
        gap[:] = 0.0
        if along > 0.0:
            distance = math.copysign(min(abs(distance), math.sqrt(MAX_BETWEEN * along / between)), distance)
            for j in range(d):
                gap[j] = image[j] / along * distance
        return p
    limit = math.sqrt(MAX_BETWEEN * tree.spread[slot] / between)
    length = math.sqrt(np.dot(gap, gap))
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


@kernel
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
    return tree.weight[slot] * p * (1.0 - p) * np.dot(gap, gap)


# ------------------------------------------------------------------ splitting


@kernel
def split_leaf(tree: Tree, slot: int, principal: bool) -> bool:
    """Split a leaf in two; False if nothing in its sample tells its events apart."""
    d = tree.mean.shape[1]
    v = np.empty(d)
    right = np.empty(tree.key.shape[1], dtype=np.int64)
    axis, threshold, possible = propose(tree, slot, principal, v, right)
    if not possible:
        return False

    tree.counts[FREE_PAIRS] -= 1
    tree.counts[FREE_SLOTS] -= 1
    tree.counts[LEAVES] += 1
    left_node = 2 * tree.free_pair[tree.counts[FREE_PAIRS]] + 1
    other = tree.free_slot[tree.counts[FREE_SLOTS]]
    node = tree.node[slot]
    tree.child[node] = left_node
    tree.axis[node] = axis
    tree.threshold[node] = threshold
    tree.direction[node, :] = v
    for k in range(2):
        tree.parent[left_node + k] = node
        tree.child[left_node + k] = ~slot if k == 0 else ~other
        tree.node[slot if k == 0 else other] = left_node + k

    if tree.cutoff[slot] == np.inf:
        deal_points(tree, slot, other, right)
        recount(tree, slot)
        recount(tree, other)
    else:
        apportion(tree, slot, other, right, v)
        clip_boxes(tree, slot, other, v, threshold)
        deal_points(tree, slot, other, right)
    for s in (slot, other):
        tree.gain_spread[s] = 0.0
    return True


@kernel
def deal_points(tree: Tree, slot: int, other: int, right: Ints) -> None:
    """Move the sampled points marked `right` from one slot to the other."""
    n = tree.count[slot]
    kept = 0
    moved = 0
    for k in range(n):
        to = other if right[k] == 1 else slot
        place = moved if right[k] == 1 else kept
        tree.points[to, place, :] = tree.points[slot, k, :]
        tree.point_weight[to, place] = tree.point_weight[slot, k]
        tree.key[to, place] = tree.key[slot, k]
        moved += right[k]
        kept += 1 - right[k]
    tree.count[slot] = kept
    tree.count[other] = moved
    tree.cutoff[other] = tree.cutoff[slot]


@kernel
def recount(tree: Tree, slot: int) -> None:
    """Moments and box of a leaf whose sample holds all its events, from those."""
    d = tree.mean.shape[1]
    tree.scatter[slot, :] = 0.0
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
        tree.spread[slot] += tree.point_weight[slot, k] * np.dot(deviation, deviation)
        add_outer(tree.scatter[slot], deviation, tree.point_weight[slot, k])


@kernel
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
    tree.spread[slot] -= between * np.dot(gap, gap)
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


@kernel
def clip_boxes(tree: Tree, slot: int, other: int, v: Floats, threshold: float) -> None:
    """Boxes of the two halves of a leaf's box, cut by the plane v · x = threshold."""
    d = v.size
    tree.lo[other, :] = tree.lo[slot, :]
    tree.hi[other, :] = tree.hi[slot, :]
    least = 0.0
    most = 0.0
    for j in range(d):
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


# ------------------------------------------------------------------ dissolving


@kernel
def heir(tree: Tree, slot: int) -> int:
    """The leaf that would take a dissolved leaf's events: below its sibling, where its mean falls."""
    node = tree.node[slot]
    sibling = node + 1 if node % 2 == 1 else node - 1
    return descend(tree.child, tree.axis, tree.direction, tree.threshold, sibling, tree.mean, slot)


@kernel
def merge_loss(weight: Floats, mean: Floats, a: int, b: int) -> float:
    """The spread that merging two leaves adds."""
    total = weight[a] + weight[b]
    if total <= 0.0:
        return 0.0
    squares = 0.0
    for j in range(mean.shape[1]):
        gap = mean[a, j] - mean[b, j]
        squares += gap * gap
    return weight[a] * (weight[b] / total) * squares


@kernel
def dissolve_losses(tree: Tree, loss: Floats) -> None:
    """What dissolving each leaf would lose; inf for free slots."""
    child, axis, direction, threshold = tree.child, tree.axis, tree.direction, tree.threshold
    for slot in range(loss.size):
        node = tree.node[slot]
        loss[slot] = np.inf
        if node > 0:
            sibling = node + 1 if node % 2 == 1 else node - 1
            to = ~child[sibling]
            if to < 0:
                to = descend(child, axis, direction, threshold, sibling, tree.mean, slot)
            loss[slot] = merge_loss(tree.weight, tree.mean, slot, to)


@kernel
def merge_slot(tree: Tree, slot: int, source: Tree, other: int, shift: Floats, weight: float) -> None:
    """Add leaf `other` of `source` to leaf `slot`: moments, box and sample.

    `shift` is the source's origin relative to this tree's, `weight` what its weights are multiplied by.
    """
    d = tree.mean.shape[1]
    more = weight * source.weight[other]
    if more > 0.0:
        before = tree.weight[slot]
        share = more / (before + more)
        deviation = np.empty(d)
        for j in range(d):
            theirs = source.mean[other, j] + shift[j]
            deviation[j] = theirs - tree.mean[slot, j]
            tree.mean[slot, j] = tree.mean[slot, j] + share * deviation[j] if before > 0.0 else theirs
        for j in range(tree.scatter.shape[1]):
            tree.scatter[slot, j] += weight * source.scatter[other, j]
        tree.spread[slot] += weight * source.spread[other]
        if before > 0.0:
            tree.spread[slot] += before * share * np.dot(deviation, deviation)
            add_outer(tree.scatter[slot], deviation, before * share)
        tree.weight[slot] = before + more
    for j in range(d):
        tree.lo[slot, j] = min(tree.lo[slot, j], source.lo[other, j])
        tree.hi[slot, j] = max(tree.hi[slot, j], source.hi[other, j])
    merge_samples(tree, slot, source, other, weight)


@kernel
def merge_samples(tree: Tree, slot: int, source: Tree, other: int, weight: float) -> None:
    """The smallest keys of both samples: exactly the sample that one leaf would have kept."""
    size = tree.key.shape[1]
    d = tree.mean.shape[1]
    cutoff = min(tree.cutoff[slot], source.cutoff[other] / weight)
    n_ours = tree.count[slot]
    n = n_ours + source.count[other]
    keys = np.empty(n)
    weights = np.empty(n)
    points = np.empty((n, d))
    for k in range(n):
        if k < n_ours:
            keys[k] = tree.key[slot, k]
            weights[k] = tree.point_weight[slot, k]
            points[k, :] = tree.points[slot, k, :]
        else:
            keys[k] = source.key[other, k - n_ours] / weight
            weights[k] = source.point_weight[other, k - n_ours] * weight
            points[k, :] = source.points[other, k - n_ours, :]
    order = np.argsort(keys)
    kept = 0
    for k in order:
        if keys[k] >= cutoff and cutoff < np.inf:
            break
        if not weights[k] > NEGLIGIBLE:
            continue
        if kept == size:
            cutoff = keys[k]
            break
        tree.key[slot, kept] = keys[k]
        tree.point_weight[slot, kept] = weights[k]
        tree.points[slot, kept, :] = points[k, :]
        kept += 1
    tree.count[slot] = kept
    tree.cutoff[slot] = cutoff


@kernel
def clear_slot(tree: Tree, slot: int) -> None:
    """An empty leaf slot."""
    tree.weight[slot] = 0.0
    tree.mean[slot, :] = 0.0
    tree.scatter[slot, :] = 0.0
    tree.spread[slot] = 0.0
    tree.lo[slot, :] = np.inf
    tree.hi[slot, :] = -np.inf
    tree.gain[slot] = 0.0
    tree.gain_spread[slot] = 0.0
    tree.count[slot] = 0
    tree.cutoff[slot] = np.inf


@kernel
def dissolve_leaf(tree: Tree, slot: int) -> int:
    """Give a leaf's events to its heir and its room back; the sibling moves up. Returns the heir."""
    to = heir(tree, slot)
    merge_slot(tree, to, tree, slot, np.zeros(tree.mean.shape[1]), 1.0)
    tree.gain_spread[to] = 0.0
    node = tree.node[slot]
    sibling = node + 1 if node % 2 == 1 else node - 1
    up = tree.parent[node]
    place_node(tree, up, sibling)
    tree.free_pair[tree.counts[FREE_PAIRS]] = (node - 1) // 2
    tree.counts[FREE_PAIRS] += 1
    tree.free_slot[tree.counts[FREE_SLOTS]] = slot
    tree.counts[FREE_SLOTS] += 1
    tree.counts[LEAVES] -= 1
    tree.node[slot] = -1
    clear_slot(tree, slot)
    return to


@kernel
def place_node(tree: Tree, node: int, source: int) -> None:
    """Put what node `source` is, leaf or subtree, in the place of `node`."""
    child = tree.child[source]
    tree.child[node] = child
    tree.axis[node] = tree.axis[source]
    tree.threshold[node] = tree.threshold[source]
    tree.direction[node, :] = tree.direction[source, :]
    if child < 0:
        tree.node[~child] = node
    else:
        tree.parent[child] = node
        tree.parent[child + 1] = node


@kernel
def dissolve_least(tree: Tree, limit: int) -> None:
    """Dissolve the leaves that matter least until at most `limit` are left."""
    loss = np.empty(tree.node.size)
    while tree.counts[LEAVES] > limit:
        dissolve_losses(tree, loss)
        dissolve_leaf(tree, int(np.argmin(loss)))


# ------------------------------------------------------------------ swapping


@kernel
def split_gains(tree: Tree, principal: bool, least: float, gain: Floats) -> None:
    """What splitting each leaf would gain; -1 for free slots.

    Worked out anew only for leaves that have grown and might gain more than `least`, or have doubled: in between,
    the gain grows as the spread does.
    """
    for slot in range(gain.size):
        gain[slot] = -1.0
        spread = tree.spread[slot]
        if tree.node[slot] >= 0:
            gain[slot] = 0.0
            if not spread > 0.0:
                continue
            known = tree.gain_spread[slot]
            estimate = tree.gain[slot] * (spread / known) if known > 0.0 else spread
            if spread > 2.0 * known or (spread > STALE * known and STALE_GAIN * estimate > least):
                tree.gain[slot] = estimate = split_gain(tree, slot, principal)
                tree.gain_spread[slot] = spread
            gain[slot] = estimate


@kernel
def look_again(tree: Tree, slot: int, principal: bool, gain: Floats, loss: Floats) -> None:
    """Gain and loss of a leaf that has just changed."""
    tree.gain[slot] = split_gain(tree, slot, principal) if tree.spread[slot] > 0.0 else 0.0
    tree.gain_spread[slot] = tree.spread[slot]
    gain[slot] = tree.gain[slot]
    loss[slot] = merge_loss(tree.weight, tree.mean, slot, heir(tree, slot)) if tree.node[slot] > 0 else np.inf


@kernel
def swap_leaves(tree: Tree, limit: int, principal: bool, swaps: int) -> int:
    """Follow the stream: dissolve the leaves that matter least and split those that gain most.

    A swap is made where it gains MARGIN times what it loses, so that every swap lowers the total spread within
    leaves and they come to an end. Returns the number of leaves split.
    """
    gain = np.empty(tree.node.size)
    loss = np.empty(tree.node.size)
    dissolve_losses(tree, loss)
    split_gains(tree, principal, MARGIN * loss.min() if tree.counts[LEAVES] >= limit else 0.0, gain)
    done = 0
    for _ in range(4 * swaps):
        best = int(np.argmax(gain))
        if done == swaps or not gain[best] > 0.0:
            break
        if tree.counts[LEAVES] >= limit:
            donor = int(np.argmin(loss))
            if not gain[best] > MARGIN * loss[donor]:
                break
            to = heir(tree, donor)
            now = merge_loss(tree.weight, tree.mean, donor, to)
            if now > loss[donor] or best == donor or best == to:
                loss[donor] = now if now > loss[donor] else np.inf  # its heir has changed, or it is in the way
                continue
            dissolve_leaf(tree, donor)
            gain[donor] = -1.0
            loss[donor] = np.inf
            look_again(tree, to, principal, gain, loss)
        if tree.counts[FREE_SLOTS] == 0:
            break
        other = tree.free_slot[tree.counts[FREE_SLOTS] - 1]
        split_leaf(tree, best, principal)
        rebalance(tree, best)
        look_again(tree, best, principal, gain, loss)
        look_again(tree, other, principal, gain, loss)
        done += 1
    return done


# ------------------------------------------------------------------ rebalancing


@kernel
def collect_leaves(tree: Tree, top: int, found: Ints, stack: Ints) -> int:
    """Slots of all leaves below node `top`, into `found`; returns how many."""
    n = 0
    height = 1
    stack[0] = top
    while height > 0:
        height -= 1
        child = tree.child[stack[height]]
        if child < 0:
            found[n] = ~child
            n += 1
        else:
            stack[height] = child
            stack[height + 1] = child + 1
            height += 2
    return n


@kernel
def too_deep(depth: int, leaves: int) -> bool:
    """Whether a leaf lies deeper than a reasonably balanced subtree of so many leaves would have it."""
    return depth > 2.0 * math.log2(leaves) + 6.0


@kernel
def rebalance(tree: Tree, slot: int) -> bool:
    """Rebuild the smallest subtree above a leaf that is too deep for its size, if there is one.

    As in a scapegoat tree: streams sorted in space would otherwise grow a chain, not a tree. The leaves
    stay as they are; only the inner nodes above them change.
    """
    depth = 0
    node = tree.node[slot]
    while node > 0:
        node = tree.parent[node]
        depth += 1
    if not too_deep(depth, tree.counts[LEAVES]):
        return False
    found = np.empty(tree.counts[LEAVES], dtype=np.int64)
    stack = np.empty(tree.counts[LEAVES] + 1, dtype=np.int64)
    node = tree.node[slot]
    height = 0
    n = 1
    while node > 0:
        node = tree.parent[node]
        height += 1
        n = collect_leaves(tree, node, found, stack)
        if too_deep(height, n):
            break
    rebuild(tree, node, found[:n])
    return True


@kernel
def rebuild(tree: Tree, top: int, slots: Ints) -> None:
    """A balanced subtree over given leaves: by the median of their means along the widest axis."""
    n = slots.size
    d = tree.mean.shape[1]
    stack = np.empty((n + 1, 3), dtype=np.int64)
    height = 1
    stack[0, 0] = top
    while height > 0:  # give back the old pairs
        height -= 1
        child = tree.child[stack[height, 0]]
        if child >= 0:
            tree.free_pair[tree.counts[FREE_PAIRS]] = (child - 1) // 2
            tree.counts[FREE_PAIRS] += 1
            stack[height, 0] = child
            stack[height + 1, 0] = child + 1
            height += 2
    order = slots.copy()
    height = 1
    stack[0, 0], stack[0, 1], stack[0, 2] = top, 0, n
    while height > 0:
        height -= 1
        node, start, stop = stack[height, 0], stack[height, 1], stack[height, 2]
        if stop - start == 1:
            tree.child[node] = ~order[start]
            tree.node[order[start]] = node
            continue
        part = order[start:stop].copy()
        axis = 0
        side = -1.0
        for j in range(d):
            lo = np.inf
            hi = -np.inf
            for slot in part:
                lo = min(lo, tree.mean[slot, j])
                hi = max(hi, tree.mean[slot, j])
            if hi - lo > side:
                side = hi - lo
                axis = j
        values = np.empty(part.size)
        for k in range(part.size):
            values[k] = tree.mean[part[k], axis]
        rank = np.argsort(values)
        for k in range(part.size):
            order[start + k] = part[rank[k]]
        middle = part.size // 2
        below, above = values[rank[middle - 1]], values[rank[middle]]
        threshold = below + 0.5 * (above - below)
        tree.axis[node] = axis
        tree.threshold[node] = below if threshold >= above else threshold
        tree.direction[node, :] = 0.0
        tree.direction[node, axis] = 1.0
        tree.counts[FREE_PAIRS] -= 1
        child = 2 * tree.free_pair[tree.counts[FREE_PAIRS]] + 1
        tree.child[node] = child
        tree.parent[child] = node
        tree.parent[child + 1] = node
        stack[height, 0], stack[height, 1], stack[height, 2] = child, start, start + middle
        stack[height + 1, 0], stack[height + 1, 1], stack[height + 1, 2] = child + 1, start + middle, stop
        height += 2
