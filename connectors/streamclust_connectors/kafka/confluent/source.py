"""librdkafka's consumer, which begins where the checkpoint says.

Its thread joins the group and sends heartbeats; what it tells of rebalances it tells within `consume`, so to the loop.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient

from streamclust_connectors.kafka.confluent.failures import Spent, failure, transient
from streamclust_connectors.kafka.confluent.options import properties
from streamclust_connectors.kafka.confluent.sender import ConfluentSender
from streamclust_connectors.kafka.sending import BROKER_TIMEOUT_SECONDS, COMMITTED_TIMEOUT_SECONDS
from streamclust_connectors.ports import (
    Assigned,
    Batch,
    Extent,
    Fenced,
    Message,
    Partition,
    Revoked,
    Transient,
)

CONSUMER: dict[str, Any] = {
    "enable.auto.commit": False,  # the checkpoint's offsets count
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # nor may the client choose where to begin: it would skip without a word
    "partition.assignment.strategy": "cooperative-sticky",
    "max.partition.fetch.bytes": 4 << 20,
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,  # a name misspelt is not a new topic
    "enable.partition.eof": True,  # says where a partition ends behind markers of transactions
    "reconnect.backoff.max.ms": 1000,
}
OWN = ("group.id", "group.instance.id", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms")
"""Properties of a consumer alone."""
TOPIC_TIMEOUT_SECONDS = 10.0
RIVAL_SECONDS = 30.0
"""A consumer that is spent again so soon is taken to have a rival of the same group instance id."""

log = logging.getLogger(__name__)
timestamp_of = itemgetter(1)


class Membership(NamedTuple):
    """A member of the group: its id, and what a transaction needs to know of it. The id is empty if unsure."""

    member: str
    metadata: Any


class ConfluentSource:
    """Topics as a member of a consumer group. Options are named as `KafkaSource` has them, or as librdkafka does.

    With `group_instance_id` (static membership) a member that restarts soon enough gets its partitions back without a
    rebalance.
    """

    finished = False

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
        self.options = CONSUMER | properties(given)
        self._consumer: Consumer | None = None
        self._news: list[Assigned | Revoked] = []
        self._failure: Exception | None = None
        """What a partition's queue has told beside records, which are delivered first."""
        self._spent_at = -RIVAL_SECONDS
        self._held_back: set[Partition] = set()
        self._memberships: dict[Partition, Membership] = {}
        """Group membership under which each partition was assigned."""
        self._paused = False
        self._told: Mapping[Partition, int] = {}
        self._next: dict[Partition, int] = {}
        """Next offset to deliver of each partition."""
        self._ends: dict[Partition, int] = {}
        """End offsets at assignment: the client knows none before its first fetch."""

    @property
    def consumer(self) -> Consumer:
        """The client, connected when first needed."""
        if self._consumer is None:
            with transient():
                consumer = Consumer(self.options, logger=log)
            try:
                self._look_for_topics(consumer)
            except BaseException:
                consumer.close()
                raise
            self._consumer = consumer
            consumer.subscribe(self.topics, on_assign=self._assigned, on_revoke=self._revoked)
        return self._consumer

    def check(self) -> None:
        """Raise ValueError if librdkafka knows no such option, or not with this value."""
        try:
            Consumer(self.options, logger=log).close()
        except KafkaException as error:
            raise ValueError(error.args[0].str()) from None

    def _look_for_topics(self, consumer: Consumer) -> None:
        with transient():
            found = {
                name: consumer.list_topics(name, TOPIC_TIMEOUT_SECONDS).topics[name] for name in self.topics
            }
        if missing := [name for name, topic in found.items() if topic.error is not None]:
            raise Transient(f"there is no topic {', '.join(missing)} at {self.options['bootstrap.servers']}")

    # ---------------------------------------------------------------- rebalances

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Hold new partitions back until the loop has sought them."""
        names = sorted(map(plain, partitions))
        consumer.incremental_assign([TopicPartition(*name, 0) for name in names])  # any place will do
        self._hold_back(consumer, names)
        if names:
            self._news.append(Assigned(names))

    def _hold_back(self, consumer: Consumer, names: Sequence[Partition]) -> None:
        consumer.pause([TopicPartition(*name) for name in names])
        self._held_back |= set(names)
        self._memberships |= dict.fromkeys(names, membership(consumer))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Queue the revocation."""
        names = sorted(map(plain, partitions))
        self._held_back -= set(names)
        for name in names:
            self._memberships.pop(name, None)
            self._next.pop(name, None)
        try:
            consumer.incremental_unassign([TopicPartition(*name) for name in names])
        except (KafkaException, RuntimeError):
            if self._consumer is not None:
                raise
            # A consumer that is closing may have forgotten them; an exception here would keep it from closing.
        if names:
            self._news.append(Revoked(names))

    def _regained(self) -> list[Assigned | Revoked]:
        """Partitions that were lost and assigned again without a call of `_revoked`."""
        member = self.consumer.memberid()
        old = sorted(name for name, then in self._memberships.items() if member and then.member != member)
        if not old:
            return []
        self._hold_back(self.consumer, old)
        return [Revoked(old), Assigned(old)]

    def membership(self, partitions: Collection[Partition]) -> object:
        """Group membership with which to commit offsets of these partitions, so that the broker can refuse it.

        It is the one under which they were assigned or, as the same member, a later generation. What the client says
        now may be another: none once a heartbeat has failed, with which a broker accepts offsets from anyone.
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
        """Rebalances, then records; partitions not yet sought deliver none."""
        try:
            return self._poll(seconds)
        except (Spent, Fenced) as error:
            self._begin_again(error)
            raise Transient(f"the consumer was spent, and another takes its place: {error}") from error

    def _begin_again(self, error: Exception) -> None:
        """Give a spent consumer up for another, to which the group gives its partitions anew.

        One of a static member is fenced by a broker that has restarted, too: the client joins again before it has heard
        the answer to its last attempt, and so takes its own place. Two processes that do have one id would take
        turns for ever: fenced again soon, this one ends.
        """
        self._drop()
        if self._memberships:
            self._news.append(Revoked(sorted(self._memberships)))
        self._memberships, self._held_back, self._next = {}, set(), {}
        before, self._spent_at = self._spent_at, time.monotonic()
        if self._spent_at - before < RIVAL_SECONDS:
            raise Fenced(f"another process has this one's group instance id: {error}") from error

    def _poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        if self._failure is not None:
            found, self._failure = self._failure, None
            raise found
        consumer = self.consumer
        with transient():
            messages = consumer.consume(1, seconds)  # for more it would wait, whatever there is
        if messages:
            try:
                messages += consumer.consume(self.max_poll_records - 1, 0)
            except KafkaException as error:
                self._failure = failure(error.args[0])
        news, self._news = self._news, []
        news += self._regained()
        return [*news, *self._batches(messages)]

    def _batches(self, messages: list[KafkaMessage]) -> list[Batch]:
        """Messages as batches of one partition each; errors among them are kept for the next poll."""
        if any(map(KafkaMessage.error, messages)):
            messages = [message for message in messages if self._sound(message)]
        found = []
        for name, run in by_partition(messages).items():
            if name not in self._held_back and name in self._memberships:
                found.append(Batch(name, records(run)))
                self._next[name] = found[-1].records[-1].offset + 1
        return found

    def _sound(self, message: KafkaMessage) -> bool:
        """Whether a message is a record; the end of a partition is noted, an error kept."""
        error, name = message.error(), place(message)
        if error is None:
            return True
        if name in self._held_back:  # about a place nobody has sought
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            self._next[name] = cast(int, message.offset())  # of messages to be sent alone it is None
        else:
            self._failure = failure(error)
        return False

    def extent(self, partition: Partition) -> Extent:
        """The oldest record, the end, and which topic this is."""
        with transient():
            found = self.consumer.get_watermark_offsets(TopicPartition(*partition), BROKER_TIMEOUT_SECONDS)
            if found is None:
                raise Transient(f"the broker did not tell where {partition[0]}-{partition[1]} ends")
            topic = self._describe(partition[0])
        self._ends[partition] = found[1]
        return Extent(*found, topic["topic_id"], len(topic["partitions"]))

    def _describe(self, topic: str) -> dict[str, Any]:
        admin = AdminClient(self._shared, logger=log)
        futures = admin.describe_topics(TopicCollection([topic]), request_timeout=BROKER_TIMEOUT_SECONDS)
        found = futures[topic].result()
        bits = found.topic_id.get_most_significant_bits(), found.topic_id.get_least_significant_bits()
        whole = b"".join(part.to_bytes(8, "big", signed=True) for part in bits)
        return {"topic_id": str(uuid.UUID(bytes=whole)), "partitions": found.partitions}

    def seek(self, partition: Partition, offset: int) -> None:
        """Deliver from this offset on."""
        if partition not in self._memberships:
            return  # revoked meanwhile, as the last poll has said
        with transient():
            self._begin_at(TopicPartition(*partition, offset))
            self._next[partition] = offset
            self._held_back.discard(partition)
            if not self._paused:
                self.consumer.resume([TopicPartition(*partition)])

    def _begin_at(self, place: TopicPartition) -> None:
        """Seek. A partition that the client has given up, since its first offset is deleted, is assigned anew."""
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
        """Fetch nothing; heartbeats go on."""
        if not self._paused:
            self._paused = True
            with transient():
                self.consumer.pause(self.consumer.assignment())

    def resume(self) -> None:
        """Fetch again what was sought."""
        if self._paused:
            self._paused = False
            sought = [TopicPartition(*name) for name in self._memberships.keys() - self._held_back]
            with transient():
                self.consumer.resume(sought)

    # ---------------------------------------------------------------- offsets

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit offsets asynchronously, for monitoring tools; errors are ignored."""
        if positions and self._consumer is not None:
            self._told = dict(positions)
            with suppress(KafkaException):
                self._consumer.commit(offsets=listed(positions), asynchronous=True)

    def committed(self, partition: Partition) -> int | None:
        """Offset committed by the group; waits for pending transactions."""
        with transient():
            (found,) = self.consumer.committed([TopicPartition(*partition)], COMMITTED_TIMEOUT_SECONDS)
            if found.error is not None:
                raise failure(found.error)
        return int(found.offset) if found.offset >= 0 else None

    def lag(self) -> dict[Partition, int]:
        """End offset minus position of each partition, where known."""
        consumer, found = self._consumer, dict[Partition, int]()
        if consumer is None:
            return found
        for name in self._memberships.keys() - self._held_back:
            if name not in self._next:
                continue
            known = None
            with suppress(KafkaException):
                known = consumer.get_watermark_offsets(TopicPartition(*name), cached=True)
            end = max(self._ends.get(name, 0), -1 if known is None else known[1])
            found[name] = max(0, end - self._next[name])
        return found

    # ---------------------------------------------------------------- sending, closing

    @property
    def _shared(self) -> dict[str, Any]:
        """Properties of every client: brokers, security, those that the user has added."""
        return {name: value for name, value in self.options.items() if name not in {*CONSUMER, *OWN}}

    def sender(self, transactional_id: str | None, options: Mapping[str, Any]) -> ConfluentSender:
        """Connect a producer. Its options are those of the source, and these."""
        return ConfluentSender(transactional_id, self._shared | properties(options))

    def close(self) -> None:
        """Leave the group, unless membership is static."""
        ours = {name: at for name, at in self._told.items() if name in self._memberships}
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
                # librdkafka has left the group by then; a SystemError is its binding's word for what a callback met.
                log.warning("the consumer closed with an error", exc_info=True)


