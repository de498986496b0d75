"""Assigned partitions, their offsets and the model that has learnt them, consistent through rebalances."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Literal, cast

from streamclust.checkpoint import CheckpointError, State
from streamclust.lineage import Change
from streamclust.streaming import StreamClusterer
from streamclust_connectors.event_keys import EventKeys
from streamclust_connectors.incidents import Incident
from streamclust_connectors.interfaces import (
    DataLoss,
    Extent,
    Partition,
    SavedPosition,
    Sink,
    Source,
    Store,
    Transient,
    positions_from_state,
    positions_to_state,
)
from streamclust_connectors.service.key_models import KeyModels, Learner
from streamclust_connectors.service.lookups import FoundState, Lookups

log = logging.getLogger(__name__)

Start = Literal["earliest", "latest"]
OnDataLoss = Literal["fail", "continue"]


class AssignedPartitions:
    """The assigned partitions and the model that has learnt them, loaded and saved together."""

    def __init__(
        self,
        source: Source,
        sink: Sink,
        store: Store | None,
        learner: Learner,
        start: Start = "earliest",
        on_data_loss: OnDataLoss = "fail",
        isolate: bool = False,
    ) -> None:
        self.isolate = isolate
        """Whether the other partitions continue if one cannot be read."""
        self.stopped: dict[Partition, str] = {}
        """Assigned partitions that are not read, and why."""
        self.source, self.sink, self.store = source, sink, store
        self.start, self.on_data_loss = start, on_data_loss
        self.on_event: Callable[[Change], object] | None = None
        self.learner: Learner = learner
        self.keys = EventKeys()
        """Keys of the events that may be shown as examples; of a process that learns alone."""
        self.positions: dict[Partition, int] = {}
        """Next offset to learn of each assigned partition."""
        self.emitted: dict[Partition, int] = {}
        """Offset of each partition below which outputs were already sent."""
        self._saved_positions: dict[Partition, SavedPosition] = {}
        """Offset and topic id of each partition as loaded from the checkpoint."""
        self.waiting: dict[Partition, str] = {}
        """Assigned partitions that are not read yet, in order, and why the last attempt to begin them failed."""
        self._lookups = Lookups(self._look_up, background=source.remote)
        self._trouble = Incident(log, "partitions cannot be read yet")
        self._released: dict[Partition, tuple[SavedPosition, State]] = {}
        """Summaries of revoked partitions that could not be written yet for their next owner."""
        self._saved_version: object = None
        """Value of `_version` at the latest checkpoint."""
        self._initial_state = learner.to_state()

    @property
    def saved_offsets(self) -> dict[Partition, int]:
        """Offset of each partition in the loaded checkpoint."""
        return {name: saved.offset for name, saved in self._saved_positions.items()}

    @property
    def output_positions(self) -> dict[Partition, int]:
        """Offset up to which outputs of each partition were sent; beyond its position while records are replayed."""
        return {name: max(at, self.emitted[name]) for name, at in self.positions.items()}

    # ---------------------------------------------------------------- loading and saving

    def load(self) -> None:
        """Load the latest checkpoint, or start empty; assigned partitions will be sought to its offsets."""
        state: State | None = None if self.store is None else self.store.latest()
        assigned = dict.fromkeys([*self.positions, *self.waiting], "")
        self._lookups.forget(assigned)
        self.waiting = {name: why for name, why in assigned.items() if name not in self.stopped}
        self.positions, self.emitted = {}, {}
        if isinstance(self.learner, KeyModels):
            self.learner.reset()
        else:
            self.learner = type(self.learner).from_state(state or self._initial_state, on_event=self.on_event)
        saved = None if state is None else state.values["positions"]
        self._saved_positions = {} if saved is None else positions_from_state(saved)
        self.keys = EventKeys.in_positions(saved)
        self._released = {}  # the checkpoint holds them too; seek_new hands them over from there
        self._saved_version = None if state is None else self._version()

    @property
    def changed(self) -> bool:
        """Whether anything has changed since the latest checkpoint."""
        return self.store is not None and self._version() != self._saved_version

    def _version(self) -> object:
        """A value that changes whenever a record is read, a partition is assigned or revoked, or a cluster is named."""
        named = self.learner.names if isinstance(self.learner, StreamClusterer) else {}
        return self._all_positions(), self.learner.n_seen, self.learner.shards.names, named

    def save(self) -> None:
        """Save the model and the offsets of its partitions, including those not yet sought.

        Revoked partitions are handed over first: until then the previous checkpoint, which holds them, must remain the
        latest.
        """
        if self.store is not None:
            self._hand_over_released()
            version, positions = self._version(), self._all_positions()
            saved = positions_to_state(positions) | {"keys": self.keys.to_list()}
            self.store.save(self.learner.to_state(saved))
            self._saved_version = version

    def _all_positions(self) -> dict[Partition, SavedPosition]:
        return {
            name: self._current_position(name)
            for name in dict.fromkeys([*self.positions, *self._saved_positions])
        }

    def _current_position(self, partition: Partition) -> SavedPosition:
        saved = self._saved_positions[partition]
        return saved._replace(offset=self.positions.get(partition, saved.offset))

    # ---------------------------------------------------------------- assigned partitions

    def add(self, partitions: Collection[Partition]) -> None:
        """Add assigned partitions; `seek_new` seeks them."""
        self._lookups.forget(partitions)
        self.waiting.update(dict.fromkeys(partitions, ""))

    def seek_new(self) -> None:
        """Seek each new partition to its last saved offset, if that is known by now. Can be retried if it fails."""
        if not self.waiting:
            self._trouble.end()
            return
        if self.store is not None:
            for shard in set(self.learner.shards) - {*self.positions, *self.waiting}:
                self._release(cast(Partition, shard))  # assigned here before a restart, and no longer
            self._try_to_hand_over()
        for partition in list(self.waiting):
            try:
                found = self._lookups.result(partition)
                if found is not None:
                    self._begin(partition, found)
            except Transient as error:
                if not (self.isolate or self._lookups.background):
                    raise
                self._trouble.note(f"{partition[0]}-{partition[1]}: {error}")
                self.waiting[partition] = str(error)
            except (DataLoss, CheckpointError) as error:
                if not self.isolate:
                    raise
                self.stop_partition(partition, str(error))

    def _look_up(self, partition: Partition) -> FoundState:
        """Everything needed to begin a partition; may run in another thread, and changes nothing here."""
        saved = None if self.store is None else self.store.find(partition)
        extent = self.source.extent(partition)
        return FoundState(saved, extent, self.sink.committed(partition) if self.sink.exactly_once else None)

    def _begin(self, partition: Partition, found: FoundState) -> None:
        self._adopt(partition, found.saved)
        start = self._start_position(partition, found.extent)
        self.source.seek(partition, start.offset)
        self._saved_positions[partition] = start
        self.positions[partition] = start.offset
        self.emitted[partition] = start.offset if found.committed is None else found.committed
        del self.waiting[partition]

    def stop_partition(self, partition: Partition, reason: str) -> None:
        """Stop reading a partition while it is assigned here; the others continue."""
        log.error("%s-%d is no longer read; the other partitions continue. Reason: %s", *partition, reason)
        self.stopped[partition] = reason
        self.waiting.pop(partition, None)

    def _adopt(self, partition: Partition, saved: tuple[SavedPosition, State] | None) -> None:
        """Adopt another process's summary of a partition if its offset is larger than the one known here."""
        known = self._saved_positions.get(partition)
        left = self._released.get(partition), saved
        found = max((one for one in left if one is not None), key=lambda one: one[0].offset, default=None)
        self._released.pop(partition, None)
        if found is None or (known is not None and found[0].offset <= known.offset):
            return
        if partition in self.learner.shards:
            self.learner.shards.release(partition)
        position, summary = found
        self.learner.shards.adopt(partition, summary)
        self.keys.restore(partition, summary.values.get("keys", ()))
        self._saved_positions[partition] = position

    def _start_position(self, partition: Partition, extent: Extent) -> SavedPosition:
        """Offset to start from. If its record is gone: DataLoss or, with on_data_loss="continue", the oldest offset."""
        saved = self._saved_positions.get(partition)
        if saved is None:
            from_first = self.start == "earliest" or self._was_added(partition)
            return SavedPosition(
                extent.first if from_first else extent.end, extent.topic_id, extent.n_partitions
            )
        lost = loss(partition, saved, extent)
        if lost and self.on_data_loss == "fail":
            raise DataLoss(
                f"{lost}. To keep the model and continue with the records that are left, set on_data_loss to continue "
                "(--on-data-loss=continue); to start afresh, use another state directory or consumer group"
            )
        if lost:
            log.error("%s; continuing, since on_data_loss is continue", lost)
        readable = saved.topic_id == extent.topic_id and extent.first <= saved.offset <= extent.end
        # The number of partitions stays what it was first, by which partitions are known that were added since.
        n_partitions = saved.n_partitions if readable else extent.n_partitions
        return SavedPosition(saved.offset if readable else extent.first, extent.topic_id, n_partitions)

    def _was_added(self, partition: Partition) -> bool:
        """Whether a partition was added to its topic after others were read: all of its records are new."""
        topic, number = partition
        return any(
            name == topic and saved.n_partitions <= number
            for (name, _), saved in self._saved_positions.items()
        )

    # ---------------------------------------------------------------- revoked partitions

    def revoke(self, partitions: Collection[Partition]) -> None:
        """Release partitions, and save their summaries for their next owner."""
        self._lookups.forget(partitions)
        for partition in partitions:
            self.waiting.pop(partition, None)
            self.stopped.pop(partition, None)
            if partition not in self.positions:
                continue
            self._saved_positions[partition] = self._current_position(partition)
            del self.positions[partition], self.emitted[partition]
            if self.store is not None and partition in self.learner.shards:
                self._release(partition)  # without a store, no other process could take it over
        self._try_to_hand_over()

    def close(self) -> None:
        """Look up no more partitions."""
        self._lookups.close()

    def _release(self, partition: Partition) -> None:
        self.keys.drop(partition)
        self._released[partition] = (
            self._saved_positions.pop(partition),
            self.learner.shards.release(partition),
        )

    def _try_to_hand_over(self) -> None:
        """Save the summaries of released partitions; if that fails, the next owner uses the latest checkpoint."""
        try:
            self._hand_over_released()
        except OSError as error:
            log.error(
                "a revoked partition could not be saved for its next owner (%s); the next checkpoint retries",
                error,
            )

    def _hand_over_released(self) -> None:
        for partition, (position, summary) in list(self._released.items()):
            assert self.store is not None
            self.store.hand_over(partition, position, summary)
            del self._released[partition]


def loss(partition: Partition, saved: SavedPosition, extent: Extent) -> str:
    """Why records of a partition were lost since its offset was saved (topic recreated, truncated); else empty."""
    topic = partition[0]
    if saved.topic_id != extent.topic_id:
        return f"topic {topic} was deleted and recreated since the checkpoint was written"
    if saved.n_partitions > extent.n_partitions:
        return (
            f"topic {topic} has {extent.n_partitions} partitions, but had {saved.n_partitions} when the checkpoint was "
            "written"
        )
    if saved.offset < extent.first:
        return (
            f"records {saved.offset} to {extent.first - 1} of {topic}-{partition[1]} were deleted before they were "
            "learnt"
        )
    if saved.offset > extent.end:
        return (
            f"{topic}-{partition[1]} ends before record {extent.end}, but records up to {saved.offset - 1} were "
            "learnt: the partition was truncated"
        )
    return ""
