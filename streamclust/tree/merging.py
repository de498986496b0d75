"""Merging: what many trees have learnt, in one. Leaves are pooled and grouped anew; exact trees insert events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamclust._kernels.tree.arrays import EVENTS, LANDMARK, LEAVES, NOW, Tree, rescale
from streamclust._kernels.tree.learn import UNLIMITED
from streamclust._kernels.tree.merge import regroup
from streamclust._kernels.tree.swap import dissolve_least, swap_leaves
from streamclust.tree import storage
from streamclust.tree.balance import balance
from streamclust.tree.units import set_deviations, with_events_of

if TYPE_CHECKING:
    from streamclust.tree.summary import SummaryTree

MAX_POOLED_TREES = 64
"""Number of trees pooled at a time, which bounds the memory."""
DOMINANT_SHARE = 0.6
"""A tree with more than this share of the total weight keeps its shape."""
SLOTS_PER_LEAF = 4
"""Slots of a pool per leaf: splits need free slots, and with fewer of them leaves stay wide."""
MAX_POOL_BYTES = 2**29
"""Memory above which a pool has fewer slots."""


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
    while len(trees) > MAX_POOLED_TREES:
        trees = [_joined(trees[i : i + MAX_POOLED_TREES]) for i in range(0, len(trees), MAX_POOLED_TREES)]
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
        keep = weights[heaviest] >= DOMINANT_SHARE * sum(weights) and leaves <= limit
        tree = grouped(trees, heaviest if keep else None, limit, principal)
    return settled(tree, limit, principal)


def grown_over(leaves: Tree, limit: int, principal: bool) -> Tree:
    """A tree of at most `limit` leaves grown over the leaves of another, whose nodes are not looked at."""
    return settled(grouped([leaves], None, limit, principal), limit, principal)


def grouped(trees: Sequence[Tree], base: int | None, limit: int, principal: bool) -> Tree:
    """The leaves of all trees, grouped to at most `limit`: under the nodes of tree `base`, or under new ones."""
    kept, size, tree = pool(trees, base)
    set_deviations(tree, slice(0, size))
    regroup(tree, size, kept, limit if base is None else min(2 * limit, size), principal)
    dissolve_least(tree, limit)
    return tree


def settled(tree: Tree, limit: int, principal: bool) -> Tree:
    """The tree after swaps of leaves, balanced, in arrays of its size."""
    while len(tree.node) < limit:
        tree = storage.grow(tree, limit)
    swap_leaves(tree, limit, principal, 2 * limit)
    balance(tree)
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
    largest = MAX_POOL_BYTES // storage.leaf_bytes(n_features, width, leaf_size)
    capacity = max(1, size, min(SLOTS_PER_LEAF * size, largest))
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
        base = with_events_of(base, source, UNLIMITED, principal)
    set_deviations(base, base.node >= 0)
    return base
