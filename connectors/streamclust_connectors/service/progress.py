"""How far the records of each partition were delivered, learnt and counted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

from streamclust_connectors.interfaces import Assigned, Batch, Partition, Record, Revoked


class Progress:
    """Offsets by partition since the start of the process, through failures that make it learn records again.

    >>> from streamclust_connectors.interfaces import Message
    >>> progress, name = Progress(), ("events", 0)
    >>> records = [Message(offset, b"{}") for offset in range(5)]
    >>> progress.deliver([Batch(name, records)])
    >>> progress.lag({name: 7}, {name: 2}, [])     # 7 records are not delivered, and 3 not learnt
    {('events', 0): 10}
    >>> progress.count(name, records[:2])
    >>> [len(part) for part in progress.split(Batch(name, records))]
    [2, 3]
    """

    def __init__(self) -> None:
        self._delivered: dict[Partition, int] = {}
        self._learnt: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._counted: dict[Partition, int] = {}

    def deliver(self, polled: Sequence[Assigned | Revoked | Batch]) -> None:
        """Note which records were delivered."""
        for item in polled:
            if isinstance(item, Batch) and item.records:
                self._delivered[item.partition] = item.records[-1].offset + 1

    def lag(
        self,
        undelivered: Mapping[Partition, int],
        positions: Mapping[Partition, int],
        waiting: Collection[Partition],
    ) -> dict[Partition, int]:
        """Number of records of each assigned partition not yet learnt, where known.

        Records that were delivered and not learnt count too, and those of partitions that wait to be read.
        """
        self._learnt |= positions
        found = {}
        for name, behind in undelivered.items():
            if (learnt := positions.get(name)) is not None:
                found[name] = behind + max(0, self._delivered.get(name, learnt) - learnt)
                self._ends[name] = learnt + found[name]
        for name in waiting:
            if name in self._ends:
                found[name] = max(0, self._ends[name] - self._learnt[name])
        return found

    def split(self, batch: Batch) -> tuple[Sequence[Record], Sequence[Record]]:
        """The records that were counted before, and the new ones."""
        counted = self._counted.get(batch.partition, 0)
        cut = bisect_left(batch.records, counted, key=lambda record: record.offset)
        return batch.records[:cut], batch.records[cut:]

    def count(self, partition: Partition, records: Sequence[Record]) -> None:
        """Note that these records were counted."""
        self._counted[partition] = records[-1].offset + 1
