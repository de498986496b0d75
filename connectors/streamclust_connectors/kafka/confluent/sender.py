"""Sends messages by librdkafka's producer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from streamclust_connectors.interfaces import Output, Partition, Transient
from streamclust_connectors.kafka.client_protocols import BROKER_TIMEOUT_SECONDS, within
from streamclust_connectors.kafka.confluent.error_translation import (
    CLIENT_ERRORS,
    failure,
    failure_of,
    translated_errors,
)
from streamclust_connectors.kafka.confluent.librdkafka_log import log as librdkafka_log

PRODUCER: dict[str, Any] = {
    "linger.ms": 20,
    "message.max.bytes": 8 << 20,
    "queue.buffering.max.messages": 500_000,
    "enable.idempotence": True,
    "delivery.report.only.error": True,
    "partitioner": "murmur2_random",  # like the producers of Java and kafka-python
    "reconnect.backoff.max.ms": 1000,
}
FULL_WAIT_SECONDS = 0.1
"""Time between two attempts to queue a message while the queue is full."""


class ConfluentSender:
    """librdkafka's producer; the options are librdkafka's properties."""

    def __init__(self, transactional_id: str | None, options: Mapping[str, Any]) -> None:
        found = PRODUCER | dict(options)
        if transactional_id is not None:
            found["transactional.id"] = transactional_id
        self._failures: list[KafkaError] = []
        self._n_partitions: dict[str, int] = {}
        with translated_errors():
            self.producer = Producer(found, logger=librdkafka_log)
            if transactional_id is not None:
                self.producer.init_transactions(BROKER_TIMEOUT_SECONDS)

    def n_partitions(self, topic: str) -> int:
        """Number of partitions of a topic."""
        if topic not in self._n_partitions:
            with translated_errors():
                found = self.producer.list_topics(topic, BROKER_TIMEOUT_SECONDS).topics[topic]
                if found.error is not None:
                    raise Transient(f"{topic}: {found.error.str()}")
            self._n_partitions[topic] = len(found.partitions)
        return self._n_partitions[topic]

    def send(self, topic: str, outputs: Sequence[Output], partition: int | None) -> None:
        """Queue messages."""
        produce, failed = self.producer.produce, self._failed
        number = -1 if partition is None else partition
        for value, key, headers, _, timestamp in outputs:
            more: dict[str, Any] = {"headers": list(headers)} if headers else {}
            if timestamp is not None:
                more["timestamp"] = timestamp
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
            with translated_errors(), suppress(BufferError):
                self.producer.poll(FULL_WAIT_SECONDS)
                self.producer.produce(*arguments, **more)
                return
        raise Transient(f"the queue of unsent messages was full for {BROKER_TIMEOUT_SECONDS:g} s")

    def _failed(self, error: KafkaError | None, _: object) -> None:
        """Callback of poll and flush for a message that was not delivered."""
        if error is not None:
            self._failures.append(error)

    @property
    def in_flight(self) -> int:
        """Number of messages not yet acknowledged."""
        with suppress(*CLIENT_ERRORS):  # flush will raise it
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
            were = "message was" if left == 1 else "messages were"
            raise Transient(f"{left} {were} not acknowledged within {BROKER_TIMEOUT_SECONDS:g} s")

    def begin(self) -> None:
        """Begin a transaction."""
        with translated_errors():
            self.producer.begin_transaction()

    def commit(self, positions: Mapping[Partition, int], membership: object) -> None:
        """Commit the transaction, with offsets if there are any."""
        seconds = BROKER_TIMEOUT_SECONDS
        try:  # `within`, since librdkafka ignores its own time limit after a broker restart
            if positions:
                at = [TopicPartition(*name, offset) for name, offset in positions.items()]
                within(seconds, self.producer.send_offsets_to_transaction, at, membership, seconds)
            within(seconds, self.producer.commit_transaction, seconds)
        except TimeoutError as error:
            raise Transient(str(error)) from error
        except CLIENT_ERRORS as error:
            raise self._reason(error) from error

    def _reason(self, error: KafkaException | SystemError) -> Exception:
        """The exception to raise: the first failed message explains more than the transaction's error."""
        with suppress(*CLIENT_ERRORS):
            self.producer.poll(0)
        return failure(self._failures[0]) if self._failures else failure_of(error)

    def close(self, seconds: float) -> None:
        """Discard unsent messages, and close the client."""
        with suppress(*CLIENT_ERRORS):
            self.producer.purge()
            self.producer.flush(seconds)
