"""A source by librdkafka's consumer, which starts at the offsets of the checkpoint.

librdkafka's thread joins the group and sends heartbeats. Its rebalance callbacks run within `consume`, on the thread of
the service loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from streamclust_connectors.interfaces import (
    Assigned,
    Batch,
    Extent,
    Fenced,
    Message,
    Partition,
    Revoked,
    Transient,
)
from streamclust_connectors.kafka.client_protocols import Connection
from streamclust_connectors.kafka.confluent.error_translation import ClientFailed, failure, translated_errors
from streamclust_connectors.kafka.confluent.inquiries import ConfluentInquiries
from streamclust_connectors.kafka.confluent.librdkafka_log import log as librdkafka_log
from streamclust_connectors.kafka.confluent.options import properties
from streamclust_connectors.kafka.confluent.sender import ConfluentSender
from streamclust_connectors.kafka.diagnosis import explained_failure
from streamclust_connectors.kafka.progress_watch import ProgressWatch

CONSUMER: dict[str, Any] = {
    "enable.auto.commit": False,  # offsets come from the checkpoint
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # the client must not choose an offset: it would skip records silently
    "partition.assignment.strategy": "cooperative-sticky",
    "max.partition.fetch.bytes": 4 << 20,
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,  # a misspelt name must not create a topic
    "enable.partition.eof": True,  # reports the end of a partition after transaction markers
    "reconnect.backoff.max.ms": 1000,
    "topic.metadata.refresh.interval.ms": 60_000,  # new partitions are found that soon
}
OWN = ("group.id", "group.instance.id", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms")
"""Properties that only consumers have."""
TOPIC_TIMEOUT_SECONDS = 10.0
"""Time limit of the request for a topic's metadata."""
SHARED_ID_SECONDS = 30.0
"""If the consumer is fenced twice within this time, another process uses the same group instance id."""

log = logging.getLogger(__name__)
timestamp_of = itemgetter(1)


class Membership(NamedTuple):
    """Member id and metadata for transactions. The id is empty if it may be outdated."""

    member: str
    metadata: Any


