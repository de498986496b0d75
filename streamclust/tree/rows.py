"""Validation of rows, settings and saved arrays of a tree."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, SupportsIndex, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamclust._kernels.check import all_within
from streamclust._kernels.tree.arrays import DEEP, FREE_PAIRS, FREE_SLOTS, LEAVES, Tree
from streamclust._kernels.types import Floats, Ints
from streamclust.utils.values import MAX_MAGNITUDE

NO_VALUES: Floats = np.empty(0)
MIN_WEIGHT, MAX_WEIGHT = 1e-100, 1e30
"""Beyond these, weight · value² summed over a long stream, times the 2^64 of forward decay, could overflow and
take everything learnt with it."""

# ------------------------------------------------------------------ settings


def check_positive(name: str, value: float, cure: str = "") -> None:
    """Refuse what is not a positive, finite number."""
    if isinstance(value, (str, bytes)) or not np.isreal(value) or not 0 < value < np.inf:
        raise ValueError(f"{name} must be positive and finite, got {value!r}{cure}")


def whole_number(name: str, value: object, least: int) -> int:
    """The value as an int; refused where it is not a whole number of at least `least`."""
    try:
        number = operator.index(cast(SupportsIndex, value))
    except TypeError:
        number = least - 1
    if isinstance(value, (bool, np.bool_)) or not least <= number < 2**63:
        limit = f"at least {least}" if number < 2**63 else "below 2^63"
        raise ValueError(f"{name} must be a whole number, {limit}, got {value!r}")
    return number


# ------------------------------------------------------------------ rows


def check_rows(
    n_features: int, rows: ArrayLike, weight: ArrayLike | None, time: ArrayLike | None
) -> tuple[Floats, Floats, Floats]:
    """Rows, weights and times as arrays, without the rows of weight 0; empty where none are given."""
    x = _numbers(rows, "rows")
    if x.shape == (0,):  # an empty list
        x = x.reshape(0, n_features)
    if x.ndim != 2 or x.shape[1] != n_features:
        cure = ": a single event is a table of one row, rows[None, :]" if x.shape == (n_features,) else ""
        raise ValueError(f"expected a table of {n_features} columns, got shape {x.shape}{cure}")
    _check_finite(x)
    w = _column(weight, "weight", len(x))
    t = _column(time, "time", len(x))
    if len(w):
        _check_weights(w)
    if len(w) and not w.all():
        kept = w > 0
        x, w, t = x[kept], w[kept], t[kept] if len(t) else t
    return _plain(x), _plain(w), _plain(t)


def check_values(values: ArrayLike) -> Floats:
    """One finite number for each feature to add."""
    column = _numbers(values, "values")
    if column.ndim != 1:
        raise ValueError(
            f"values must be a list of numbers, one for each new feature, got shape {column.shape}"
        )
    _check_finite(column[None])
    return column


def _plain(array: Floats) -> Floats:
    """The array, contiguous and writable: kernels are compiled anew for every kind of array they meet."""
    return np.require(array, requirements=["C", "A", "W"])


def _numbers(values: ArrayLike, what: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise ValueError(f"{what} must form a table: they are not all of the same length") from None
    if array.dtype.kind in "US":
        raise _not_numbers(array, what)
    if array.dtype.kind == "O":
        if any(isinstance(value, (str, bytes)) for value in array.flat):
            raise _not_numbers(array, what)
        try:
            array = array.astype(float)
        except OverflowError:
            raise ValueError(f"{what} must be numbers below {MAX_MAGNITUDE:g}, got a larger one") from None
        except (TypeError, ValueError):
            raise _not_numbers(array, what) from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{what} must be numbers, got {array.dtype}")
    with np.errstate(over="ignore"):  # numbers too large for a double are refused with the infinities
        array = array.astype(float, copy=False)
    if isinstance(values, np.ma.MaskedArray):  # a masked value is a missing one
        array = np.where(np.ma.getmaskarray(values), np.nan, array)
    return array


def _not_numbers(array: NDArray[Any], what: str) -> ValueError:
    culprit = next((v for v in array.flat if not isinstance(v, (int, float, np.number))), array.dtype)
    if isinstance(culprit, (str, bytes)):
        return ValueError(
            f"{what} must be numbers, got the text {culprit!s:.40}: encode text as numbers first"
        )
    return ValueError(f"{what} must be numbers, got {culprit!r:.40}")


def _column(values: ArrayLike | None, what: str, length: int) -> Floats:
    if values is None:
        return NO_VALUES
    column = _numbers(values, what)
    if column.shape not in ((), (length,)):
        raise ValueError(
            f"{what} must be one number, or one for each of the {length} rows, got shape {column.shape}"
        )
    column = np.broadcast_to(column, (length,))
    if not np.isfinite(column).all():
        row = np.flatnonzero(~np.isfinite(column))[0]
        raise ValueError(f"every {what} must be finite, got {column[row]} for row {row}")
    return column


def _check_weights(w: Floats) -> None:
    if (negative := np.flatnonzero(w < 0)).size:
        raise ValueError(f"weights must not be negative, got {w[negative[0]]} for row {negative[0]}")
    if (extreme := np.flatnonzero((w > MAX_WEIGHT) | ((w > 0) & (w < MIN_WEIGHT)))).size:
        raise ValueError(
            f"weights must be 0 or between {MIN_WEIGHT:g} and {MAX_WEIGHT:g}, "
            f"got {w[extreme[0]]} for row {extreme[0]}; give all of them in another unit"
        )


def _check_finite(x: Floats) -> None:
    if all_within(_plain(x).ravel(), MAX_MAGNITUDE):
        return
    row, column = np.argwhere(~(np.abs(x) <= MAX_MAGNITUDE))[0]
    raise ValueError(
        f"row {row}, column {column} is {x[row, column]}: every value must be finite and at most "
        f"{MAX_MAGNITUDE:g}; drop or impute such rows first"
    )


# ------------------------------------------------------------------ saved arrays


def check_shapes(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse saved arrays whose shapes do not give the size of a tree."""
    for name, dimensions in (("key", 2), ("scatter", 2), ("origin", 1)):
        shape = np.shape(arrays.get(name, np.empty((1,) * dimensions)))
        if len(shape) != dimensions or (name != "scatter" and 0 in shape):
            raise ValueError(f"not a summary tree: array {name} has shape {shape}")


