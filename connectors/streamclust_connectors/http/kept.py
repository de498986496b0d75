"""Cache of costly values, so that frequent requests do not slow down the stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from streamclust_connectors.handing import HandedLock

T = TypeVar("T")

LOCK_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for the loop's lock before answering that the service is busy."""
MIN_KEPT_SECONDS = 0.9
"""Default lower bound on how long a value is cached."""
KEPT_PER_MAKING = 30.0
"""A value is cached for so many times its computing time, which bounds the share of time the loop is blocked."""
MAX_KEPT_SECONDS = 5.0
"""Upper bound on how long a value is cached, so that slow values stay current on a busy machine."""


class Kept(Generic[T]):
    """A value computed under the loop's lock, and cached while what it is `of` stays equal."""

    def __init__(
        self,
        lock: HandedLock,
        make: Callable[[], T],
        shortest: float = MIN_KEPT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        of: Callable[[], object] = lambda: None,
    ) -> None:
        self._lock, self._make, self._shortest, self._clock, self._of = lock, make, shortest, clock, of
        self._found: tuple[float, object, T] | None = None

    def __call__(self) -> T:
        """The value, recomputed if its cache time is over."""
        found = self._found
        if found is not None and self._holds(found):
            return found[-1]
        with self._lock.within(LOCK_TIMEOUT_SECONDS):
            found = self._found  # somebody else may have made it meanwhile
            if found is None or not self._holds(found):
                start, of = self._clock(), self._of()
                value = self._make()
                took = self._clock() - start
                keep = min(max(self._shortest, KEPT_PER_MAKING * took), max(self._shortest, MAX_KEPT_SECONDS))
                self._found = found = start + took + keep, of, value
        return found[-1]

    def _holds(self, found: tuple[float, object, T]) -> bool:
        until, of, _ = found
        return self._clock() < until and of == self._of()

    def forget(self) -> None:
        """Recompute at the next call. The caller must hold the lock."""
        self._found = None
