"""Decodes messages into events: JSON, MessagePack, or a parser (Avro, Protobuf).

A message holds one event or a list of events. An event is an object of named numbers or an array of numbers, at the
top of the message or under a path ("payload.vector"); key, time and weight are found by paths too.

>>> from streamclust_connectors.interfaces import Message
>>> decoder = Decoder(Fields(key="id", weight="n"))
>>> decoded = decoder.decode([Message(7, b'{"id": "a", "n": 2, "x": 1.5, "y": 2}'), Message(8, b'{"x":')])
>>> decoded.vectors, decoded.keys, decoded.weights
([{'x': 1.5, 'y': 2}], ['a'], [2.0])
>>> decoded.failures[0].record.offset, decoded.failures[0].reason
(8, 'Input data was truncated')
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamclust.streaming import Checked
from streamclust_connectors.decode.fields import Fields, describe_value, event_reader, get_path
from streamclust_connectors.decode.table_reader import NotTabular, TableReader
from streamclust_connectors.interfaces import Partition, Record, StreamModel, Transient

Cell = TypeVar("Cell")

Format = Literal["json", "msgpack"]
Read = Callable[[bytes], Any]
"""Parses the bytes of a message into mappings, lists and numbers; may raise any exception."""

READERS: dict[str, Read] = {
    "json": msgspec.json.Decoder().decode,
    "msgpack": msgspec.msgpack.Decoder().decode,
}


class Failure(NamedTuple):
    """A message that could not be decoded or learnt, and the reason."""

    record: Record
    exception: str
    reason: str
    stage: str = "decode"


@dataclass
class Decoded:
    """Events of a batch of records, in order, as columns; a column without a path is None."""

    vectors: list[Any] | NDArray[np.float64]
    """One mapping per event, or a table whose columns are the features given to `decode`."""
    records: Sequence[Record]
    """The record that each event came from."""
    numbers: list[int | None] | None = None
    """Index of each event in its record, None if the record has one event; None if every record has one."""
    keys: list[Any] | None = None
    times: list[float] | None = None
    weights: list[float] | None = None
    failures: list[Failure] = field(default_factory=list)
    tombstones: int = 0

    def __len__(self) -> int:
        return len(self.vectors)

    def ids(self, partition: Partition, run: slice) -> list[str]:
        """Id of each event: topic, partition, offset and, if the record has several events, the index."""
        prefix = f"{partition[0]}-{partition[1]}-"
        if self.numbers is None:
            return [f"{prefix}{record.offset}" for record in self.records[run]]
        pairs = zip(self.records[run], self.numbers[run], strict=True)
        return [
            f"{prefix}{record.offset}" if number is None else f"{prefix}{record.offset}-{number}"
            for record, number in pairs
        ]

    def index_from_offset(self, offset: int) -> int:
        """Index of the first event whose record is at or after an offset."""
        return bisect_left(self.records, offset, key=lambda record: record.offset)

    def failures_of(self, reasons: Mapping[int, str]) -> list[Failure]:
        """One failure per record that holds a refused event; `reasons` by the index of the event."""
        first = {id(self.records[i]): i for i in sorted(reasons, reverse=True)}
        return [
            Failure(self.records[i], "ValueError", str(reasons[i]), "learn") for i in sorted(first.values())
        ]

    def without(self, bad: set[int]) -> Decoded:
        """Remove the records of the events `bad`; a record is removed as a whole."""
        removed = {id(self.records[i]) for i in bad}
        kept = [i for i, record in enumerate(self.records) if id(record) not in removed]

        def pick(column: Sequence[Cell]) -> list[Cell]:
            return [column[i] for i in kept]

        def pick_given(column: Sequence[Cell] | None) -> list[Cell] | None:
            return None if column is None else pick(column)

        vectors = self.vectors[kept] if isinstance(self.vectors, np.ndarray) else pick(self.vectors)
        return replace(
            self,
            vectors=vectors,
            records=pick(self.records),
            numbers=pick_given(self.numbers),
            keys=pick_given(self.keys),
            times=pick_given(self.times),
            weights=pick_given(self.weights),
        )


def learnable_events(
    learner: StreamModel, events: Decoded, shard: Hashable = 0
) -> tuple[Decoded, Checked, list[Failure]]:
    """The events that a model can learn, their checked rows, and the records that failed.

    A record is learnt as a whole or not at all. An event with an implausible time is a failure, but stays among the
    events: the model refuses it, and counts it as a vote that the clock has moved.
    """
    failures = events.failures
    while True:
        checked = learner.check(events.vectors, events.weights, events.times, shard)
        bad = {i: why for i, why in checked.refused.items() if not why.of_time}
        mistimed = events.failures_of({i: why for i, why in checked.refused.items() if why.of_time})
        if bad:
            failures = failures + events.failures_of(bad)
            events = events.without(set(bad))
        if len(events) == len(checked):
            break  # else more events were removed with their records, so the rest is checked again
    return events, checked, sorted(failures + mistimed, key=lambda failure: failure.record.offset)


class Decoder:
    """Decodes records into events; bad content becomes a `Failure`, never an exception."""

    def __init__(self, fields: Fields | None = None, format: str | Read = "json") -> None:
        self.fields = fields or Fields()
        if isinstance(format, str) and format not in READERS:
            raise ValueError(
                f"format must be one of {', '.join(READERS)}, or a function that parses bytes; got {format!r}"
            )
        self._read = READERS[format] if isinstance(format, str) else format
        self._format = format if isinstance(format, str) else None
        self._event = event_reader(self.fields)
        self._names: Sequence[Any] = ()
        self._table_reader: TableReader | None = None

    def decode(self, records: Sequence[Record], names: Sequence[Any] = ()) -> Decoded:
        """Decode records; into a table if every event has exactly the features `names`."""
        table = None
        if names and records and (reader := self._reader_of(names, records[0])) is not None:
            table = reader.read(records)
        if table is None:
            return self._one_by_one(records, names)
        odd = self._one_by_one(table.odd, names)
        if len(odd):  # events with other features
            return self._one_by_one(records, names)
        keys, times, weights = table.side_columns
        found = Decoded(table.rows, table.records, None, keys, times, weights, odd.failures, odd.tombstones)
        if table.counts is not None:
            found.records, found.numbers = repeat_records(table.records, table.counts)
        return found

    def _reader_of(self, names: Sequence[Any], first: Record) -> TableReader | None:
        """The table reader for these features, rebuilt when they change; None if events must be decoded one by one."""
        if self._format is not None and names != self._names:
            self._names = names
            try:
                self._table_reader = TableReader(self.fields, self._format, names, self._order(names, first))
            except NotTabular:
                self._table_reader = None
        return self._table_reader

    def _order(self, names: Sequence[Any], record: Record) -> Sequence[Any]:
        """Order of the features in this message, which later messages usually share."""
        vectors = self._one_by_one([record]).vectors
        return list(vectors[0]) if len(vectors) and vectors[0].keys() == set(names) else names

    def _one_by_one(self, records: Sequence[Record], names: Sequence[Any] = ()) -> Decoded:
        length = len(names) if names and isinstance(names[0], int) else None
        vectors: list[Any] = []
        sources: list[Record] = []
        numbers: list[int | None] = []
        keys, times, weights = columns = [
            None if path is None else list[Any]() for path in self.fields.side_paths
        ]
        found = Decoded(vectors, sources, numbers, keys, times, weights)
        for record in records:
            if record.value is None:
                found.tombstones += 1
                continue
            try:
                events = list(self._events(record.value))
                length = self._length(events, length)
            except Transient:  # a schema registry does not answer
                raise
            except RecursionError:
                found.failures.append(Failure(record, "RecursionError", "nested too deeply"))
                continue
            except Exception as error:  # a custom parser may raise anything
                found.failures.append(Failure(record, type(error).__name__, str(error)))
                continue
            for i, (vector, *values) in enumerate(events):
                vectors.append(vector)
                sources.append(record)
                numbers.append(i if len(events) > 1 else None)
                for column, value in zip(columns, values, strict=True):
                    if column is not None:
                        column.append(value)
        if set(numbers) <= {None}:
            found.numbers = None
        return found

    def _length(
        self, events: Sequence[tuple[dict[Any, Any], Any, float, float]], known: int | None
    ) -> int | None:
        """Check that all vectors under `fields.vector` are as long as the first; returns that length."""
        if self.fields.vector is not None:
            for vector, *_ in events:
                if 0 in vector and len(vector) != (known := known or len(vector)):
                    raise ValueError(
                        f"the vector has {len(vector)} numbers, but the first vector had {known}"
                    )
        return known

    def _events(self, value: bytes) -> Iterator[tuple[dict[Any, Any], Any, float, float]]:
        """The events of one message."""
        content = self._read(value)
        if self.fields.events is not None:
            content = get_path(content, self.fields.events)
            if not isinstance(content, list):
                raise TypeError(
                    f"{self.fields.events} must be a list of events, got {describe_value(content)}"
                )
            return map(self._event, content)
        many = isinstance(content, list) and content and isinstance(content[0], (dict, list))
        return map(self._event, content if many else [content])


def non_numeric_names(vectors: Iterable[Mapping[Any, Any]]) -> tuple[Any, ...]:
    """Names whose values are no numbers in more than half of the events that have them.

    >>> non_numeric_names([{"city": "Oslo", "x": 1}, {"city": None, "x": "?"}, {"x": 2}])
    ('city',)
    """
    balance: Counter[Any] = Counter()
    for vector in vectors:
        for name, value in vector.items():
            if value is not None:
                balance[name] += -1 if isinstance(value, (int, float)) else 1
    return tuple(name for name, more in balance.items() if more > 0)


def repeat_records(
    records: Sequence[Record], counts: Sequence[int]
) -> tuple[list[Record], list[int | None] | None]:
    """The record of each event, and its index there if the record has several events."""
    sources = [record for record, count in zip(records, counts, strict=True) for _ in range(count)]
    if max(counts, default=0) <= 1:
        return sources, None
    return sources, [i if count > 1 else None for count in counts for i in range(count)]
