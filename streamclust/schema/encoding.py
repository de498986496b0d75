"""Encoding of mixed tables: numbers stay, each value of a categorical column gets a column of 0 and 1.

>>> table = {"amount": [1.5, 2.0, None], "channel": ["web", "shop", "web"]}
>>> encoding = Encoding.of(table)
>>> encoding.names
('amount', 'channel=web', 'channel=shop')
>>> encoding.rows(table)
array([[1.5, 1. , 0. ],
       [2. , 0. , 1. ],
       [nan, 1. , 0. ]])

A value that was not there before is missing, as None is: no column of its category is 1.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.parameters import Categorical
from streamclust.utils.values import PLAIN, is_numeric, to_number

MAX_CATEGORIES = 200
"""Values of a categorical column that get a column of their own; the rarer ones share one, OTHER."""
OTHER = "(other)"
MAX_DISTINCT_SHARE = 0.5
"""A column of text with more distinct values than this share of its rows is an id or free text: it is left out."""
MIN_ROWS = 20
"""Rows from which a column of text can be told to be an id, and a number of two values to be a category."""

Column = Sequence[Any] | np.ndarray[Any, Any]
"""Values of one column."""
Table = Mapping[Any, Column]
"""Columns of a table by name."""


class IdentifierColumns(UserWarning):
    """Warning: columns of a table are ids or free text, and were left out."""


class CategoryValue(NamedTuple):
    """Value of a categorical column, which has a column of 0 and 1."""

    column: Hashable
    value: Hashable

    def __str__(self) -> str:
        return f"{self.column}={self.value}"


@dataclass(frozen=True)
class Encoding:
    """Which columns of a table are numbers, which values categorical ones have, and which columns are left out."""

    numbers: tuple[Hashable, ...]
    categories: dict[Hashable, tuple[Hashable, ...]]
    """Values of each categorical column, the most frequent first."""
    left_out: tuple[Hashable, ...] = ()

    @classmethod
    def of(
        cls, table: Table, categorical: Categorical = "auto", max_categories: int = MAX_CATEGORIES
    ) -> Self:
        """The encoding of a table by its columns' values."""
        named = set() if categorical == "auto" or categorical is False else set(categorical)
        if unknown := named - set(table):
            raise ValueError(
                f"categorical names columns that the table does not have: {sorted(map(str, unknown))}"
            )
        numbers: list[Hashable] = []
        categories: dict[Hashable, tuple[Hashable, ...]] = {}
        left_out: list[Hashable] = []
        for name, values in table.items():
            found = counted(values) if name in named or not is_plain(values) else Counter()
            if name in named or (categorical == "auto" and looks_categorical(values, found)):
                if name not in named and is_identifier(found):
                    left_out.append(name)
                else:
                    categories[name] = common(found, max_categories)
            elif categorical is False and is_text(values):
                left_out.append(name)
            else:
                numbers.append(name)
        if left_out:
            warnings.warn(
                f"left out, since nearly every row has another value: {', '.join(map(repr, left_out))}; name them in "
                "categorical to use them",
                IdentifierColumns,
                stacklevel=3,
            )
        if not numbers and not categories:
            raise ValueError("the table has no column of numbers or categories")
        return cls(tuple(numbers), categories, tuple(left_out))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Name of each column after encoding."""
        values = [CategoryValue(name, value) for name, some in self.categories.items() for value in some]
        return (*map(str, self.numbers), *map(str, values))

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """Of each column after encoding: -1 for a number, else the number of its categorical column."""
        groups = [g for g, values in enumerate(self.categories.values()) for _ in values]
        return (*(-1 for _ in self.numbers), *groups)

    def rows(self, table: Table) -> Floats:
        """Encode a table that has these columns; others are ignored. NaN where a number is missing."""
        for name in (*self.numbers, *self.categories):
            if name not in table:
                raise ValueError(f"the table lacks column {name!r}; the model was fitted with it")
        numbers = [number_column(name, table[name]) for name in self.numbers]
        categories = [column for name in self.categories for column in self._indicators(name, table[name])]
        return np.column_stack([*numbers, *categories])

    def _indicators(self, name: Hashable, values: Column) -> Floats:
        """A row of 0 and 1 for each value of a category; rarer values count as OTHER, if there is that."""
        known = {value: i for i, value in enumerate(self.categories[name])}
        found = np.zeros((len(known), len(values)))
        for i, value in enumerate(map(category_of, values)):
            place = None if value is None else known.get(value, known.get(OTHER))
            if place is not None:
                found[place, i] = 1.0
        return found


def category_of(value: object) -> Hashable | None:
    """The value as a category; None if it is missing.

    >>> category_of(" web"), category_of(True), category_of(2.0), category_of(float("nan"))
    ('web', 'yes', 2, None)
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, (str, bytes)):
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        return text.strip() or None
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if type(value) in PLAIN:
        number = float(value)  # type: ignore[arg-type]  # one of the plain numbers
        return None if math.isnan(number) else int(number) if number.is_integer() else number
    if isinstance(value, (Mapping, Sequence, np.ndarray)):
        raise TypeError(f"a value of a table must be a string or a number, got {type(value).__name__}")
    return str(value)


def counted(values: Column) -> Counter[Any]:
    """How often each category comes; missing values are left out."""
    found = Counter(map(category_of, values))
    del found[None]
    return found


def is_plain(values: Column) -> bool:
    """Whether a column is an array of numbers of more than two values: seen quickly, and the usual case."""
    if not (isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and len(values)):
        return False
    known = values[~np.isnan(values)]
    return len(known) == 0 or not bool(np.all((known == known.min()) | (known == known.max())))


def is_text(values: Column) -> bool:
    """Whether the first value that is not missing is no number."""
    if isinstance(values, np.ndarray) and is_numeric(values):
        return bool(values.dtype.kind == "b")
    first = next((value for value in values if category_of(value) is not None), 0.0)
    return type(first) not in PLAIN or isinstance(first, (bool, np.bool_))


def looks_categorical(values: Column, found: Mapping[Hashable, int]) -> bool:
    """Whether a column is text, yes or no, or a number of two values.

    >>> looks_categorical([0.0, 1.0] * 10, {0: 10, 1: 10}), looks_categorical([0.0, 1.0, 2.5], {0: 1, 1: 1, 2.5: 1})
    (True, False)
    """
    return is_text(values) or (
        len(found) == 2 and sum(found.values()) >= MIN_ROWS and min(found.values()) > 1
    )


def is_identifier(found: Mapping[Hashable, int]) -> bool:
    """Whether nearly every row has a value of its own."""
    n = sum(found.values())
    return n >= MIN_ROWS and len(found) > MAX_DISTINCT_SHARE * n


def common(found: Counter[Any], most: int) -> tuple[Hashable, ...]:
    """The most frequent values, in that order and then in that of their names; OTHER last where there are more."""
    ranked = sorted(found, key=lambda value: (-found[value], str(value)))
    return tuple(ranked) if len(ranked) <= most else (*ranked[: most - 1], OTHER)


def number_column(name: Hashable, values: Column) -> Floats:
    """A column of numbers, NaN where one is missing."""
    if isinstance(values, np.ndarray) and is_numeric(values):
        return np.asarray(values, dtype=float)
    return np.array([to_number(name, value, f"row {i}: ") for i, value in enumerate(values)], dtype=float)
