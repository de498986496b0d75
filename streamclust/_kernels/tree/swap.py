"""How a full summary tree follows its stream: dissolve the leaves that matter least, split those that gain most."""

import numpy as np

from streamclust._kernels.compile import inlined, kernel, part, shared_part
from streamclust._kernels.moments import add_outer, scaled_square
from streamclust._kernels.tree.arrays import (
    FREE_PAIRS,
    FREE_SLOTS,
    LEAVES,
    NEGLIGIBLE,
    Tree,
    descend,
    offer,
)
from streamclust._kernels.tree.split import FAR_SQUARE, split_gain, split_leaf
from streamclust._kernels.types import Floats

SWAPS = 64
"""Leaves that change place at a time, at most."""

MARGIN = 1.3
"""Factor by which a swap must gain more than it loses. (For a Gaussian leaf split through its mean this is the gain
n · λ_max against twice the loss: such a split takes away 2/π of the scatter along its direction.)"""

STALE = 1.1
STALE_GAIN = 1.5
"""A leaf's gain is worked out anew when its spread has grown by STALE and its gain, times STALE_GAIN, matters."""

NEARLY = 1.2
"""Factor of the least loss up to which leaves are dissolved with that leaf, in one pass over the tree."""

ROUNDING = 2.0**-52
"""Relative rounding error of a sum."""

# ------------------------------------------------------------------ dissolving


@part
def heir(tree: Tree, slot: int) -> int:
    """The leaf that would take a dissolved leaf's events: below its sibling, where its mean falls."""
    node = tree.node[slot]
    sibling = node + 1 if node % 2 == 1 else node - 1
    return descend(tree.child, tree.axis, tree.direction, tree.threshold, sibling, tree.mean, slot)


@inlined
def merge_loss(weight: Floats, mean: Floats, inverse: Floats, a: int, b: int) -> float:
    """The spread that merging two leaves adds."""
    total = weight[a] + weight[b]
    if total <= 0.0:
        return 0.0
    squares = 0.0
    for j in range(mean.shape[1]):
        gap = (mean[a, j] - mean[b, j]) * inverse[j]
        squares += gap * gap
    return weight[a] * (weight[b] / total) * squares


@inlined
def dissolve_loss(tree: Tree, slot: int, to: int) -> float:
    """The spread that dissolving a leaf into its heir adds; inf where the heir is far, and would lose its digits.

    Leaves side by side may be joined where each holds all its events, or is as wide already. A leaf far away that has
    decayed to nothing does no harm.
    """
    loss = merge_loss(tree.weight, tree.mean, tree.inverse, slot, to)
    far = False
    suffers = tree.parent[tree.node[slot]] != tree.parent[tree.node[to]]
    for j in range(tree.far.size):
        if abs(tree.mean[slot, j] - tree.mean[to, j]) > tree.far[j]:
            far = True
            for s in (slot, to):
                suffers |= tree.cutoff[s] < np.inf and not tree.hi[s, j] - tree.lo[s, j] > tree.far[j]
    if far and loss > tree.spread[to] * ROUNDING:
        return np.inf if suffers else min(loss, tree.weight[slot] * FAR_SQUARE)
    return loss


@shared_part
def dissolve_losses(tree: Tree, loss: Floats) -> None:
    """Loss of dissolving each leaf; inf for free slots, and for leaves far from their heir."""
    child, axis, direction, threshold = tree.child, tree.axis, tree.direction, tree.threshold
    for slot in range(loss.size):
        node = tree.node[slot]
        loss[slot] = np.inf
        if node > 0:
            sibling = node + 1 if node % 2 == 1 else node - 1
            to = ~child[sibling]
            if to < 0:
                to = descend(child, axis, direction, threshold, sibling, tree.mean, slot)
            loss[slot] = dissolve_loss(tree, slot, to)


@shared_part
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
            tree.spread[slot] += before * share * scaled_square(deviation, tree.inverse)
            add_outer(tree.scatter[slot], deviation, before * share)
        tree.weight[slot] = before + more
    for j in range(d):
        tree.lo[slot, j] = min(tree.lo[slot, j], source.lo[other, j])
        tree.hi[slot, j] = max(tree.hi[slot, j], source.hi[other, j])
    merge_samples(tree, slot, source, other, weight)