class ConfluentSource:
    """Reads topics as a member of a consumer group. Options have the names of kafka-python or of librdkafka.

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
        max_poll_records: int = 10_000,
        **options: Any,
    ) -> None:
        self.topics, self.group, self.max_poll_records = list(topics), group, max_poll_records
        given = {"bootstrap_servers": bootstrap_servers, "group_id": group} | options
        self._given, self.options = given, CONSUMER | properties(given)
        self._consumer: Consumer | None = None
        self._connection = Connection(self._connect, Consumer.close)
        self._inquiries = ConfluentInquiries(self.options, self._shared)
        self._watch = ProgressWatch(ConfluentInquiries(self.options, self._shared))
        self._rebalances: list[Assigned | Revoked] = []
        self._failure: Exception | None = None
        """Error received together with records; raised by the next poll, after the records are delivered."""
        self._failed_at = -SHARED_ID_SECONDS
        self._unsought: set[Partition] = set()
        """Assigned partitions that are paused until `seek`."""
        self._memberships: dict[Partition, Membership] = {}
        """Group membership under which each partition was assigned."""
        self._paused = False
        self._committed_offsets: Mapping[Partition, int] = {}
        self._next: dict[Partition, int] = {}
        """Next offset to deliver of each partition."""
        self._ends: dict[Partition, int] = {}
        """End offsets at assignment; the client knows none before its first fetch."""

    @property
    def consumer(self) -> Consumer:
        """The client, connected when first needed."""
        if self._consumer is None:
            self._join(self._connect())
        assert self._consumer is not None
        return self._consumer

    @property
    def connecting(self) -> bool:
        """Whether `poll` returned nothing because there is no connection yet."""
        return self._connection.under_way

    def _connect(self) -> Consumer:
        with translated_errors():
            consumer = Consumer(self.options, logger=librdkafka_log)
        try:
            self._check_topics(consumer)
        except BaseException:
            consumer.close()
            raise
        return consumer

    def _join(self, consumer: Consumer) -> None:
        """Use a connected client: join the group."""
        self._consumer = consumer
        consumer.subscribe(self.topics, on_assign=self._assigned, on_revoke=self._revoked)

    def check_options(self) -> None:
        """Raise ValueError if librdkafka does not know an option or its value."""
        try:
            Consumer(self.options, logger=librdkafka_log).close()
        except KafkaException as error:
            raise ValueError(error.args[0].str()) from None

    def _check_topics(self, consumer: Consumer) -> None:
        """Raise Transient if a topic does not exist."""
        with explained_failure(self._given), translated_errors():
            found = {
                name: consumer.list_topics(name, TOPIC_TIMEOUT_SECONDS).topics[name] for name in self.topics
            }
        if missing := [name for name, topic in found.items() if topic.error is not None]:
            raise Transient(f"there is no topic {', '.join(missing)} at {self.options['bootstrap.servers']}")

    # ---------------------------------------------------------------- rebalances

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Pause new partitions until the loop has sought them."""
        names = sorted(map(plain, partitions))
        consumer.incremental_assign(
            [TopicPartition(*name, 0) for name in names]
        )  # any valid offset; `seek` sets the right one
        self._pause_new(consumer, names)
        if names:
            self._rebalances.append(Assigned(names))

    def _pause_new(self, consumer: Consumer, names: Sequence[Partition]) -> None:
        consumer.pause([TopicPartition(*name) for name in names])
        self._unsought |= set(names)
        self._memberships |= dict.fromkeys(names, membership(consumer))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Queue the revocation for the next poll."""
        names = sorted(map(plain, partitions))
        self._unsought -= set(names)
        for name in names:
            self._memberships.pop(name, None)
            self._next.pop(name, None)
        try:
            consumer.incremental_unassign([TopicPartition(*name) for name in names])
        except (KafkaException, RuntimeError):
            if self._consumer is not None:
                raise
            # A closing consumer may have dropped them already; an exception here would prevent its closing.
        if names:
            self._rebalances.append(Revoked(names))

    def _reassigned(self) -> list[Assigned | Revoked]:
        """Revoke and assign partitions that were lost and assigned again without a call of `_revoked`."""
        member = self.consumer.memberid()
        old = sorted(name for name, then in self._memberships.items() if member and then.member != member)
        if not old:
            return []
        self._pause_new(self.consumer, old)
        return [Revoked(old), Assigned(old)]

    def membership(self, partitions: Collection[Partition]) -> object:
        """Group membership with which to commit offsets of these partitions, so that the broker can refuse it.

        This is the membership under which they were assigned, or a later generation of the same member. The client's
        current membership may differ: after a failed heartbeat it is empty, and the broker accepts offsets with an
        empty membership from anyone.
        """
        now = membership(self.consumer)
        for name in partitions:
            then = self._memberships.get(name)
            if then is None or not then.member:
                raise Transient(f"{name[0]}-{name[1]} was revoked meanwhile")
            if then.member != now.member:
                return then.metadata
        return now.metadata

    # ---------------------------------------------------------------- records

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """Rebalances, then records; partitions that were not sought yet deliver none."""
        try:
            return self._poll(seconds)
        except (ClientFailed, Fenced) as error:
            self._replace_consumer(error)
            raise Transient(f"the consumer failed and is replaced: {error}") from error

    def _replace_consumer(self, error: Exception) -> None:
        """Drop a failed consumer; a new one joins the group and gets its partitions again.

        A static member can also be fenced after a broker restart: the client joins again before it has received the
        response to its last attempt, and so fences itself. Two processes with the same id would fence each other
        forever: if this one is fenced again within SHARED_ID_SECONDS, it stops.
        """
        self._forget_consumer()
        before, self._failed_at = self._failed_at, time.monotonic()
        if self._failed_at - before < SHARED_ID_SECONDS:
            raise Fenced(f"another process uses the same group instance id: {error}") from error

    def _forget_consumer(self) -> None:
        """Drop the consumer; its partitions are revoked, and the next poll connects another."""
        self._drop()
        if self._memberships:
            self._rebalances.append(Revoked(sorted(self._memberships)))
        self._memberships, self._unsought, self._next, self._paused = {}, set(), {}, False
        self._watch.reset()

    def _poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        if self._failure is not None:
            found, self._failure = self._failure, None
            raise found
        if self._consumer is None:
            connected = self._connection.wait(seconds)
            if connected is None:
                return []
            self._join(connected)
        consumer = self.consumer
        self._watch.update({} if self._paused else self._sought())
        if stalled := self._watch.stalled:
            (topic, number), why = next(iter(stalled.items()))
            self._forget_consumer()
            raise Transient(f"the consumer is replaced: of {topic}-{number} {why}")
        with translated_errors():
            messages = consumer.consume(1, seconds)  # with a larger number it would wait for all of them
        if messages:
            try:
                messages += consumer.consume(self.max_poll_records - 1, 0)
            except KafkaException as error:
                self._failure = failure(error.args[0])
        rebalances, self._rebalances = self._rebalances, []
        rebalances += self._reassigned()
        return [*rebalances, *self._batches(messages)]

    def _sought(self) -> dict[Partition, int]:
        """Next offset to deliver of each sought partition."""
        names = self._memberships.keys() - self._unsought
        return {name: self._next[name] for name in names if name in self._next}

    def unread(self) -> dict[Partition, str]:
        """Sought partitions that deliver nothing though they have records, and the reason."""
        return self._watch.unread()

    def _batches(self, messages: list[KafkaMessage]) -> list[Batch]:
        """Messages as batches of one partition each; errors among them are kept for the next poll."""
        if any(map(KafkaMessage.error, messages)):
            messages = [message for message in messages if self._is_record(message)]
        found = []
        for name, run in by_partition(messages).items():
            if name not in self._unsought and name in self._memberships:
                found.append(Batch(name, records(run)))
                self._next[name] = found[-1].records[-1].offset + 1
        return found

    def _is_record(self, message: KafkaMessage) -> bool:
        """Whether a message is a record; else note the end of a partition, or keep the error for the next poll."""
        error, name = message.error(), partition_of(message)
        if error is None:
            return True
        if name in self._unsought:  # an offset that was not sought
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            self._next[name] = cast(int, message.offset())  # None only for messages to send
        else:
            self._failure = failure(error)
        return False

    def extent(self, partition: Partition) -> Extent:
        """First and end offset, topic id and number of partitions."""
        found = self._inquiries.extent(partition)
        self._ends[partition] = found.end
        return found

    def seek(self, partition: Partition, offset: int) -> None:
        """Deliver from this offset on."""
        if partition not in self._memberships:
            return  # revoked meanwhile
        with translated_errors():
            self._seek(TopicPartition(*partition, offset))
            self._next[partition] = offset
            self._unsought.discard(partition)
            if not self._paused:
                self.consumer.resume([TopicPartition(*partition)])

    def _seek(self, place: TopicPartition) -> None:
        """Seek; assign the partition again if the client has stopped it because its offset was deleted."""
        try:
            self.consumer.seek(place)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            self.consumer.incremental_unassign([place])
            self.consumer.incremental_assign([place])
            if self._paused:
                self.consumer.pause([place])

    def pause(self) -> None:
        """Stop fetching; heartbeats continue."""
        if not self._paused:
            self._paused = True
            with translated_errors():
                self.consumer.pause(self.consumer.assignment())

    def resume(self) -> None:
        """Fetch from all sought partitions again."""
        if self._paused:
            self._paused = False
            sought = [TopicPartition(*name) for name in self._memberships.keys() - self._unsought]
            with translated_errors():
                self.consumer.resume(sought)

    # ---------------------------------------------------------------- offsets

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit offsets asynchronously, for monitoring tools; errors are ignored."""
        if positions and self._consumer is not None:
            self._committed_offsets = dict(positions)
            with suppress(KafkaException):
                self._consumer.commit(offsets=listed(positions), asynchronous=True)

    def committed(self, partition: Partition) -> int | None:
        """Offset committed by the group; waits for pending transactions."""
        return self._inquiries.committed(partition)

    def lag(self) -> dict[Partition, int]:
        """End offset minus position of each partition, where known."""
        consumer, found = self._consumer, dict[Partition, int]()
        if consumer is None:
            return found
        for name, at in self._sought().items():
            known = None
            with suppress(KafkaException):
                known = consumer.get_watermark_offsets(TopicPartition(*name), cached=True)
            end = max(self._ends.get(name, 0), self._watch.end(name) or 0, -1 if known is None else known[1])
            found[name] = max(0, end - at)
        return found

    # ---------------------------------------------------------------- sending, closing

    @property
    def _shared(self) -> dict[str, Any]:
        """Properties of every client: brokers, security, and the user's own."""
        return {name: value for name, value in self.options.items() if name not in {*CONSUMER, *OWN}}

    def sender(self, transactional_id: str | None, options: Mapping[str, Any]) -> ConfluentSender:
        """Connect a producer with the source's options and these."""
        return ConfluentSender(transactional_id, self._shared | properties(options))

    def close(self) -> None:
        """Leave the group, unless membership is static."""
        self._connection.abandon()
        self._watch.close()
        self._inquiries.close()
        ours = {name: at for name, at in self._committed_offsets.items() if name in self._memberships}
        if ours and self._consumer is not None:
            with suppress(KafkaException):
                self._consumer.commit(offsets=listed(ours), asynchronous=False)
        self._drop()

    def _drop(self) -> None:
        """Close the client; another is connected when next needed."""
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            try:
                consumer.close()
            except (KafkaException, RuntimeError, SystemError):
                # The group has been left by then. A SystemError is how the binding reports an error in a callback.
                log.warning("the consumer closed with an error", exc_info=True)


