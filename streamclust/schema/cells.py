"""Cells: an event as values and their columns; dense rows and tables of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.utils.values import MAX_MAGNITUDE, PLAIN

Columns = dict[Hashable, int]


NOTHING_INVALID: Mapping[Hashable, str] = {}
"""Never changed; a mapping that copies and pickles."""


class Cells(NamedTuple):
    """A sparse row: the values of one event and their columns, whose cost does not grow with the known features."""

    at: list[int]
    """Their columns."""
    values: list[float]
    columns: Columns
    """Columns of all features including the event's new ones; the schema's own mapping if it has none."""
    invalid: Mapping[Hashable, str] = NOTHING_INVALID
    """Features whose values cannot be read, with the reasons; they count as missing."""
    fields: Any = None
    """In a schema with categories: what is known of its fields after this event, if that has changed."""


Values = Callable[[Mapping[Any, Any]], tuple[Any, ...]]


def values_getter(names: tuple[Hashable, ...]) -> Values:
    """A function from an event of just these features to its values in this order; KeyError for any other event."""
    if not names:
        return _no_values
    return itemgetter(*names) if len(names) > 1 else partial(_one_value, names[0])


def _one_value(name: Hashable, x: Mapping[Any, Any]) -> tuple[Any, ...]:
    return (x[name],)


def _no_values(x: Mapping[Any, Any]) -> tuple[Any, ...]:
    raise KeyError("no features are known yet")


def plain_values(x: object, values_of: Values) -> tuple[float, ...] | None:
    """The numbers of an event of just the known features, all plain and finite, in their order; or None."""
    if type(x) is not dict:  # its kin may invent what they lack
        return None
    try:
        values = values_of(x)
    except KeyError:
        return None
    if len(values) != len(x) or not PLAIN.issuperset(map(type, values)):
        return None
    try:
        # No number is larger than the length of them all; NaN is not at most anything.
        if not math.hypot(*values) <= MAX_MAGNITUDE:
            return None
    except OverflowError:
        return None
    return values


def plain_row(x: object, values_of: Values) -> Floats | None:
    """`plain_values` as a row."""
    values = plain_values(x, values_of)
    return None if values is None else np.array(values, dtype=np.float64)


def dense_row(cells: Cells) -> Floats:
    """A dense row, NaN where the event has no value."""
    row = np.full(len(cells.columns), np.nan)
    row[cells.at] = cells.values
    return row


def table_of(rows: Sequence[Floats | Cells], width: int, absent: float = math.nan) -> Floats:
    """Rows under each other in `width` columns; `absent` where an event has no number.

    >>> table_of([np.ones(2), Cells([2], [5.0], {})], width=3, absent=0.0)
    array([[1., 1., 0.],
           [0., 0., 5.]])
    """
    table = np.full((len(rows), width), absent)
    for i, row in enumerate(rows):
        if isinstance(row, Cells):
            table[i, row.at] = row.values
        else:
            table[i, : len(row)] = row
    return table
