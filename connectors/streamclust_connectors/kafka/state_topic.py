"""Stores the summary of each partition in a compacted topic, in the transaction of its outputs and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamclust.checkpoint import State, shard_in
from streamclust_connectors.interfaces import (
    Partition,
    SavedPosition,
    Transient,
    UnfitTopic,
    positions_from_state,
)
from streamclust_connectors.kafka.sink import KafkaSink
from streamclust_connectors.kafka.state_log import OpenTransaction, StateLog
from streamclust_connectors.kafka.state_records import packed, parts
from streamclust_connectors.kafka.topics import prepare, state_topic
from streamclust_connectors.kafka.transactions import OFFSETS_TOPIC, end_abandoned

STATE = "state"
"""Name under which a partition's summary is written."""


class KafkaState:
    """Summaries of a group's partitions in `<topic>.streamclust.state`, with the partition numbers of the input.

    `save` sends changed summaries in the sink's open transaction; they take effect when the sink commits. The next
    owner of a partition reads its summary here, so nothing is handed over, and a process has no other state.
    """

    transactional = True

    def __init__(self, topic: str, group: str, sink: KafkaSink, options: Mapping[str, Any]) -> None:
        self.topic, self.group, self.sink, self.options = topic, group, sink, dict(options)
        self._log = StateLog(state_topic(topic), group, options)
        sink.on_open_transaction = lambda: self._end_abandoned(OFFSETS_TOPIC, 0)
        self._saved: dict[Partition, SavedPosition] = {}
        self._n_partitions = 0
        """Number of partitions of the state topic, as far as known."""
        self.bytes_sent = 0

    def latest(self) -> State | None:
        """Return None: summaries are loaded partition by partition, by `find`."""
        self._saved = {}
        return None

    def _prepare(self, partition: Partition) -> None:
        """Create missing topics, or the state topic's partition that belongs to one added to the input."""
        if partition[1] < self._n_partitions:
            return
        known, self._n_partitions = self._n_partitions, 0
        try:
            self._n_partitions = prepare(self.topic, self.options)
        except UnfitTopic as error:
            if not known:
                raise  # at the start
            self._n_partitions = known
            raise Transient(str(error)) from error
        if known:
            self._log.close()  # a new client knows the new partitions

    def save(self, state: State) -> None:
        """Send the summaries of partitions whose position has changed since their last save."""
        saved = state.values["positions"]
        keys = {(topic, number): rows for topic, number, rows in saved.get("keys", ())}
        for partition, position in positions_from_state(saved).items():
            summary = shard_in(state, partition)
            if summary is None or self._saved.get(partition) == position:
                continue
            more = {"place": position, "keys": keys.get(partition, [])}
            body = packed(State(summary.arrays, summary.values | more))
            assert self.sink.max_message_bytes is not None
            messages = parts(self.group, STATE, body, self.sink.max_message_bytes)
            self.sink.send_state(self._log.topic, messages, partition[1])
            self.bytes_sent += len(body)
            self._saved[partition] = position

    def find(self, partition: Partition) -> tuple[SavedPosition, State] | None:
        """Position and summary of a partition as last committed by any process."""
        self._prepare(partition)
        try:
            found = self._log.newest(partition[1], STATE).get(STATE)
        except OpenTransaction:  # probably of its last owner, which has died
            self._end_abandoned(self._log.topic, partition[1])
            raise
        if found is None or found.body is None:
            return None
        state = found.state()
        position = SavedPosition(*state.values["place"])
        self._saved[partition] = position
        return position, state

    def _end_abandoned(self, topic: str, partition: int) -> None:
        end_abandoned(self.group, topic, partition, self.options, self.sink.transactional_id)

    def hand_over(self, partition: Partition, position: SavedPosition, summary: State) -> None:
        """Send nothing: the next owner starts from the committed summary, and replays later records."""
        self._saved.pop(partition, None)

    def close(self) -> None:
        """Close the clients."""
        self._log.close()
