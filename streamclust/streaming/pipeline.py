"""EventPipeline: events of any form, single or in tables, are validated, buffered, projected if wide, and learnt.

An event is validated when it arrives: every buffered event can be learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.types import Floats, Ints
from streamclust.engine import Engine
from streamclust.engine.event_rows import Row
from streamclust.engine.projection import Projection
from streamclust.engine.watched_events import chosen_of
from streamclust.engine.wide_events import RECENT_EVENTS
from streamclust.families import is_discrete
from streamclust.parameters import GAUSSIANS, Invalid, ScaleName, Transforms, wishes_by_column
from streamclust.schema import Cells, Schema, plain_values
from streamclust.schema.encoding import OTHER
from streamclust.schema.frames import TableLike, warn_left_out
from streamclust.schema.mixed_schema import MixedSchema, has_category, warn_of_field
from streamclust.streaming.checked_events import Checked
from streamclust.streaming.clocks import Clocks
from streamclust.streaming.input_buffer import MAX_WAITING_EVENTS, NO_VALUES, Event, InputBuffer
from streamclust.streaming.refusals import Refusals
from streamclust.streaming.validation import Validator, weight_and_time
from streamclust.utils.interrupts import HeldInterrupts


class EventPipeline:
    """Takes events of any form to the engine, stage by stage.

    validate (`Validator`, `Clocks`)  names become columns; events that cannot be learnt are refused and counted
    buffer (`InputBuffer`)            single events wait until they can be learnt together
    project (`Projection`)            wide events are reduced to few directions; others have their missing values filled
                                      in (`engine.missing_values.completed`)
    learn (`Engine.learn_checked`)    rows go into the tree of their shard, and what is due is done
    """

    def __init__(
        self,
        schema: Schema,
        engine: Engine,
        invalid: Invalid = "refuse",
        max_time_step: float | None = None,
        max_directions: int | None = None,
        scale: ScaleName = "deviation",
        transform: Transforms = "none",
    ) -> None:
        self.schema = schema
        self.engine = engine
        self.zeros = schema.missing == "zero"
        self.projection = Projection(engine, max_directions, scale, self.zeros)
        self.refusals = Refusals(invalid)
        self.clocks = Clocks(engine.settings.half_life, max_time_step)
        self._shard: Hashable = 0
        self._transform = transform
        self._asked_of = 0
        """Number of features for which the engine was told how they are transformed."""
        self._warned_of: set[Hashable] = set()
        """Columns that a warning has named."""
        self.hinted: set[str] = set()
        """Kinds of findings that a warning has named."""
        family, schema.lenient = engine.settings.family, invalid == "refuse" and schema.missing != "error"
        self._validator = Validator(family, self.zeros, schema.lenient, self.projection.unit)
        self._forgets = self.clocks.forgets
        self._any_number = not (is_discrete(family) or self._forgets or self.projection.unit)
        """Whether the family takes all finite values and nothing is forgotten: plain events need no further check."""
        self.buffer = InputBuffer(self.projection, schema, self._any_number and not self.zeros, self.zeros)
        self.tell_layout()
        self.resize_buffer()

    def resize_buffer(self) -> None:
        """Have the buffer flushed no later than at the event at which a refit or another step is due.

        The first event of features that are not learnt yet does not wait.
        """
        self.buffer.size = 1 if self._has_new_features else min(MAX_WAITING_EVENTS, self.projection.until_due)
        self.buffer.reopen(self._shard, self.schema)

    @property
    def _has_new_features(self) -> bool:
        return len(self.schema) != self.projection.n_features and not self.zeros

    @property
    def n_waiting(self) -> int:
        """Number of events in the buffer."""
        return len(self.buffer)

    def allow_categories(self, mixed_schema: Callable[[], MixedSchema] | None) -> None:
        """Let the stream have categories if its first events do; `mixed_schema` makes its schema then."""
        self._validator.mixed_schema = mixed_schema

    # ---------------------------------------------------------------- one event

    def add(self, x: dict[Any, Any], w: float = 1.0, t: float | None = None, shard: Hashable = 0) -> bool:
        """Validate an event and buffer it, or refuse it; whether the buffer is full, and is to be flushed."""
        if shard != self._shard:
            self.flush()
            self._shard = shard
            self.buffer.reopen(shard, self.schema)
        values = plain_values(x, self.schema.values_of)
        if values is not None and self._any_number and w == 1.0 and t is None:
            if self.buffer.others or self.zeros:
                self.buffer.others.append((np.array(values, dtype=np.float64), w, t))
            else:
                self.buffer.open.rows.append(values)
            return self._is_full
        try:
            event = self._validated(x, values, w, t)
        except (TypeError, ValueError) as error:
            self.refusals.add(error)
            return False
        if event is None:
            return False
        self.buffer.others.append(event)
        return self._is_full

    @property
    def _is_full(self) -> bool:
        return len(self.buffer) >= self.buffer.size or self._has_new_features

    def _schema_of(self, x: object) -> Schema:
        """The schema, or one with categories if this is the first event and has some."""
        make = self._validator.mixed_schema
        new = make is not None and not len(self.schema) and has_category(x)
        return (
            make() if new and make is not None and not isinstance(self.schema, MixedSchema) else self.schema
        )

    def _use_categories(self, schema: Schema) -> None:
        """Have a stream with categories, before its first event."""
        self.schema = schema
        self.buffer.reopen(self._shard, schema)

    def _validated(
        self, x: dict[Any, Any], values: tuple[float, ...] | None, w: float, t: float | None
    ) -> Event | None:
        """A checked event; None for one of weight 0, which changes nothing. `values`: set if all features are known."""
        row: Row
        if values is None:
            schema = self._schema_of(x)
            row = schema.cells(x)
            self._validator.check_cells(row)
        else:
            row = np.array(values, dtype=np.float64)
            self._validator.check_points(row[None])
        if w != 1.0 or t is not None:
            w, t = weight_and_time(w, t)
            if w == 0.0:
                return None
        if (self._forgets or t is not None) and (back := self.clocks.tell(self._shard, t)):
            self.flush()
            self.engine.redate(self._shard, back)
        if isinstance(row, Cells):
            if schema is not self.schema:
                self._use_categories(schema)
            self.schema.take(row)
            if row.fields is not None:
                self._warn_of_fields()
            self.refusals.add_invalid(row.invalid.items())
        return row, w, t

    def flush(self) -> None:
        """Learn the buffered events. If that is interrupted (Ctrl-C), those not learnt yet stay in the buffer."""
        self.buffer.finish_flush()  # one that was interrupted
        if self.buffer.replaced:
            self._learn_late()
        if self.buffer.open.rows or self.buffer.others:
            try:
                self.tell_layout()
                for table in self.buffer.tables(self._shard, self.schema):
                    self.projection.learn(table.rows, table.weight, table.time, self._shard, table.complete)
            except Exception:
                self.buffer.drop_flush()
                raise
            self.buffer.finish_flush()
        self.resize_buffer()

    def tell_layout(self) -> None:
        """Tell the engine which columns are values of categories, and how others are to be transformed."""
        if isinstance(self.schema, MixedSchema) and len(self.engine.layout) != len(self.schema):
            self.engine.layout = self.schema.layout
            self.engine.name_columns()
        if len(self.schema) != self._asked_of:
            self._asked_of = len(self.schema)
            found = wishes_by_column(self._transform, self.schema.names)
            wishes = {j: wish for j, wish in found.items() if self.engine.is_number(j)}
            self.engine.transforms.ask(self._transform == "auto" and self._may_transform, wishes)

    @property
    def _may_transform(self) -> bool:
        """Whether the evidence may decide that features are transformed.

        Not where a missing value is 0, or distances are given in the features' units.
        """
        settings = self.engine.settings
        gaussian = settings.family in GAUSSIANS or settings.is_mixed
        return gaussian and not self.zeros and not self.projection.unit and settings.birth_penalty is None

    def join_fields(self, other: MixedSchema) -> None:
        """Have the categories of another stream, whose features are to be learnt."""
        if not isinstance(self.schema, MixedSchema):
            if len(self.schema) or self._validator.mixed_schema is None:
                raise ValueError("the other has categories, and this stream has none: learn both with them")
            self._use_categories(self._validator.mixed_schema())
        assert isinstance(self.schema, MixedSchema)
        self.schema.join_fields(other)

    def _warn_of_fields(self) -> None:
        """Name the fields of text that are left out, and those with more values than have columns, once each."""
        fields = self.schema.fields if isinstance(self.schema, MixedSchema) else {}
        for name, field in fields.items():
            if name not in self._warned_of and (field.kind == "left out" or OTHER in field.values):
                self._warned_of.add(name)
                warn_of_field(name, field.kind == "left out", len(field.values), stacklevel=4)

    def _learn_late(self) -> None:
        """Put events of former open rows into the present ones or, if they are of another kind, learn them."""
        with HeldInterrupts():
            while self.buffer.replaced:
                former = self.buffer.replaced.pop(0)
                rows = former.taken()
                if former.shard == self._shard and former.names == self.schema.names:
                    self.buffer.open.rows[:0] = rows
                else:
                    for values in rows:
                        if self.add(dict(zip(former.names, values, strict=True)), shard=former.shard):
                            self.flush()

    # ---------------------------------------------------------------- many events

    def check(
        self,
        X: TableLike,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> Checked:
        """Read and check events; nothing changes. Times are checked, but not kept where nothing is forgotten."""
        clocks = self.clocks if self._forgets else None
        return self._validator.check(X, self.schema, clocks, weight, time, shard)

    def learn_many(
        self,
        X: TableLike,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> None:
        """Check and learn a table; events that cannot be learnt are refused, or the first of them raised."""
        raises = self.refusals.invalid == "raise"
        checked = self._validator.check(X, self.schema, self.clocks, weight, time, shard, all_or_none=raises)
        self._warn_left_out(checked)
        for i in sorted(checked.refused):
            self.refusals.add(checked.refused[i])
        self._learn(checked, counted=True)
        self._warn_of_fields()

    def learn(self, checked: Checked) -> None:
        """Learn checked events; those of wrong times are refused and counted."""
        self._warn_left_out(checked)
        self._learn(checked, counted=False)

    def runs(self, checked: Checked) -> Iterator[Checked]:
        """Slices of the events, each up to where a refit or another step is due; learn one before the next."""
        self.flush()
        return (checked[run] for run in self.projection.runs(checked.rows))

    def _learn(self, checked: Checked, counted: bool) -> None:
        """Learn checked events; `counted`: those refused are counted already, and invalid values are warned of."""
        self.flush()
        self._shard = checked.shard
        checked = checked.weighing()
        if not len(checked):
            return
        if self.clocks.all_in_time(checked.shard, checked.time):
            self._learn_in_time(checked, counted)
        else:
            self._learn_turning(checked, counted)
        self.resize_buffer()

    def _learn_turning(self, checked: Checked, counted: bool) -> None:
        """Learn events of which some have wrong times, or turn the clock back."""
        times = [None] * len(checked) if checked.time is None else checked.time.tolist()
        clocks = self.clocks.copy()
        refused: list[ValueError] = []
        parts: list[tuple[float, list[int]]] = [(0.0, [])]
        for i, t in enumerate(times):
            try:
                back = clocks.tell(checked.shard, t)
            except ValueError as error:
                refused.append(error)
                continue
            if back:
                parts.append((back, []))
            parts[-1][1].append(i)
        if not counted:
            for reason in refused:
                self.refusals.add(reason)
        self.clocks = clocks
        for back, chosen in parts:
            if back:
                self.engine.redate(checked.shard, back)
            if chosen:
                self._learn_in_time(checked.pick(chosen), counted)

    def _learn_in_time(self, checked: Checked, warns: bool) -> None:
        """Learn events that weigh something, and whose times the clock has taken; `warns` of invalid values."""
        self.refusals.add_invalid(((each.feature, each.reason) for each in checked.invalid), warns)
        if checked.fields and not isinstance(self.schema, MixedSchema) and self._validator.mixed_schema:
            self._use_categories(self._validator.mixed_schema())
        checked.add_features_to(self.schema)
        self.tell_layout()
        w, t = as_column(checked.weight), as_column(checked.time)
        self.projection.learn(checked.rows, w, t, self._shard, checked.complete)

    def _warn_left_out(self, checked: Checked) -> None:
        """Name the columns that were left out, once each."""
        if new := [name for name in checked.left_out if name not in self._warned_of]:
            self._warned_of |= set(new)
            warn_left_out(new, stacklevel=5)

    # ---------------------------------------------------------------- asking

    def shard_names(self) -> tuple[Hashable, ...]:
        """Names of the shards that have learnt events, or whose events wait for a sketch."""
        return tuple(dict.fromkeys([*self.engine.shards, *self.projection.n_waiting_by_shard()]))

    def n_seen_by_shard(self) -> dict[Hashable, int]:
        """Number of events learnt of each shard, those in the buffer included."""
        found = {key: part.n_seen for key, part in list(self.engine.shards.items())}
        for key, n in self.projection.n_waiting_by_shard().items():
            found[key] = found.get(key, 0) + n
        if self.n_waiting:
            found[self._shard] = found.get(self._shard, 0) + self.n_waiting
        return found

    def sampled(self, checked: Checked) -> Ints:
        """Places of the events, to be learnt next, that are kept as they came."""
        projection = self.projection
        if projection.stage in ("waiting", "sketched"):
            return chosen_of(projection.n_learnt + projection.n_waiting, len(checked), RECENT_EVENTS)
        return chosen_of(self.n_seen_by_shard().get(checked.shard, 0), len(checked))

    def filled(self, rows: Floats) -> Floats:
        """Rows with missing values set to 0 if missing="zero"; else unchanged."""
        return np.nan_to_num(rows, nan=0.0) if self.zeros else rows

    def check_values(self, rows: Floats) -> None:
        """Raise ValueError for rows that cannot be events; a missing value (NaN) is allowed."""
        self._validator.check_values(np.where(np.isnan(rows), 0.0, rows))

    def settle(self) -> None:
        """Learn what waits, and refit at once."""
        self.flush()
        self.projection.begin()
        self.engine.settle()
        self.resize_buffer()

    def merge(self, other: EventPipeline) -> None:
        """Learn everything that another has learnt."""
        self.flush()
        other.flush()
        self.projection.merge(other.projection)
        self.refusals.merge(other.refusals)
        self.resize_buffer()


def as_column(values: Floats | None) -> Floats:
    """Weights or times as kernels take them: contiguous and writable; empty for none."""
    return NO_VALUES if values is None else np.require(values, float, ["C", "A", "W"])
