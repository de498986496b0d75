"""When a checkpoint is due, and what happens when it cannot be written: the service goes on, and tries again.

A checkpoint that fails (a full disk, no file handles) costs nothing but the distance that a restart has to go back:
the one before it still holds a state and the positions that belong to it. So outputs may be sent and committed past
it, as they are whenever a process is killed between two checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from streamclust_connectors.holdings import Holdings
from streamclust_connectors.policy import Policy
from streamclust_connectors.stats import Stats

log = logging.getLogger(__name__)


class Checkpointer:
    """Writes checkpoints of what a service holds, when they are due and there is anything new in them."""

    def __init__(self, held: Holdings, stats: Stats, policy: Policy, clock: Callable[[], float]) -> None:
        self.held, self.stats, self.policy = held, stats, policy
        self._clock = clock
        self._due = clock() + policy.checkpoint_every
        self._failures = 0
        """Number of failed checkpoints in a row."""
        self._events = 0
        """Number of events learnt when the last checkpoint was written."""

    @property
    def due(self) -> bool:
        """Whether a checkpoint is due."""
        return self._clock() >= self._due or (not self._failures and self._enough_events())

    def _enough_events(self) -> bool:
        wanted = self.policy.checkpoint_events
        return wanted is not None and self.stats.events - self._events >= wanted

    @property
    def wait(self) -> float:
        """Seconds until the next checkpoint; after failures, the back-off of the policy."""
        if not self._failures:
            return self.policy.checkpoint_every
        return self.policy.wait_after(self._failures)

    def write(self) -> OSError | None:
        """Write a checkpoint if anything has changed since the last one; returns why it could not be written."""
        failure = self._try()
        self._due = self._clock() + self.wait
        return failure

    def _try(self) -> OSError | None:
        if self.held.changed:
            try:
                with self.stats.timed("checkpoint"):
                    self.held.save()
            except OSError as error:
                self._note_failure(error)
                return error
            self.stats.checkpoints += 1
        if self._failures:
            log.info("everything learnt is in a checkpoint again", extra={"failures": self._failures})
        self._failures, self._events = 0, self.stats.events
        self.stats.checkpoint_error = ""
        if self.held.store is not None:
            self.stats.last_checkpoint = self._clock()
        return None

    def _note_failure(self, error: OSError) -> None:
        stats = self.stats
        self._failures += 1
        stats.checkpoint_failures += 1
        stats.checkpoint_error = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        log.error("%s; trying again in %.1f s", unsaved(stats), self.wait)


def unsaved(stats: Stats) -> str:
    """Message: checkpoints cannot be written, the reason, and the age of the last one."""
    age = stats.checkpoint_age
    last = "this process has written none" if age is None else f"the last one is {age:.0f} s old"
    return f"no checkpoint can be written ({stats.checkpoint_error}); {last}"
