"""Sends results to the sink, but not those that were sent before a restart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from streamclust.lineage import Change
from streamclust.streaming import Assignment, StreamClusterer
from streamclust_connectors.decode import Decoded, Failure
from streamclust_connectors.interfaces import Channel, Encode, Output, Partition, Sink
from streamclust_connectors.service.outputs import (
    ModelName,
    assignments,
    dead_letter,
    encode_json,
    ids_at_levels,
    lifecycle,
    refusal,
    snapshot,
)
from streamclust_connectors.service.stats import Stats

if TYPE_CHECKING:
    from streamclust.hierarchy import Dendrogram
    from streamclust_connectors.service.policy import Policy


class Emitter:
    """Writes results as messages, each channel in its format, and gives them to the sink."""

    def __init__(self, sink: Sink, policy: Policy, stats: Stats) -> None:
        self._sink, self._form, self._stats = sink, policy.form, stats
        self._encoders = policy.encoders

    def _encode(self, channel: Channel) -> Encode:
        return self._encoders.get(channel, encode_json)

    def wants(self, channel: Channel) -> bool:
        """Whether outputs of this channel are enabled."""
        return self._sink.wants(channel)

    def dead_letters(self, partition: Partition, failures: Sequence[Failure], start: int) -> None:
        """Send the failures of records at or after the offset `start`."""
        fresh = [failure for failure in failures if failure.record.offset >= start]
        if fresh and self._sink.wants("dead-letters"):
            limit = self._sink.max_message_bytes
            self._sink.emit("dead-letters", [dead_letter(partition, failure, limit) for failure in fresh])
        if fresh and self._sink.wants("refusals"):
            encode = self._encode("refusals")
            self._sink.emit("refusals", [refusal(partition, failure, encode) for failure in fresh])

    def assignments(
        self,
        partition: Partition,
        events: Decoded,
        run: slice,
        found: Assignment | list[list[int]] | None,
        model: ModelName,
        refused: Collection[int],
        clusterer: StreamClusterer | None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        """Send the assignments of a run of events; `clusterer` has the levels of clusters, and names if not given."""
        with self._stats.timed("emit"):
            outputs = self.assignment_outputs(partition, events, run, found, model, refused, clusterer, names)
            self.send("assignments", outputs)

    def assignment_outputs(
        self,
        partition: Partition,
        events: Decoded,
        run: slice,
        found: Assignment | list[list[int]] | None,
        model: ModelName,
        refused: Collection[int],
        clusterer: StreamClusterer | None,
        names: Mapping[int, str] | None = None,
    ) -> list[Output]:
        """The messages of the assignments of a run of events."""
        levels: list[list[int]] = []
        if names is None:
            names = {} if clusterer is None else clusterer.names
        if clusterer is not None and isinstance(found, Assignment):
            levels = ids_at_levels(clusterer, found, self._form.levels)
        encode = self._encode("assignments")
        return assignments(partition, events, run, found, model, refused, self._form, encode, names, levels)

    def send(self, channel: Channel, outputs: Sequence[Output]) -> None:
        """Send outputs, if there are any."""
        if outputs:
            self._sink.emit(channel, outputs)

    def lifecycle(self, cause: str, changes: Sequence[Change], key: str | None = None) -> None:
        """Send lifecycle events, of the model of a key if there is one; `cause` is the beginning of their ids."""
        if changes and self._sink.wants("lifecycle"):
            self._sink.emit("lifecycle", lifecycle(cause, changes, self._encode("lifecycle"), key))
            self._stats.lifecycle += len(changes)

    def snapshot(
        self, tree: Dendrogram, clusterer: StreamClusterer, positions: Mapping[Partition, int]
    ) -> None:
        """Send the hierarchy of the records below these positions."""
        if self._sink.wants("snapshots"):
            limit = self._sink.max_message_bytes
            self._sink.emit("snapshots", [snapshot(tree.to_dict(), clusterer, positions, limit)])
