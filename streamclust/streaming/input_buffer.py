"""InputBuffer: single events that wait to be learnt together.

Most events are appended without the lock of the model: acquiring and releasing a lock added a tenth to the cost of an
event. An `OpenRows` belongs to one shard and one order of features, and is replaced, never changed, when either changes
or it is flushed. A thread that finds it replaced after it has appended says so, and the next flush fetches the event.
Everything else is called with the lock of the model held.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.engine.event_rows import Row, stacked
from streamclust.engine.projection import Projection
from streamclust.schema import Schema, plain_values
from streamclust.utils.interrupts import HeldInterrupts

MAX_WAITING_EVENTS = 256
"""Number of single events buffered before they are learnt together."""
NO_VALUES = np.empty(0)

Event = tuple[Row, float, float | None]
"""A row, its weight and its time."""


class OpenRows:
    """Rows of one shard and of just the known features, of weight 1 and without a time."""

    __slots__ = ("names", "rows", "shard", "values_of")

    def __init__(self, shard: Hashable, schema: Schema) -> None:
        self.shard = shard
        self.names = schema.names
        self.values_of = schema.values_of
        self.rows: list[tuple[float, ...]] = []

    def taken(self) -> list[tuple[float, ...]]:
        """Take the rows out; other threads may be appending."""
        rows = self.rows[:]
        del self.rows[: len(rows)]
        return rows


class Flush(NamedTuple):
    """Buffered events that are being learnt, and how many events had been learnt before: that tells how far it came."""

    open: OpenRows
    n_rows: int
    """Number of rows when it began; other threads may append more."""
    others: list[Event]
    n_seen: int


class EventTable(NamedTuple):
    """Buffered events under each other; no weights or times is an empty array."""

    rows: Floats | list[Row]
    weight: Floats
    time: Floats
    complete: bool
    """Whether no value is missing."""


class InputBuffer:
    """Events that were validated, until they are learnt.

    `takes_tuples`: any finite numbers can be learnt, so that events of just the known features need no check.
    `zeros`: a missing value is 0.
    """

    def __init__(self, projection: Projection, schema: Schema, takes_tuples: bool, zeros: bool) -> None:
        self.open = OpenRows(0, schema)
        """Events of known features, of weight 1 and without a time. A flush replaces it."""
        self.replaced: list[OpenRows] = []
        """Former open rows to which a thread has appended an event while another thread replaced them."""
        self.others: list[Event] = []
        """All other events."""
        self.size = 1
        """Number of events that fill it."""
        self._flush: Flush | None = None
        """The flush under way, or the last one if it was interrupted."""
        self._projection = projection
        self._takes_tuples = takes_tuples
        self._zeros = zeros

    def append(self, x: dict[Any, Any], w: float = 1.0, t: float | None = None, shard: Hashable = 0) -> bool:
        """Buffer an event that needs no check, unless the buffer is then full; whether it was buffered.

        The one method that needs no lock: `list.append` is atomic, and the event's values, their order and their shard
        all belong to one `OpenRows`.
        """
        open_rows = self.open
        if not self._takes_tuples or self.others or w != 1.0 or t is not None or shard != open_rows.shard:
            return False
        values = plain_values(x, open_rows.values_of)  # many tuples make a table sooner than as many rows
        rows = open_rows.rows
        if values is None or len(rows) + 1 >= self.size:
            return False
        rows.append(values)
        if open_rows is not self.open:
            self.replaced.append(open_rows)
        return True

    def __len__(self) -> int:
        late = {id(former): len(former.rows) for former in self.replaced} if self.replaced else {}
        flush, others = self._flush, len(self.others)
        if flush is not None:
            learnt = self._projection.n_seen - flush.n_seen
            late[id(flush.open)] = len(flush.open.rows) - min(learnt, flush.n_rows)
            others += len(flush.others) - max(0, learnt - flush.n_rows)
        return len(self.open.rows) + others + sum(late.values())

    def reopen(self, shard: Hashable, schema: Schema) -> None:
        """Open rows for events of this shard and these features, if those open are of others."""
        if self.open.shard == shard and self.open.values_of is schema.values_of:
            return
        with HeldInterrupts():
            former, self.open = self.open, OpenRows(shard, schema)
            if former.rows:
                self.replaced.append(former)

    # ---------------------------------------------------------------- flushing

    def tables(self, shard: Hashable, schema: Schema) -> Iterator[EventTable]:
        """The buffered events, in the order in which they came; learn each table before asking for the next.

        If learning raises an exception, its events are dropped; if Ctrl-C ends it, those not learnt yet stay here.
        """
        with HeldInterrupts():
            flush = Flush(self.open, len(self.open.rows), self.others, self._projection.n_seen)
            self._flush = flush
            self.open, self.others = OpenRows(shard, schema), []
        if flush.n_rows:
            rows = np.array(flush.open.rows[: flush.n_rows], dtype=np.float64)
            yield EventTable(rows, NO_VALUES, NO_VALUES, complete=True)
        if flush.others:
            yield self._table_of(flush.others)

    def _table_of(self, events: list[Event]) -> EventTable:
        """Events that have weights, times or other features than those known."""
        rows, weight, time = zip(*events, strict=True)
        plain = all(w == 1.0 for w in weight)
        timeless = all(t is None for t in time)
        return EventTable(
            list(rows) if self._zeros else stacked(rows, self._projection.n_features),
            NO_VALUES if plain else np.array(weight, dtype=float),
            NO_VALUES if timeless else np.array(time, dtype=float),
            complete=False,
        )

    def drop_flush(self) -> None:
        """Forget the events of the flush under way: what cannot be learnt is not tried again."""
        self._flush = None

    def finish_flush(self) -> None:
        """Put back the events that the last flush has not learnt, if it was interrupted or a thread was late."""
        if self._flush is None:
            return
        with HeldInterrupts():
            former, n_rows, others, before = self._flush
            learnt = self._projection.n_seen - before
            del former.rows[: min(learnt, n_rows)]
            if former.rows:
                self.replaced.append(former)
            self.others = others[max(0, learnt - n_rows) :] + self.others
            self._flush = None
