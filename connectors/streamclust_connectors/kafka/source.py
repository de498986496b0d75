"""A source by kafka-python's consumer, which starts at the offsets of the checkpoint.

kafka-python 3 runs rebalance listeners on its I/O thread, which must not block. The listener only pauses new partitions
and queues the rebalance; the service loop, which polls, does the rest.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, errors
from kafka import TopicPartition as KafkaPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import ConsumerGroupMetadata, MemberState

from streamclust_connectors.interfaces import Assigned, Batch, Extent, Partition, Revoked, Transient
from streamclust_connectors.kafka.client_protocols import Connection
from streamclust_connectors.kafka.conversions import offsets, plain
from streamclust_connectors.kafka.diagnosis import explained_failure
from streamclust_connectors.kafka.error_translation import translated_errors
from streamclust_connectors.kafka.inquiries import Inquiries
from streamclust_connectors.kafka.progress_watch import ProgressWatch
from streamclust_connectors.kafka.sender import KafkaSender

CONSUMER: dict[str, Any] = {
    "enable_auto_commit": False,  # offsets come from the checkpoint
    "auto_offset_reset": "none",  # the client must not choose an offset: it would skip records silently
    "max_poll_records": 10_000,
    "max_partition_fetch_bytes": 4 << 20,
    "isolation_level": "read_committed",
    "allow_auto_create_topics": False,  # a misspelt name must not create a topic
    "reconnect_backoff_max_ms": 1000,
    "bootstrap_timeout_ms": 10_000,
    "metadata_max_age_ms": 60_000,  # new partitions are found that soon
}

log = logging.getLogger(__name__)


class MembershipAssignor(CooperativeStickyAssignor):  # type: ignore[misc]  # kafka-python is untyped
    """Cooperative assignor that claims no partitions after the group has dropped this member.

    kafka-python's assignor keeps claiming the partitions of its last assignment, which others own by then. The group's
    leader may then assign such a partition to two members at once, or to none forever, waiting for a revocation.
    """

    def __init__(self, is_member: Callable[[], bool]) -> None:
        super().__init__()
        self._is_member = is_member

    def metadata(self, topics: Collection[str]) -> object:
        """Metadata that this member sends when it joins."""
        if not self._is_member():
            self.member_assignment = None
        return super().metadata(topics)


class KafkaSource:
    """Reads topics as a member of a consumer group. Options are those of kafka-python: TLS, SASL, time-outs.

    With `group_instance_id` (static membership) a member that restarts soon enough gets its partitions back without a
    rebalance.
    """

    finished = False
    remote = True

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
            CONSUMER
            | own
            | {"partition_assignment_strategy": [MembershipAssignor(self._is_member)]}
            | options
        )
        self._consumer: KafkaConsumer | None = None
        self._connection = Connection(
            self._connect, lambda client: client.close(autocommit=False, timeout_ms=500)
        )
        self._inquiries = Inquiries(self.options)
        self._watch = ProgressWatch(Inquiries(self.options | {"bootstrap_timeout_ms": 3000}))
        self._rebalances: deque[Assigned | Revoked] = deque()
        self._unsought: set[KafkaPartition] = set()
        """Assigned partitions that are paused until `seek`."""
        self._memberships: dict[KafkaPartition, ConsumerGroupMetadata] = {}
        """Group membership under which each partition was assigned."""
        self._paused = False
        self._committed_offsets: Mapping[Partition, int] = {}
        self._ends: dict[KafkaPartition, int] = {}
        """End offsets at assignment; an empty fetch does not report them."""

    @property
    def consumer(self) -> KafkaConsumer:
        """The client, connected when first needed."""
        if self._consumer is None:
            self._join(self._connect())
        assert self._consumer is not None
        return self._consumer

    @property
    def connecting(self) -> bool:
        """Whether `poll` returned nothing because there is no connection yet."""
        return self._connection.under_way

    def _connect(self) -> KafkaConsumer:
        with explained_failure(self.options), translated_errors():
            consumer = KafkaConsumer(**self.options)
            # Load metadata first: a group leader without it assigns no partitions, and a static member keeps that.
            missing = [topic for topic in self.topics if not consumer.partitions_for_topic(topic)]
        if missing:
            consumer.close()
            raise Transient(f"there is no topic {', '.join(missing)} at {self.options['bootstrap_servers']}")
        return consumer

    def _join(self, consumer: KafkaConsumer) -> None:
        """Use a connected client: join the group."""
        self._consumer = consumer
        consumer.subscribe(self.topics, listener=Listener(self, consumer))

    def _is_member(self) -> bool:
        """Whether this consumer is a member of the group, as far as the client knows."""
        return self._consumer is not None and self._consumer.group_metadata().generation_id > 0

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """Rebalances, then records; partitions that were not sought yet deliver none."""
        if self._consumer is None:
            connected = self._connection.wait(seconds)
            if connected is None:
                return []
            self._join(connected)
        consumer = self.consumer
        self._replace_if_stalled()
        self._rejoin_if_needed(consumer)
        before = self._next()
        with translated_errors():
            try:
                found = {} if self._rebalances else consumer.poll(timeout_ms=int(seconds * 1000))
            except errors.KafkaError:
                self._go_back(before)
                raise
        rebalances = [self._rebalances.popleft() for _ in range(len(self._rebalances))] + self._reassigned()
        kept = [Batch(plain(name), records) for name, records in found.items() if name not in self._unsought]
        return [*rebalances, *kept]

    def _go_back(self, positions: Mapping[Partition, int]) -> None:
        """Deliver again from these offsets: after an error the client may have skipped records."""
        for partition, at in positions.items():
            with suppress(errors.KafkaError, AssertionError):  # revoked at this moment
                name = KafkaPartition(*partition)
                if name in self.consumer.assignment() - self._unsought:
                    self.consumer.seek(name, at)

    def _replace_if_stalled(self) -> None:
        """Replace a consumer that delivers nothing of a partition that has records: a new one joins the group."""
        self._watch.update({} if self._paused else self._next())
        if stalled := self._watch.stalled:
            (topic, number), why = next(iter(stalled.items()))
            self._replace_consumer()
            raise Transient(f"the consumer is replaced: of {topic}-{number} {why}")

    def _next(self) -> dict[Partition, int]:
        """Next offset to deliver of each sought partition."""
        consumer, found = self._consumer, dict[Partition, int]()
        if consumer is not None:
            for name in consumer.assignment() - self._unsought:
                with suppress(errors.KafkaError, KeyError, AttributeError):  # revoked at this moment
                    at = consumer.position(name, timeout_ms=0)
                    if at is not None:
                        found[plain(name)] = at
        return found

    def unread(self) -> dict[Partition, str]:
        """Sought partitions that deliver nothing though they have records, and the reason."""
        return self._watch.unread()

    def _replace_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        held = sorted(plain(name) for name in self._memberships)
        self._rebalances.clear()
        if held:
            self._rebalances.append(Revoked(held))
        self._memberships, self._unsought, self._paused = {}, set(), False
        self._watch.reset()
        if consumer is not None:
            threading.Thread(target=_close_silently, args=(consumer,), daemon=True).start()

    @staticmethod
    def _rejoin_if_needed(consumer: KafkaConsumer) -> None:
        """Join the group again if the client has dropped a rebalance or stopped its heartbeats.

        kafka-python 3.0 drops a rebalance caused by new metadata if it lasts longer than a poll, and does not restart a
        failed heartbeat loop until it joins again. It would never notice that the group continues without it. There is
        no public method to join.
        """
        with suppress(AttributeError):
            coordinator = consumer._coordinator
            heartbeats = coordinator._heartbeat_loop_future
            if heartbeats is not None and heartbeats.is_done:
                log.warning("heartbeats have stopped (%s); joining the group again", heartbeats.exception)
                coordinator._heartbeat_loop_future = heartbeats = None
            if heartbeats is None or consumer.group_metadata().state == MemberState.REBALANCING:
                coordinator.request_rejoin()

    def _reassigned(self) -> list[Assigned | Revoked]:
        """Revoke and assign partitions that were lost and assigned again without a call of the listener.

        If the client learns from the response to a join request that the group has dropped it, it joins as a new
        member and does not report the partitions that it had before and has again.
        """
        now = self.consumer.group_metadata()
        if now.state != MemberState.STABLE:
            return []
        old = sorted(name for name, then in self._memberships.items() if then.member_id != now.member_id)
        if not old:
            return []
        self._pause_new(old)
        return [Revoked([plain(name) for name in old]), Assigned([plain(name) for name in old])]

    def _pause_new(self, partitions: Collection[KafkaPartition]) -> None:
        """Pause new partitions until the loop has sought them."""
        consumer = self._consumer
        assert consumer is not None
        for name in partitions:
            consumer.seek(name, 0)  # any valid offset, so that the client does not look one up
        consumer.pause(*partitions)
        self._unsought |= set(partitions)
        self._memberships |= dict.fromkeys(partitions, consumer.group_metadata())

    def membership(self, partitions: Collection[Partition]) -> ConsumerGroupMetadata:
        """Group membership with which to commit offsets of these partitions, so that the broker can refuse it.

        This is the membership under which they were assigned, or a later generation of the same member. The client's
        current membership may differ: after a failed heartbeat it is empty, and the broker accepts offsets with an
        empty membership from anyone.
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
        """First and end offset, topic id and number of partitions."""
        found = self._inquiries.extent(partition)
        self._ends[KafkaPartition(*partition)] = found.end
        return found

    def seek(self, partition: Partition, offset: int) -> None:
        """Deliver from this offset on."""
        name = KafkaPartition(*partition)
        if name not in self.consumer.assignment():
            return  # revoked meanwhile; the next poll reports it
        self.consumer.seek(name, offset)
        self._unsought.discard(name)
        if not self._paused:
            self.consumer.resume(name)

    def pause(self) -> None:
        """Stop fetching; heartbeats continue."""
        if not self._paused:
            self._paused = True
            self.consumer.pause(*self.consumer.assignment())

    def resume(self) -> None:
        """Fetch from all sought partitions again."""
        if self._paused:
            self._paused = False
            self.consumer.resume(*(self.consumer.assignment() - self._unsought))

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit offsets asynchronously, for monitoring tools; errors are ignored."""
        if positions and self._consumer is not None:
            self._committed_offsets = dict(positions)
            with suppress(errors.KafkaError):
                self._consumer.commit_async(offsets(positions))

    def committed(self, partition: Partition) -> int | None:
        """Offset committed by the group; waits for pending transactions."""
        return self._inquiries.committed(partition)

    def sender(self, transactional_id: str | None, options: Mapping[str, Any]) -> KafkaSender:
        """Connect a producer with the source's options and these."""
        shared = {k: v for k, v in self.options.items() if k != "allow_auto_create_topics"}
        return KafkaSender(transactional_id, shared | dict(options))

    def lag(self) -> dict[Partition, int]:
        """End offset minus position of each partition, where known."""
        consumer, found = self._consumer, dict[Partition, int]()
        if consumer is None:
            return found
        for name, at in self._next().items():
            known = (
                consumer.highwater(KafkaPartition(*name)),
                self._ends.get(KafkaPartition(*name)),
                self._watch.end(name),
            )
            found[name] = max(0, max((end for end in known if end is not None), default=at) - at)
        return found

    def close(self) -> None:
        """Leave the group, unless membership is static."""
        self._connection.abandon()
        self._watch.close()
        self._inquiries.close()
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            ours = {
                name: at
                for name, at in self._committed_offsets.items()
                if KafkaPartition(*name) in consumer.assignment()
            }
            if ours:  # an asynchronous commit would be lost with the connection
                with suppress(errors.KafkaError):
                    consumer.commit(offsets(ours), timeout_ms=5000)
            consumer.close(autocommit=False, timeout_ms=5000)


def _close_silently(consumer: KafkaConsumer) -> None:
    """Close a consumer that has failed."""
    with suppress(Exception):
        consumer.close(autocommit=False, timeout_ms=5000)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python is untyped
    """Queues rebalances for the loop; runs on the client's I/O thread, which must not block."""

    def __init__(self, source: KafkaSource, consumer: KafkaConsumer) -> None:
        self.source, self.consumer = source, consumer

    def on_partitions_assigned(self, assigned: Collection[KafkaPartition]) -> None:
        """Pause new partitions, and queue the assignment."""
        if self.source._consumer is not self.consumer:
            return  # it was replaced
        self.source._pause_new(assigned)
        self.source._rebalances.append(Assigned([plain(name) for name in sorted(assigned)]))

    def on_partitions_revoked(self, revoked: Collection[KafkaPartition]) -> None:
        """Queue the revocation."""
        if self.source._consumer is not self.consumer:
            return  # it was replaced
        self.source._unsought -= set(revoked)
        for name in revoked:
            self.source._memberships.pop(name, None)
        self.source._rebalances.append(Revoked([plain(name) for name in sorted(revoked)]))
