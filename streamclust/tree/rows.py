"""Rows at the tree's door: numbers, finite, of the right width. Checked once, here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamclust._kernels.types import Floats

NO_VALUES: Floats = np.empty(0)
LARGEST = 1e150
"""Squares of larger values overflow, and would take everything learnt with them."""


def check_positive(**values: float | None) -> None:
    """Refuse numbers that are not positive, by name."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def check_rows(
    n_features: int, rows: ArrayLike, weight: ArrayLike | None, time: ArrayLike | None
) -> tuple[Floats, Floats, Floats]:
    """Rows, weights and times as arrays, rows of weight 0 left out; empty weights or times where none are given."""
    x = _numbers(rows, "rows")
    if x.ndim != 2 or x.shape[1] != n_features:
        if x.size == 0:
            x = x.reshape(0, n_features)
        else:
            raise ValueError(
                f"expected a table of {n_features} columns, got shape {x.shape}"
                + (": a single event is a table of one row, rows[None, :]" if x.shape == (n_features,) else "")
            )
    _check_finite(x)
    w = _column(weight, "weight", len(x))
    t = _column(time, "time", len(x))
    if len(w) and (negative := np.flatnonzero(w < 0)).size:
        raise ValueError(f"weights must not be negative, got {w[negative[0]]} for row {negative[0]}")
    if len(w) and not w.all():
        kept = w > 0
        x, w, t = x[kept], w[kept], t[kept] if len(t) else t
    return np.ascontiguousarray(x), w, t


def _numbers(values: ArrayLike, what: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind in "USO":
        try:
            return array.astype(float) if array.dtype.kind == "O" else _refuse_text(array, what)
        except (TypeError, ValueError):
            return _refuse_text(array, what)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{what} must be numbers, got {array.dtype}")
    return array.astype(float, copy=False)


def _refuse_text(array: NDArray[Any], what: str) -> NDArray[Any]:
    text = next((v for v in array.ravel() if not isinstance(v, (int, float, np.number))), array.dtype)
    raise ValueError(f"{what} must be numbers, got {text!r}: encode text as numbers first")


def _column(values: ArrayLike | None, what: str, length: int) -> Floats:
    if values is None:
        return NO_VALUES
    column = np.ascontiguousarray(np.broadcast_to(_numbers(values, what), (length,)))
    if not np.isfinite(column).all():
        row = np.flatnonzero(~np.isfinite(column))[0]
        raise ValueError(f"every {what} must be finite, got {column[row]} for row {row}")
    return column


def _check_finite(x: Floats) -> None:
    flat = x.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        if np.dot(flat, flat) <= LARGEST**2:  # one pass finds NaN, infinities and values too large
            return
    bad = ~(np.abs(x) <= LARGEST)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"row {row}, column {column} is {x[row, column]}: every value must be finite and below {LARGEST:g}; "
            "drop or impute such rows first"
        )
