"""MixedSchema: a schema of events with categories, each value of which has a column of 0 and 1.

>>> schema = MixedSchema(lenient=True)
>>> for channel in ["web", "shop", "web", "shop", "shop"]:
...     schema.take(schema.cells({"amount": 1.5, "channel": channel, "paid": True}))
>>> schema.names
('amount', 'paid=yes', 'channel=shop')
>>> schema.layout
(-1, 0, 1)

A field is a number or a category by its first value. Text is read once it is known to repeat itself: a field in which
nearly every value is new is an id or free text, and left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.parameters import Categorical
from streamclust.schema.cells import NOTHING_INVALID, Cells, Columns
from streamclust.schema.encoding import OTHER, IdentifierColumns, category_of
from streamclust.schema.names import json_name
from streamclust.schema.schema import Schema
from streamclust.utils.late import issparse
from streamclust.utils.values import MAX_MAGNITUDE, PLAIN

if TYPE_CHECKING:
    from narwhals.stable.v2 import DataFrame

MAX_FIELDS = 1024
"""Fields of text that are remembered; the text of others is missing."""
MAX_VALUE_LENGTH = 200
"""Characters by which values are told apart."""
MIN_VALUES = 4
"""Values from which a field of text can be told to repeat itself."""
MISSING_WORDS = frozenset(
    {"?", "-", "--", "na", "n/a", "nan", "nil", "null", "none", "err", "error", "missing", "unknown"}
)
"""Text that mostly stands for a missing value, in small letters: alone it does not make a category of its field."""
YES_NO = {"yes": True, "no": False}
NUMBER = -1
"""In a layout: the column is a number."""

Kind = Literal["pending", "category", "left out"]


class Field(NamedTuple):
    """A field of text, or of yes and no."""

    kind: Kind
    values: Mapping[Hashable, int] = {}  # never changed
    """How often each value came until the field was a category; then the values that have a column."""


class MixedSchema(Schema):
    """The features of a stream with categories: numbers, and a column for each value of a category.

    `categorical` names the fields that are categories whatever they hold; "auto": text, and yes and no. Values that
    come when a category has `max_categories` count as one, OTHER.
    """

    def __init__(
        self,
        names: Iterable[Hashable] | None = None,
        max_features: int | None = None,
        order: Sequence[Hashable] | None = None,
        max_grown: int | None = None,
        lenient: bool = False,
        categorical: Categorical = "auto",
        max_categories: int = 50,
    ) -> None:
        super().__init__(names, "impute", max_features, order, max_grown, lenient)
        self.fields = {}
        self.categorical, self.max_categories = categorical, max_categories

    @property
    def layout(self) -> tuple[int, ...]:
        """Of each column: NUMBER, or the number of its category."""
        place = {name: i for i, name in enumerate(self.categories)}
        field = {
            column_name(name, value): name for name, values in self.categories.items() for value in values
        }
        group = [place[field[name]] if name in field else NUMBER for name in self.names]
        used = {g: i for i, g in enumerate(dict.fromkeys(g for g in group if g != NUMBER))}
        return tuple(used.get(g, NUMBER) for g in group)

    @property
    def categories(self) -> dict[Hashable, tuple[Hashable, ...]]:
        """Values of each category that have a column."""
        return {name: tuple(field.values) for name, field in self.fields.items() if field.kind == "category"}

    @property
    def fields(self) -> dict[Hashable, Field]:
        """Fields that hold text, or yes and no; replaced, never changed."""
        return self._fields

    @fields.setter
    def fields(self, fields: dict[Hashable, Field]) -> None:
        self._fields = fields
        self._codes: dict[Hashable, dict[Any, int] | None] | None = None

    def adopt(self, columns: Columns) -> None:
        """Add the new features that `cells` found."""
        super().adopt(columns)
        self._codes = None

    # ---------------------------------------------------------------- reading

    def take(self, cells: Cells) -> None:
        """Have the features that an event brings, and what it tells of its fields."""
        super().take(cells)
        if cells.fields is not None:
            self.fields = cells.fields

    def read_events(self, events: Iterable[Mapping[Any, Any]], extend: bool = True) -> list[Floats | Cells]:
        """Read many events: all of them or, if one is refused, none."""
        twin, rows = copy(self), list[Floats | Cells]()
        for x in events:
            cells = twin.cells(x, extend)
            rows.append(cells)
            if extend:
                twin.take(cells)
        if extend:
            self.adopt(twin.columns)
            self.fields = twin.fields
        return rows

    def table(self, data: object, extend: bool = True, copy: bool = True) -> Floats:
        """Rows of many events; columns of an array are the features in order; fields 0, 1, 2, ... if some hold text."""
        if isinstance(data, np.ndarray) and data.ndim == 2:
            in_order = not self.fields and len(self.names) == data.shape[1]
            names = self.names if in_order else range(data.shape[1])
            return super().table([dict(zip(names, row, strict=True)) for row in data.tolist()], extend)
        if issparse(data):
            raise ValueError("a sparse table has no categories: give it as a frame or as mappings")
        return super().table(data, extend, copy)

    def _read_frame(self, frame: DataFrame[Any], extend: bool) -> Floats:
        return self._read_events(frame.iter_rows(named=True), extend)

    def _read(self, x: Mapping[Any, Any], columns: Columns, extend: bool, where: str = "") -> Cells:
        if not isinstance(x, Mapping):
            return super()._read(x, columns, extend, where)
        if columns is self._columns and (plain := self._plain_cells(x)) is not None:
            return plain
        values = {name: value for name, value in x.items() if self._holds_category(name, value, columns)}
        numbers = {name: value for name, value in x.items() if name not in values} if values else x
        cells = super()._read(numbers, columns, extend, where)
        cells = self._with_categories(cells, values, extend) if values else cells
        found = [name for name in x if name in self.fields and name not in values] if extend else []
        if not found:
            return cells
        fields = self.fields if cells.fields is None else cells.fields
        return cells._replace(fields={name: each for name, each in fields.items() if name not in found})

    def _plain_cells(self, x: Mapping[Any, Any]) -> Cells | None:
        """The cells of an event that tells nothing new, read quickly: known numbers and values; None for others."""
        columns, codes = self._columns, self._codes
        if codes is None:
            codes = self._codes = self._value_columns()
        at, values = list[int](), list[float]()
        for name, value in x.items():
            if name not in codes:
                if type(value) is not float or name not in columns or not abs(value) <= MAX_MAGNITUDE:
                    return None
                at.append(columns[name])
                values.append(value)
                continue
            of_value = codes[name]
            if type(value) not in (str, bool) or (of_value is not None and value not in of_value):
                return None
            if of_value is not None:
                at.append(of_value[value])
                values.append(1.0)
        return Cells(at, values, columns) if at else None

    def _value_columns(self) -> dict[Hashable, dict[Any, int] | None]:
        """Of each field that is decided, the column of each value as events have it; None if it is left out."""
        found: dict[Hashable, dict[Any, int] | None] = {}
        for name, field in self.fields.items():
            if field.kind == "left out":
                found[name] = None
            if field.kind == "category":
                known = {value: self._columns.get(column_name(name, value)) for value in field.values}
                known |= {flag: known[word] for word, flag in YES_NO.items() if word in known}
                found[name] = {
                    value: column
                    for value, column in known.items()
                    if isinstance(value, (str, bool)) and column is not None and value != OTHER
                }
        return found

    def _holds_category(self, name: Hashable, value: object, columns: Columns) -> bool:
        if name in self.fields:
            return self.fields[name].kind != "pending" or not is_number(value)
        if name in columns or self.categorical is False:
            return False
        named = self.categorical != "auto" and name in self.categorical
        return named or (self.categorical == "auto" and is_category(value))

    def _with_categories(self, cells: Cells, x: Mapping[Any, Any], extend: bool) -> Cells:
        """The cells of an event's numbers with those of its categories."""
        fields, columns, invalid = dict(self.fields), dict(cells.columns), dict(cells.invalid)
        at, values = list(cells.at), list(cells.values)
        found = {name: self._category(name, x[name], invalid) for name in sorted(x, key=self._new_order)}
        known = {name: value for name, value in found.items() if value is not None}
        alone = not at and not any(name in fields and fields[name].kind == "category" for name in known)
        for name, value in known.items():
            if extend and (name in fields or len(fields) < MAX_FIELDS):
                fields[name] = self._told(fields.get(name), name, value, alone)
            field = fields.get(name)
            if field is None or field.kind != "category":
                continue
            column = self._column(field, name, value, columns, extend)
            if column is None:
                continue
            if extend and value not in field.values:
                mine = value if column == column_name(name, value) else OTHER
                fields[name] = field._replace(values={**field.values, mine: 1})
            at.append(columns[column])
            values.append(1.0)
        changed = extend and fields != self.fields
        grown = columns if len(columns) > len(cells.columns) else cells.columns
        return Cells(at, values, grown, invalid or NOTHING_INVALID, fields if changed else None)

    def _category(self, name: Hashable, value: object, invalid: dict[Hashable, str]) -> Hashable | None:
        """The value as a category; None if it is missing or `invalid`."""
        try:
            found = category_of(value)
        except TypeError as error:
            if not self.lenient:
                raise
            invalid[name] = f"feature {name!r}: {error}"
            return None
        return found[:MAX_VALUE_LENGTH] if isinstance(found, str) else found

    def _told(self, field: Field | None, name: Hashable, value: Hashable, alone: bool) -> Field:
        """The field as known after a value; `alone`: its event has nothing else to be learnt by."""
        if field is not None and field.kind != "pending":
            return field
        if (alone and not stands_for_missing(value)) or value in ("yes", "no") or self.categorical != "auto":
            return Field("category")
        counts = dict(field.values) if field is not None else {}
        counts[value] = counts.get(value, 0) + 1
        n = sum(counts.values())
        if n >= MIN_VALUES and len(counts) <= n / 2:
            return Field("category")
        if len(counts) > 2 * self.max_categories:
            return Field("left out")
        return Field("pending", counts)

    def _column(
        self, field: Field, name: Hashable, value: Hashable, columns: Columns, extend: bool
    ) -> str | None:
        """The column of a value, a new one where there may be more; None if it has none."""
        for each in (value, OTHER):
            known = column_name(name, each)
            if each in field.values and known in columns:
                return known
            if extend and (each == OTHER or len(field.values) < self.max_categories - 1):
                if self.max_features is not None and len(columns) >= self.max_features:
                    return None
                columns.setdefault(known, len(columns))
                return known
        return None

    def join_fields(self, other: MixedSchema) -> None:
        """Have the fields and the values of another schema, too."""
        fields = dict(other.fields)
        for name, field in self.fields.items():
            theirs = fields.get(name, field)
            if "category" in (field.kind, theirs.kind):
                both = [each.values for each in (field, theirs) if each.kind == "category"]
                fields[name] = Field("category", {value: 1 for values in both for value in values})
            else:
                fields[name] = field
        self.fields = fields

    # ---------------------------------------------------------------- saving

    def to_dict(self) -> dict[str, Any]:
        """Write the schema as JSON can hold it."""
        fields = [
            {"name": json_name(name), "kind": field.kind, "values": [[v, n] for v, n in field.values.items()]}
            for name, field in self.fields.items()
        ]
        return super().to_dict() | {"fields": fields}

    def restore_fields(self, saved: Sequence[Mapping[str, Any]]) -> None:
        """Have the fields that `to_dict` wrote."""
        self.fields = {
            json_name(each["name"]): Field(each["kind"], {v: n for v, n in each["values"]})  # noqa: C416
            for each in saved
        }


