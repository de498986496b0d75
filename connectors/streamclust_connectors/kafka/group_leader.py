"""The leader of a group: merges the summaries of all partitions, refits, names clusters, and makes publications."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from streamclust.checkpoint import MERGED, State
from streamclust.lineage import Change
from streamclust.streaming import StreamClusterer
from streamclust_connectors.event_keys import EventKeys
from streamclust_connectors.interfaces import Transient
from streamclust_connectors.kafka.cluster_names import READ_TO, give, name_record
from streamclust_connectors.kafka.example_keys import EXAMPLE_KEYS, keys_of_examples
from streamclust_connectors.kafka.state_log import StateLog
from streamclust_connectors.kafka.state_records import StoredState, packed
from streamclust_connectors.kafka.state_topic import STATE

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publication:
    """A model to publish, and its lifecycle events."""

    sequence: int
    body: bytes
    changes: tuple[Change, ...]


class Leader:
    """Merges the summaries of all partitions, and refits."""

    def __init__(
        self, topic: str, n_partitions: int, states: StateLog, start: StreamClusterer, sequence: int
    ) -> None:
        self.topic, self.states, self.clusterer, self.sequence = topic, states, start, sequence
        self.changes: list[Change] = []
        self.names_read_to = 0
        """Offset of the topic of models up to which names were read."""
        self._renamed = False
        self._keys = EventKeys()
        """Keys of the events that may be examples, by the events' values."""
        self._waiting: dict[int, StoredState] = {}
        """New summaries since the last refit, by partition."""
        for number in range(n_partitions):
            found = states.newest(number, STATE).get(STATE)
            if found is not None and found.body is not None:
                self._waiting[number] = found

    def read(self) -> None:
        """Read new summaries from the state topic."""
        self._waiting.update(self.states.follow(0.0))

    def rename(self, stored: StoredState) -> None:
        """Name a cluster, if a record of the topic says so."""
        if (record := name_record(stored)) is not None:
            give(self.clusterer, record)
            self._renamed = True

    def publication(self) -> Publication | None:
        """Refit with the new summaries; None if nothing is new, or there are too few events for a first model."""
        waiting, self._waiting = self._waiting, {}
        renamed, self._renamed = self._renamed, False
        for number, stored in sorted(waiting.items()):
            try:
                summary = stored.state()
                self.clusterer.shards.replace((self.topic, number), summary)
                self._keys.restore((self.topic, number), summary.values.get("keys", ()))
            except Exception as error:  # damaged data may raise anything; the other partitions continue
                log.error("partition %d of %s is not included in the model: %s", number, self.topic, error)
        if not (waiting or renamed) or not self.clusterer.shards:
            return None
        if MERGED in self.clusterer.shards and len(self.clusterer.shards) > 1:
            self.clusterer.shards.release(
                MERGED
            )  # the published summary, replaced by those of the partitions
        try:
            self.clusterer.sharing.catch_up()
        except Exception as error:  # not fatal: every next leader would fail in the same way
            log.exception("the refit failed; the group continues with the last model")
            raise Transient(
                f"the refit of the group's model failed: {type(error).__name__}: {error}"
            ) from error
        if self.clusterer.model is None:
            return None  # too few wide events to learn a sketch
        self.sequence += 1
        state = self.clusterer.sharing.merged_state()
        header = {
            "sequence": self.sequence,
            "published_at": time.time(),
            READ_TO: self.names_read_to,
            EXAMPLE_KEYS: keys_of_examples(state, self._keys),
        }
        changes = tuple(self.changes)
        self.changes.clear()
        return Publication(self.sequence, packed(State(state.arrays, state.values | header)), changes)
