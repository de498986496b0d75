"""Kafka: a consumer that begins where the checkpoint says, and a producer, transactional where outputs must be exact.

kafka-python 3 runs rebalance listeners on its IO thread, where nothing may block. So they only pause what is new and
leave word; the loop, which alone polls, does the rest.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from kafka import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    errors,
)
from kafka import TopicPartition as KafkaPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from streamclust_connectors.ports import (
    Assigned,
    Batch,
    Channel,
    DataLoss,
    Extent,
    Fenced,
    Output,
    Partition,
    Revoked,
    Transient,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

CONSUMER: dict[str, Any] = {
    "enable_auto_commit": False,  # the checkpoint's offsets count
    "auto_offset_reset": "none",  # nor may the client choose where to begin: it would skip without a word
    "partition_assignment_strategy": (CooperativeStickyAssignor,),
    "max_poll_records": 10_000,
    "max_partition_fetch_bytes": 4 << 20,
    "isolation_level": "read_committed",
    "allow_auto_create_topics": False,  # a name misspelt is not a new topic
    "reconnect_backoff_max_ms": 1000,
}
PRODUCER: dict[str, Any] = {
    "linger_ms": 20,
    "batch_size": 1 << 18,
    "max_request_size": 8 << 20,
    "reconnect_backoff_max_ms": 1000,
}
IN_FLIGHT = 100_000
"""So many messages may be on their way before the source is paused."""
PATIENCE = 15.0
"""Seconds to wait for a broker before the loop hears of it; it will try again."""

FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError, errors.FencedInstanceIdError)
FATAL = (
    errors.KafkaConfigurationError,
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.MessageSizeTooLargeError,
    errors.UnsupportedVersionError,
    errors.InvalidTopicError,
)
"""To try again would not help."""


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

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """Rebalances first, then records; none of partitions that were not yet sought."""
        consumer = self.consumer
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
        """The distance from our position to the end, as the last fetch told it."""
        consumer, found = self._consumer, dict[Partition, int]()
        if consumer is None:
            return found
        for name in consumer.assignment() - self._held_back:
            with suppress(errors.KafkaError, KeyError, AttributeError):  # lost in this very moment
                end, at = consumer.highwater(name), consumer.position(name, timeout_ms=0)
                if end is not None and at is not None:
                    found[plain(name)] = max(0, end - at)
        return found

    def close(self) -> None:
        """Leave the group, unless membership is static."""
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
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


class KafkaSink:
    """Sends outputs to topics, by channel; dead letters go to `<input>.dlq` unless told otherwise.

    With a `transactional_id`, which no other process may use, outputs go out in transactions together with the
    positions of `source`.
    """

    def __init__(
        self,
        source: KafkaSource,
        topics: Mapping[Channel, str],
        transactional_id: str | None = None,
        bootstrap_servers: str | Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.source, self.topics = source, {"dead-letters": "{topic}.dlq", **topics}
        shared = {key: source.options[key] for key in KafkaProducer.DEFAULT_CONFIG if key in source.options}
        shared.pop("allow_auto_create_topics")
        self.options = PRODUCER | shared | options | {"transactional_id": transactional_id}
        if bootstrap_servers is not None:
            self.options["bootstrap_servers"] = bootstrap_servers
        self.exactly_once = transactional_id is not None
        self._producer: KafkaProducer | None = None
        self._sent: deque[Any] = deque()
        self._open = False
        self._positions: dict[Partition, int] = {}

    @property
    def producer(self) -> KafkaProducer:
        """The client, connected when first needed; a transaction that a predecessor left open is aborted."""
        if self._producer is None:
            with transient():
                producer = KafkaProducer(**self.options)
                if self.exactly_once:
                    producer.init_transactions()
            self._producer = producer
        return self._producer

    def wants(self, channel: Channel) -> bool:
        """Whether there is a topic for it."""
        return bool(self.topics.get(channel))

    def emit(self, channel: Channel, outputs: Sequence[Output]) -> None:
        """Hand outputs to the client, which sends them in batches of its own."""
        producer, topic = self.producer, self.topics[channel]
        with transient(self._drop):
            self._begin()
            for value, key, headers, origin in outputs:
                name = topic if origin is None else topic.format(topic=origin[0])
                self._sent.append(producer.send(name, value, key, list(headers)))

    def _begin(self) -> None:
        if self.exactly_once and not self._open:
            self.producer.begin_transaction()
            self._open = True

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Wait until everything has arrived; in a transaction, make it visible with the positions."""
        moved = {name: at for name, at in positions.items() if self._positions.get(name) != at}
        if not self.exactly_once:
            self._flush()
        elif self._open or moved:
            with transient(self._drop):
                self._begin()
                self._flush()
                group = self.source.consumer.group_metadata()
                within(PATIENCE, self.producer.send_offsets_to_transaction, offsets(positions), group)
                within(PATIENCE, self.producer.commit_transaction)
            self._open = False
        self._positions.update(positions)

    def _flush(self) -> None:
        if not self._sent:
            return
        with transient(self._drop):
            self.producer.flush(timeout=PATIENCE)
            while self._sent:
                future = self._sent.popleft()
                if not future.succeeded():
                    raise future.exception or errors.KafkaTimeoutError(
                        "a message was not acknowledged in time"
                    )

    def _drop(self) -> None:
        """Let the client go with all that it has not sent: a new one aborts what this one has begun."""
        self._sent.clear()
        self._open, self._positions = False, {}
        if self._producer is not None:
            producer, self._producer = self._producer, None
            threading.Thread(target=producer.close, kwargs={"timeout": 1}, daemon=True).start()

    def committed(self, partition: Partition) -> int | None:
        """How far the transactions of the group are, those of a predecessor with our id ended before we ask."""
        assert self.producer is not None
        found = self.source.committed(partition)
        if found is not None:
            self._positions[partition] = found
        return found

    @property
    def full(self) -> bool:
        """Whether more than IN_FLIGHT messages are on their way."""
        while self._sent and self._sent[0].is_done and self._sent[0].succeeded():
            self._sent.popleft()
        return len(self._sent) > IN_FLIGHT

    def close(self) -> None:
        """Close the client; what was not committed is dropped."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.close(timeout=5)


def plain(name: KafkaPartition) -> Partition:
    """A partition as the service has it."""
    return name.topic, name.partition


def offsets(positions: Mapping[Partition, int]) -> dict[KafkaPartition, OffsetAndMetadata]:
    """Positions as Kafka has them."""
    return {KafkaPartition(*name): OffsetAndMetadata(at, "", -1) for name, at in positions.items()}


@contextmanager
def transient(clean_up: Callable[[], None] | None = None) -> Any:  # noqa: ANN401
    """Kafka's errors as the loop knows them: those that may pass, those that lose records, those that end us."""
    try:
        yield
    except (Transient, DataLoss, Fenced):
        raise
    except FENCED as error:
        if clean_up is not None:
            clean_up()
        raise Fenced(
            f"another process has this one's transactional id or group instance id: {error}"
        ) from error
    except (
        errors.OffsetOutOfRangeError,
        errors.NoOffsetForPartitionError,
        errors.LogTruncationError,
    ) as error:
        raise DataLoss(
            f"records were deleted before they were learnt: {error}. Restart with on_data_loss set to continue "
            "(--on-data-loss=continue) to go on with what there is"
        ) from error
    except FATAL:
        raise
    except (errors.KafkaError, OSError, TimeoutError) as error:
        if clean_up is not None:
            clean_up()
        raise Transient(f"{type(error).__name__}: {error}") from error


def within(seconds: float, call: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401
    """What a call returns; some of the client's wait for ever, so a thread of its own makes it."""
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(call(*arguments))
        except BaseException as error:  # raised where it was called for
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise errors.KafkaTimeoutError(f"{call.__name__} took more than {seconds:.0f} s")
    return done[0]
