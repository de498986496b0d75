"""Units: the features' deviations, in which a tree compares them, taken from what it has learnt.

Where a tree cuts must not depend on whether a feature came in metres or in millimetres.
"""

from __future__ import annotations

import numpy as np

from streamclust._kernels.tree.arrays import DEEP, EVENTS, FREE_SLOTS, Tree
from streamclust._kernels.tree.learn import insert_events
from streamclust._kernels.types import Bools, Floats
from streamclust.tree import storage
from streamclust.tree.balance import rebalance

UNLIMITED = 2**62
LAST_REGROWTH_EVENTS = 1024
"""Event count after which a change of deviations no longer rebuilds the tree: changes are small, and swaps suffice."""
MIN_DEVIATION = 1e-140
"""Smaller deviations count as 0: their squares would underflow."""


def rescaled(tree: Tree, limit: int, principal: bool) -> Tree:
    """The tree with the deviations of all it has learnt, grown anew while it is young and holds every event."""
    set_deviations(tree, tree.node >= 0)
    if tree.counts[EVENTS] > LAST_REGROWTH_EVENTS or np.any(tree.cutoff[tree.node >= 0] < np.inf):
        return tree
    fresh = storage.empty_tree(len(tree.origin), tree.scatter.shape[1], tree.key.shape[1], len(tree.node))
    for name in ("origin", "inverse", "clock"):
        getattr(fresh, name)[:] = getattr(tree, name)
    fresh.counts[EVENTS] = tree.counts[EVENTS]
    return with_events_of(fresh, tree, limit, principal)


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
    if not storage.scales(len(tree.origin), tree.scatter.shape[1]):
        return
    found = inverse_deviations(tree, slots)
    inverse = np.where(tree.inverse > 0.0, tree.inverse, found) if only_new else found
    if np.array_equal(inverse, tree.inverse):
        return
    tree.inverse[:] = inverse
    tree.spread[slots] = variances(tree.scatter[slots], len(inverse)) @ inverse**2
    tree.gain_spread[slots] = 0.0


def inverse_deviations(tree: Tree, slots: Bools | slice) -> Floats:
    """One over each feature's deviation; 0 for those that do not vary."""
    weight, mean = tree.weight[slots], tree.mean[slots]
    total = weight.sum()
    if not total > 0.0:
        return np.zeros(mean.shape[1])
    share = weight / total
    gaps = mean - share @ mean
    variance = share @ gaps**2 + variances(tree.scatter[slots], mean.shape[1]).sum(axis=0) / total
    deviation = np.sqrt(variance)
    return np.where(deviation > MIN_DEVIATION, 1.0 / np.maximum(deviation, MIN_DEVIATION), 0.0)


def variances(scatter: Floats, n_features: int) -> Floats:
    """The diagonal of each flattened scatter."""
    return scatter if scatter.shape[1] == n_features else scatter[:, :: n_features + 1]
