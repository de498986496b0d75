"""EventPipeline: from events of any form to rows that the engine learns; what cannot be learnt is refused and counted.

An event is checked when it arrives: every buffered event can be learnt.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.types import Floats
from streamclust.engine import Engine
from streamclust.engine.missing_values import Row, stacked, widths
from streamclust.engine.projection import Projection
from streamclust.families import is_discrete
from streamclust.frames import TableLike, warn_left_out
from streamclust.interrupts import HeldInterrupts
from streamclust.parameters import Invalid, ScaleName
from streamclust.schema import Cells, Schema, plain_values
from streamclust.streaming.checked_events import Checked
from streamclust.streaming.clocks import Clocks
from streamclust.streaming.validation import Validator, cells_of, weight_and_time

MAX_WAITING_EVENTS = 256
"""Number of single events buffered before they are learnt together."""
NO_VALUES = np.empty(0)


class RefusedEvents(UserWarning):
    """Warning, given once: events were refused; `n_refused` counts them."""


class Buffer:
    """Single events of one shard that wait to be learnt together, and how their values are read."""

    __slots__ = ("names", "rows", "shard", "values_of")

    def __init__(self, shard: Hashable, schema: Schema) -> None:
        self.shard = shard
        self.names = schema.names
        self.values_of = schema.values_of
        self.rows: list[tuple[float, ...]] = []
        """Events of just these features, of weight 1 and without a time."""

    def taken(self) -> list[tuple[float, ...]]:
        """Take the rows out; other threads may be appending."""
        rows = self.rows[:]
        del self.rows[: len(rows)]
        return rows


class Flush(NamedTuple):
    """Buffered events that are being learnt, and how many events had been learnt before: that tells how far it came."""

    buffer: Buffer
    n_rows: int
    """Rows of the buffer when it began; other threads may append more."""
    others: list[tuple[Row, float, float | None]]
    n_seen: int


class EventPipeline:
    """Prepares events for the engine: maps names to columns, checks and buffers events, keeps time."""

    def __init__(
        self,
        schema: Schema,
        engine: Engine,
        invalid: Invalid = "refuse",
        max_time_step: float | None = None,
        max_directions: int | None = None,
        scale: ScaleName = "deviation",
    ) -> None:
        self.schema = schema
        self.engine = engine
        self.projection = Projection(engine, max_directions, scale, schema.missing == "zero")
        self.invalid = invalid
        self.clocks = Clocks(engine.settings.half_life, max_time_step)
        self.n_refused = 0
        self.last_refusal = ""
        self._buffer = Buffer(0, schema)
        """Buffered events of known features, of weight 1 and without a time. Flushing replaces it."""
        self._replaced: list[Buffer] = []
        """Former buffers to which a thread has appended an event while another thread replaced them."""
        self._others: list[tuple[Row, float, float | None]] = []
        """Buffered events with their weights and times."""
        self._flush: Flush | None = None
        """The flush under way, or the last one if it was interrupted."""
        self._shard: Hashable = 0
        self._told: set[Hashable] = set()
        self.zeros = schema.missing == "zero"
        self._room = 1
        """Size of the buffer."""
        family, skips_text = engine.settings.family, invalid == "refuse" and schema.missing != "error"
        self._validator = Validator(family, self.zeros, skips_text, self.projection.unit)
        self._forgets = self.clocks.forgets
        self._measures = not (is_discrete(family) or self._forgets or self.projection.unit)
        """Whether the family takes all finite values and nothing is forgotten: plain events need no further check."""
        self._buffers_tuples = self._measures and not self.zeros
        self.make_room()

    def make_room(self) -> None:
        """Set the size of the buffer, which never reaches past the event at which a refit or another step is due.

        The first event of features that are not learnt yet does not wait.
        """
        new = len(self.schema) != self.projection.n_features and not self.zeros
        self._room = 1 if new else min(MAX_WAITING_EVENTS, self.projection.until_due)
        if self._buffer.shard != self._shard or self._buffer.values_of is not self.schema.values_of:
            self._replace_buffer()

    def _replace_buffer(self) -> None:
        """Open a buffer for events of the present shard and features."""
        with HeldInterrupts():
            former, self._buffer = self._buffer, Buffer(self._shard, self.schema)
            if former.rows:
                self._replaced.append(former)

    @property
    def n_waiting(self) -> int:
        """Number of events in the buffer."""
        late = {id(buffer): len(buffer.rows) for buffer in self._replaced} if self._replaced else {}
        flush, others = self._flush, len(self._others)
        if flush is not None:
            learnt = self.projection.n_seen - flush.n_seen
            late[id(flush.buffer)] = len(flush.buffer.rows) - min(learnt, flush.n_rows)
            others += len(flush.others) - max(0, learnt - flush.n_rows)
        return len(self._buffer.rows) + others + sum(late.values())

    # ---------------------------------------------------------------- one event

    def buffer(self, x: dict[Any, Any], w: float = 1.0, t: float | None = None, shard: Hashable = 0) -> bool:
        """Buffer an event that needs no check, unless the buffer is then full; whether it was buffered.

        The one method that needs no lock, since most events need no other: an acquired lock would add a tenth to their
        cost. `list.append` is atomic, and the event's values, their order and their shard all belong to one buffer. If
        another thread has replaced that meanwhile, the next flush finds the event among those `_replaced`.
        """
        buffer = self._buffer
        if not self._buffers_tuples or self._others or w != 1.0 or t is not None or shard != buffer.shard:
            return False
        values = plain_values(x, buffer.values_of)  # many tuples make a table sooner than as many rows
        rows = buffer.rows
        if values is None or len(rows) + 1 >= self._room:
            return False
        rows.append(values)
        if buffer is not self._buffer:
            self._replaced.append(buffer)
        return True

    def learn_one(
        self, x: dict[Any, Any], w: float = 1.0, t: float | None = None, shard: Hashable = 0
    ) -> None:
        """Learn an event, of weight `w` and, where forgetting goes by time, at time `t`; or refuse it."""
        if shard != self._shard:
            self.flush()
            self._shard = shard
            self._replace_buffer()
        values = plain_values(x, self.schema.values_of)
        if values is not None and self._measures and w == 1.0 and t is None:
            if self._others or self.zeros:
                self._wait(np.array(values, dtype=np.float64), w, t)
                return
            self._buffer.rows.append(values)
            if self.n_waiting >= self._room:
                self.flush()
            return
        try:
            if values is None:
                cells = self.schema.cells(x)
                self._validator.check_cells(cells, self._least)
                taken = self._taken(cells, w, t)
            else:
                row = np.array(values, dtype=np.float64)
                self._validator.check_points(row[None])
                taken = self._taken(row, w, t)
        except (TypeError, ValueError) as error:
            self._refuse(error)
            return
        if taken is not None:  # outside: what goes wrong in the engine is no refusal
            self._wait(*taken)

    def _taken(self, row: Row, w: float, t: float | None) -> tuple[Row, float, float | None] | None:
        """A checked event for the buffer; None for one of weight 0, which changes nothing."""
        if w != 1.0 or t is not None:
            w, t = weight_and_time(w, t)
            if w == 0.0:
                return None
        if (self._forgets or t is not None) and (back := self.clocks.tell(self._shard, t)):
            self.flush()
            self.engine.redate(self._shard, back)
        if isinstance(row, Cells) and len(row.columns) > len(self.schema):
            self.schema.adopt(row.columns)
        return row, w, t

    def _wait(self, row: Row, w: float, t: float | None) -> None:
        self._others.append((row, w, t))
        if self.n_waiting >= self._room or (
            len(self.schema) != self.projection.n_features and not self.zeros
        ):
            self.flush()

    @property
    def _least(self) -> int | None:
        """Number of features that the next event must have, if it is the first; None if events were learnt."""
        return self.projection.n_features if not self.n_waiting and self.projection.is_empty else None

    def _refuse(self, error: object) -> None:
        """Count a refused event; warn at the first."""
        if self.invalid == "raise":
            raise error if isinstance(error, Exception) else ValueError(error)
        self.n_refused += 1
        self.last_refusal = str(error)
        if self.n_refused == 1:
            warnings.warn(
                f'an event was refused: {error}. More will be counted in n_refused without a word; invalid="raise" '
                "stops at the first",
                RefusedEvents,
                stacklevel=4,
            )

    def flush(self) -> None:
        """Learn the buffered events. If that is interrupted (Ctrl-C), those not learnt yet stay in the buffer."""
        self._finish_flush()  # one that was interrupted
        if self._replaced:
            self._learn_late()
        if not (self._buffer.rows or self._others):
            self.make_room()
            return
        with HeldInterrupts():
            flush = self._flush = Flush(
                self._buffer, len(self._buffer.rows), self._others, self.projection.n_seen
            )
            self._buffer, self._others = Buffer(self._shard, self.schema), []
        try:
            if flush.n_rows:
                self._learn_rows(np.array(flush.buffer.rows[: flush.n_rows], dtype=np.float64), None, None)
            if flush.others:
                self._learn_others(flush.others)
        except Exception:
            self._flush = None  # what cannot be learnt is not tried again
            raise
        self._finish_flush()
        self.make_room()

    def _finish_flush(self) -> None:
        """Put back what the last flush has not learnt: nothing, if it was not interrupted and no thread was late."""
        if self._flush is None:
            return
        with HeldInterrupts():
            buffer, n_rows, others, before = self._flush
            learnt = self.projection.n_seen - before
            del buffer.rows[: min(learnt, n_rows)]
            if buffer.rows:
                self._replaced.append(buffer)
            self._others = others[max(0, learnt - n_rows) :] + self._others
            self._flush = None

    def _learn_late(self) -> None:
        """Put events of former buffers into the present one or, if they are of another kind, learn them."""
        with HeldInterrupts():
            while self._replaced:
                former = self._replaced.pop(0)
                rows = former.taken()
                if former.shard == self._shard and former.names == self.schema.names:
                    self._buffer.rows[:0] = rows
                else:
                    for values in rows:
                        self.learn_one(dict(zip(former.names, values, strict=True)), shard=former.shard)

    def _learn_others(self, waiting: list[tuple[Row, float, float | None]]) -> None:
        """Learn buffered events that have weights, times or other features than those known."""
        rows, weight, time = zip(*waiting, strict=True)
        plain = all(w == 1.0 for w in weight)
        timeless = all(t is None for t in time)
        self._learn_rows(
            list(rows) if self.zeros else stacked(rows, self.projection.n_features),
            None if plain else np.array(weight),
            None if timeless else np.array(time),
        )

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
        return self._validator.check(X, self.schema, clocks, self._least, weight, time, shard)

    def learn_many(
        self,
        X: TableLike,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> None:
        """Check and learn a table; events that cannot be learnt are refused, or the first of them raised."""
        raises = self.invalid == "raise"
        checked = self._validator.check(
            X, self.schema, self.clocks, self._least, weight, time, shard, all_or_none=raises
        )
        self._warn_left_out(checked)
        for i in sorted(checked.refused):
            self._refuse(checked.refused[i])
        self._learn(checked, counted=True)

    def learn(self, checked: Checked) -> None:
        """Learn checked events; those of wrong times are refused and counted."""
        self._warn_left_out(checked)
        self._learn(checked)

    def runs(self, checked: Checked) -> Iterator[Checked]:
        """Slices of the events, each up to where a refit or another step is due; learn one before the next."""
        self.flush()
        return (checked[run] for run in self.projection.runs(len(checked)))

    def _learn(self, checked: Checked, counted: bool = False) -> None:
        """Learn checked events; `counted`: those of wrong times are counted already."""
        self.flush()
        self._shard = checked.shard
        checked = checked.weighing()
        if not len(checked):
            return
        if self.clocks.all_in_time(checked.shard, checked.time):
            self._learn_in_time(checked)
        else:
            self._learn_turning(checked, counted)
        self.make_room()

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
                self._refuse(reason)
        self.clocks = clocks
        for back, chosen in parts:
            if back:
                self.engine.redate(checked.shard, back)
            if chosen:
                self._learn_in_time(checked.pick(chosen))

    def _learn_in_time(self, checked: Checked) -> None:
        """Learn events that weigh something, and whose times the clock has taken."""
        if checked.columns is not self.schema.columns:
            self._add_features(checked)
        if self._least is not None and not self.zeros:
            first: Any = checked.rows[0]
            self._validator.check_cells(cells_of(first, self.schema), self._least)
        self._learn_rows(checked.rows, checked.weight, checked.time)

    def _add_features(self, checked: Checked) -> None:
        """Add the features that these events bring; ValueError if others have come since they were checked."""
        ours, theirs = self.schema.names, tuple(checked.columns)
        both = min(len(ours), len(theirs))
        if ours[:both] != theirs[:both]:
            raise ValueError("features have come since these events were checked: check them again")
        width = max(checked.n_named, int(widths(checked.rows)[-1]))
        if width > len(ours):
            self.schema.adopt(dict(islice(checked.columns.items(), width)))

    def _learn_rows(self, rows: Floats | list[Row], weight: Floats | None, time: Floats | None) -> None:
        w, t = (NO_VALUES if v is None else np.require(v, float, ["C", "A", "W"]) for v in (weight, time))
        self.projection.learn(rows, w, t, self._shard)

    def _warn_left_out(self, checked: Checked) -> None:
        """Name the columns that were left out, once each."""
        if new := [name for name in checked.left_out if name not in self._told]:
            self._told |= set(new)
            warn_left_out(new, stacklevel=5)

    # ---------------------------------------------------------------- asking

    def n_seen_by_shard(self) -> dict[Hashable, int]:
        """Number of events learnt of each shard, those in the buffer included."""
        found = {key: part.n_seen for key, part in list(self.engine.shards.items())}
        for key, n in self.projection.n_waiting_by_shard().items():
            found[key] = found.get(key, 0) + n
        if self.n_waiting:
            found[self._shard] = found.get(self._shard, 0) + self.n_waiting
        return found

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
        self.make_room()

    def merge(self, other: EventPipeline) -> None:
        """Learn everything that another has learnt."""
        self.flush()
        other.flush()
        self.projection.merge(other.projection)
        self.n_refused += other.n_refused
        self.make_room()
