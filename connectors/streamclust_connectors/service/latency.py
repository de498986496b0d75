"""Histogram of the time from a record's timestamp to its outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamclust_connectors.interfaces import Record

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
"""Upper bounds of the buckets, in seconds; one more bucket holds all that is above."""


class LatencyHistogram:
    """Counts latencies by bucket.

    >>> from streamclust_connectors.interfaces import Message
    >>> histogram = LatencyHistogram()
    >>> histogram.observe([Message(0, b"", timestamp=1000), Message(1, b"", timestamp=0), Message(2, b"")], now=1.2)
    >>> histogram.total, histogram.cumulative[4:9]
    (1.4, [1, 1, 1, 2, 2])
    """

    def __init__(self) -> None:
        self._counts = np.zeros(len(BOUNDS) + 1, dtype=np.int64)
        self._total = 0.0

    def observe(self, records: Sequence[Record], now: float) -> None:
        """Count the latencies of records whose outputs are sent at `now`, in seconds since 1970."""
        stamps = [
            record.timestamp for record in records if record.timestamp is not None and record.timestamp >= 0
        ]
        if stamps:
            seconds = np.maximum(now - np.array(stamps) / 1000.0, 0.0)
            self._counts += np.bincount(np.searchsorted(BOUNDS, seconds), minlength=len(self._counts))
            self._total += float(seconds.sum())

    @property
    def cumulative(self) -> list[int]:
        """Number of latencies up to each bound, and of all."""
        return [int(count) for count in np.cumsum(self._counts)]

    @property
    def total(self) -> float:
        """Sum of all latencies, in seconds."""
        return round(self._total, 6)
