"""kafka-python's consumer, which begins where the checkpoint says.

kafka-python 3 runs rebalance listeners on its IO thread, where nothing may block. So they only pause what is new and
queue a notice; the loop, which alone polls, does the rest.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, errors
from kafka import TopicPartition as KafkaPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import ConsumerGroupMetadata, MemberState

from streamclust_connectors.kafka.failures import transient
from streamclust_connectors.kafka.names import offsets, plain
from streamclust_connectors.kafka.producer import KafkaSender
from streamclust_connectors.kafka.sending import BROKER_TIMEOUT_SECONDS, COMMITTED_TIMEOUT_SECONDS
from streamclust_connectors.ports import Assigned, Batch, Extent, Partition, Revoked, Transient

CONSUMER: dict[str, Any] = {
    "enable_auto_commit": False,  # the checkpoint's offsets count
    "auto_offset_reset": "none",  # nor may the client choose where to begin: it would skip without a word
    "max_poll_records": 10_000,
    "max_partition_fetch_bytes": 4 << 20,
    "isolation_level": "read_committed",
    "allow_auto_create_topics": False,  # a name misspelt is not a new topic
    "reconnect_backoff_max_ms": 1000,
    "bootstrap_timeout_ms": 10_000,  # nobody can stop the service meanwhile
}

log = logging.getLogger(__name__)


class HonestAssignor(CooperativeStickyAssignor):  # type: ignore[misc]  # kafka-python is untyped
    """Cooperative rebalancing, in which a member that the group has dropped claims no partitions any more.

    kafka-python's own goes on claiming those of its last assignment, which others have by then. The group's leader may
    give such a partition to two members at once or, as one that its owner has to let go first, to nobody for good.
    """

    def __init__(self, is_member: Callable[[], bool]) -> None:
        super().__init__()
        self._is_member = is_member

    def metadata(self, topics: Collection[str]) -> object:
        """What this member tells the leader as it joins."""
        if not self._is_member():
            self.member_assignment = None
        return super().metadata(topics)


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
        **options: Any,
    ) -> None:
        self.topics, self.group = list(topics), group
        own = {"bootstrap_servers": bootstrap_servers, "group_id": group}
        self.options = (
            CONSUMER | own | {"partition_assignment_strategy": [HonestAssignor(self._is_member)]} | options
        )
        self._consumer: KafkaConsumer | None = None
        self._news: deque[Assigned | Revoked] = deque()
        self._held_back: set[KafkaPartition] = set()
        self._memberships: dict[KafkaPartition, ConsumerGroupMetadata] = {}
        """Group membership under which each partition was assigned."""
        self._paused = False
        self._told: Mapping[Partition, int] = {}
        self._ends: dict[KafkaPartition, int] = {}
        """End offsets at assignment: an empty fetch does not report them."""

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
            consumer.subscribe(self.topics, listener=Listener(self))
            self._consumer = consumer
        return self._consumer

    def _is_member(self) -> bool:
        """Whether the group knows this consumer, as far as that is known here."""
        return self._consumer is not None and self._consumer.group_metadata().generation_id > 0

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """Rebalances, then records; partitions not yet sought deliver none."""
        consumer = self.consumer
        self._rejoin_if_forgotten(consumer)
        with transient():
            found = {} if self._news else consumer.poll(timeout_ms=int(seconds * 1000))
        news = [self._news.popleft() for _ in range(len(self._news))] + self._regained()
        kept = [Batch(plain(name), records) for name, records in found.items() if name not in self._held_back]
        return [*news, *kept]

    @staticmethod
    def _rejoin_if_forgotten(consumer: KafkaConsumer) -> None:
        """Make the client go on with a rebalance that it has forgotten, and send heartbeats again if it has ceased to.

        kafka-python 3.0 forgets a rebalance that new metadata brought about if it lasts longer than a poll, and starts
        no new loop of heartbeats after one has failed until it joins again. It would never learn that the group goes on
        without it. Nothing public asks it to join.
        """
        with suppress(AttributeError):
            coordinator = consumer._coordinator
            beating = coordinator._heartbeat_loop_future
            if beating is not None and beating.is_done:
                log.warning("heartbeats have ended (%s); joining the group again", beating.exception)
                coordinator._heartbeat_loop_future = beating = None
            if beating is None or consumer.group_metadata().state == MemberState.REBALANCING:
                coordinator.request_rejoin()

    def _regained(self) -> list[Assigned | Revoked]:
        """Partitions that were lost and assigned again without a call of the listener.

        If the group has dropped this member, and the client hears of it from the answer to its request to join, it
        joins as a new member and says nothing of the partitions it had and has again.
        """
        now = self.consumer.group_metadata()
        if now.state != MemberState.STABLE:
            return []
        old = sorted(name for name, then in self._memberships.items() if then.member_id != now.member_id)
        if not old:
            return []
        self._hold_back(old)
        return [Revoked([plain(name) for name in old]), Assigned([plain(name) for name in old])]

    def _hold_back(self, partitions: Collection[KafkaPartition]) -> None:
        """Pause new partitions until the loop has sought them."""
        consumer = self._consumer
        assert consumer is not None
        for name in partitions:
            consumer.seek(name, 0)  # any place will do, so that the client looks for none
        consumer.pause(*partitions)
        self._held_back |= set(partitions)
        self._memberships |= dict.fromkeys(partitions, consumer.group_metadata())

    def membership(self, partitions: Collection[Partition]) -> ConsumerGroupMetadata:
        """Group membership with which to commit offsets of these partitions, so that the broker can refuse it.

        It is the one under which they were assigned or, as the same member, a later generation. What the client says
        now may be another: none once a heartbeat has failed, with which a broker accepts offsets from anyone.
        """
        now = self.consumer.group_metadata()
        for name in partitions:
            then = self._memberships.get(KafkaPartition(*name))
            if then is None:
                raise Transient(f"{name[0]}-{name[1]} was revoked meanwhile")
            if now.member_id != then.member_id or now.generation_id < then.generation_id:
                return then
        return now

    def extent(self, partition: Partition) -> Extent:
        """The oldest record, the end, and which topic this is."""
        name = KafkaPartition(*partition)
        with transient():
            (first,) = self.consumer.beginning_offsets(
                [name], timeout_ms=BROKER_TIMEOUT_SECONDS * 1000
            ).values()
            (end,) = self.consumer.end_offsets([name], timeout_ms=BROKER_TIMEOUT_SECONDS * 1000).values()
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
        """Deliver from this offset on."""
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
        """Commit offsets asynchronously, for monitoring tools; errors are ignored."""
        if positions and self._consumer is not None:
            self._told = dict(positions)
            with suppress(errors.KafkaError):
                self._consumer.commit_async(offsets(positions))

    def committed(self, partition: Partition) -> int | None:
        """Offset committed by the group; waits for pending transactions."""
        with transient():
            found: int | None = self.consumer.committed(
                KafkaPartition(*partition), timeout_ms=COMMITTED_TIMEOUT_SECONDS * 1000
            )
        return found

    def sender(self, transactional_id: str | None, options: Mapping[str, Any]) -> KafkaSender:
        """Connect a producer. Its options are those of the source, and these."""
        shared = {k: v for k, v in self.options.items() if k != "allow_auto_create_topics"}
        return KafkaSender(transactional_id, shared | dict(options))

    def lag(self) -> dict[Partition, int]:
        """End offset minus position of each partition, where known."""
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


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python is untyped
    """Queues rebalances for the loop; runs on the client's IO thread, where nothing may block."""

    def __init__(self, source: KafkaSource) -> None:
        self.source = source

    def on_partitions_assigned(self, assigned: Collection[KafkaPartition]) -> None:
        """Hold new partitions back, and queue the assignment."""
        self.source._hold_back(assigned)
        self.source._news.append(Assigned([plain(name) for name in sorted(assigned)]))

    def on_partitions_revoked(self, revoked: Collection[KafkaPartition]) -> None:
        """Queue the revocation."""
        self.source._held_back -= set(revoked)
        for name in revoked:
            self.source._memberships.pop(name, None)
        self.source._news.append(Revoked([plain(name) for name in sorted(revoked)]))
