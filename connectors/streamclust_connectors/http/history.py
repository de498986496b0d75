"""History of the service: one sample per second, thinned with age, and a journal of lifecycle events."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from streamclust.lineage import MAX_EVENTS, Change

MAX_SAMPLES = 600
"""Number of samples kept."""
TREND_SECONDS = 60.0
"""Seconds over which the trend of a share is measured."""


@dataclass(frozen=True)
class Sample:
    """Figures of the service at one moment."""

    at: float
    """Seconds since 1970."""
    events: int
    events_per_second: float
    lag: int | None
    memory_bytes: int
    novelty: float | None
    """The mean novelty of the latest events."""
    novelty_high: float | None
    """95th percentile of the novelty."""
    shares: dict[int, float] = field(default_factory=dict)
    """Shares of the clusters, by id."""
    finest: dict[int, float] = field(default_factory=dict)
    """Shares of the finest clusters, of which those of any level are made."""


class SampleHistory:
    """At most MAX_SAMPLES samples; beyond that, every other one of the older half is removed.

    >>> history = SampleHistory()
    >>> for second in range(10_000):
    ...     history.add(Sample(second, 0, 0.0, None, 0, None, None))
    >>> len(history.since()["at"]) <= MAX_SAMPLES, history.since(9997.0)["at"]
    (True, [9998, 9999])
    """

    def __init__(self) -> None:
        self._samples: tuple[Sample, ...] = ()  # replaced, never modified: several threads read it

    def add(self, sample: Sample) -> None:
        """Append a sample."""
        kept = self._samples
        if len(kept) >= MAX_SAMPLES:
            kept = kept[: MAX_SAMPLES // 2 : 2] + kept[MAX_SAMPLES // 2 :]
        self._samples = (*kept, sample)

    def since(
        self, moment: float = float("-inf"), parents: Mapping[int, int] | None = None
    ) -> dict[str, list[Any]]:
        """Samples after a time, as columns; the shares are those of a level if `parents` has the ids of its clusters.

        Finest clusters that there are no longer have no parent, and are in no share of a level.
        """
        samples = self._samples
        samples = samples[bisect_right(samples, moment, key=lambda sample: sample.at) :]
        columns = [column.name for column in fields(Sample) if column.name != "finest"]
        found = {name: [getattr(sample, name) for sample in samples] for name in columns}
        if parents is not None:
            found["shares"] = [added_up(sample.finest, parents) for sample in samples]
        return found

    def shares_before(self, now: float) -> dict[int, float]:
        """Shares of the clusters TREND_SECONDS ago, or at the oldest sample."""
        samples = [sample for sample in self._samples if sample.shares]
        if not samples:
            return {}
        return samples[
            max(0, bisect_right(samples, now - TREND_SECONDS, key=lambda sample: sample.at) - 1)
        ].shares


def added_up(shares: Mapping[int, float], parents: Mapping[int, int]) -> dict[int, float]:
    """Shares of the clusters at a level.

    >>> added_up({0: 0.25, 1: 0.5, 2: 0.25}, {0: 0, 1: 1, 2: 0})
    {0: 0.5, 1: 0.5}
    """
    found: dict[int, float] = {}
    for cluster, share in shares.items():
        if cluster in parents:
            found[parents[cluster]] = found.get(parents[cluster], 0.0) + share
    return found


class Journal:
    """The latest MAX_EVENTS lifecycle events, numbered from 1.

    A service that reloads its checkpoint learns some events again, and the same changes happen again. Only changes at a
    later event than all known ones are added.
    """

    def __init__(self) -> None:
        self._entries: deque[tuple[int, Change]] = deque(maxlen=MAX_EVENTS)
        self.last = 0
        self.counts: Counter[str] = Counter()

    def update(self, changes: Iterable[Change]) -> None:
        """Append the new entries of a log of changes, the oldest first."""
        latest = self._entries[-1][1].at if self._entries else -1
        known = [change for _, change in self._entries if change.at == latest]
        for change in changes:
            if change.at > latest or (change.at == latest and change not in known):
                self.last += 1
                self.counts[change.kind] += 1
                self._entries.append((self.last, change))

    def after(self, number: int, limit: int | None = None) -> list[dict[str, Any]]:
        """Entries after a sequence number, as JSON."""
        later = ((seq, change) for seq, change in tuple(self._entries) if seq > number)
        return [{"seq": seq} | change.to_dict() for seq, change in islice(later, limit)]
