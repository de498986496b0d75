"""Merging: what many trees have learnt, in one. Leaves are pooled and grouped anew; exact trees insert events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamclust._kernels.tree import DEEP, EVENTS, FREE_SLOTS, LANDMARK, LEAVES, NOW, Tree, rescale
from streamclust._kernels.tree_learn import insert_events
from streamclust._kernels.tree_merge import note_depths, regroup
from streamclust._kernels.tree_swap import dissolve_least, swap_leaves
from streamclust.tree import storage
from streamclust.tree.balance import rebalance

if TYPE_CHECKING:
    from streamclust.tree.summary import SummaryTree

UNLIMITED = 2**62
AT_ONCE = 64
"""At most so many trees are pooled at a time: memory is bounded however many there are."""
MOST = 0.6
"""A tree with more than this of all the weight keeps its shape."""
ROOM = 4
"""A pool has room for so many times the leaves in it, for those that are cut in two; with less, leaves stay wide."""
LARGEST_POOL = 2**29
"""Bytes beyond which a pool has less room than that."""


def merge_all(trees: Sequence[SummaryTree]) -> SummaryTree:
    """One tree of what several trees have learnt, with the settings of the first; they stay as they are.

    >>> from streamclust.tree import SummaryTree
    >>> trees = [SummaryTree(n_features=2, max_leaves=64, seed=seed) for seed in range(3)]
    >>> for k, tree in enumerate(trees):
    ...     tree.insert(np.random.default_rng(k).normal(k, 1.0, (1000, 2)))
    >>> merge_all(trees)
    SummaryTree(3000 events in 64 of at most 64 leaves, 2 features, full scatter)
    """
    if not trees:
        raise ValueError("there is no tree to merge; give at least one")
    trees = list(trees)
    while len(trees) > AT_ONCE:
        trees = [_joined(trees[i : i + AT_ONCE]) for i in range(0, len(trees), AT_ONCE)]
    return _joined(trees)


def _joined(trees: Sequence[SummaryTree]) -> SummaryTree:
    first = trees[0].copy()
    first.merge(*trees[1:])
    return first


def aligned(trees: Sequence[Tree], half_life: float | None, timed: bool) -> list[Tree]:
    """Copies of trees that forget, with one clock: by event time the latest, by event count the first one's."""
    parts = [storage.copy(tree) for tree in trees]
    if half_life is None:
        return parts
    clock = np.max([tree.clock for tree in trees], axis=0) if timed else trees[0].clock
    for part in parts:
        ahead = clock[LANDMARK] - part.clock[LANDMARK]
        if not timed:  # all are at the present: what counts is how far back their landmarks lie
            ahead += part.clock[NOW] - clock[NOW]
        if ahead:
            rescale(part, 2.0 ** -min(ahead / half_life, 1000.0))
        part.clock[:] = clock
    return parts


def of_all_leaves(trees: Sequence[Tree], limit: int, principal: bool) -> Tree:
    """A tree of at most `limit` leaves over those of all trees, which have one clock.

    A tree that has learnt most of it gives the shape: what is merged into it bit by bit, for ever, must not wear out
    its leaves and their samples. Among equals, a new shape is better than that of any.
    """
    weights = [float(tree.weight[tree.node >= 0].sum()) for tree in trees]
    heaviest = int(np.argmax(weights))
    leaves = int(trees[heaviest].counts[LEAVES])
    if len(trees) == 1 and leaves <= limit:
        tree = trees[0]
    else:
        keep = weights[heaviest] >= MOST * sum(weights) and leaves <= limit
        kept, size, tree = pool(trees, heaviest if keep else None)
        regroup(tree, size, kept, min(2 * limit, size) if keep else limit, principal)
        dissolve_least(tree, limit)
    while len(tree.node) < limit:
        tree = storage.grow(tree, limit)
    swap_leaves(tree, limit, principal, 2 * limit)
    note_depths(tree)
    while tree.counts[DEEP] >= 0:
        rebalance(tree)
        note_depths(tree)
    return storage.shrink(tree, limit)


def pool(trees: Sequence[Tree], base: int | None) -> tuple[int, int, Tree]:
    """The leaves of all trees in the first slots of one, and how many: those of tree `base`, on its nodes; all."""
    parts = list(trees)
    slots = [np.flatnonzero((tree.node >= 0) & (tree.weight > 0)) for tree in trees]
    if base is not None:
        parts.insert(0, storage.shrink(parts.pop(base), int(trees[base].counts[LEAVES])))
        slots.pop(base)
        slots.insert(0, np.arange(len(parts[0].node)))
    first, size = parts[0], sum(map(len, slots))
    n_features, width, leaf_size = len(first.origin), first.scatter.shape[1], first.key.shape[1]
    largest = LARGEST_POOL // (8 * (leaf_size * (n_features + 2) + width + 7 * n_features + 16))
    capacity = max(1, size, min(ROOM * size, largest))
    pooled = storage.empty_tree(n_features, width, leaf_size, capacity)
    if base is not None:
        for name in storage.PER_NODE:
            getattr(pooled, name)[: len(first.child)] = getattr(first, name)
    start = 0
    for tree, chosen in zip(parts, slots, strict=True):
        part = slice(start, start + len(chosen))
        for name in storage.PER_SLOT:
            getattr(pooled, name)[part] = getattr(tree, name)[chosen]
        pooled.mean[part] += tree.origin - first.origin
        start = part.stop
    pooled.origin[:], pooled.clock[:] = first.origin, first.clock
    pooled.counts[EVENTS] = sum(int(tree.counts[EVENTS]) for tree in trees)
    return 0 if base is None else len(slots[0]), size, pooled


def of_all_events(trees: Sequence[Tree], principal: bool) -> Tree:
    """An exact tree of the events of all trees, which have one clock and still hold all of them."""
    largest = max(range(len(trees)), key=lambda i: int(trees[i].counts[LEAVES]))
    base = trees[largest]
    for source in (tree for i, tree in enumerate(trees) if i != largest):
        base.counts[EVENTS] += source.counts[EVENTS]
        done, last = 0, len(source.node)
        while done < last:
            done = insert_events(base, source, done, UNLIMITED, principal)
            if base.counts[DEEP] >= 0:
                rebalance(base)
            if base.counts[FREE_SLOTS] < base.key.shape[1]:
                base = storage.grow(base, UNLIMITED)
    return base
