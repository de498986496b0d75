"""What was: a sample of every second, thinned as it ages, and the journal of what became of clusters."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from typing import Any

from streamclust.lineage import KEPT, Change

CAPACITY = 600
"""Samples that are kept."""
TREND = 60.0
"""Seconds that a trend looks back."""


@dataclass(frozen=True)
class Sample:
    """How things stood at one moment."""

    at: float
    """Seconds since 1970."""
    events: int
    events_per_second: float
    lag: int | None
    memory_bytes: int
    novelty: float | None
    """The mean novelty of the latest events."""
    novelty_high: float | None
    """Its 95th percentile."""
    shares: dict[int, float] = field(default_factory=dict)
    """Of the clusters, by id."""


class History:
    """At most CAPACITY samples; when there would be more, every other one of the older half goes.

    >>> history = History()
    >>> for second in range(10_000):
    ...     history.add(Sample(second, 0, 0.0, None, 0, None, None))
    >>> len(history.since()["at"]) <= CAPACITY, history.since(9997.0)["at"]
    (True, [9998, 9999])
    """

    def __init__(self) -> None:
        self._samples: tuple[Sample, ...] = ()  # replaced, never changed: it is read by several threads

    def add(self, sample: Sample) -> None:
        """Keep a sample, the latest of all."""
        kept = self._samples
        if len(kept) >= CAPACITY:
            kept = kept[: CAPACITY // 2 : 2] + kept[CAPACITY // 2 :]
        self._samples = (*kept, sample)

    def since(self, moment: float = float("-inf")) -> dict[str, list[Any]]:
        """The samples after a moment, column by column."""
        samples = self._samples
        samples = samples[bisect_right(samples, moment, key=lambda sample: sample.at) :]
        rows = [asdict(sample) for sample in samples]
        return {column.name: [row[column.name] for row in rows] for column in fields(Sample)}

    def shares_before(self, now: float) -> dict[int, float]:
        """The shares as they were TREND seconds ago, or as long ago as is known."""
        samples = [sample for sample in self._samples if sample.shares]
        if not samples:
            return {}
        return samples[max(0, bisect_right(samples, now - TREND, key=lambda sample: sample.at) - 1)].shares


class Journal:
    """The lifecycle events, numbered from 1; the latest KEPT of them.

    A loop that returns to its checkpoint learns some events anew, and the same changes happen anew. So only those
    count that come at a later event than all before.
    """

    def __init__(self) -> None:
        self._entries: deque[tuple[int, Change]] = deque(maxlen=KEPT)
        self.last = 0
        self.counts: Counter[str] = Counter()

    def update(self, changes: Iterable[Change]) -> None:
        """Take note of what is new in a log of changes, the oldest first."""
        latest = self._entries[-1][1].at if self._entries else -1
        known = [change for _, change in self._entries if change.at == latest]
        for change in changes:
            if change.at > latest or (change.at == latest and change not in known):
                self.last += 1
                self.counts[change.kind] += 1
                self._entries.append((self.last, change))

    def after(self, number: int, limit: int | None = None) -> list[dict[str, Any]]:
        """What came after an entry, as JSON can hold it."""
        later = ((seq, change) for seq, change in tuple(self._entries) if seq > number)
        return [{"seq": seq} | change.to_dict() for seq, change in islice(later, limit)]
