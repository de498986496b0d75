"""A store in a compacted topic: each partition's summary, written in the transaction of its outputs and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamclust.checkpoint import State, shard_in
from streamclust_connectors.kafka.parts import packed, parts
from streamclust_connectors.kafka.sink import KafkaSink
from streamclust_connectors.kafka.state_log import OpenTransaction, StateLog
from streamclust_connectors.kafka.topics import prepare, state_topic
from streamclust_connectors.kafka.transactions import OFFSETS_TOPIC, end_abandoned
from streamclust_connectors.ports import Partition, Place, saved_places

STATE = "state"
"""Name under which a partition's summary is written."""


class KafkaState:
    """The summaries of a group's partitions in `<topic>.streamclust.state`; partition n of it is that of the input.

    `save` sends what has changed within the sink's open transaction: it counts once the sink commits. Whoever is given
    a partition finds its summary here, so nothing is handed over, and a process has no state of its own.
    """

    transactional = True

    def __init__(self, topic: str, group: str, sink: KafkaSink, options: Mapping[str, Any]) -> None:
        self.topic, self.group, self.sink, self.options = topic, group, sink, dict(options)
        self._log = StateLog(state_topic(topic), group, options)
        sink.when_held_up = lambda: self._end_abandoned(OFFSETS_TOPIC, 0)
        self._saved: dict[Partition, Place] = {}
        self._prepared = False
        self.bytes_sent = 0

    def latest(self) -> State | None:
        """None: summaries come with their partitions. Creates the topics where they are missing."""
        if not self._prepared:
            prepare(self.topic, self.options)
            self._prepared = True
        self._saved = {}
        return None

    def save(self, state: State) -> None:
        """Send the summaries of the partitions that have moved on since they were saved last."""
        for partition, place in saved_places(state.values["positions"]).items():
            summary = shard_in(state, partition)
            if summary is None or self._saved.get(partition) == place:
                continue
            body = packed(State(summary.arrays, summary.values | {"place": place}))
            assert self.sink.largest is not None
            messages = parts(self.group, STATE, body, self.sink.largest)
            self.sink.keep(self._log.topic, messages, partition[1])
            self.bytes_sent += len(body)
            self._saved[partition] = place

    def find(self, partition: Partition) -> tuple[Place, State] | None:
        """Position and summary of a partition as they were committed last, by whatever process."""
        try:
            found = self._log.newest(partition[1], STATE).get(STATE)
        except OpenTransaction:  # of its last owner, most likely dead
            self._end_abandoned(self._log.topic, partition[1])
            raise
        if found is None or found.body is None:
            return None
        state = found.state()
        place = Place(*state.values["place"])
        self._saved[partition] = place
        return place, state

    def _end_abandoned(self, topic: str, partition: int) -> None:
        end_abandoned(self.group, topic, partition, self.options, self.sink.transactional_id)

    def hand_over(self, partition: Partition, place: Place, summary: State) -> None:
        """Nothing: the partition's next owner goes on from what was committed, and learns again what came after it."""
        self._saved.pop(partition, None)

    def close(self) -> None:
        """Close the clients."""
        self._log.close()
