"""Duties of a member of a group besides learning: the leader publishes the model, all send their status."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamclust_connectors.interfaces import Group, MemberStatus, Source
from streamclust_connectors.service.assigned_partitions import AssignedPartitions
from streamclust_connectors.service.emitter import Emitter
from streamclust_connectors.service.readiness import by_name
from streamclust_connectors.service.stats import Stats

FIRST_MODEL_SECONDS = 1.0
"""Time between two checkpoints while the group has no model yet: the leader makes it from saved summaries."""


class GroupDuties:
    """Publishes the group's model and sends this process's status; both take effect with the sink's next commit."""

    def __init__(
        self,
        group: Group,
        partitions: AssignedPartitions,
        source: Source,
        emitter: Emitter,
        stats: Stats,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.group, self.partitions, self.source = group, partitions, source
        self._emitter, self._stats, self._clock = emitter, stats, clock
        self._first_model_due = clock()

    def publish_model(self) -> None:
        """As the leader, send the group's new model, if there is one, and its lifecycle events."""
        self.group.update_leadership(self.partitions.positions, self.partitions.waiting)
        if changes := self.group.publish():
            topic = next(iter(self.partitions.positions))[0]
            self._emitter.lifecycle(f"{topic}-model-{changes[0].version}", changes)

    def checkpoint_due(self) -> bool:
        """Whether to checkpoint now because the group has no model yet."""
        now = self._clock()
        if self.group.ready or not self.partitions.changed or now < self._first_model_due:
            return False
        self._first_model_due = now + FIRST_MODEL_SECONDS
        return True

    def send_status(self) -> None:
        """Send this process's status to the other members."""
        learner = self.partitions.learner
        self.group.send_status(
            MemberStatus(
                positions=by_name(self.partitions.positions),
                lag=by_name(self.source.lag()),
                stopped=by_name(self.partitions.stopped),
                events=sum(learner.shards.n_seen.values()),
                events_per_second=self._stats.rate,
                model_version=None if learner.model is None else learner.model.version,
            )
        )
