"""Keys and times of the events that may be shown as examples of clusters, beside the model, which has neither."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
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


class EventKeys:
    """The latest events of each partition by their number in the stream; bounded.

    >>> from streamclust_connectors.interfaces import Message
    >>> keys = EventKeys()
    >>> keys.add(("clicks", 0), [7], Decoded([{"x": 1.0}], [Message(3, b"")], keys=["anna"]), [0])
    >>> keys.copy()[7].id, keys.copy()[7].key
    ('clicks-0-3', 'anna')
    """

    def __init__(self) -> None:
        self._kept: dict[Partition, deque[tuple[int, EventKey]]] = {}

    def add(
        self, partition: Partition, numbers: Iterable[int], events: Decoded, places: Sequence[int]
    ) -> None:
        """Keep the events at these places of a batch, by their numbers in the stream."""
        for number, i in zip(numbers, places, strict=True):
            self._add(number, EventKey(partition, events.records[i].offset, *columns(events, i)))

    def _add(self, number: int, event: EventKey) -> None:
        kept = self._kept.setdefault(event.partition, deque(maxlen=MAX_EVENTS_PER_PARTITION))
        kept.append((number, event))

    def copy(self) -> dict[int, EventKey]:
        """All that are kept, by number."""
        return {number: event for kept in self._kept.values() for number, event in kept}

    def to_list(self) -> list[Any]:
        """Convert to types of JSON."""
        return [
            [*name, [[number, *event[1:]] for number, event in kept]] for name, kept in self._kept.items()
        ]

    @classmethod
    def from_list(cls, saved: Iterable[Any]) -> EventKeys:
        """Read what `to_list` wrote."""
        found = cls()
        for topic, partition, kept in saved:
            for number, offset, *rest in kept:
                found._add(int(number), EventKey((topic, partition), int(offset), *rest))
        return found

    @classmethod
    def in_positions(cls, positions: Mapping[str, Any] | None) -> EventKeys:
        """Read the keys saved with the positions of a checkpoint; older ones have none."""
        return cls.from_list((positions or {}).get("keys", ()))


def columns(events: Decoded, i: int) -> tuple[int | None, Any, float | None]:
    """Place in its record, key and time of an event."""
    return (
        None if events.numbers is None else events.numbers[i],
        None if events.keys is None else events.keys[i],
        None if events.times is None else events.times[i],
    )
