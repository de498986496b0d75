"""Keys and times of the events that may be shown as examples of clusters, beside the model, which has neither.

Events are known by their numbers in the stream. Members of a group number events each in its own way, so there they are
known by their values: events of the same values are equally good examples.
"""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamclust_connectors.decode import Decoded
from streamclust_connectors.interfaces import EventKey, Partition

MAX_EVENTS_PER_PARTITION = 4096
"""Number of the latest such events of a partition that are kept: as many as the model keeps of a shard."""


MAX_EXAMPLES = 5
"""Number of typical events shown for a cluster, and of events between it and its neighbour."""


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

    def restore(self, partition: Partition, rows: Iterable[Any]) -> None:
        """Have the events of a partition that `rows_of` gave."""
        self._kept.pop(partition, None)
        self._rows(partition).extend((*row,) for row in rows)

    def rows_of(self, partition: Partition) -> list[Any]:
        """The events of a partition, as types of JSON."""
        return [list(row) for row in self._kept.get(partition, ())]

    def drop(self, partition: Partition) -> None:
        """Forget the events of a partition."""
        self._kept.pop(partition, None)

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


def multiplier(name: Hashable) -> int:
    """An odd number of 64 bits for a feature."""
    digest = hashlib.blake2b(str(name).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1


def fingerprints(rows: ArrayLike, names: Sequence[Hashable]) -> list[int]:
    """A number for each row; features that are missing or 0 do not matter. Values count in single precision.

    >>> one, other = fingerprints([[1.0, 2.0, np.nan]], ["x", "y", "z"]), fingerprints([[2.0, 1.0]], ["y", "x"])
    >>> one == other != fingerprints([[1.0, 2.0]], ["y", "x"])
    True
    """
    values = np.nan_to_num(np.asarray(rows, dtype=np.float32), nan=0.0) + np.float32(0.0)
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    factors: NDArray[np.uint64] = np.array([multiplier(name) for name in names], dtype=np.uint64)
    with np.errstate(over="ignore"):
        found = (bits * factors).sum(axis=1, dtype=np.uint64)
    return [int(one) for one in found]


def fingerprint(values: Mapping[Hashable, float]) -> int:
    """The fingerprint of one event.

    >>> fingerprint({"y": 2.0, "x": 1.0}) == fingerprints([[1.0, 2.0]], ["x", "y"])[0]
    True
    """
    found = 0
    for name, value in values.items():
        if value == value and value != 0.0:
            (bits,) = struct.unpack("<I", struct.pack("<f", value))
            found += bits * multiplier(name)
    return found % 2**64
