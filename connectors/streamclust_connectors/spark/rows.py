"""Rows of a data frame as numbers, and the reasons to refuse rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col
from pyspark.sql.types import BooleanType, NumericType

from streamclust.summaries import MAX_MAGNITUDE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Columns = Sequence[str] | Mapping[str, Column]
PREFIX = "_streamclust_"


def expressions(frame: DataFrame, columns: Columns) -> dict[str, Column]:
    """Expression of each feature: given by the caller, or a numeric column."""
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got the text {columns!r}; use [{columns!r}]")
    if not len(columns):
        raise ValueError("columns must name at least one feature")
    if isinstance(columns, Mapping):
        return {name: column.cast("double") for name, column in columns.items()}
    repeated = {name for name in columns if list(columns).count(name) > 1}
    if repeated:
        raise ValueError(f"columns must be distinct, got {sorted(repeated)} more than once")
    return {name: number(frame, name) for name in columns}


def number(frame: DataFrame, name: str) -> Column:
    """A numeric column as doubles."""
    types = {field.name: field.dataType for field in frame.schema.fields}
    if name not in types:
        raise ValueError(f"there is no column {name!r}; the columns are {', '.join(types)}")
    if not isinstance(types[name], (NumericType, BooleanType)):
        raise ValueError(
            f"column {name!r} is not numeric but {types[name].simpleString()}; convert it, for example "
            f"columns={{{name!r}: col({name!r}).try_cast('double')}}; categories are not for Spark: leave them out, or "
            "learn from the service or in Python"
        )
    return col(f"`{name}`").cast("double")


def table(batch: pa.RecordBatch, names: Iterable[str]) -> Floats:
    """Columns of doubles as rows of numbers, with NaN for missing values."""
    columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
    return np.stack(columns, axis=1) if columns else np.empty((len(batch), 0))


def invalid_rows(x: Floats, names: Sequence[str], missing: bool = False) -> dict[int, str]:
    """Reasons to refuse rows: missing values (unless `missing` allows them), infinite or too large numbers.

    >>> invalid_rows(np.array([[1.0, np.nan], [1.0, 2.0], [-np.inf, np.nan]]), ["x", "y"])
    {0: 'y is missing or not a number', 2: 'x is -inf, y is missing or not a number'}
    """
    wrong = ~(np.abs(x) <= MAX_MAGNITUDE)
    if missing:
        wrong &= ~np.isnan(x)
    return {
        row: ", ".join(
            _reason(names[column], x[row, column]) for column in np.flatnonzero(wrong[row]).tolist()
        )
        for row in np.flatnonzero(wrong.any(axis=1)).tolist()
    }


def _reason(name: str, value: float) -> str:
    if np.isnan(value):
        return f"{name} is missing or not a number"
    return f"{name} is {value:g}" + ("" if np.isinf(value) else f", larger than {MAX_MAGNITUDE:g}")


def refusals(check: Callable[[Ints], object], rows: Ints) -> dict[int, str]:
    """Find by bisection the rows for which a check raises ValueError, with the messages.

    >>> def check(rows):
    ...     if (rows > 6).any():
    ...         raise ValueError("too large")
    >>> refusals(check, np.arange(8))
    {7: 'too large'}
    """
    try:
        check(rows)
    except ValueError as error:
        if len(rows) > 1:
            half = len(rows) // 2
            return refusals(check, rows[:half]) | refusals(check, rows[half:])
        return {int(rows[0]): str(error)}
    return {}