@inlined
def merge_samples(tree: Tree, slot: int, source: Tree, other: int, weight: float) -> None:
    """The smallest keys of both samples: exactly the sample that one leaf would have kept."""
    d = tree.mean.shape[1]
    cutoff = min(tree.cutoff[slot], source.cutoff[other] / weight)
    tree.cutoff[slot] = cutoff
    kept = 0
    for k in range(tree.count[slot]):
        if tree.key[slot, k] < cutoff:
            tree.key[slot, kept] = tree.key[slot, k]
            tree.point_weight[slot, kept] = tree.point_weight[slot, k]
            for j in range(d):
                tree.points[slot, kept, j] = tree.points[slot, k, j]
            kept += 1
    tree.count[slot] = kept
    theirs = source.points[other]
    for k in range(source.count[other]):
        more = source.point_weight[other, k] * weight
        if more > NEGLIGIBLE:
            offer(
                tree.points, tree.point_weight, tree.key, tree.count, tree.cutoff,
                slot, theirs, k, more, source.key[other, k] / weight,
            )  # fmt: skip


@inlined
def clear_slot(tree: Tree, slot: int) -> None:
    """An empty leaf slot."""
    tree.weight[slot] = 0.0
    for j in range(tree.mean.shape[1]):
        tree.mean[slot, j] = 0.0
        tree.lo[slot, j] = np.inf
        tree.hi[slot, j] = -np.inf
    for j in range(tree.scatter.shape[1]):
        tree.scatter[slot, j] = 0.0
    tree.spread[slot] = 0.0
    tree.gain[slot] = 0.0
    tree.gain_spread[slot] = 0.0
    tree.count[slot] = 0
    tree.cutoff[slot] = np.inf


@shared_part
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


@inlined
def place_node(tree: Tree, node: int, source: int) -> None:
    """Put what node `source` is, leaf or subtree, in the place of `node`."""
    child = tree.child[source]
    tree.child[node] = child
    tree.axis[node] = tree.axis[source]
    tree.threshold[node] = tree.threshold[source]
    for j in range(tree.direction.shape[1]):
        tree.direction[node, j] = tree.direction[source, j]
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
        most = NEARLY * loss.min()
        for slot in range(loss.size):
            if loss[slot] <= most and tree.node[slot] > 0 and tree.counts[LEAVES] > limit:
                now = dissolve_loss(tree, slot, heir(tree, slot))  # others went
                if now <= most:
                    dissolve_leaf(tree, slot)


# ------------------------------------------------------------------ swapping


@inlined
def split_gains(tree: Tree, principal: bool, least: float, gain: Floats) -> None:
    """Gain of splitting each leaf; -1 for free slots.

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


@inlined
def look_again(tree: Tree, slot: int, principal: bool, gain: Floats, loss: Floats) -> None:
    """Gain and loss of a leaf that has just changed."""
    tree.gain[slot] = split_gain(tree, slot, principal) if tree.spread[slot] > 0.0 else 0.0
    tree.gain_spread[slot] = tree.spread[slot]
    gain[slot] = tree.gain[slot]
    loss[slot] = np.inf
    if tree.node[slot] > 0:
        loss[slot] = dissolve_loss(tree, slot, heir(tree, slot))


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
            now = dissolve_loss(tree, donor, to)
            if now > loss[donor] or best == donor or best == to:
                loss[donor] = (
                    now if now > loss[donor] else np.inf
                )  # its heir has changed, or it is in the way
                continue
            dissolve_leaf(tree, donor)
            gain[donor] = -1.0
            loss[donor] = np.inf
            look_again(tree, to, principal, gain, loss)
        if tree.counts[FREE_SLOTS] == 0:
            break
        other = tree.free_slot[tree.counts[FREE_SLOTS] - 1]
        split_leaf(tree, best, principal)
        look_again(tree, best, principal, gain, loss)
        look_again(tree, other, principal, gain, loss)
        done += 1
    return done
