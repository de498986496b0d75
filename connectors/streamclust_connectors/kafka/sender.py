"""Sends messages by kafka-python's producer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kafka import KafkaProducer, errors

from streamclust_connectors.interfaces import Output, Partition, Transient
from streamclust_connectors.kafka.client_protocols import BROKER_TIMEOUT_SECONDS, MessageTooLarge, within
from streamclust_connectors.kafka.conversions import offsets
from streamclust_connectors.kafka.error_translation import translated_errors

PRODUCER: dict[str, Any] = {
    "linger_ms": 20,
    "max_request_size": 8 << 20,
    "max_block_ms": 15_000,  # the service cannot be stopped meanwhile
    "reconnect_backoff_max_ms": 1000,
}
SPLIT_WAIT_SECONDS = 0.05
"""Time between two attempts to flush while a batch is being split."""
TOO_LARGE = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)


class KafkaSender:
    """kafka-python's producer and its options."""

    def __init__(self, transactional_id: str | None, options: Mapping[str, Any]) -> None:
        known = {name: value for name, value in options.items() if name in KafkaProducer.DEFAULT_CONFIG}
        with translated_errors():
            self.producer = KafkaProducer(**PRODUCER | known, transactional_id=transactional_id)
            if transactional_id is not None:
                try:
                    self.producer.init_transactions()
                except BaseException:  # it would keep requesting its id, and fence the next client
                    self.close(0.0)
                    raise
        self._sent: deque[Any] = deque()
        """Futures of the messages in flight."""

    def n_partitions(self, topic: str) -> int:
        """Number of partitions of a topic."""
        with translated_errors():
            return len(self.producer.partitions_for(topic))

    def send(self, topic: str, outputs: Sequence[Output], partition: int | None) -> None:
        """Queue messages."""
        send, sent = self.producer.send, self._sent
        with self._translated_errors():
            if partition is not None and partition not in self.producer.partitions_for(topic):
                raise Transient(
                    f"topic {topic} has no partition {partition} yet, as far as this client knows"
                )
            for value, key, headers, _, timestamp in outputs:
                sent.append(send(topic, value, key, list(headers), partition, timestamp))

    @property
    def in_flight(self) -> int:
        """Number of messages not yet acknowledged."""
        while self._sent and self._sent[0].succeeded():
            self._sent.popleft()
        return len(self._sent)

    def flush(self) -> None:
        """Wait until all messages are acknowledged."""
        if not self._sent:
            return
        with self._translated_errors():
            self._wait_for_all(time.monotonic() + BROKER_TIMEOUT_SECONDS)
            for future in self._sent:
                if not future.succeeded():
                    raise future.exception or errors.KafkaTimeoutError(
                        "a message was not acknowledged in time"
                    )
        self._sent.clear()

    def _wait_for_all(self, deadline: float) -> None:
        """Flush; again if the client has split a batch that was too large, whose parts are still on their way.

        kafka-python then stops waiting, with an UnknownError ("Future not done").
        """
        while True:
            try:
                self.producer.flush(timeout=max(0.1, deadline - time.monotonic()))
                return
            except errors.UnknownError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(SPLIT_WAIT_SECONDS)

    def begin(self) -> None:
        """Begin a transaction."""
        with self._translated_errors():
            self.producer.begin_transaction()

    def commit(self, positions: Mapping[Partition, int], membership: object) -> None:
        """Commit the transaction, with offsets if there are any."""
        with self._translated_errors():
            if positions:
                within(
                    BROKER_TIMEOUT_SECONDS,
                    self.producer.send_offsets_to_transaction,
                    offsets(positions),
                    membership,
                )
            within(BROKER_TIMEOUT_SECONDS, self.producer.commit_transaction)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translate errors; MessageTooLarge if any message in flight was too large."""
        with translated_errors():
            try:
                yield
            except (
                errors.KafkaError
            ) as error:  # only the first failed message of a transaction has the reason
                reasons = [error, *(future.exception for future in self._sent if future.is_done)]
                if any(isinstance(reason, TOO_LARGE) for reason in reasons):
                    raise MessageTooLarge(str(error)) from error
                raise

    def close(self, seconds: float) -> None:
        """Discard unsent messages, and close the client.

        kafka-python's `close` waits for unsent messages and returns if they stay unsent. The client then keeps running,
        gets a new epoch for its transactional id, and fences the client that has replaced it.
        """
        with suppress(AttributeError):  # there is no public way to stop it
            self.producer._sender.force_close()
        with suppress(errors.KafkaError):
            self.producer.close(timeout=seconds)
