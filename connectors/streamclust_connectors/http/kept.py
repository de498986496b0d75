"""What is costly to read is kept for a while, so that asking often does not slow the stream down."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from streamclust_connectors.handing import HandedLock

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds to wait for the loop before the service is too busy."""
SHORTEST = 0.9
"""Seconds that a value is kept at least, unless said otherwise."""
SHARE = 30.0
"""It is kept so many times as long as it took to make: however often it is asked for, the loop waits no more."""
LONGEST = 5.0
"""Seconds after which it is made anew all the same: on a busy machine what is slow to make would stand still."""


class Kept(Generic[T]):
    """Something made under the loop's lock, and kept for a while."""

    def __init__(
        self,
        lock: HandedLock,
        make: Callable[[], T],
        shortest: float = SHORTEST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock, self._make, self._shortest, self._clock = lock, make, shortest, clock
        self._found: tuple[float, T] | None = None

    def __call__(self) -> T:
        """The value, made anew if it is due."""
        found = self._found
        if found is not None and self._clock() < found[0]:
            return found[1]
        with self._lock.within(PATIENCE):
            found = self._found  # somebody else may have made it meanwhile
            start = self._clock()
            if found is None or start >= found[0]:
                value = self._make()
                took = self._clock() - start
                keep = min(max(self._shortest, SHARE * took), max(self._shortest, LONGEST))
                self._found = found = start + took + keep, value
        return found[1]

    def forget(self) -> None:
        """Make it anew next time. For whoever holds the lock."""
        self._found = None
