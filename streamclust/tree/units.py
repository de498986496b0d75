"""Units: the features' deviations, in which a tree compares them, taken from what it has learnt.

Where a tree cuts must not depend on whether a feature came in metres or in millimetres.
"""

from __future__ import annotations

import numpy as np

from streamclust._kernels.tree.arrays import DEEP, EVENTS, FREE_SLOTS, Tree, sample_masses
from streamclust._kernels.tree.learn import insert_events
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.tree import storage
from streamclust.tree.balance import rebalance
from streamclust.utils.outliers import FAR_DEVIATIONS, far_reach, middle_and_unit

LAST_REGROWTH_EVENTS = 1024
"""Event count after which a change of deviations no longer rebuilds the tree: changes are small, and swaps suffice."""
MIN_ORIGIN_EVENTS = 4
"""Number of events from which a tree may choose another origin than its first event."""
MAX_ORIGIN_DEVIATIONS = 1e8
"""An origin farther than this from the middle of the events, in robust deviations, leaves their means few digits."""
MIN_DEVIATION = 1e-140
"""Smaller deviations count as 0: their squares would underflow."""


def rescaled(tree: Tree, limit: int, principal: bool) -> Tree:
    """The tree with the deviations of all it has learnt, grown anew while it is young and holds every event."""
    scaled = storage.scales(len(tree.origin), tree.scatter.shape[1])
    set_deviations(tree, tree.node >= 0)
    if tree.counts[EVENTS] > LAST_REGROWTH_EVENTS or np.any(tree.cutoff[tree.node >= 0] < np.inf):
        return tree
    origin = sound_origin(tree)
    if not scaled and np.array_equal(origin, tree.origin):
        return tree
    fresh = storage.empty_tree(len(tree.origin), tree.scatter.shape[1], tree.key.shape[1], len(tree.node))
    for name in ("inverse", "clock", "far"):
        getattr(fresh, name)[:] = getattr(tree, name)
    fresh.origin[:] = origin
    fresh.counts[EVENTS] = tree.counts[EVENTS]
    return with_events_of(fresh, tree, limit, principal)


def sound_origin(tree: Tree) -> Floats:
    """The tree's origin or, if that is so far from most events that their means would have few digits, one of those."""
    points, _ = sampled(tree, tree.node >= 0)
    if len(points) < MIN_ORIGIN_EVENTS:
        return tree.origin
    middle, unit = np.array([middle_and_unit(np.sort(column)) for column in points.T]).T
    if not np.any((np.abs(tree.origin - middle) > MAX_ORIGIN_DEVIATIONS * unit) & (unit > 0.0)):
        return tree.origin
    gaps = np.abs(points - middle) / np.where(unit > 0.0, unit, 1.0)
    return np.asarray(points[np.argmin(gaps.max(axis=1))])


def sampled(tree: Tree, slots: Bools | Ints | slice) -> tuple[Floats, Floats]:
    """The sampled events of the leaves in these slots, and what each stands for."""
    held = np.arange(tree.key.shape[1]) < tree.count[slots][:, None]
    mass = sample_masses(tree, np.arange(len(tree.node))[slots])
    return np.asarray(tree.points[slots][held]), np.asarray(mass[held])


def with_events_of(tree: Tree, source: Tree, limit: int, principal: bool) -> Tree:
    """The tree, perhaps in larger arrays, with the events of another that holds every one of its own."""
    done, last = 0, len(source.node)
    while done < last:
        done = insert_events(tree, source, done, limit, principal)
        if tree.counts[DEEP] >= 0:
            rebalance(tree)
        if tree.counts[FREE_SLOTS] < tree.key.shape[1] and len(tree.node) < limit:
            tree = storage.grow(tree, limit)
    return tree


def set_deviations(tree: Tree, slots: Bools | slice, only_new: bool = False) -> None:
    """Take the features' deviations from the leaves in these slots; `only_new`: of features that had none so far."""
    width = tree.scatter.shape[1]
    if width == 0:  # counts
        return
    found = inverse_deviations(tree, slots)
    if not storage.scales(len(tree.origin), width):
        rms = np.sqrt(np.mean(np.divide(1.0, found, out=np.zeros_like(found), where=found > 0) ** 2))
        tree.far[:] = FAR_DEVIATIONS * rms if rms > 0 else np.inf
        return
    inverse = np.where(tree.inverse > 0.0, tree.inverse, found) if only_new else found
    if np.array_equal(inverse, tree.inverse):
        return
    tree.inverse[:] = inverse
    tree.far[:] = np.divide(FAR_DEVIATIONS, inverse, out=np.full(len(inverse), np.inf), where=inverse > 0)
    tree.spread[slots] = variances(tree.scatter[slots], len(inverse)) @ inverse**2
    tree.gain_spread[slots] = 0.0


def inverse_deviations(tree: Tree, slots: Bools | slice) -> Floats:
    """One over each feature's deviation; 0 for those that do not vary. Leaves that reach far out do not count."""
    weight, mean = tree.weight[slots], tree.mean[slots]
    total = weight.sum()
    if not total > 0.0:
        return np.zeros(mean.shape[1])
    spread = variances(tree.scatter[slots], mean.shape[1])
    share = weight / total
    gaps = mean - share @ mean
    variance = share @ gaps**2 + spread.sum(axis=0) / total
    near = near_leaves(tree, slots)
    for j in np.flatnonzero(~near.all(axis=0)):
        mine = near[:, j]
        share = weight[mine] / weight[mine].sum()
        gap = mean[mine, j] - share @ mean[mine, j]
        variance[j] = share @ gap**2 + spread[mine, j].sum() / weight[mine].sum()
    deviation = np.sqrt(variance)
    return np.where(deviation > MIN_DEVIATION, 1.0 / np.maximum(deviation, MIN_DEVIATION), 0.0)


def near_leaves(tree: Tree, slots: Bools | Ints | slice) -> Bools:
    """(leaves, D): which leaves hold no value far from the middle of a feature; all, where none would be left."""
    points, mass = sampled(tree, slots)
    near = np.ones(tree.mean[slots].shape, dtype=bool)
    for j in range(points.shape[1]):
        if limits := far_reach(points[:, j], mass):
            middle, reach = limits
            held = (tree.lo[slots][:, j] >= middle - reach) & (tree.hi[slots][:, j] <= middle + reach)
            if tree.weight[slots][held].sum() > 0.0:
                near[:, j] = held
    return near


def variances(scatter: Floats, n_features: int) -> Floats:
    """The diagonal of each flattened scatter; of a scalar one an equal part for each feature."""
    if scatter.shape[1] == 1:
        return np.repeat(scatter / n_features, n_features, axis=1)
    return scatter if scatter.shape[1] == n_features else scatter[:, :: n_features + 1]