def check_links(tree: Tree) -> None:
    """Refuse saved arrays that are no tree: kernels follow links without looking where they lead."""
    slots = _leaf_slots(tree)
    capacity, leaf_size = tree.key.shape
    free_slots = tree.free_slot[: max(0, int(tree.counts[FREE_SLOTS]))]
    counts = tree.count[slots]
    sound = (
        len(slots) == tree.counts[LEAVES]
        and tree.counts[FREE_SLOTS] == tree.counts[FREE_PAIRS] == capacity - len(slots)
        and np.array_equal(np.sort(np.concatenate([slots, free_slots])), np.arange(capacity))
        and np.count_nonzero(tree.node >= 0) == len(slots)
        and np.all((counts >= 0) & (counts <= leaf_size))
        and (tree.counts[DEEP] == -1 or tree.counts[DEEP] in slots)
    )
    if not sound:
        raise ValueError("not a summary tree: its leaves do not match their count and the list of free ones")
    numbers = (tree.weight, tree.mean, tree.scatter, tree.spread, tree.points, tree.clock, tree.origin)
    sound = all(np.isfinite(values).all() for values in numbers) and np.all(tree.far >= 0)
    if not sound or np.any(tree.weight < 0):
        raise ValueError("not a summary tree: it holds numbers that are not finite, or negative weights")
    others = (
        tree.direction,
        tree.threshold,
        tree.gain,
        tree.point_weight,
        tree.key,
        tree.cutoff,
        tree.inverse,
    )
    if any(np.isnan(values).any() for values in others) or np.any(tree.cutoff < 0):
        raise ValueError("not a summary tree: it holds NaN, or a negative cutoff")


def _leaf_slots(tree: Tree) -> Ints:
    """The slots of the leaves below the root, level by level, each link checked before it is followed."""
    n_nodes, n_features = tree.direction.shape
    n_slots = len(tree.node)
    level = np.zeros(1, dtype=np.int64)
    slots: list[Ints] = []
    pairs: list[Ints] = []
    seen = 1
    while level.size:
        below = tree.child[level]
        inner = below >= 0
        left, up, leaf = below[inner], level[inner], ~below[~inner]
        seen += 2 * len(left)
        if (
            seen > n_nodes
            or np.any((left % 2 == 0) | (left >= n_nodes - 1))
            or np.any((tree.axis[up] < -1) | (tree.axis[up] >= n_features))
            or np.any(leaf >= n_slots)
            or not np.array_equal(tree.node[leaf], level[~inner])
            or not (np.array_equal(tree.parent[left], up) and np.array_equal(tree.parent[left + 1], up))
        ):
            raise ValueError("not a summary tree: its links do not form a tree")
        slots.append(leaf)
        pairs.append((left - 1) // 2)
        level = np.concatenate([left, left + 1])
    taken = np.concatenate(pairs)
    free = tree.free_pair[: max(0, int(tree.counts[FREE_PAIRS]))]
    if not np.array_equal(np.sort(np.concatenate([taken, free])), np.arange(n_slots - 1)):
        raise ValueError(
            "not a summary tree: its links do not form a tree, or overlap the list of free nodes"
        )
    return np.concatenate(slots)
