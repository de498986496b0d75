"""Rows that searches for features read: a uniform sample of a stream, and its latest events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.utils.state import Arrays

SAVED = ("rows", "keys", "times")


class FeatureSample:
    """At most `size` rows drawn uniformly (with forgetting: in proportion to weight), and the latest `size` ones.

    Each row has a random key; those of the smallest keys are the uniform sample. What happened before event `since` no
    longer holds: those rows are dropped.
    """

    def __init__(self, size: int, n_columns: int = 0) -> None:
        self.size = size
        self.since = 0
        self.rows: Floats = np.zeros((0, n_columns))
        self.keys: Floats = np.zeros(0)
        self.times: Floats = np.zeros(0)
        """Event count of each row, in order."""

    def add(self, rows: Floats, keys: Floats, times: Floats) -> None:
        """Add rows with their keys, later than all others."""
        self.rows, self.keys, self.times = (
            np.concatenate(pair) for pair in ((self.rows, rows), (self.keys, keys), (self.times, times))
        )
        latest = self.times > self.times.max(initial=0.0) - self.size
        self._take(latest | self._drawn())

    def _drawn(self) -> Bools:
        drawn = np.zeros(len(self.keys), dtype=bool)
        drawn[np.argsort(self.keys, kind="stable")[: self.size]] = True
        return drawn

    def _take(self, kept: Bools | Ints) -> None:
        self.rows, self.keys, self.times = self.rows[kept], self.keys[kept], self.times[kept]

    def begin(self, since: int) -> None:
        """Drop the rows up to event `since`, unless a later beginning is known."""
        if since > self.since:
            self.since = since
            self._take(self.times > since)

    def read(self) -> Floats:
        """The uniform sample of the events since `since`."""
        return np.asarray(self.rows[self._drawn()])

    def widen(self, n_columns: int) -> None:
        """Make room for columns that rows have brought since."""
        more = max(n_columns - self.rows.shape[1], 0)
        self.rows = np.pad(self.rows, ((0, 0), (0, more)), constant_values=np.nan)

    def shift(self, by: int, per_event: float) -> None:
        """Add `by` to the numbers of all events, and keep their weights as of the last one."""
        self.times, self.keys, self.since = self.times + by, self.keys - per_event * by, self.since + by

    def merge(self, other: Self) -> None:
        """Take another stream's rows, too; both end at the same event count."""
        self.rows, self.keys, self.times = (
            np.concatenate([getattr(self, name), getattr(other, name)]) for name in SAVED
        )
        order = np.argsort(self.times, kind="stable")
        self._take(order)
        self.since = min(self.since, other.since)
        self.add(self.rows[:0], self.keys[:0], self.times[:0])

    def to_arrays(self) -> Arrays:
        """Complete state but for `since`."""
        return {name: getattr(self, name).copy() for name in SAVED}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], size: int, since: int) -> Self:
        """The sample that `to_arrays` saved; KeyError, TypeError or ValueError if it is none."""
        sample = cls(size)
        for name in SAVED:
            setattr(sample, name, np.array(arrays[name], dtype=float))
        n = len(sample.keys)
        if sample.rows.ndim != 2 or not len(sample.rows) == len(sample.times) == n:
            raise ValueError("its arrays do not fit each other")
        if not np.isfinite(sample.keys).all() or not np.isfinite(sample.times).all():
            raise ValueError("its sample has keys that are not finite")
        sample.since = since
        return sample
