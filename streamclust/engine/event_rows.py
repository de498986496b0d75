"""Rows of events in their different forms: dense, sparse cells, sparse matrices; of different widths."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from streamclust._kernels.check import all_within
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.schema import Cells, table_of
from streamclust.sketch import Rows
from streamclust.utils.late import csr_array, issparse, vstack

Row = Floats | Cells
"""An event as a dense row or, where it may have few of many features, as sparse cells."""


def stacked(rows: Sequence[Row], least: int) -> Floats:
    """Rows under each other, in `least` columns or more; NaN where one lacks a feature."""
    width = max(least, *map(width_of, rows))
    if all(isinstance(row, np.ndarray) and len(row) == width for row in rows):
        return np.array(rows)
    return table_of(rows, width)


def width_of(row: Row) -> int:
    """Number of columns that the row needs."""
    return max(row.at, default=-1) + 1 if isinstance(row, Cells) else len(row)


def widths(rows: Floats | list[Row]) -> Ints:
    """Number of features that have appeared up to each row."""
    if isinstance(rows, list):
        found = np.array([width_of(row) for row in rows], dtype=np.int64)
    else:
        found = rows.shape[1] - (~np.isnan(rows))[:, ::-1].argmax(axis=1)
    return np.asarray(np.maximum.accumulate(found), dtype=np.int64)


def with_width(rows: Floats, width: int, absent: float = math.nan) -> Floats:
    """Rows truncated to `width` columns, or widened to them with `absent`."""
    short = width - rows.shape[1]
    return np.pad(rows, ((0, 0), (0, short)), constant_values=absent) if short > 0 else rows[:, :width]


def fitting(rows: Floats, width: int) -> Bools:
    """Rows that have a number for each of the first `width` features and for no other."""
    if rows.shape[1] == width and all_within(np.ascontiguousarray(rows).ravel(), np.inf):
        return np.ones(len(rows), dtype=bool)
    known = ~np.isnan(rows)
    return np.asarray(known[:, :width].all(axis=1) & ~known[:, width:].any(axis=1) & (width > 0))


def first_width(rows: Rows | list[Row]) -> int:
    """The number of features of the first event."""
    if issparse(rows):
        return int(rows.shape[1])
    return int(widths(rows[:1])[0])


def sparse_rows(rows: Sequence[Row]) -> Rows:
    """Rows of cells, or dense ones, as a sparse matrix; the columns of a row may be in any order."""
    at = [row.at if isinstance(row, Cells) else range(len(row)) for row in rows]
    values = [row.values if isinstance(row, Cells) else row for row in rows]
    indptr: Ints = np.cumsum([0, *map(len, at)])
    indices = np.fromiter((i for columns in at for i in columns), dtype=np.int64, count=int(indptr[-1]))
    data = np.concatenate([*values, np.empty(0)]).astype(float)
    return csr_array((data, indices, indptr), shape=(len(rows), max(map(width_of, rows), default=0)))


def stacked_rows(parts: Sequence[Rows]) -> Rows:
    """Rows under each other in double precision, as wide as the widest; sparse if any is."""
    return under_each_other(parts).astype(float, copy=False)


def under_each_other(parts: Sequence[Rows]) -> Rows:
    """Rows under each other, as wide as the widest, in the precision that they have; sparse if any is."""
    if not parts:
        return np.empty((0, 0))
    width = max(part.shape[1] for part in parts)
    if not any(issparse(part) for part in parts):
        return np.concatenate([with_width(part, width) for part in parts])
    sparse = [csr_array(part) for part in parts]
    for part in sparse:
        part.resize(part.shape[0], width)
    return csr_array(vstack(sparse))
