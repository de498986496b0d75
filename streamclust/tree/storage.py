"""The tree's arrays: made, grown, copied, saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamclust._kernels.tree.arrays import FREE_PAIRS, FREE_SLOTS, LEAVES, Tree
from streamclust._kernels.types import Floats, Ints

FIRST_CAPACITY = 8
"""Number of leaves that a new tree has room for; a stream of few events takes little memory."""

PER_NODE = ("child", "parent", "axis", "direction", "threshold")
PER_SLOT = (
    "weight", "mean", "scatter", "spread", "lo", "hi", "gain", "gain_spread",
    "points", "point_weight", "key", "count", "cutoff",
)  # fmt: skip
PER_FEATURE = ("direction", "mean", "lo", "hi", "points", "origin", "inverse", "far")
LATER = ("far",)
"""Arrays that trees saved by earlier versions lack: they begin as in an empty tree."""
PER_TREE = ("counts", "clock", "origin", "inverse", "far")


def scales(n_features: int, width: int) -> bool:
    """Whether a tree of this width of scatter compares features in their own deviations.

    One that keeps a variance for each does. One that keeps a single variance for all of them (spherical clusters), or
    counts, takes them to be in the same unit already.
    """
    return width in (n_features, n_features**2)


def leaf_bytes(n_features: int, width: int, leaf_size: int) -> int:
    """About how much memory a leaf takes, its sample and its node included."""
    return 8 * (leaf_size * (n_features + 2) + width + 7 * n_features + 16)


def empty_tree(n_features: int, width: int, leaf_size: int, capacity: int) -> Tree:
    """A tree of one empty leaf, with room for `capacity` leaves."""
    nodes, pairs = 2 * capacity - 1, capacity - 1
    tree = Tree(
        child=np.full(nodes, -1, dtype=np.int64),  # -1 = ~0: the root is the leaf of slot 0
        parent=np.full(nodes, -1, dtype=np.int64),
        axis=np.full(nodes, -1, dtype=np.int64),
        direction=np.zeros((nodes, n_features)),
        threshold=np.zeros(nodes),
        node=np.full(capacity, -1, dtype=np.int64),
        weight=np.zeros(capacity),
        mean=np.zeros((capacity, n_features)),
        scatter=np.zeros((capacity, width)),
        spread=np.zeros(capacity),
        lo=np.full((capacity, n_features), np.inf),
        hi=np.full((capacity, n_features), -np.inf),
        gain=np.zeros(capacity),
        gain_spread=np.zeros(capacity),
        points=np.zeros((capacity, leaf_size, n_features)),
        point_weight=np.zeros((capacity, leaf_size)),
        key=np.zeros((capacity, leaf_size)),
        count=np.zeros(capacity, dtype=np.int64),
        cutoff=np.full(capacity, np.inf),
        free_pair=_stack(0, pairs, pairs),
        free_slot=_stack(1, capacity, capacity),
        counts=np.array([1, pairs, capacity - 1, 0, -1], dtype=np.int64),
        clock=np.zeros(2),
        origin=np.zeros(n_features),
        inverse=np.full(n_features, 0.0 if scales(n_features, width) else 1.0),
        far=np.full(n_features, np.inf),
    )
    tree.node[0] = 0
    return tree


def grow(tree: Tree, limit: int) -> Tree:
    """A copy of the tree with room for twice as many leaves, at most `limit`."""
    old = len(tree.node)
    capacity = min(2 * old, limit)
    bigger = empty_tree(tree.mean.shape[1], tree.scatter.shape[1], tree.key.shape[1], capacity)
    for name, value in tree._asdict().items():
        getattr(bigger, name)[: len(value)] = value
    free_pairs, free_slots = tree.counts[FREE_PAIRS], tree.counts[FREE_SLOTS]
    fresh_pairs, fresh_slots = _stack(old - 1, capacity - 1), _stack(old, capacity)
    bigger.free_pair[: len(fresh_pairs)] = fresh_pairs
    bigger.free_pair[len(fresh_pairs) : len(fresh_pairs) + free_pairs] = tree.free_pair[:free_pairs]
    bigger.free_slot[: len(fresh_slots)] = fresh_slots
    bigger.free_slot[len(fresh_slots) : len(fresh_slots) + free_slots] = tree.free_slot[:free_slots]
    bigger.counts[FREE_PAIRS] += len(fresh_pairs)
    bigger.counts[FREE_SLOTS] += len(fresh_slots)
    return bigger


def shrink(tree: Tree, capacity: int) -> Tree:
    """A copy of the tree, of at most `capacity` leaves, in arrays of that capacity: leaves and pairs move down."""
    if len(tree.node) <= capacity:
        return tree
    smaller = empty_tree(tree.mean.shape[1], tree.scatter.shape[1], tree.key.shape[1], capacity)
    slots = np.flatnonzero(tree.node >= 0)
    n = len(slots)
    for name in PER_SLOT:
        getattr(smaller, name)[:n] = getattr(tree, name)[slots]
    for name in PER_TREE:
        getattr(smaller, name)[:] = getattr(tree, name)
    new_slot = {int(slot): k for k, slot in enumerate(slots)}
    stack = [(0, 0)]
    pairs = 0
    while stack:  # renumber from the root
        old, new = stack.pop()
        for name in ("axis", "direction", "threshold"):
            getattr(smaller, name)[new] = getattr(tree, name)[old]
        below = int(tree.child[old])
        if below < 0:
            smaller.child[new] = ~new_slot[~below]
            smaller.node[new_slot[~below]] = new
            continue
        smaller.child[new] = 2 * pairs + 1
        for k in range(2):
            smaller.parent[2 * pairs + 1 + k] = new
            stack.append((below + k, 2 * pairs + 1 + k))
        pairs += 1
    smaller.counts[FREE_PAIRS], smaller.counts[FREE_SLOTS] = capacity - n, capacity - n
    smaller.free_pair[:] = _stack(n - 1, capacity - 1, capacity - 1)
    smaller.free_slot[:] = _stack(n, capacity, capacity)
    return smaller


def widen(tree: Tree, values: Floats, width: int) -> Tree:
    """A copy of the tree with more features, in which every event so far has the same values."""
    old, more = tree.mean.shape[1], len(values)
    wider = empty_tree(old + more, width, tree.key.shape[1], len(tree.node))
    live = tree.node >= 0
    for name, value in tree._asdict().items():
        place = getattr(wider, name)
        if name == "scatter":
            place[:] = widened_scatter(value, old, more, width)
        elif name in PER_FEATURE:
            place[..., :old] = value
        else:
            place[:] = value
    wider.origin[old:] = values
    held = np.arange(tree.key.shape[1]) < tree.count[:, None]
    wider.points[..., old:] = np.where((held & live[:, None])[..., None], values, 0.0)
    boxed = live & (tree.lo[:, 0] <= tree.hi[:, 0])
    wider.lo[:, old:] = np.where(boxed[:, None], values, np.inf)
    wider.hi[:, old:] = np.where(boxed[:, None], values, -np.inf)
    if not scales(old + more, width):  # one feature alone may have had a deviation of its own
        wider.spread[:] = wider.scatter[:, 0] if width else tree.spread
        wider.inverse[:] = 1.0
    return wider


def narrow(tree: Tree, n_features: int, width: int) -> Tree:
    """A copy of the tree with its first features alone; the others must be 0 for every event."""
    old = len(tree.origin)
    narrower = {
        name: value[..., :n_features].copy() if name in PER_FEATURE else value.copy()
        for name, value in tree._asdict().items()
    }
    scatter = tree.scatter
    if scatter.shape[1] == old**2 and width == n_features**2:
        scatter = scatter.reshape(-1, old, old)[:, :n_features, :n_features].reshape(-1, width)
    narrower["scatter"] = np.ascontiguousarray(scatter[:, :width])
    return Tree(**narrower)


def reorder(tree: Tree, columns: Ints) -> Tree:
    """A copy of the tree with its features in another order: the new column j is the old columns[j]."""
    d = len(columns)
    found = {
        name: np.ascontiguousarray(value[..., columns]) if name in PER_FEATURE else value.copy()
        for name, value in tree._asdict().items()
    }
    place = np.empty(d, dtype=np.int64)
    place[columns] = np.arange(d)
    found["axis"] = np.where(tree.axis >= 0, place[tree.axis], tree.axis)
    if tree.scatter.shape[1] == d**2:
        square = tree.scatter.reshape(-1, d, d)[:, columns][:, :, columns]
        found["scatter"] = np.ascontiguousarray(square.reshape(-1, d**2))
    elif tree.scatter.shape[1] == d:
        found["scatter"] = np.ascontiguousarray(tree.scatter[:, columns])
    return Tree(**found)


def widened_scatter(scatter: Floats, old: int, more: int, width: int) -> Floats:
    """Flattened scatters with rows and columns of zeros for the new features."""
    slots = len(scatter)
    if width == (old + more) ** 2:
        square = np.zeros((slots, old + more, old + more))
        square[:, :old, :old] = scatter.reshape(slots, old, old)
        return square.reshape(slots, width)
    flat = np.zeros((slots, width))
    flat[:, : scatter.shape[1]] = scatter
    return flat


def copy(tree: Tree) -> Tree:
    """Arrays of its own, with the same values."""
    return Tree(**{name: value.copy() for name, value in tree._asdict().items()})


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Tree:
    """A tree from what `to_arrays` gave, checked for shape; the arrays are copied."""
    missing = [name for name in Tree._fields if name not in arrays and name not in LATER]
    if missing:
        raise ValueError(f"not a summary tree: arrays {', '.join(missing)} are missing")
    capacity, leaf_size = np.shape(arrays["key"])
    width = np.shape(arrays["scatter"])[-1]
    tree = empty_tree(len(arrays["origin"]), width, leaf_size, capacity)
    for name, blank in tree._asdict().items():
        if name not in arrays:
            continue
        value = np.asarray(arrays[name])
        if value.shape != blank.shape or value.dtype != blank.dtype:
            raise ValueError(
                f"not a summary tree: array {name} is {value.dtype} of shape {value.shape}, "
                f"expected {blank.dtype} of shape {blank.shape}"
            )
        blank[...] = value
    if not 1 <= tree.counts[LEAVES] <= capacity or np.count_nonzero(tree.node >= 0) != tree.counts[LEAVES]:
        raise ValueError("not a summary tree: its leaves do not match their count")
    return tree


def _stack(start: int, stop: int, size: int | None = None) -> Ints:
    """A stack of free indices, smallest on top, padded to `size`."""
    stack = np.zeros(max(size if size is not None else stop - start, 0), dtype=np.int64)
    stack[: max(stop - start, 0)] = np.arange(stop - 1, start - 1, -1)
    return stack
