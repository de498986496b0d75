"""Checking events: reading them as rows, and finding those that cannot be learnt. Nothing is changed by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.types import Floats
from streamclust.engine.event_rows import Row
from streamclust.families import FamilyLike, is_discrete
from streamclust.refit.bkm.fit import check_points
from streamclust.schema import Cells, Schema, table_of
from streamclust.schema.frames import TableLike, has_text, without_text
from streamclust.schema.mixed_schema import MixedSchema, has_category
from streamclust.sketch import check_lengths
from streamclust.streaming.checked_events import Checked, InvalidValue, KnownFields, Reason
from streamclust.streaming.clocks import Clocks
from streamclust.streaming.table_rows import (
    NO_FEATURE,
    any_values,
    is_table,
    mappings,
    n_named,
    name_columns,
    present,
    within,
)
from streamclust.tree.rows import MAX_WEIGHT, MIN_WEIGHT, check_rows
from streamclust.utils.late import issparse
from streamclust.utils.values import MAX_MAGNITUDE, check_magnitude, check_table_kind


class NeedsRowByRow(Exception):  # noqa: N818
    """Rows need checking one by one: times are out of order, or an event of weight 0 brings a feature."""


class BatchColumns(NamedTuple):
    """Weights, times, shard and skipped columns of a batch."""

    weight: ArrayLike | None
    time: ArrayLike | None
    shard: Hashable
    left_out: tuple[Hashable, ...]


class Validator:
    """Checks the events of a stream, by its family and by what a missing value is.

    `zeros`: a missing value is 0. `lenient`: columns of text in a frame are left out, and a value that cannot be read
    is missing; else they are errors. `unit`: events are compared by angle, which an event of zeros has not.
    """

    def __init__(self, family: FamilyLike, zeros: bool, lenient: bool, unit: bool = False) -> None:
        self.family, self.zeros, self.lenient, self.unit = family, zeros, lenient, unit
        self.mixed_schema: Callable[[], MixedSchema] | None = None
        """Makes the schema of a stream whose first events hold categories; None if it may not have any."""
        self._whole = is_discrete(family)

    def check(
        self,
        X: TableLike,
        schema: Schema,
        clocks: Clocks | None,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
        all_or_none: bool = False,
    ) -> Checked:
        """Read and check events against copies of schema and clocks; without clocks, times are not kept.

        With `all_or_none` the first refusal is raised.
        """
        check_table_kind(X)
        left_out: list[Hashable] = []
        mixed = isinstance(schema, MixedSchema) or (not len(schema) and self._begins_mixed(X))
        if self.lenient:
            X, left_out = without_text(X, schema.names, dates_alone=mixed)
        aside = BatchColumns(weight, time, shard, tuple(left_out))
        try:
            if mixed:
                raise NeedsRowByRow
            return self._all(X, schema.strict(), None if clocks is None else clocks.copy(), aside)
        except NeedsRowByRow:
            pass
        except (TypeError, ValueError):
            if all_or_none or not is_table(X, schema):
                raise
        clocks = None if clocks is None else clocks.copy()
        if mixed and self.mixed_schema is not None and not isinstance(schema, MixedSchema):
            schema = self.mixed_schema()
        return self._one_by_one(X, copy(schema), clocks, aside, all_or_none)

    def _all(
        self,
        X: TableLike,
        schema: Schema,
        clocks: Clocks | None,
        aside: BatchColumns,
    ) -> Checked:
        """Check all events at once; raises if any is refused, NeedsRowByRow if they must be checked in turn."""
        before = len(schema)
        rows = self._read(X, schema)
        # a table that comes back as it is was found within the limits
        complete = False
        if isinstance(rows, np.ndarray) and (rows is X or within(rows)):
            complete = True
            self.check_within(rows)
        else:
            self.check_values(present(rows))
        if self.unit:
            check_lengths(rows if isinstance(rows, np.ndarray) else any_values(rows))
        w, t = checked_columns(len(rows), aside.weight, aside.time)
        t = None if clocks is None else t
        if w is not None and not w.all() and len(schema) > before:
            raise NeedsRowByRow  # events of weight 0 bring no feature
        if clocks is not None and not _in_time(clocks, aside.shard, w, t, len(rows)):
            raise NeedsRowByRow
        named = n_named(X, schema)
        return Checked(rows, schema.columns, {}, w, t, aside.shard, aside.left_out, named, complete)

    def _one_by_one(
        self,
        X: TableLike,
        schema: Schema,
        clocks: Clocks | None,
        aside: BatchColumns,
        all_or_none: bool,
    ) -> Checked:
        """Check events in turn; those that are refused, or weigh nothing, bring no feature along."""
        name_columns(X, schema)
        n = X.shape[0] if issparse(X) else len(X)
        weight, time = (values.tolist() for values in columns(n, aside.weight, aside.time))
        rows: list[Row] = []
        kept: list[int] = []
        refused: dict[int, Reason] = {}
        invalid: list[InvalidValue] = []
        fields: list[KnownFields] = []
        for i, x in enumerate(mappings(X, schema)):
            try:
                if not len(schema) and self.mixed_schema is not None and has_category(x):
                    schema = schema if isinstance(schema, MixedSchema) else self.mixed_schema()
                cells = schema.cells(x)
                self.check_cells(cells)
                w, t = weight_and_time(weight[i], None if aside.time is None else time[i])
                if w > 0:
                    if clocks is not None:
                        clocks.tell(aside.shard, t)
                    if cells.fields is not None:
                        fields.append(KnownFields(len(rows), cells.fields))
                    schema.take(cells)
                else:
                    cells = schema.cells(x, extend=False)
            except (TypeError, ValueError) as error:
                if all_or_none:
                    raise
                refused[i] = Reason.of(error)
                if not refused[i].of_time:
                    continue
                cells = schema.cells(x, extend=False)
            invalid += [InvalidValue(len(rows), *found) for found in cells.invalid.items()]
            rows.append(cells)
            kept.append(i)
        return Checked(
            rows if self.zeros else table_of(rows, len(schema)),
            schema.columns,
            refused,
            None if aside.weight is None else np.array(weight)[kept],
            None if aside.time is None or clocks is None else np.array(time)[kept],
            aside.shard,
            aside.left_out,
            n_named(X, schema),
            invalid=tuple(invalid),
            fields=tuple(fields),
        )

    def _begins_mixed(self, X: TableLike) -> bool:
        """Whether the first of all events hold categories: the first one or, in a frame, a column of text."""
        if self.mixed_schema is None or isinstance(X, np.ndarray) or issparse(X):
            return False
        if isinstance(X, (list, tuple)):
            return bool(X) and has_category(X[0])
        return has_text(X)

    def _read(self, X: TableLike, schema: Schema) -> Floats | list[Row]:
        """Rows of a table, or the cells of each event where what an event lacks is 0."""
        if issparse(X):
            if not self.zeros:
                raise ValueError(
                    'a sparse table leaves out zeros: use missing="zero", or give it as .toarray()'
                )
            return schema.read_sparse(X)
        return schema.read_events(X) if self.zeros and isinstance(X, list) else schema.table(X, copy=False)

    def check_values(self, values: Floats) -> None:
        """Raise ValueError for rows with numbers that are too large, or that the family cannot have produced."""
        if not within(values):
            check_rows(values.shape[1], values, None, None)
        self.check_within(values)

    def check_within(self, values: Floats) -> None:
        """Raise ValueError for rows of numbers, none too large, that the family cannot have produced."""
        if self._whole:
            check_points(self.family, values)

    def check_points(self, values: Floats) -> None:
        """Raise ValueError for rows of finite numbers that the family cannot have produced, or without an angle."""
        check_points(self.family, values)
        if self.unit:
            check_lengths(values)

    def check_cells(self, cells: Cells) -> None:
        """Raise ValueError for an event that cannot be learnt."""
        at, values, known = cells.at, cells.values, cells.columns
        if not values:
            raise ValueError(next(iter(cells.invalid.values()), NO_FEATURE))
        if not max(map(abs, values)) <= MAX_MAGNITUDE:
            name = next(n for n, i in known.items() if i in at and abs(values[at.index(i)]) > MAX_MAGNITUDE)
            check_magnitude(name, values[at.index(known[name])])
        if self._whole or self.unit:
            self.check_points(np.array([values]))


def _in_time(clocks: Clocks, shard: Hashable, w: Floats | None, t: Floats | None, n: int) -> bool:
    """Whether the clock takes the times of all events that weigh something."""
    if w is not None and not w.all():
        t, n = None if t is None else t[w > 0], int(np.count_nonzero(w))
    return n == 0 or clocks.all_in_time(shard, t)


# -------------------------------------------------------------------- weights and times


def weight_and_time(w: float, t: float | None) -> tuple[float, float | None]:
    """An event's weight and time as floats, or ValueError."""
    plain = type(w) is float and type(t) in (float, type(None))
    if plain and MIN_WEIGHT <= w <= MAX_WEIGHT and (t is None or math.isfinite(t)):
        return w, t
    _, weight, time = check_rows(0, np.empty((1, 0)), [w], None if t is None else [t])
    return (0.0, None) if not len(weight) else (float(weight[0]), None if t is None else float(time[0]))


def checked_columns(
    n: int, weight: ArrayLike | None, time: ArrayLike | None
) -> tuple[Floats | None, Floats | None]:
    """A weight and a time for each of n rows, or None where none are given; ValueError for one that cannot be."""
    if weight is None and time is None:
        return None, None
    check_rows(0, np.empty((n, 0)), weight, time)
    w, t = columns(n, weight, time)
    return None if weight is None else w, None if time is None else t


def columns(n: int, weight: ArrayLike | None, time: ArrayLike | None) -> tuple[Floats, Floats]:
    """A weight and a time for each of n rows; NaN for no time."""
    both = (1.0 if weight is None else weight, np.nan if time is None else time)
    w, t = (np.broadcast_to(np.asarray(values, dtype=float), n) for values in both)
    return w, t
