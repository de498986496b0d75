"""A producer, transactional where outputs must be exact."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaProducer, errors
from kafka import TopicPartition as KafkaPartition

from streamclust_connectors.kafka import names
from streamclust_connectors.kafka.failures import PATIENCE, transient, within
from streamclust_connectors.kafka.names import offsets
from streamclust_connectors.kafka.source import KafkaSource
from streamclust_connectors.ports import Channel, Output, Partition

PRODUCER: dict[str, Any] = {
    "linger_ms": 20,
    "batch_size": 1 << 18,
    "max_request_size": 8 << 20,
    "max_block_ms": 15_000,  # nobody can stop the service meanwhile
    "reconnect_backoff_max_ms": 1000,
}
LARGEST = 900_000
"""Bytes of a message that a broker takes by default, and a little less."""
SMALLEST = 2000
"""A broker that does not take this takes nothing."""
TOO_LARGE = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)
IN_FLIGHT = 100_000
"""So many messages may be on their way before the source is paused."""


log = logging.getLogger(__name__)


class KafkaSink:
    """Sends outputs to topics, by channel; dead letters go to `<input>.dlq` unless told otherwise.

    With a `transactional_id`, which no other process may use, outputs go out in transactions together with the
    positions of `source`.

    Outputs larger than `largest` are dropped, except that dead letters and snapshots are made smaller before. Where the
    broker takes less than that, its first refusal halves `largest`, and so on.
    """

    def __init__(
        self,
        source: KafkaSource,
        topics: Mapping[Channel, str],
        transactional_id: str | None = None,
        bootstrap_servers: str | Sequence[str] | None = None,
        largest: int = LARGEST,
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.source, self.topics = source, {"dead-letters": "{topic}.dlq", **topics}
        shared = {key: source.options[key] for key in KafkaProducer.DEFAULT_CONFIG if key in source.options}
        shared.pop("allow_auto_create_topics")
        self.options = PRODUCER | shared | options | {"transactional_id": transactional_id}
        if bootstrap_servers is not None:
            self.options["bootstrap_servers"] = bootstrap_servers
        self.exactly_once = transactional_id is not None
        self.largest, self.dropped = largest, 0
        self._refused = False
        """Whether the broker has found something too large."""
        self._producer: KafkaProducer | None = None
        self._sent: deque[tuple[Any, int]] = deque()
        """What is on its way: futures, and how many messages each stands for."""
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
        if self._refused or channel != "assignments":  # which are small, and many
            outputs = [output for output in outputs if self._fits(channel, output)]
        if not outputs:
            return
        with self._sending():
            self._begin()
            if channel == "assignments":
                self._sent += self._assign(topic, outputs)
                return
            for value, key, headers, origin in outputs:
                name = topic if origin is None else topic.format(topic=origin[0])
                self._sent.append((producer.send(name, value, key, list(headers)), 1))

    def _assign(self, topic: str, outputs: Sequence[Output]) -> list[tuple[Any, int]]:
        """Send assignments to the partition that has the number of the one their events came from.

        So those of a key stay together, those of a partition in order, and an output topic of as many partitions as
        the input is partitioned like it.
        """
        producer, origin = self.producer, outputs[0].origin
        assert origin is not None
        name = KafkaPartition(topic, origin[1] % len(producer.partitions_for(topic)))
        if names.KNOWN:
            from streamclust_connectors.kafka.sending import send_together

            return send_together(producer, name, outputs)
        return [(producer.send(topic, value, key, [], name.partition), 1) for value, key, *_ in outputs]

    def _fits(self, channel: Channel, output: Output) -> bool:
        if output.size <= self.largest:
            return True
        self.dropped += 1
        log.error(
            "%d bytes for %s are too many: output.max_message_bytes is %d", output.size, channel, self.largest
        )
        return False

    @contextmanager
    def _sending(self) -> Iterator[None]:
        """Failures as the loop knows them, after which the client is let go; what was too large will be made to fit."""
        with transient(self._drop):
            try:
                yield
            except errors.KafkaError as error:  # of a transaction the first failure alone tells the reason
                reasons = [error, *(future.exception for future, _ in self._sent if future.is_done)]
                if any(isinstance(reason, TOO_LARGE) for reason in reasons):
                    self._take_less()
                raise

    def _take_less(self) -> None:
        if self.largest < 2 * SMALLEST:
            raise errors.KafkaConfigurationError(f"the broker refuses messages of {self.largest} bytes")
        self._refused = True
        self.largest //= 2
        self.options["batch_size"] = min(self.options["batch_size"], self.largest)
        log.warning("the broker has refused a message; from now on the largest is of %d bytes", self.largest)

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
            with self._sending():
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
        with self._sending():
            self.producer.flush(timeout=PATIENCE)
            while self._sent:
                future, _ = self._sent.popleft()
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
        while self._sent and self._sent[0][0].succeeded():
            self._sent.popleft()
        return sum(count for _, count in self._sent) > IN_FLIGHT

    def close(self) -> None:
        """Close the client; what was not committed is dropped."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.close(timeout=5)