def membership(consumer: Consumer) -> Membership:
    """Current membership; the id is empty if the consumer is no member, or its membership is just changing."""
    before, metadata, after = consumer.memberid(), consumer.consumer_group_metadata(), consumer.memberid()
    return Membership(before if before == after and before else "", metadata)


def plain(name: TopicPartition) -> Partition:
    """Convert a partition from librdkafka's type."""
    return name.topic, name.partition


def partition_of(message: KafkaMessage) -> Partition:
    """Topic and partition of a message."""
    return cast(Partition, (message.topic(), message.partition()))


def by_partition(messages: list[KafkaMessage]) -> dict[Partition, list[KafkaMessage]]:
    """Messages grouped by partition, in order."""
    if len(set(map(KafkaMessage.topic, messages))) == len(set(map(KafkaMessage.partition, messages))) == 1:
        return {partition_of(messages[0]): messages}
    found: dict[Partition, list[KafkaMessage]] = {}
    for message in messages:
        found.setdefault(partition_of(message), []).append(message)
    return found


def listed(positions: Mapping[Partition, int]) -> list[TopicPartition]:
    """Convert offsets to librdkafka's type."""
    return [TopicPartition(*name, at) for name, at in positions.items()]


def records(messages: list[KafkaMessage]) -> list[Message]:
    """Records of one partition, built column by column without a Python loop."""
    kind = KafkaMessage
    headers: Any = map(kind.headers, messages)
    fields = zip(
        map(kind.offset, messages),
        map(kind.value, messages),
        map(kind.key, messages),
        [found or () for found in headers],
        map(timestamp_of, map(kind.timestamp, messages)),
        strict=True,
    )
    return list(map(tuple.__new__, repeat(Message), fields))
