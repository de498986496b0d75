"""Bytes -> events: JSON, MessagePack, or a decoder of your own (Avro, Protobuf); fields are found by their paths.

A message is an event, or holds many. An event is an object of named numbers or an array of numbers, at the top of
the message or under a path ("payload.vector"); its key, time and weight may have paths of their own.

>>> decoder = Decoder(Fields(key="id", weight="n"))
>>> decoded = decoder.decode([Message(7, b'{"id": "a", "n": 2, "x": 1.5, "y": 2}'), Message(8, b'{"x":')])
>>> decoded.vectors, decoded.keys, decoded.weights
([{'x': 1.5, 'y': 2}], ['a'], [2.0])
>>> decoded.failures[0].record.offset, decoded.failures[0].reason
(8, 'Input data was truncated')
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamclust_connectors.fields import Fields, at, event_reader, show
from streamclust_connectors.ports import Message, Partition, Record
from streamclust_connectors.tables import TableReader, Unsuited

__all__ = ["Decoded", "Decoder", "Failure", "Fields", "Format", "Message"]

Format = Literal["json", "msgpack"]
Read = Callable[[bytes], Any]
"""A decoder: the content of a message as mappings, lists and numbers. It may raise anything."""

READERS: dict[str, Read] = {
    "json": msgspec.json.Decoder().decode,
    "msgpack": msgspec.msgpack.Decoder().decode,
}


class Failure(NamedTuple):
    """A message that holds no events that can be read, and why."""

    record: Record
    exception: str
    reason: str
    stage: str = "decode"


@dataclass
class Decoded:
    """The events of some records, in order, column by column; lists that are None were not asked for."""

    vectors: list[Any] | NDArray[np.float64]
    """A mapping for each event, or a table whose columns are the names that were given."""
    records: Sequence[Record]
    """The record that each event came from."""
    numbers: list[int | None] | None = None
    """The place of each event in its record, None where it is alone; None where all are."""
    keys: list[Any] | None = None
    times: list[float] | None = None
    weights: list[float] | None = None
    failures: list[Failure] = field(default_factory=list)
    tombstones: int = 0

    def __len__(self) -> int:
        return len(self.vectors)

    def ids(self, partition: Partition, run: slice) -> list[str]:
        """The id of each event: where it came from."""
        place = f"{partition[0]}-{partition[1]}-"
        if self.numbers is None:
            return [f"{place}{record.offset}" for record in self.records[run]]
        pairs = zip(self.records[run], self.numbers[run], strict=True)
        return [
            f"{place}{record.offset}" if number is None else f"{place}{record.offset}-{number}"
            for record, number in pairs
        ]

    def first_from(self, offset: int) -> int:
        """The place of the first event whose record is not before an offset."""
        return bisect_left(self.records, offset, key=lambda record: record.offset)

    def refused(self, reasons: Mapping[int, str]) -> list[Failure]:
        """A failure for each record of which an event cannot be learnt."""
        first = {id(self.records[i]): i for i in sorted(reasons, reverse=True)}
        return [Failure(self.records[i], "ValueError", reasons[i], "learn") for i in sorted(first.values())]

    def without(self, bad: set[int]) -> Decoded:
        """All events but some; where an event goes, those of the same record go with it."""
        gone = {id(self.records[i]) for i in bad}
        kept = [i for i, record in enumerate(self.records) if id(record) not in gone]

        def pick(column: Any) -> Any:  # noqa: ANN401
            return None if column is None else [column[i] for i in kept]

        vectors = self.vectors[kept] if isinstance(self.vectors, np.ndarray) else pick(self.vectors)
        return replace(
            self,
            vectors=vectors,
            records=pick(self.records),
            numbers=pick(self.numbers),
            keys=pick(self.keys),
            times=pick(self.times),
            weights=pick(self.weights),
        )


class Decoder:
    """Reads records; never raises for what they hold."""

    def __init__(self, fields: Fields | None = None, format: Format | Read = "json") -> None:
        self.fields = fields or Fields()
        if isinstance(format, str) and format not in READERS:
            raise ValueError(
                f"format must be one of {', '.join(READERS)}, or a function of bytes; got {format!r}"
            )
        self._read = READERS[format] if isinstance(format, str) else format
        self._format = format if isinstance(format, str) else None
        self._event = event_reader(self.fields)
        self._names: Sequence[Any] = ()
        self._table_reader: TableReader | None = None

    def decode(self, records: Sequence[Record], names: Sequence[Any] = ()) -> Decoded:
        """The events of some records. With `names`, the features known: a table, where every event has just those."""
        table = None
        if names and records and (reader := self._reader_of(names, records[0])) is not None:
            table = reader.read(records)
        if table is None:
            return self._one_by_one(records)
        odd = self._one_by_one(table.odd)
        if len(odd):  # events, but with other features
            return self._one_by_one(records)
        keys, times, weights = table.aside
        found = Decoded(table.rows, table.records, None, keys, times, weights, odd.failures, odd.tombstones)
        if table.counts is not None:
            found.records, found.numbers = spread(table.records, table.counts)
        return found

    def _reader_of(self, names: Sequence[Any], first: Record) -> TableReader | None:
        """The reader of events with these features, if there can be one; made when the features have changed."""
        if self._format is not None and names != self._names:
            self._names = names
            try:
                self._table_reader = TableReader(self.fields, self._format, names, self._order(names, first))
            except Unsuited:
                self._table_reader = None
        return self._table_reader

    def _order(self, names: Sequence[Any], record: Record) -> Sequence[Any]:
        """The order in which a message has the features: the next ones will, too."""
        vectors = self._one_by_one([record]).vectors
        return list(vectors[0]) if len(vectors) and vectors[0].keys() == set(names) else names

    def _one_by_one(self, records: Sequence[Record]) -> Decoded:
        vectors: list[Any] = []
        sources: list[Record] = []
        numbers: list[int | None] = []
        keys, times, weights = columns = [None if path is None else list[Any]() for path in self.fields.aside]
        found = Decoded(vectors, sources, numbers, keys, times, weights)
        for record in records:
            if record.value is None:
                found.tombstones += 1
                continue
            try:
                events = list(self._events(record.value))
            except RecursionError:
                found.failures.append(Failure(record, "RecursionError", "nested too deeply"))
                continue
            except Exception as error:  # a decoder of someone else's may raise anything
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

    def _events(self, value: bytes) -> Iterator[tuple[dict[Any, Any], Any, float, float]]:
        """The events of one message."""
        content = self._read(value)
        if self.fields.events is not None:
            content = at(content, self.fields.events)
            if not isinstance(content, list):
                raise TypeError(f"{self.fields.events} must be a list of events, got {show(content)}")
            return map(self._event, content)
        many = isinstance(content, list) and content and isinstance(content[0], (dict, list))
        return map(self._event, content if many else [content])


def spread(records: Sequence[Record], counts: Sequence[int]) -> tuple[list[Record], list[int | None] | None]:
    """For each event the record it came from, and its place there, where it is not alone."""
    sources = [record for record, count in zip(records, counts, strict=True) for _ in range(count)]
    if max(counts, default=0) <= 1:
        return sources, None
    return sources, [i if count > 1 else None for count in counts for i in range(count)]
