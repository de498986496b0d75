"""One log line when a trouble begins and one when it ends, however often it is met in between."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

REMIND_SECONDS = 300.0
"""Time between two log lines about a trouble that lasts."""


class Incident:
    """A trouble that comes again until it is over.

    >>> clock = iter(range(100))
    >>> incident = Incident(logging.getLogger("doctest"), "reading is interrupted", lambda: next(clock))
    >>> incident.note("no broker"), incident.note("still none"), incident.failures
    (True, False, 2)
    >>> incident.end()
    >>> incident.under_way
    False
    """

    def __init__(self, log: logging.Logger, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self.what, self._clock = log, what, clock
        self.failures = 0
        """Number of failures since it began."""
        self._began = self._told = 0.0

    @property
    def under_way(self) -> bool:
        """Whether it has begun and is not over."""
        return self.failures > 0

    def note(self, reason: object) -> bool:
        """Count a failure; log it if it is the first, or the last log line was long ago. Returns whether it did."""
        now = self._clock()
        self.failures += 1
        if self.failures == 1:
            self._began = self._told = now
            self._log.warning("%s: %s; trying again", self.what, reason)
            return True
        if now - self._told >= REMIND_SECONDS:
            self._told = now
            self._log.warning(
                "%s for %.0f s: %s; trying again (failure %d)",
                *(self.what, now - self._began, reason, self.failures),
            )
            return True
        self._log.debug("%s: %s; trying again", self.what, reason)
        return False

    def end(self) -> None:
        """Log the end of the trouble, if there was any."""
        if self.failures:
            seconds = self._clock() - self._began
            self._log.info("over after %.1f s (%d failures): %s", seconds, self.failures, self.what)
            self.failures = 0
