"""The order in which the records of several partitions are learnt, kept so that a restart learns them in that order.

A model depends on the order of its events. Within a partition that is the order of offsets; which partition comes next
is chance. So it is noted before the records are learnt, and a restart, which learns the records since the checkpoint
again, gives the same versions and clusters as before.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from streamclust_connectors.interfaces import Assigned, Batch, Partition, Record, ReplayStep, Revoked

MAX_HELD_RECORDS = 500_000
"""Number of records that may wait for their turn."""
PATIENCE_SECONDS = 30.0
"""Time without progress after which the order is given up: a partition may be assigned elsewhere now."""

log = logging.getLogger(__name__)


def steps_of(batches: Iterable[Assigned | Revoked | Batch]) -> list[ReplayStep]:
    """The steps that learning these batches takes."""
    return [
        ReplayStep(item.partition, item.records[-1].offset + 1)
        for item in batches
        if isinstance(item, Batch) and item.records
    ]


def steps_to_take(noted: Iterable[ReplayStep], offsets: Mapping[Partition, int]) -> list[ReplayStep]:
    """The noted steps beyond these offsets, each once; none if they are of one partition, whose order is known.

    >>> steps = [ReplayStep(("a", 0), 2), ReplayStep(("b", 0), 1), ReplayStep(("a", 0), 2), ReplayStep(("a", 0), 3)]
    >>> [(name, end) for (name, _), end in steps_to_take(steps, {("b", 0): 0})]
    [('a', 2), ('b', 1), ('a', 3)]
    """
    reached, found = dict(offsets), []
    for step in noted:
        if step.end > reached.get(step.partition, 0):
            reached[step.partition] = step.end
            found.append(step)
    return found if len({step.partition for step in found}) > 1 else []


class ReplayOrder:
    """Holds batches back until their turn.

    >>> from streamclust_connectors.interfaces import Message
    >>> a, b = ("events", 0), ("events", 1)
    >>> order = ReplayOrder([ReplayStep(a, 2), ReplayStep(b, 1), ReplayStep(a, 3)])
    >>> records = [Message(offset, b"{}") for offset in range(4)]
    >>> [(one.partition[1], len(one.records)) for one in order.arrange([Batch(b, records[:1])])]
    []
    >>> [(one.partition[1], len(one.records)) for one in order.arrange([Batch(a, records)])]
    [(0, 2), (1, 1), (0, 1), (0, 1)]
    """

    def __init__(self, steps: Iterable[ReplayStep], clock: Callable[[], float] = time.monotonic) -> None:
        self._steps, self._clock = deque(steps), clock
        self._held: dict[Partition, list[Record]] = {}
        self._moved = clock()

    @property
    def over(self) -> bool:
        """Whether every noted step was taken, and nothing is held back."""
        return not self._steps and not self._held

    def arrange(self, polled: Sequence[Assigned | Revoked | Batch]) -> list[Assigned | Revoked | Batch]:
        """Put batches in the noted order, as far as they have come; the rest is held back."""
        if self.over:
            return list(polled)
        found: list[Assigned | Revoked | Batch] = []
        for item in polled:
            if isinstance(item, Batch):
                self._held.setdefault(item.partition, []).extend(item.records)
                continue
            if isinstance(item, Revoked) and {step.partition for step in self._steps} & set(item.partitions):
                self._give_up("a partition was revoked")
            for partition in item.partitions:
                self._held.pop(partition, None)
            found.append(item)
        while self._steps and (batch := self._next()) is not None:
            found.append(batch)
            self._moved = self._clock()
        if self._steps and self._clock() - self._moved > PATIENCE_SECONDS:
            self._give_up(f"no record came for {PATIENCE_SECONDS:g} s")
        if self._steps and sum(map(len, self._held.values())) > MAX_HELD_RECORDS:
            self._give_up("too many records are waiting")
        if not self._steps:
            found += [Batch(partition, records) for partition, records in self._held.items() if records]
            self._held = {}
        return found

    def _next(self) -> Batch | None:
        """The records of the first step, or a part of them; None if none have come."""
        partition, end = self._steps[0]
        records = self._held.get(partition, [])
        cut = bisect_left(records, end, key=lambda record: record.offset)
        taken, left = records[:cut], records[cut:]
        if left or (taken and taken[-1].offset + 1 >= end):
            self._steps.popleft()
        elif not taken:
            return None
        self._held[partition] = left
        return Batch(partition, taken)

    def _give_up(self, why: str) -> None:
        """Take the records as they come; versions may then differ from those that were told before the restart."""
        if self._steps:
            log.warning("records since the checkpoint are learnt in another order than before: %s", why)
            self._steps.clear()
