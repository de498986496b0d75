"""Sending by librdkafka's producer."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from streamclust_connectors.kafka.confluent.failures import CLIENT_ERRORS, failure, failure_of, transient
from streamclust_connectors.kafka.sending import BROKER_TIMEOUT_SECONDS, within
from streamclust_connectors.ports import Output, Partition, Transient

PRODUCER: dict[str, Any] = {
    "linger.ms": 20,
    "message.max.bytes": 8 << 20,
    "queue.buffering.max.messages": 500_000,
    "enable.idempotence": True,
    "delivery.report.only.error": True,
    "partitioner": "murmur2_random",  # as Java's and kafka-python's producers
    "reconnect.backoff.max.ms": 1000,
}
FULL_WAIT_SECONDS = 0.1

log = logging.getLogger(__name__)


class ConfluentSender:
    """A producer of librdkafka; options are its properties."""

    def __init__(self, transactional_id: str | None, options: Mapping[str, Any]) -> None:
        found = PRODUCER | dict(options)
        if transactional_id is not None:
            found["transactional.id"] = transactional_id
        self._failures: list[KafkaError] = []
        self._n_partitions: dict[str, int] = {}
        with transient():
            self.producer = Producer(found, logger=log)
            if transactional_id is not None:
                self.producer.init_transactions(BROKER_TIMEOUT_SECONDS)

    def n_partitions(self, topic: str) -> int:
        """Number of partitions of a topic."""
        if topic not in self._n_partitions:
            with transient():
                found = self.producer.list_topics(topic, BROKER_TIMEOUT_SECONDS).topics[topic]
                if found.error is not None:
                    raise Transient(f"{topic}: {found.error.str()}")
            self._n_partitions[topic] = len(found.partitions)
        return self._n_partitions[topic]

    def send(self, topic: str, outputs: Sequence[Output], partition: int | None) -> None:
        """Queue messages."""
        produce, failed = self.producer.produce, self._failed
        number = -1 if partition is None else partition
        for value, key, headers, _ in outputs:
            more: dict[str, Any] = {"headers": list(headers)} if headers else {}
            try:
                produce(topic, value, key, number, failed, **more)
            except BufferError:
                self._produce_later(topic, value, key, number, failed, **more)
            except KafkaException as error:
                raise self._reason(error) from error

    def _produce_later(self, *arguments: Any, **more: Any) -> None:
        """Queue a message as soon as there is room."""
        deadline = time.monotonic() + BROKER_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            with transient(), suppress(BufferError):
                self.producer.poll(FULL_WAIT_SECONDS)
                self.producer.produce(*arguments, **more)
                return
        raise Transient("the broker takes no more messages")

    def _failed(self, error: KafkaError | None, _: object) -> None:
        """Called while polling or flushing, for messages that were not delivered."""
        if error is not None:
            self._failures.append(error)

    @property
    def in_flight(self) -> int:
        """Number of messages not yet acknowledged."""
        with suppress(*CLIENT_ERRORS):  # which `flush` tells
            self.producer.poll(0)
        return len(self.producer)

    def flush(self) -> None:
        """Wait until all messages are acknowledged."""
        try:
            left = self.producer.flush(BROKER_TIMEOUT_SECONDS)
        except CLIENT_ERRORS as error:
            raise self._reason(error) from error
        if self._failures:
            raise failure(self._failures[0])
        if left:
            raise Transient(f"{left} messages were not acknowledged in time")

    def begin(self) -> None:
        """Begin a transaction."""
        with transient():
            self.producer.begin_transaction()

    def commit(self, positions: Mapping[Partition, int], membership: object) -> None:
        """Commit the transaction, with offsets if there are any."""
        seconds = BROKER_TIMEOUT_SECONDS
        try:  # librdkafka keeps its own limit no longer once a broker has gone and come back
            if positions:
                at = [TopicPartition(*name, offset) for name, offset in positions.items()]
                within(seconds, self.producer.send_offsets_to_transaction, at, membership, seconds)
            within(seconds, self.producer.commit_transaction, seconds)
        except TimeoutError as error:
            raise Transient(str(error)) from error
        except CLIENT_ERRORS as error:
            raise self._reason(error) from error

    def _reason(self, error: KafkaException | SystemError) -> Exception:
        """The exception to raise; the first message that failed tells more than the transaction does."""
        with suppress(*CLIENT_ERRORS):
            self.producer.poll(0)
        return failure(self._failures[0]) if self._failures else failure_of(error)

    def close(self, seconds: float) -> None:
        """Discard what is unsent, and close the client."""
        with suppress(*CLIENT_ERRORS):
            self.producer.purge()
            self.producer.flush(seconds)
