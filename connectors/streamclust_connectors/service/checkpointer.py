"""Checkpoints of the service: when one is due, and retries if it cannot be written.

A failed checkpoint (a full disk, no file handles) does not stop the service. The previous checkpoint still holds a
state and its offsets, so a restart only has to replay more records. Outputs may be sent and committed beyond it, as
they are whenever a process is killed between two checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from streamclust_connectors.service.assigned_partitions import AssignedPartitions
from streamclust_connectors.service.policy import Policy
from streamclust_connectors.service.stats import Stats

log = logging.getLogger(__name__)


class Checkpointer:
    """Writes checkpoints of a service's partitions and model when they are due and something has changed."""

    def __init__(
        self, partitions: AssignedPartitions, stats: Stats, policy: Policy, clock: Callable[[], float]
    ) -> None:
        self.partitions, self.stats, self.policy = partitions, stats, policy
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

    def hasten(self) -> None:
        """Let the next checkpoint be due now, unless the last ones have failed."""
        if not self._failures:
            self._due = self._clock()

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
        """Write a checkpoint if anything has changed since the last one; returns the error if it failed."""
        failure = self._try()
        self._due = self._clock() + self.wait
        return failure

    def _try(self) -> OSError | None:
        if self.partitions.changed:
            try:
                with self.stats.timed("checkpoint"):
                    self.partitions.save()
            except OSError as error:
                self._note_failure(error)
                return error
            self.stats.checkpoints += 1
        if self._failures:
            log.info("checkpoints can be written again", extra={"failures": self._failures})
        self._failures, self._events = 0, self.stats.events
        self.stats.checkpoint_error = ""
        if self.partitions.store is not None:
            self.stats.last_checkpoint = self._clock()
        return None

    def _note_failure(self, error: OSError) -> None:
        stats = self.stats
        self._failures += 1
        stats.checkpoint_failures += 1
        stats.checkpoint_error = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        log.error("%s; trying again in %.1f s", checkpoint_failure_message(stats), self.wait)


def checkpoint_failure_message(stats: Stats) -> str:
    """Message: checkpoints cannot be written, the reason, and the age of the last one."""
    age = stats.checkpoint_age
    last = "this process has written none" if age is None else f"the last one is {age:.0f} s old"
    return f"no checkpoint can be written ({stats.checkpoint_error}); {last}"
