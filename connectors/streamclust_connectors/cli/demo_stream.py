"""The stream of the demo: clusters move, one is born, one splits, two merge, one dies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from streamclust_connectors.interfaces import Assigned, Batch, Partition, Revoked
from streamclust_connectors.sources import MAX_POLL_RECORDS, IteratorSource
from streamclust_connectors.synthetic import Drift, Floats, Track

Point = tuple[float, float]
DELIVERY_SECONDS = 0.05
"""Time span of the events delivered by one poll; polls of single events would keep the service busy."""


class DemoStream(Drift):
    """Clusters in two features, with every kind of lifecycle event."""

    def __init__(self, n_events: int, seed: int = 8) -> None:
        self.n_events = n_events
        self._rng = np.random.default_rng(seed)
        self.tracks = [
            track(0.0, 1.0, (-13, 2), (-5, 11), shape(1.6, 0.7, turned=0.8)),  # moves
            track(0.0, 1.0, (13, -9), (14, 2), shape(1.2, 0.6, turned=-0.5)),
            track(0.2, 1.0, (2, 9), (4, 6), shape(1.3, 0.6, turned=1.2)),  # is born
            track(0.0, 0.35, (0, 0), (1, -1), shape(1.2, 1.2)),  # splits in the next two
            track(0.35, 1.0, (1, -1), (2, -1), shape(0.9, 0.9), apart=(-4, 2)),
            track(0.35, 1.0, (1, -1), (2, -1), shape(0.9, 0.9), apart=(3, -3)),
            track(0.0, 0.6, (12, 10), (9, 12), shape(1.0, 1.0)),  # dies
            track(0.0, 0.75, (-14, -12), (-6.6, -12), shape(1.0, 0.9)),  # these two merge into the last
            track(0.0, 0.75, (0, -13), (-6, -12), shape(1.1, 0.8, turned=0.4)),
            track(0.75, 1.0, (-6.3, -12), (-6.3, -12), shape(1.1, 0.9, turned=0.2)),
        ]


def track(first: float, last: float, start: Point, end: Point, root: Floats, apart: Point = (0, 0)) -> Track:
    """A cluster that moves from `start` at time `first` to `end` at time `last`."""
    path = (np.array(end, dtype=float) - start) / (last - first)
    return Track(first, last, start - first * path, path, root, np.array(apart, dtype=float))


def shape(long: float, short: float, turned: float = 0.0) -> Floats:
    """Deviations of an ellipse along its axes, turned by an angle."""
    c, s = math.cos(turned), math.sin(turned)
    return np.array([[c, -s], [s, c]]) @ np.diag([long, short])


class PacedSource(IteratorSource):
    """A drifting stream that delivers `rate` events per second.

    `observer`, if set, is called with the events of each poll and their true clusters, before they are learnt.
    """

    def __init__(
        self,
        stream: Callable[[], Drift],
        rate: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__("synthetic")
        self.stream, self.rate = stream, rate
        self.observer: Callable[[Floats, Sequence[int]], object] | None = None
        self._clock, self._sleep = clock, sleep
        self._start: float | None = None
        self._drawn: list[tuple[list[float], int]] = []

    def values(self) -> Iterator[bytes]:
        """The events as JSON objects of x and y."""
        for events, labels in self.stream().batches(MAX_POLL_RECORDS):
            for (x, y), label in zip(events.tolist(), labels.tolist(), strict=True):
                self._drawn.append(([x, y], label))
                yield msgspec.json.encode({"x": x, "y": y})

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """Events that are due."""
        if self._values is None:
            return super().poll(seconds)
        due = self._due()
        if due < max(1.0, self.rate * DELIVERY_SECONDS) and due < math.inf:
            self._sleep(min(seconds, DELIVERY_SECONDS))
            return []
        self.size = int(min(due, MAX_POLL_RECORDS))
        self._drawn.clear()
        found = super().poll(seconds)
        if self._drawn and self.observer is not None:
            rows, labels = zip(*self._drawn, strict=True)
            self.observer(np.array(rows), labels)
        return found

    def _due(self) -> float:
        """Number of events due and not yet delivered."""
        if self._start is None:
            self._start = self._clock()
        return math.inf if self.rate == math.inf else (self._clock() - self._start) * self.rate - self._at

    def lag(self) -> dict[Partition, int]:
        """Number of due events that were not delivered yet."""
        if self._start is None or self.rate == math.inf or self.finished:
            return {}
        return {self.partition: max(0, int(self._due()))}
