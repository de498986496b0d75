"""Conversion of values to float64: numbers, missing values, and clear errors for anything else."""

from __future__ import annotations

import datetime
import difflib
import math
import numbers
import reprlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from streamclust._kernels.check import all_within
from streamclust._kernels.types import Floats

# Types whose values convert to float64 without a question. Not text that looks like a number, not complex.
PLAIN = frozenset(
    {float, int, bool, np.bool_, np.float64, np.float32, np.float16, np.int8, np.int16, np.int32, np.int64}
    | {np.uint8, np.uint16, np.uint32, np.uint64}
)
MAX_MAGNITUDE = 1e120
"""Beyond this, weight · value² summed over a long stream, times the 2^64 of forward decay, could overflow."""
DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
CURES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((str, bytes, bytearray), "encode text first, for example with river's preprocessing.OneHotEncoder"),
    (DATES, "turn dates into numbers first, for example with .timestamp() or .total_seconds()"),
    ((numbers.Complex,), "give its real and its imaginary part a feature each"),
    ((Mapping, Iterable), "give each of its elements a feature of its own"),
)


def to_numbers(names: Sequence[Hashable], values: np.ndarray[Any, Any] | list[list[Any]]) -> Floats:
    """Turn a table of any values into float64, NaN where missing."""
    if not (isinstance(values, np.ndarray) and is_numeric(values)):
        rows = [
            [to_number(name, value, f"row {i}: ") for name, value in zip(names, row, strict=True)]
            for i, row in enumerate(values)
        ]
        return np.array(rows, dtype=float).reshape(len(rows), len(names))
    with np.errstate(over="ignore"):  # a longdouble too large becomes infinite, and is refused below
        table = np.array(values, dtype=float)
    table[np.ma.getmaskarray(values)] = np.nan
    infinite = np.isinf(table)
    if infinite.any():
        i, column = np.argwhere(infinite)[0]
        raise _not_finite(names[column], values[i, column], f"row {i}: ")
    return table


def floats_as_they_are(values: np.ndarray[Any, Any]) -> bool:
    """Whether an array holds floats that events may have, single or double, in a form that kernels read."""
    plain = type(values) is np.ndarray and values.dtype in (np.float32, np.float64)
    flags = values.flags
    return (
        plain
        and flags.c_contiguous
        and flags.aligned
        and flags.writeable
        and all_within(values.ravel(), MAX_MAGNITUDE)
    )


def is_numeric(values: np.ndarray[Any, Any]) -> bool:
    """Whether an array holds numbers by its type alone."""
    return values.dtype.kind in "biuf"


def to_number(name: Hashable, value: object, where: str = "") -> float:
    """One value as a float, NaN if it is missing; anything but a finite number is refused with its cure."""
    if type(value) not in PLAIN:
        if value is None or value is np.ma.masked or type(value).__name__ == "NAType":  # pandas.NA
            return math.nan
        if isinstance(value, np.ndarray) and value.ndim == 0:
            return to_number(name, value[()], where)
        if isinstance(value, DATES) or not isinstance(value, (numbers.Real, Decimal, np.bool_)):
            raise _not_a_number(name, value, where)
        if isinstance(value, Decimal) and value.is_nan():  # float() refuses the signalling kind
            return math.nan
    try:
        number = float(value)  # type: ignore[arg-type]  # one of the kinds let through above
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise _not_finite(name, value, where)
    return number


def check_magnitude(name: Hashable, value: float) -> float:
    """The value; ValueError if it is too large to be summed."""
    if abs(value) > MAX_MAGNITUDE:
        raise ValueError(
            f"feature {name!r} is {value}: every value must be at most {MAX_MAGNITUDE:g}; rescale it"
        )
    return value


# -------------------------------------------------------------------- what the user is told


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise ValueError for a value that is not one of the choices, and suggest the most similar one.

    >>> check_choice("family", "gausian", ["gaussian", "poisson"])
    Traceback (most recent call last):
        ...
    ValueError: family must be 'gaussian' or 'poisson', got 'gausian'; did you mean 'gaussian'?
    """
    listed = list(choices)
    if isinstance(value, str) and value in listed:
        return
    *others, last = map(repr, listed)
    raise ValueError(
        f"{name} must be {', '.join(others)} or {last}, got {shown(value)}{did_you_mean(value, listed)}"
    )


def did_you_mean(value: object, choices: Iterable[str]) -> str:
    """A question that names the most similar choice; empty if none is similar."""
    near = difflib.get_close_matches(str(value).lower(), list(choices), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def shown(value: object) -> str:
    """A value as an error shows it: short, whatever it is."""
    try:
        return reprlib.repr(value)
    except ValueError:  # Python refuses to write out integers of thousands of digits
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else "a value without repr"


def _not_a_number(name: Hashable, value: object, where: str) -> TypeError:
    cure = next((cure for types, cure in CURES if isinstance(value, types)), "convert it with float() first")
    return TypeError(
        f"{where}feature {name!r} must be a number, got {shown(value)} ({type(value).__name__}); {cure}"
    )


def _not_finite(name: Hashable, value: object, where: str) -> ValueError:
    return ValueError(
        f"{where}feature {name!r} must be finite and within float64, got {shown(value)}; clip or rescale it, "
        "or give None to count it as missing"
    )


ONE_COLUMN = (
    "is one column or one event, not a table of events: make a frame of a column first (to_frame() in pandas and "
    "polars), or pass an event to the method for one, learn_one(dict(event))"
)
NO_TABLES = {
    "Series": ONE_COLUMN,
    "ChunkedArray": ONE_COLUMN,
    "LazyFrame": "has no rows yet: call .collect() first, or pass it in parts (.collect_batches())",
    "RecordBatch": "is not taken as it is: make a table of it, pyarrow.Table.from_batches([batch])",
    "RecordBatchReader": "is not taken as it is: read it, reader.read_all(), or batch by batch as tables",
}
"""Classes of pandas, polars and pyarrow that are no tables in memory, and what to do with them."""


def check_table_kind(data: object) -> None:
    """TypeError for an object of a data frame library that is no table of events; the message says what to do.

    >>> import polars
    >>> check_table_kind(polars.LazyFrame({"x": [1.0]}))
    Traceback (most recent call last):
        ...
    TypeError: a polars LazyFrame has no rows yet: call .collect() first, or pass it in parts (.collect_batches())
    """
    library, name = type(data).__module__.partition(".")[0], type(data).__name__
    if name in NO_TABLES and library in ("pandas", "polars", "pyarrow"):
        raise TypeError(f"a {library} {name} {NO_TABLES[name]}")
