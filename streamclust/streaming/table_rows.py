"""Rows of tables: dense, sparse, frames and lists of mappings, read row by row or all at once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import pairwise
from typing import Any, cast

import numpy as np

from streamclust._kernels.check import all_within
from streamclust._kernels.types import Floats
from streamclust.engine.event_rows import Row
from streamclust.schema import Cells, Schema
from streamclust.schema.frames import TableLike
from streamclust.utils.late import issparse
from streamclust.utils.values import MAX_MAGNITUDE

NO_FEATURE = "an event has no numeric feature"
"""Error of an event from which nothing can be learnt."""


def within(rows: Floats) -> bool:
    """Whether all values of a table are there, and not too large."""
    plain = np.require(rows, requirements=["C", "A", "W"])
    return bool(rows.shape[1]) and all_within(plain.ravel(), MAX_MAGNITUDE)


def present(rows: Floats | list[Row]) -> Floats:
    """Values of the rows, 0 where missing; ValueError for a row without any value."""
    if isinstance(rows, list):
        values = [row.values if isinstance(row, Cells) else row for row in rows]
        found, complete = np.concatenate([*values, np.empty(0)])[:, None], all(map(len, values))
    else:
        known = ~np.isnan(rows)
        found, complete = np.where(known, rows, 0.0), bool(known.any(axis=1).all())
    if not complete:
        raise ValueError(NO_FEATURE)
    return np.asarray(found, dtype=float)


def any_values(rows: list[Row]) -> Floats:
    """One number for each row: 1 if any of its values is not 0, else 0."""
    return np.array([[np.any(row.values if isinstance(row, Cells) else row)] for row in rows], dtype=float)


def is_table(X: TableLike, schema: Schema) -> bool:
    """Whether X has rows that can be checked one by one if some of them are refused."""
    if isinstance(X, np.ndarray):
        return X.ndim == 2 and (len(schema) in (0, X.shape[1]))
    if issparse(X):
        return schema.missing == "zero" and len(schema) in (0, X.shape[1])
    return not isinstance(X, (str, bytes, Mapping)) and hasattr(X, "__len__")


def name_columns(X: TableLike, schema: Schema) -> None:
    """Name the columns of the first array by their position, those without a number in its first row too."""
    if not (isinstance(X, np.ndarray) or issparse(X)) or X.ndim != 2 or len(schema):
        return
    if schema.max_features is None or X.shape[1] <= schema.max_features:
        schema.adopt({i: i for i in range(X.shape[1])})


def sparse_mappings(X: TableLike, names: tuple[Hashable, ...]) -> Iterator[dict[Any, Any]]:
    """The rows of a sparse table as mappings of the values they hold; a row of zeros has one of them."""
    rows = X.tocsr()
    for start, stop in pairwise(rows.indptr.tolist()):
        at = rows.indices[start:stop].tolist()
        held = dict(zip((names[i] for i in at), rows.data[start:stop].tolist(), strict=True))
        yield held or {names[0]: 0.0}


def n_named(X: TableLike, schema: Schema) -> int:
    """Number of features that have names by their position alone."""
    return len(schema) if isinstance(X, np.ndarray) or issparse(X) else 0


def mappings(X: TableLike, schema: Schema) -> Iterator[dict[Any, Any]]:
    """The rows of a table as mappings, unchecked."""
    if isinstance(X, np.ndarray):
        names = schema.names or tuple(range(X.shape[1]))
        return (dict(zip(names, row, strict=True)) for row in X.tolist())
    if issparse(X):
        return sparse_mappings(X, schema.names or tuple(range(X.shape[1])))
    if isinstance(X, list):
        return iter(X)
    from river.utils.dataframe import into_frame  # slow to import, and only for frames

    return cast(Iterator[dict[Any, Any]], into_frame(X).iter_rows(named=True))
