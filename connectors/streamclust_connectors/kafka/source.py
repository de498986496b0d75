"""A consumer that begins where the checkpoint says.

kafka-python 3 runs rebalance listeners on its IO thread, where nothing may block. So they only pause what is new and
leave word; the loop, which alone polls, does the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, errors
from kafka import TopicPartition as KafkaPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import MemberState

from streamclust_connectors.kafka import names
from streamclust_connectors.kafka.failures import PATIENCE, transient
from streamclust_connectors.kafka.names import offsets, plain
from streamclust_connectors.ports import Assigned, Batch, Extent, Partition, Revoked, Transient

CONSUMER: dict[str, Any] = {
    "enable_auto_commit": False,  # the checkpoint's offsets count
    "auto_offset_reset": "none",  # nor may the client choose where to begin: it would skip without a word
    "partition_assignment_strategy": (CooperativeStickyAssignor,),
    "max_poll_records": 10_000,
    "max_partition_fetch_bytes": 4 << 20,
    "isolation_level": "read_committed",
    "allow_auto_create_topics": False,  # a name misspelt is not a new topic
    "reconnect_backoff_max_ms": 1000,
    "bootstrap_timeout_ms": 10_000,  # nobody can stop the service meanwhile
}


class KafkaSource:
    """Topics as a member of a consumer group. Options are kafka-python's own: TLS, SASL, time-outs.

    With `group_instance_id` (static membership) a member that restarts soon enough gets its partitions back without a
    rebalance.
    """

    finished = False

    def __init__(
        self,
        topics: Sequence[str],
        group: str = "streamclust",
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.topics, self.group = list(topics), group
        self.options = CONSUMER | {"bootstrap_servers": bootstrap_servers, "group_id": group} | options
        self._consumer: KafkaConsumer | None = None
        self._news: deque[Assigned | Revoked] = deque()
        self._held_back: set[KafkaPartition] = set()
        self._paused = False
        self._told: Mapping[Partition, int] = {}
        self._ends: dict[KafkaPartition, int] = {}
        """Where partitions ended when we came; a fetch that finds nothing new does not tell."""

    @property
    def consumer(self) -> KafkaConsumer:
        """The client, connected when first needed."""
        if self._consumer is None:
            with transient():
                consumer = KafkaConsumer(**self.options)
            # A leader that joins before it knows the topics assigns nothing, and a static member then keeps nothing.
            missing = [topic for topic in self.topics if not consumer.partitions_for_topic(topic)]
            if missing:
                consumer.close()
                raise Transient(
                    f"there is no topic {', '.join(missing)} at {self.options['bootstrap_servers']}"
                )
            if names.KNOWN:
                from streamclust_connectors.kafka.reading import read_whole_batches

                read_whole_batches(consumer)
            consumer.subscribe(self.topics, listener=Listener(self))
            self._consumer = consumer
        return self._consumer

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """Rebalances first, then records; none of partitions that were not yet sought."""
        consumer = self.consumer
        if consumer.group_metadata().state == MemberState.REBALANCING:
            # kafka-python 3.0 forgets a rebalance that new metadata brought about if it lasts longer than a poll: it
            # sends no heartbeats any more, and never learns that the group goes on without it.
            consumer._coordinator.request_rejoin()
        with transient():
            found = {} if self._news else consumer.poll(timeout_ms=int(seconds * 1000))
        news = [self._news.popleft() for _ in range(len(self._news))]
        kept = [Batch(plain(name), records) for name, records in found.items() if name not in self._held_back]
        return [*news, *kept]

    def extent(self, partition: Partition) -> Extent:
        """The oldest record, the end, and which topic this is."""
        name = KafkaPartition(*partition)
        with transient():
            (first,) = self.consumer.beginning_offsets([name], timeout_ms=PATIENCE * 1000).values()
            (end,) = self.consumer.end_offsets([name], timeout_ms=PATIENCE * 1000).values()
            topic = self._describe(partition[0])
        self._ends[name] = end
        return Extent(first, end, topic.get("topic_id"), len(topic["partitions"]))

    def _describe(self, topic: str) -> dict[str, Any]:
        known = {key: self.options[key] for key in KafkaAdminClient.DEFAULT_CONFIG if key in self.options}
        admin = KafkaAdminClient(**known)
        try:
            (found,) = admin.describe_topics([topic])
        finally:
            admin.close()
        return dict(found)

    def seek(self, partition: Partition, offset: int) -> None:
        """Begin there."""
        name = KafkaPartition(*partition)
        if name not in self.consumer.assignment():
            return  # revoked meanwhile, as the next poll will say
        self.consumer.seek(name, offset)
        self._held_back.discard(name)
        if not self._paused:
            self.consumer.resume(name)

    def pause(self) -> None:
        """Fetch nothing; heartbeats go on."""
        if not self._paused:
            self._paused = True
            self.consumer.pause(*self.consumer.assignment())

    def resume(self) -> None:
        """Fetch again what was sought."""
        if self._paused:
            self._paused = False
            self.consumer.resume(*(self.consumer.assignment() - self._held_back))

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Show lag tools where we are; whether it succeeds is nobody's concern."""
        if positions and self._consumer is not None:
            self._told = dict(positions)
            with suppress(errors.KafkaError):
                self._consumer.commit_async(offsets(positions))

    def committed(self, partition: Partition) -> int | None:
        """What the group has committed; waits for transactions that are about to."""
        with transient():
            found: int | None = self.consumer.committed(
                KafkaPartition(*partition), timeout_ms=PATIENCE * 1000
            )
        return found

    def lag(self) -> dict[Partition, int]:
        """The distance from our position to the end, as far as known."""
        consumer, found = self._consumer, dict[Partition, int]()
        if consumer is None:
            return found
        for name in consumer.assignment() - self._held_back:
            with suppress(errors.KafkaError, KeyError, AttributeError):  # lost in this very moment
                end, at = consumer.highwater(name), consumer.position(name, timeout_ms=0)
                end = self._ends.get(name) if end is None else end
                if end is not None and at is not None:
                    found[plain(name)] = max(0, end - at)
        return found

    def close(self) -> None:
        """Leave the group, unless membership is static."""
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            ours = {
                name: at for name, at in self._told.items() if KafkaPartition(*name) in consumer.assignment()
            }
            if ours:  # what is on its way would be lost with the connection
                with suppress(errors.KafkaError):
                    consumer.commit(offsets(ours), timeout_ms=5000)
            consumer.close(autocommit=False, timeout_ms=5000)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Leaves word of rebalances; runs on the client's IO thread, so it does nothing else."""

    def __init__(self, source: KafkaSource) -> None:
        self.source = source

    def on_partitions_assigned(self, assigned: Collection[KafkaPartition]) -> None:
        """Hold the partitions back until the loop has sought their places."""
        consumer = self.source._consumer
        assert consumer is not None
        for name in assigned:
            consumer.seek(name, 0)  # any place will do, so that the client looks for none
        consumer.pause(*assigned)
        self.source._held_back |= set(assigned)
        self.source._news.append(Assigned([plain(name) for name in sorted(assigned)]))

    def on_partitions_revoked(self, revoked: Collection[KafkaPartition]) -> None:
        """Tell."""
        self.source._held_back -= set(revoked)
        self.source._news.append(Revoked([plain(name) for name in sorted(revoked)]))
