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

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamclust_connectors.ports import Message, Partition, Record

__all__ = ["Decoded", "Decoder", "Failure", "Fields", "Format", "Message"]

Format = Literal["json", "msgpack"]
Read = Callable[[bytes], Any]
"""A decoder: the content of a message as mappings, lists and numbers. It may raise anything."""

READERS: dict[str, Read] = {
    "json": msgspec.json.Decoder().decode,
    "msgpack": msgspec.msgpack.Decoder().decode,
}
TABLES: dict[str, tuple[Read, Read]] = {
    "json": (msgspec.json.Decoder(dict[str, float]).decode, msgspec.json.Decoder(list[float]).decode),
    "msgpack": (
        msgspec.msgpack.Decoder(dict[str, float]).decode,
        msgspec.msgpack.Decoder(list[float]).decode,
    ),
}
"""For each format, readers of plain events alone: objects of numbers, and arrays of numbers."""
SHOWN = 80
"""Reasons quote at most so many characters of what was wrong."""


@dataclass(frozen=True)
class Fields:
    """Where an event's parts are, as paths with dots. What is not said is not there.

    events      a list of events; without it the message is one event, or is itself a list of them
    vector      the object or array of numbers, in the event; without it the event itself is
    features    which members of an object count; without it all but key, time and weight
    """

    events: str | None = None
    vector: str | None = None
    features: tuple[str, ...] | None = None
    key: str | None = None
    time: str | None = None
    weight: str | None = None

    @property
    def plain(self) -> bool:
        """Whether a message is its vector and nothing else."""
        return self == Fields()


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
    numbers: list[int] | None = None
    """The place of each event in its record; None where each record is one event."""
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
        return [f"{place}{record.offset}-{number}" for record, number in pairs]

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
        self._tables = TABLES[format] if isinstance(format, str) and self.fields.plain else None
        self._event = _event_reader(self.fields)

    def decode(self, records: Sequence[Record], names: Sequence[Any] = ()) -> Decoded:
        """The events of some records. With `names`, the features known: a table, where every event has just those."""
        if self._tables is not None and names:
            rows = self._table(records, names)
            if rows is not None:
                return Decoded(rows, records)
        return self._one_by_one(records)

    def _table(self, records: Sequence[Record], names: Sequence[Any]) -> NDArray[np.float64] | None:
        """A row for each record, if all of them are plain events of just these features; else None."""
        assert self._tables is not None
        named = not isinstance(names[0], int)
        read = self._tables[0 if named else 1]
        try:
            events = [read(record.value) for record in records]  # type: ignore[arg-type]  # None is refused too
        except Exception:  # whatever it is, reading one by one will tell
            return None
        if any(len(event) != len(names) for event in events):
            return None
        values: Any = events
        if named:
            values = (
                map(itemgetter(*names), events) if len(names) > 1 else (event.values() for event in events)
            )
        elif list(names) != list(range(len(names))):
            return None
        try:
            flat = np.fromiter(chain.from_iterable(values), dtype=float, count=len(events) * len(names))
        except KeyError:
            return None
        return None if np.isnan(flat).any() else flat.reshape(len(events), len(names))

    def _one_by_one(self, records: Sequence[Record]) -> Decoded:
        vectors: list[Any] = []
        sources: list[Record] = []
        numbers: list[int] = []
        keys, times, weights = columns = [None if path is None else list[Any]() for path in self._paths]
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
                numbers.append(i)
                for column, value in zip(columns, values, strict=True):
                    if column is not None:
                        column.append(value)
        if not any(numbers):
            found.numbers = None
        return found

    @property
    def _paths(self) -> tuple[str | None, str | None, str | None]:
        return self.fields.key, self.fields.time, self.fields.weight

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


def _event_reader(fields: Fields) -> Callable[[Any], tuple[dict[Any, Any], Any, float, float]]:
    aside = {path for path in (fields.key, fields.time, fields.weight) if path and "." not in path}

    def read(event: Any) -> tuple[dict[Any, Any], Any, float, float]:  # noqa: ANN401
        key = None if fields.key is None else at(event, fields.key)
        time = math.nan if fields.time is None else number(event, fields.time)
        weight = 1.0 if fields.weight is None else number(event, fields.weight)
        vector = event if fields.vector is None else at(event, fields.vector)
        if isinstance(vector, list):
            vector = dict(enumerate(vector))
        elif not isinstance(vector, dict):
            raise TypeError(f"an event must be an object or an array of numbers, got {show(vector)}")
        elif fields.features is not None:
            vector = {name: vector[name] for name in fields.features if name in vector}
        elif aside and fields.vector is None:
            vector = {name: value for name, value in vector.items() if name not in aside}
        for name, value in vector.items():
            if value != value:
                raise ValueError(f"feature {name!r} is NaN; leave it out, or send null, if it is missing")
        return vector, key, time, weight

    return read


def at(content: Any, path: str) -> Any:  # noqa: ANN401
    """What lies under a path with dots.

    >>> at({"a": {"b": [10, 20]}}, "a.b.1")
    20
    """
    for step in path.split("."):
        try:
            content = content[int(step)] if isinstance(content, list) else content[step]
        except (KeyError, IndexError, TypeError, ValueError):
            raise KeyError(f"no {path!r} in the message: {step!r} is missing") from None
    return content


def number(event: Any, path: str) -> float:  # noqa: ANN401
    """The number under a path."""
    value = at(event, path)
    if not is_number(value):
        raise TypeError(f"{path} must be a number, got {show(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ValueError(f"{path} must be finite, got {show(value)}")
    return found


def is_number(value: Any) -> bool:  # noqa: ANN401
    """Whether it is a number, true and false not being any."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def show(value: Any) -> str:  # noqa: ANN401
    """What something is, in a few words."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number of thousands of digits"
    return f"{text[:SHOWN]}{'…' if len(text) > SHOWN else ''} ({type(value).__name__})"
