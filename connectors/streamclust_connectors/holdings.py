"""What the service holds: partitions, where each stands, and what was learnt of them, through all rebalances."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any, Literal

from streamclust.checkpoint import State
from streamclust.lineage import Change
from streamclust.streaming import StreamClusterer
from streamclust_connectors.ports import DataLoss, Extent, Partition, Place, Sink, Source, Store

log = logging.getLogger(__name__)

Start = Literal["earliest", "latest"]
OnDataLoss = Literal["fail", "continue"]


class Holdings:
    """The partitions that are ours and the clusterer that has learnt them, loaded and saved together."""

    def __init__(
        self,
        source: Source,
        sink: Sink,
        store: Store | None,
        clusterer: StreamClusterer,
        start: Start = "earliest",
        on_data_loss: OnDataLoss = "fail",
    ) -> None:
        self.source, self.sink, self.store = source, sink, store
        self.start, self.on_data_loss = start, on_data_loss
        self.on_event: Callable[[Change], object] | None = None
        self.clusterer = clusterer
        self.positions: dict[Partition, int] = {}
        """The next record to learn of each partition that is ours."""
        self.emitted: dict[Partition, int] = {}
        """Outputs of records before this are out already."""
        self._places: dict[Partition, Place] = {}
        """Where each partition stood when it was loaded, and in which topic that was."""
        self._waiting: dict[Partition, None] = {}
        self._fresh = clusterer.to_state()

    @property
    def out(self) -> dict[Partition, int]:
        """How far the outputs of each partition are: while records are learnt again, farther than its position."""
        return {name: max(at, self.emitted[name]) for name, at in self.positions.items()}

    # ---------------------------------------------------------------- loading and saving

    def load(self) -> None:
        """Go to the latest checkpoint, or to the beginning; partitions that are ours are begun anew from there."""
        state: State | None = None if self.store is None else self.store.latest()
        self._waiting = dict.fromkeys([*self.positions, *self._waiting])
        self.positions, self.emitted = {}, {}
        self.clusterer = StreamClusterer.from_state(state or self._fresh, on_event=self.on_event)
        listed = [] if state is None else state.values["positions"]["next"]
        self._places = {(topic, number): Place(*place) for topic, number, *place in listed}

    def save(self) -> None:
        """Keep the clusterer and where its partitions stand, those too that are not yet begun."""
        if self.store is not None:
            names = dict.fromkeys([*self.positions, *self._places])
            self.store.save(
                self.clusterer.to_state({"next": [[*name, *self._place(name)] for name in names]})
            )

    def _place(self, partition: Partition) -> Place:
        place = self._places[partition]
        return place._replace(offset=self.positions.get(partition, place.offset))

    # ---------------------------------------------------------------- coming

    def take(self, partitions: Collection[Partition]) -> None:
        """These partitions are ours; `begin` begins them."""
        self._waiting.update(dict.fromkeys(partitions))

    def begin(self) -> None:
        """Begin each partition that waits where whoever had it last has left it. May be tried again if it fails."""
        if not self._waiting:
            return
        if self.store is not None:
            for shard in set(self.clusterer.shards) - {*self.positions, *self._waiting}:
                self._hand_over(shard)  # ours before a restart, no longer so now
        for partition in list(self._waiting):
            self._adopt(partition)
            place = self._sound(partition, self.source.extent(partition))
            committed = self.sink.committed(partition) if self.sink.exactly_once else None
            self.source.seek(partition, place.offset)
            self._places[partition] = place
            self.positions[partition] = place.offset
            self.emitted[partition] = place.offset if committed is None else committed
            del self._waiting[partition]

    def _adopt(self, partition: Partition) -> None:
        """Take over what another process has learnt of a partition, if it is farther than what is known here."""
        found = None if self.store is None else self.store.find(partition)
        known = self._places.get(partition)
        if found is None or (known is not None and found[0].offset <= known.offset):
            return
        if partition in self.clusterer.shards:
            self.clusterer.release(partition)
        self._places[partition], summary = found
        self.clusterer.adopt(partition, summary)

    def _sound(self, partition: Partition, extent: Extent) -> Place:
        """Where to begin; DataLoss if that is gone, unless told to continue: then with the oldest record there is."""
        place = self._places.get(partition)
        if place is None:
            return Place(
                extent.first if self.start == "earliest" else extent.end, extent.topic_id, extent.n_partitions
            )
        lost = loss(partition, place, extent)
        if lost and self.on_data_loss == "fail":
            raise DataLoss(
                f"{lost}. To go on with what there is and keep what was learnt, set on_data_loss to continue "
                "(--on-data-loss=continue); to begin anew, use another state directory"
            )
        if lost:
            log.error("%s; going on, as on_data_loss says", lost)
        same = place.topic_id == extent.topic_id and extent.first <= place.offset <= extent.end
        return Place(place.offset if same else extent.first, extent.topic_id, extent.n_partitions)

    # ---------------------------------------------------------------- going

    def let_go(self, partitions: Collection[Partition]) -> None:
        """Leave partitions, and what was learnt of them, to whoever takes them over."""
        for partition in partitions:
            self._waiting.pop(partition, None)
            if partition not in self.positions:
                continue
            self._places[partition] = self._place(partition)
            del self.positions[partition], self.emitted[partition]
            if self.store is not None and partition in self.clusterer.shards:
                self._hand_over(partition)  # without a store nobody else could take it over

    def _hand_over(self, partition: Any) -> None:  # noqa: ANN401
        summary = self.clusterer.release(partition)
        assert self.store is not None
        self.store.hand_over(partition, self._places.pop(partition), summary)


def loss(partition: Partition, place: Place, extent: Extent) -> str:
    """What happened to a partition since it was left that loses records; nothing, mostly."""
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
