"""Data frames (pandas, polars, pyarrow): columns of text and dates are left out of clustering."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust.late import issparse
from streamclust.values import DATES, check_table_kind

if TYPE_CHECKING:
    from narwhals import Series

TableLike = Any
"""A frame of any library, an array, or rows of any kind: what it is, is found out when it is read."""
SeriesLike = Any
"""One value for each row: an array, or a series of the library that the frame is of."""


class LeftOutColumns(UserWarning):
    """Columns of a frame are not numbers, and were left out."""


def without_text(X: TableLike, known: Collection[Hashable] = ()) -> tuple[TableLike, list[Hashable]]:
    """A frame without its columns of text and dates, and the names of those that are not empty.

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
    left_out = [series for series in frame.iter_columns() if series.name not in known and is_text(series)]
    if not left_out:
        return X, []
    kept = frame.drop([series.name for series in left_out]).to_native()
    return kept, [series.name for series in left_out if series.null_count() < len(series)]


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


def warn_left_out(names: Sequence[Hashable], stacklevel: int) -> None:
    """Say which columns were left out; `stacklevel` as of `warnings.warn`."""
    listed = ", ".join(map(repr, names))
    warnings.warn(
        f"not numbers, and left out: {listed}. Encode them first if they shall count, for example with river's "
        "preprocessing.OneHotEncoder; drop them to silence this",
        LeftOutColumns,
        stacklevel=stacklevel,
    )
