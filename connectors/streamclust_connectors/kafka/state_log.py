"""Reads topics of states: the latest state of a partition, and states written later."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from kafka.errors import KafkaError

from streamclust_connectors.interfaces import Transient
from streamclust_connectors.kafka.client_protocols import INQUIRY_TIMEOUT_SECONDS
from streamclust_connectors.kafka.error_translation import translated_errors
from streamclust_connectors.kafka.state_records import Assembler, StoredState

READER: dict[str, Any] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "allow_auto_create_topics": False,
    "max_partition_fetch_bytes": 4 << 20,
    "reconnect_backoff_max_ms": 1000,
    "bootstrap_timeout_ms": 10_000,
}
FIRST_SPAN_OFFSETS = 16
"""Distance from the end at which the search for the latest state starts; each attempt goes back 8 times as far."""
OPEN_TRANSACTION_SECONDS = 2.0
"""Time to wait for the end of another process's transaction before OpenTransaction is raised, which is retried."""
WAIT_MS = 1000 * INQUIRY_TIMEOUT_SECONDS


class OpenTransaction(Transient):
    """An open transaction of another process delays the records to read."""


class StateLog:
    """Reader of a topic of states. It uses kafka-python, whatever the client of the service; for one thread.

    If `lenient`, states of an unknown format are skipped, and earlier ones are used.
    """

    def __init__(self, topic: str, group: str, options: Mapping[str, Any], lenient: bool = False) -> None:
        self.topic, self.group, self.lenient = topic, group, lenient
        known = {name: value for name, value in options.items() if name in KafkaConsumer.DEFAULT_CONFIG}
        self.options = {**known, **READER, "group_id": None}
        self._consumer: KafkaConsumer | None = None
        self._ends: KafkaConsumer | None = None
        """A second client that reads uncommitted records, to find the real end of the log."""
        self._following: dict[int, Assembler] = {}
        self._at: dict[int, int] = {}
        self._sought = False
        """Whether the client is where `follow` left it; `newest` reads elsewhere, and beyond the end that it found."""

    def newest(self, partition: int, name: str) -> dict[str, StoredState]:
        """The latest states of a partition by name, read backwards until `name` is found; waits for open transactions.

        `follow` continues from the end.
        """
        with self._replaced_on_failure():
            first, end = self._extent(partition)
            span = FIRST_SPAN_OFFSETS
            while True:
                start = max(first, end - span)
                assembler = Assembler(self.group, self.topic, self.lenient)
                found = {stored.name: stored for stored in self._between(partition, start, end, assembler)}
                if name in found or start == first:
                    break
                span *= 8
        self._following[partition], self._at[partition] = assembler, end
        return found

    def since(self, partition: int, offset: int) -> list[StoredState]:
        """The states of a partition from an offset on; waits for open transactions. `follow` stays where it is."""
        with self._replaced_on_failure():
            first, end = self._extent(partition)
            assembler = Assembler(self.group, self.topic, self.lenient)
            return list(self._between(partition, max(first, offset), end, assembler))

    def position(self, partition: int) -> int:
        """Offset up to which `follow` has read a partition."""
        return self._at[partition]

    def follow(self, seconds: float) -> list[tuple[int, StoredState]]:
        """States written since the last call, with their partitions; only of partitions that `newest` has read."""
        with self._replaced_on_failure():
            consumer = self._connected()
            names = {KafkaPartition(self.topic, number) for number in self._following}
            if not self._sought or consumer.assignment() != names:
                consumer.assign(sorted(names))
                for name in names:
                    consumer.seek(name, self._at[name.partition])
                self._sought = True
            found = []
            for name, records in consumer.poll(timeout_ms=int(1000 * seconds)).items():
                for record in records:
                    stored = self._following[name.partition].add(record)
                    self._at[name.partition] = record.offset + 1
                    if stored is not None:
                        found.append((name.partition, stored))
        return found

    @contextmanager
    def _replaced_on_failure(self) -> Iterator[None]:
        """Close the clients after a failure; the next call connects others.

        kafka-python may keep outdated metadata for good after brokers have failed over: then no request of the client
        is ever answered.
        """
        try:
            with translated_errors():
                yield
        except OpenTransaction:
            raise  # the client works
        except BaseException:
            self._disconnect()
            raise

    def _between(self, partition: int, start: int, end: int, assembler: Assembler) -> Iterator[StoredState]:
        consumer, name, self._sought = self._connected(), KafkaPartition(self.topic, partition), False
        consumer.assign([name])
        consumer.seek(name, start)
        at, moved = start, time.monotonic()
        while at < end:
            for record in consumer.poll(timeout_ms=200).get(name, ()):
                if record.offset < end and (stored := assembler.add(record)) is not None:
                    yield stored
            before, at = at, consumer.position(name, timeout_ms=WAIT_MS)
            if at != before:
                moved = time.monotonic()
            waited = time.monotonic() - moved
            if waited > OPEN_TRANSACTION_SECONDS and _end(consumer, name) < end:
                raise OpenTransaction(f"a transaction on {self.topic}-{partition} is still open")
            if waited > INQUIRY_TIMEOUT_SECONDS:
                raise Transient(
                    f"the broker did not deliver records of {self.topic}-{partition} for {INQUIRY_TIMEOUT_SECONDS:g} s"
                )

    def _extent(self, partition: int) -> tuple[int, int]:
        if self._ends is None:
            self._ends = KafkaConsumer(**self.options, isolation_level="read_uncommitted")
        name = KafkaPartition(self.topic, partition)
        (first,) = self._ends.beginning_offsets([name], timeout_ms=WAIT_MS).values()
        return first, _end(self._ends, name)

    def _connected(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = KafkaConsumer(**self.options, isolation_level="read_committed")
        return self._consumer

    def _disconnect(self) -> None:
        clients, self._consumer, self._ends = (self._consumer, self._ends), None, None
        self._sought = False
        for client in clients:
            if client is not None:
                with suppress(KafkaError):
                    client.close(timeout_ms=500)

    def close(self) -> None:
        """Close the clients."""
        self._disconnect()
        self._following, self._at = {}, {}


def _end(consumer: KafkaConsumer, name: KafkaPartition) -> int:
    """End offset of a partition for a consumer; with read_committed, the offset of the first open transaction."""
    (end,) = consumer.end_offsets([name], timeout_ms=WAIT_MS).values()
    return int(end)
