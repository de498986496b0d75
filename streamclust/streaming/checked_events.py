"""Checked: events that were read and checked once, ready to be assigned and learnt."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.engine.event_rows import Row, widths
from streamclust.schema import Columns, Schema, table_of
from streamclust.schema.mixed_schema import MixedSchema
from streamclust.streaming.clocks import WrongTimeError


class Reason(str):
    """Reason why an event cannot be learnt."""

    __slots__ = ("of_time",)

    of_time: bool
    """Whether only its time is wrong. Such an event is still among the rows of `Checked`: it is refused when they are
    learnt, and counts as a vote that time has moved."""

    @classmethod
    def of(cls, error: Exception) -> Reason:
        """The reason that an exception gives."""
        why = cls(error)
        why.of_time = isinstance(error, WrongTimeError)
        return why


class InvalidValue(NamedTuple):
    """A value that cannot be read, and counts as missing."""

    row: int
    """The row of `Checked` that it belongs to."""
    feature: Hashable
    reason: str


class KnownFields(NamedTuple):
    """Fields of a stream with categories, as known after a row."""

    row: int
    fields: Any


@dataclass(frozen=True, eq=False)
class Checked:
    """Events that `StreamClusterer.check` has read and checked; `learn` learns them, `assign_many` assigns them.

    A slice of it holds some of its events.

    >>> from streamclust import StreamClusterer
    >>> checked = StreamClusterer().check([{"x": 1.0}, {"x": "?"}, {"x": 3.0}])
    >>> len(checked), sorted(checked.refused), checked[1:].table()
    (2, [1], array([[3.]]))
    """

    rows: Floats | list[Row]
    """A row for each event that was not refused, and for each whose time alone is wrong; in the order given."""
    columns: Columns
    """Column of each feature, those that these events bring included."""
    refused: Mapping[int, Reason] = field(default_factory=dict)
    """Why events were refused, by their position in what was checked."""
    weight: Floats | None = None
    time: Floats | None = None
    shard: Hashable = 0
    left_out: tuple[Hashable, ...] = ()
    """Columns of text or dates that were not read."""
    n_named: int = 0
    """Number of features that have names even before their first number: the columns of an array."""
    complete: bool = False
    """Whether it is known that no value is missing."""
    invalid: tuple[InvalidValue, ...] = ()
    """Values that cannot be read, and count as missing; by row."""
    fields: tuple[KnownFields, ...] = ()
    """Known fields after the rows that changed them; empty for a stream without categories."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> Checked:
        weight = None if self.weight is None else self.weight[part]
        time = None if self.time is None else self.time[part]
        notes = self._notes_of(range(len(self))[part])
        return replace(self, rows=self.rows[part], refused={}, weight=weight, time=time, **notes)

    def _notes_of(self, chosen: Sequence[int]) -> dict[str, Any]:
        """Invalid values and known fields of the rows chosen, by their new numbers."""
        if not (self.invalid or self.fields):
            return {}
        place = {row: i for i, row in enumerate(chosen)}
        invalid = tuple(each._replace(row=place[each.row]) for each in self.invalid if each.row in place)
        fields = tuple(each._replace(row=place[each.row]) for each in self.fields if each.row in place)
        return {"invalid": invalid, "fields": fields}

    def table(self) -> Floats:
        """The rows under each other; NaN where a feature is missing."""
        return table_of(self.rows, len(self.columns)) if isinstance(self.rows, list) else self.rows

    def add_features_to(self, schema: Schema) -> None:
        """Add the features that these events bring; ValueError if others have come since they were checked."""
        if self.fields and isinstance(schema, MixedSchema):
            schema.fields = self.fields[-1].fields
        if self.columns is schema.columns:
            return
        ours, theirs = schema.names, tuple(self.columns)
        both = min(len(ours), len(theirs))
        if ours[:both] != theirs[:both]:
            raise ValueError("other features have appeared since these events were checked: check them again")
        width = max(self.n_named, int(widths(self.rows)[-1])) if len(self) else 0
        if width > len(ours):
            schema.adopt(dict(islice(self.columns.items(), width)))

    def weighing(self) -> Checked:
        """Without the events of weight 0, which change nothing."""
        if self.weight is None or self.weight.all():
            return self
        return self.pick(np.flatnonzero(self.weight).tolist())

    def pick(self, chosen: list[int]) -> Checked:
        """The events at some places."""
        rows = [self.rows[i] for i in chosen] if isinstance(self.rows, list) else self.rows[chosen]
        weight = None if self.weight is None else self.weight[chosen]
        time = None if self.time is None else self.time[chosen]
        return replace(self, rows=rows, refused={}, weight=weight, time=time, **self._notes_of(chosen))
