"""Keys and times of the events that may be shown as examples of clusters, beside the model, which has neither."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from streamclust_connectors.decode import Decoded
from streamclust_connectors.interfaces import Partition

MAX_EVENTS_PER_PARTITION = 4096
"""Number of the latest such events of a partition that are kept: as many as the model keeps of a shard."""


class EventKey(NamedTuple):
    """Origin of an event: its record, its place in it if that has several, its key and time where it has them."""

    partition: Partition
    offset: int
    place: int | None
    key: Any
    time: float | None

    @property
    def id(self) -> str:
        """Id of the event in outputs."""
        end = "" if self.place is None else f"-{self.place}"
        return f"{self.partition[0]}-{self.partition[1]}-{self.offset}{end}"


Row = tuple[int, int, int | None, Any, float | None]
"""Number in the stream, and all of an EventKey but its partition."""


class EventKeys:
    """The latest events of each partition by their number in the stream; bounded.

    >>> from streamclust_connectors.interfaces import Message
    >>> keys = EventKeys()
    >>> keys.add(("clicks", 0), [7], Decoded([{"x": 1.0}], [Message(3, b"")], keys=["anna"]), [0])
    >>> keys.copy()[7].id, keys.copy()[7].key
    ('clicks-0-3', 'anna')
    """

    def __init__(self) -> None:
        self._kept: dict[Partition, deque[Row]] = {}

    def add(
        self, partition: Partition, numbers: Iterable[int], events: Decoded, places: Sequence[int]
    ) -> None:
        """Keep the events at these places of a batch, by their numbers in the stream."""
        offsets = (events.records[i].offset for i in places)
        columns = (at_places(column, places) for column in (events.numbers, events.keys, events.times))
        self._rows(partition).extend(zip(numbers, offsets, *columns, strict=False))  # `repeat` never ends

    def _rows(self, partition: Partition) -> deque[Row]:
        return self._kept.setdefault(partition, deque(maxlen=MAX_EVENTS_PER_PARTITION))

    def copy(self) -> dict[int, EventKey]:
        """All that are kept, by number."""
        return {row[0]: EventKey(name, *row[1:]) for name, rows in self._kept.items() for row in rows}

    def to_list(self) -> list[Any]:
        """Convert to types of JSON."""
        return [[*name, [list(row) for row in rows]] for name, rows in self._kept.items()]

    @classmethod
    def from_list(cls, saved: Iterable[Any]) -> EventKeys:
        """Read what `to_list` wrote."""
        found = cls()
        for topic, partition, rows in saved:
            found._rows((topic, partition)).extend((*row,) for row in rows)
        return found

    @classmethod
    def in_positions(cls, positions: Mapping[str, Any] | None) -> EventKeys:
        """Read the keys saved with the positions of a checkpoint; older ones have none."""
        return cls.from_list((positions or {}).get("keys", ()))


def at_places(column: Sequence[Any] | None, places: Sequence[int]) -> Iterable[Any]:
    """Values of a column at some places; None for each if there is no column."""
    return repeat(None) if column is None else map(column.__getitem__, places)