def membership(consumer: Consumer) -> Membership:
    """Current membership; without an id where the group does not know this consumer, or may just have dropped it."""
    before, metadata, after = consumer.memberid(), consumer.consumer_group_metadata(), consumer.memberid()
    return Membership(before if before == after and before else "", metadata)


def plain(name: TopicPartition) -> Partition:
    """Convert a partition from librdkafka's type."""
    return name.topic, name.partition


def place(message: KafkaMessage) -> Partition:
    """Topic and partition of a message."""
    return cast(Partition, (message.topic(), message.partition()))


def by_partition(messages: list[KafkaMessage]) -> dict[Partition, list[KafkaMessage]]:
    """Messages of each partition, in their order."""
    if len(set(map(KafkaMessage.topic, messages))) == len(set(map(KafkaMessage.partition, messages))) == 1:
        return {place(messages[0]): messages}
    found: dict[Partition, list[KafkaMessage]] = {}
    for message in messages:
        found.setdefault(place(message), []).append(message)
    return found


def listed(positions: Mapping[Partition, int]) -> list[TopicPartition]:
    """Convert offsets to librdkafka's type."""
    return [TopicPartition(*name, at) for name, at in positions.items()]


def records(messages: list[KafkaMessage]) -> list[Message]:
    """Records of one partition, column by column: a call for each record and field, and none of Python's."""
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
