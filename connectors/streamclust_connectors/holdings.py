"""State of the service: assigned partitions, their offsets and the model, kept consistent through rebalances."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Literal, cast

from streamclust.checkpoint import CheckpointError, State
from streamclust.lineage import Change
from streamclust_connectors.ports import (
    DataLoss,
    Extent,
    Partition,
    Place,
    Sink,
    Source,
    Store,
    StreamModel,
    Transient,
    places_to_save,
    saved_places,
)

log = logging.getLogger(__name__)

Start = Literal["earliest", "latest"]
OnDataLoss = Literal["fail", "continue"]


class Holdings:
    """The assigned partitions and the model that has learnt them, loaded and saved together."""

    def __init__(
        self,
        source: Source,
        sink: Sink,
        store: Store | None,
        learner: StreamModel,
        start: Start = "earliest",
        on_data_loss: OnDataLoss = "fail",
        isolate: bool = False,
    ) -> None:
        self.isolate = isolate
        """Whether a partition that cannot be read is set aside, while the others go on."""
        self.stopped: dict[Partition, str] = {}
        """Partitions set aside, and why."""
        self.source, self.sink, self.store = source, sink, store
        self.start, self.on_data_loss = start, on_data_loss
        self.on_event: Callable[[Change], object] | None = None
        self.learner = learner
        self.positions: dict[Partition, int] = {}
        """Next offset to learn of each assigned partition."""
        self.emitted: dict[Partition, int] = {}
        """Offset of each partition below which outputs were already sent."""
        self._places: dict[Partition, Place] = {}
        """Offset and topic id of each partition as loaded from the checkpoint."""
        self._waiting: dict[Partition, None] = {}
        self._leaving: dict[Partition, tuple[Place, State]] = {}
        """Summaries of revoked partitions that could not be written yet for their next owner."""
        self._saved: object = None
        """Value of `_mark` at the latest checkpoint."""
        self._fresh = learner.to_state()

    @property
    def out(self) -> dict[Partition, int]:
        """Offset up to which outputs of each partition were sent; beyond its position while records are replayed."""
        return {name: max(at, self.emitted[name]) for name, at in self.positions.items()}

    # ---------------------------------------------------------------- loading and saving

    def load(self) -> None:
        """Load the latest checkpoint, or start empty; assigned partitions will be sought to its offsets."""
        state: State | None = None if self.store is None else self.store.latest()
        waiting = dict.fromkeys([*self.positions, *self._waiting])
        self._waiting = {name: None for name in waiting if name not in self.stopped}
        self.positions, self.emitted = {}, {}
        self.learner = type(self.learner).from_state(state or self._fresh, on_event=self.on_event)
        self._places = {} if state is None else saved_places(state.values["positions"])
        self._leaving = {}  # the checkpoint has them too, and they are handed over from there
        self._saved = None if state is None else self._mark()

    @property
    def changed(self) -> bool:
        """Whether anything has changed since the latest checkpoint."""
        return self.store is not None and self._mark() != self._saved

    def _mark(self) -> object:
        """Changes whenever a record is read or a partition is assigned or revoked."""
        return self._all_places(), self.learner.n_seen, self.learner.shards

    def save(self) -> None:
        """Save the model and the offsets of its partitions, including those not yet sought.

        Revoked partitions are handed over first: until then the previous checkpoint, which holds them, must remain the
        latest.
        """
        if self.store is not None:
            self._hand_over_leaving()
            mark, places = self._mark(), self._all_places()
            self.store.save(self.learner.to_state(places_to_save(places)))
            self._saved = mark

    def _all_places(self) -> dict[Partition, Place]:
        return {name: self._place(name) for name in dict.fromkeys([*self.positions, *self._places])}

    def _place(self, partition: Partition) -> Place:
        place = self._places[partition]
        return place._replace(offset=self.positions.get(partition, place.offset))

    # ---------------------------------------------------------------- coming

    def take(self, partitions: Collection[Partition]) -> None:
        """Add assigned partitions; `begin` seeks them."""
        self._waiting.update(dict.fromkeys(partitions))

    def begin(self) -> None:
        """Seek each new partition to its last saved offset. Can be retried if it fails."""
        if not self._waiting:
            return
        if self.store is not None:
            for shard in set(self.learner.shards) - {*self.positions, *self._waiting}:
                self._leave(cast(Partition, shard))  # ours before a restart, no longer so now
            self._try_to_hand_over()
        for partition in list(self._waiting):
            try:
                self._begin_one(partition)
            except Transient as error:
                if not self.isolate:
                    raise
                log.info("%s-%d begins later: %s", *partition, error)
                # After the others, and in another turn: one try takes seconds, and the client must poll.
                self._waiting[partition] = self._waiting.pop(partition)
                return
            except (DataLoss, CheckpointError) as error:
                if not self.isolate:
                    raise
                self.set_aside(partition, str(error))

    def _begin_one(self, partition: Partition) -> None:
        self._adopt(partition)
        place = self._sound(partition, self.source.extent(partition))
        committed = self.sink.committed(partition) if self.sink.exactly_once else None
        self.source.seek(partition, place.offset)
        self._places[partition] = place
        self.positions[partition] = place.offset
        self.emitted[partition] = place.offset if committed is None else committed
        del self._waiting[partition]

    def set_aside(self, partition: Partition, reason: str) -> None:
        """Stop reading a partition while it is assigned here; the others continue."""
        log.error("%s-%d is not read any more, the other partitions are: %s", *partition, reason)
        self.stopped[partition] = reason
        self._waiting.pop(partition, None)

    def _adopt(self, partition: Partition) -> None:
        """Adopt another process's summary of a partition if its offset is larger than the one known here."""
        known = self._places.get(partition)
        left = self._leaving.get(partition), None if self.store is None else self.store.find(partition)
        found = max((one for one in left if one is not None), key=lambda one: one[0].offset, default=None)
        self._leaving.pop(partition, None)
        if found is None or (known is not None and found[0].offset <= known.offset):
            return
        if partition in self.learner.shards:
            self.learner.release(partition)
        self._places[partition], summary = found
        self.learner.adopt(partition, summary)

    def _sound(self, partition: Partition, extent: Extent) -> Place:
        """Offset to start from. If its record is gone: DataLoss or, with on_data_loss="continue", the oldest offset."""
        place = self._places.get(partition)
        if place is None:
            return Place(
                extent.first if self.start == "earliest" else extent.end, extent.topic_id, extent.n_partitions
            )
        lost = loss(partition, place, extent)
        if lost and self.on_data_loss == "fail":
            raise DataLoss(
                f"{lost}. To go on with what there is and keep what was learnt, set on_data_loss to continue "
                "(--on-data-loss=continue); to begin anew, use another state directory or consumer group"
            )
        if lost:
            log.error("%s; going on, as on_data_loss says", lost)
        same = place.topic_id == extent.topic_id and extent.first <= place.offset <= extent.end
        return Place(place.offset if same else extent.first, extent.topic_id, extent.n_partitions)

    # ---------------------------------------------------------------- going

    def let_go(self, partitions: Collection[Partition]) -> None:
        """Release partitions, and save their summaries for their next owner."""
        for partition in partitions:
            self._waiting.pop(partition, None)
            self.stopped.pop(partition, None)
            if partition not in self.positions:
                continue
            self._places[partition] = self._place(partition)
            del self.positions[partition], self.emitted[partition]
            if self.store is not None and partition in self.learner.shards:
                self._leave(partition)  # without a store nobody else could take it over
        self._try_to_hand_over()

    def _leave(self, partition: Partition) -> None:
        self._leaving[partition] = self._places.pop(partition), self.learner.release(partition)

    def _try_to_hand_over(self) -> None:
        """Save the summaries of released partitions; if that fails, the next owner uses the latest checkpoint."""
        try:
            self._hand_over_leaving()
        except OSError as error:
            log.error("a partition could not be handed over (%s); the next checkpoint tries again", error)

    def _hand_over_leaving(self) -> None:
        for partition, (place, summary) in list(self._leaving.items()):
            assert self.store is not None
            self.store.hand_over(partition, place, summary)
            del self._leaving[partition]


def loss(partition: Partition, place: Place, extent: Extent) -> str:
    """Why records of a partition were lost since its offset was saved (topic recreated, truncated); else empty."""
    topic = partition[0]
    if place.topic_id != extent.topic_id:
        return f"topic {topic} was deleted and created anew since the checkpoint was written"
    if place.n_partitions != extent.n_partitions:
        return (
            f"topic {topic} had {place.n_partitions} partitions when the checkpoint was written and has "
            f"{extent.n_partitions} now: keys may have moved between them"
        )
    if place.offset < extent.first:
        return f"records {place.offset} to {extent.first - 1} of {topic}-{partition[1]} were deleted unlearnt"
    if place.offset > extent.end:
        return (
            f"{topic}-{partition[1]} ends before record {extent.end}, but records up to {place.offset - 1} were "
            "learnt: it was cut short"
        )
    return ""
