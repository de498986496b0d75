"""Data frames (pandas, polars, pyarrow): columns of text and dates are left out of clustering."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust.utils.late import issparse
from streamclust.utils.values import DATES, check_table_kind

if TYPE_CHECKING:
    from narwhals import Series

TableLike = Any
"""A frame of any library, an array, or rows of any kind: what it is, is found out when it is read."""
SeriesLike = Any
"""One value for each row: an array, or a series of the library that the frame is of."""
ColumnLike = Sequence[Any] | np.ndarray[Any, Any]
"""Values of one column."""


class LeftOutColumns(UserWarning):
    """Columns of a frame are not numbers, and were left out."""


def without_text(
    X: TableLike, known: Collection[Hashable] = (), dates_alone: bool = False
) -> tuple[TableLike, list[Hashable]]:
    """A frame without its columns of text and dates, or of `dates_alone`, and the names of those that are not empty.

    Columns that are `known` as numbers stay, and so does everything that is no frame.

    >>> import pandas
    >>> frame = pandas.DataFrame({"city": ["Oslo", None], "x": [1.0, 2.0]})
    >>> kept, left_out = without_text(frame)
    >>> list(kept.columns), left_out
    (['x'], ['city'])
    """
    if isinstance(X, (np.ndarray, list, tuple, str, bytes, dict)) or issparse(X):
        return X, []
    check_table_kind(X)
    import narwhals.stable.v2 as nw  # slow to import, and only for frames

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return X, []
    drop = is_temporal if dates_alone else is_text
    left_out = [series for series in frame.iter_columns() if series.name not in known and drop(series)]
    if not left_out:
        return X, []
    kept = frame.drop([series.name for series in left_out]).to_native()
    return kept, [series.name for series in left_out if series.null_count() < len(series)]


def columns_by_name(X: TableLike) -> dict[Any, ColumnLike] | None:
    """Columns of a frame (pandas, polars, pyarrow), of a list of mappings, or of an array, by name or position.

    None if X is no table whose values could be read.

    >>> columns_by_name([{"x": 1.0, "city": "Oslo"}, {"x": 2.0}])
    {'x': [1.0, 2.0], 'city': ['Oslo', None]}
    """
    if isinstance(X, Sequence) and len(X) and all(isinstance(x, Mapping) for x in X):
        names = dict.fromkeys(name for x in X for name in x)
        return {name: [x.get(name) for x in X] for name in names}
    if isinstance(X, np.ndarray):
        readable = X.ndim == 2 and X.dtype.kind in "biufOUS"
        return {i: X[:, i] for i in range(X.shape[1])} if readable else None
    if (
        isinstance(X, (list, tuple))
        and len({len(x) for x in X if isinstance(x, (list, tuple, np.ndarray))}) == 1
    ):
        rows = np.array([list(x) for x in X], dtype=object) if all(map(is_row, X)) else np.empty(0)
        return columns_by_name(rows)
    if issparse(X):
        return None
    import narwhals.stable.v2 as nw  # slow to import, and only for frames

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    return {series.name: values_of(series) for series in frame.iter_columns()}


def is_row(x: object) -> bool:
    """Whether a row of a list is one of single values."""
    return isinstance(x, (list, tuple, np.ndarray)) and all(np.ndim(value) == 0 for value in x)


def values_of(series: Series[Any]) -> ColumnLike:
    """Values of a column: an array if all are numbers."""
    plain = series.dtype.is_numeric() and not series.is_null().any()
    return series.to_numpy() if plain else series.to_list()


def is_text(series: Series[Any]) -> bool:
    """Whether a column is of text, categories or dates, by its type or by all its values."""
    import narwhals.stable.v2 as nw

    kind = series.dtype
    if kind.is_temporal() or isinstance(kind, (nw.String, nw.Categorical, nw.Enum, nw.Binary)):
        return True
    if kind != nw.Object:
        return False
    values = [value for value in series.to_list() if value is not None and value == value]
    return bool(values) and all(isinstance(value, (str, bytes, *DATES)) for value in values)


def is_temporal(series: Series[Any]) -> bool:
    """Whether a column is of dates or times, by its type."""
    return bool(series.dtype.is_temporal())


def has_text(X: TableLike) -> bool:
    """Whether a frame has a column of text, categories, or yes and no."""
    import narwhals.stable.v2 as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return False
    return any(
        not is_temporal(series) and (isinstance(series.dtype, nw.Boolean) or is_text(series))
        for series in frame.iter_columns()
    )


def warn_left_out(names: Sequence[Hashable], stacklevel: int) -> None:
    """Say which columns were left out; `stacklevel` as of `warnings.warn`."""
    listed = ", ".join(map(repr, names))
    warnings.warn(
        f"not numbers, and left out: {listed}. Encode them first if they shall count, for example with river's "
        "preprocessing.OneHotEncoder; drop them to silence this",
        LeftOutColumns,
        stacklevel=stacklevel,
    )
