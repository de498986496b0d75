"""Cache of expensive values, so that frequent requests do not slow down the stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from streamclust_connectors.service.fair_lock import FairLock

T = TypeVar("T")

LOCK_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for the service loop before the response says that the service is busy."""
MIN_CACHED_SECONDS = 0.9
"""Default lower bound on how long a value is cached."""
CACHED_PER_COMPUTING = 30.0
"""Ratio of cache time to computing time, which bounds the share of time that the loop is blocked."""
MAX_CACHED_SECONDS = 5.0
"""Upper bound on how long a value is cached, so that slow values stay current on a busy machine."""


class CachedValue(Generic[T]):
    """A value computed under the loop's lock, and cached for a time while `key` returns the same."""

    def __init__(
        self,
        lock: FairLock,
        compute: Callable[[], T],
        min_seconds: float = MIN_CACHED_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        key: Callable[[], object] = lambda: None,
    ) -> None:
        self._lock, self._compute, self._min_seconds, self._clock, self._key = (
            lock, compute, min_seconds, clock, key,
        )  # fmt: skip
        self._cached: tuple[float, object, T] | None = None
        """Time of expiry, key and value."""

    def __call__(self) -> T:
        """The value, recomputed if it has expired."""
        cached = self._cached
        if cached is not None and self._is_valid(cached):
            return cached[-1]
        with self._lock.within(LOCK_TIMEOUT_SECONDS):
            cached = self._cached  # another thread may have computed it meanwhile
            if cached is None or not self._is_valid(cached):
                start, key = self._clock(), self._key()
                value = self._compute()
                took = self._clock() - start
                least, most = self._min_seconds, max(self._min_seconds, MAX_CACHED_SECONDS)
                keep = min(max(least, CACHED_PER_COMPUTING * took), most)
                self._cached = cached = start + took + keep, key, value
        return cached[-1]

    def last(self) -> T | None:
        """The value computed last, however old; None before the first and after `key` has changed. Takes no lock."""
        cached = self._cached
        return None if cached is None or cached[1] != self._key() else cached[-1]

    def _is_valid(self, cached: tuple[float, object, T]) -> bool:
        expiry, key, _ = cached
        return self._clock() < expiry and key == self._key()

    def clear(self) -> None:
        """Recompute at the next call. The caller must hold the lock."""
        self._cached = None