def warn_of_field(name: Hashable, left_out: bool, n_values: int, stacklevel: int) -> None:
    """Say that a field is left out, or that its rare values count as one; `stacklevel` as of `warnings.warn`."""
    if left_out:
        what = "left out, since nearly every event has another value"
    else:
        what = f"of the values of this category {n_values - 1} have a column; others count as one, {OTHER}"
    warnings.warn(f"{name!r}: {what}", IdentifierColumns, stacklevel=stacklevel)


def is_category(value: object) -> bool:
    """Whether a value makes its field a category: text that is not empty, or yes and no."""
    return isinstance(value, (bool, np.bool_)) or (isinstance(value, (str, bytes)) and bool(value.strip()))


def stands_for_missing(value: object) -> bool:
    """Whether a value is text that mostly stands for a missing one.

    >>> stands_for_missing("N/A"), stands_for_missing("web")
    (True, False)
    """
    return isinstance(value, str) and value.strip().lower() in MISSING_WORDS


def is_number(value: object) -> bool:
    """Whether a value is a plain number: its field is one, whatever text it began with."""
    return type(value) in PLAIN and not is_category(value) and value == value


def has_category(x: object) -> bool:
    """Whether an event holds text, or yes and no."""
    return isinstance(x, Mapping) and any(map(is_category, x.values()))


def column_name(name: Hashable, value: Hashable) -> str:
    """Name of the column of a category's value.

    >>> column_name("channel", "web")
    'channel=web'
    """
    return f"{name}={value}"


def categories_of(schema: Schema) -> frozenset[int]:
    """Columns that are values of categories."""
    layout = schema.layout if isinstance(schema, MixedSchema) else ()
    return frozenset(column for column, group in enumerate(layout) if group != NUMBER)


def schema_from_dict(state: Mapping[str, Any]) -> Schema:
    """Read what `to_dict` of a schema wrote."""
    schema = Schema.from_dict(state)
    if "fields" not in state:
        return schema
    found = MixedSchema(schema.names)
    found.restore_fields(state["fields"])
    return found
