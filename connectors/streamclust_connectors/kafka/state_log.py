"""Reading the topics that hold states: the latest of a partition, and what comes after it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from streamclust_connectors.kafka.failures import transient
from streamclust_connectors.kafka.parts import Assembler, Whole
from streamclust_connectors.kafka.sending import BROKER_TIMEOUT_SECONDS
from streamclust_connectors.ports import Transient

READER: dict[str, Any] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "allow_auto_create_topics": False,
    "max_partition_fetch_bytes": 4 << 20,
    "reconnect_backoff_max_ms": 1000,
    "bootstrap_timeout_ms": 10_000,
}
FIRST_SPAN_OFFSETS = 16
"""Offsets before the end at which the search for the latest state begins; each try goes eight times further back."""
OPEN_TRANSACTION_SECONDS = 2.0
"""How long to wait for another process's transaction to end before OpenTransaction, which is retried."""
WAIT_MS = 1000 * BROKER_TIMEOUT_SECONDS


class OpenTransaction(Transient):
    """A transaction of another process holds up what is to be read."""


class StateLog:
    """A topic of states, read by kafka-python whatever client the service uses; for one thread.

    With `lenient` states that another version has written are left out: those before them count.
    """

    def __init__(self, topic: str, group: str, options: Mapping[str, Any], lenient: bool = False) -> None:
        self.topic, self.group, self.lenient = topic, group, lenient
        known = {name: value for name, value in options.items() if name in KafkaConsumer.DEFAULT_CONFIG}
        self.options = {**known, **READER, "group_id": None}
        self._consumer: KafkaConsumer | None = None
        self._ends: KafkaConsumer | None = None
        """A second client that sees open transactions, to know where the log really ends."""
        self._following: dict[int, Assembler] = {}
        self._at: dict[int, int] = {}

    def newest(self, partition: int, name: str) -> dict[str, Whole]:
        """The latest content of a partition by name, back to `name`; waits for open transactions to end.

        `follow` goes on from there.
        """
        with transient():
            first, end = self._extent(partition)
            span = FIRST_SPAN_OFFSETS
            while True:
                start = max(first, end - span)
                assembler = Assembler(self.group, self.topic, self.lenient)
                found = {whole.name: whole for whole in self._between(partition, start, end, assembler)}
                if name in found or start == first:
                    break
                span *= 8
        self._following[partition], self._at[partition] = assembler, end
        return found

    def follow(self, seconds: float) -> list[tuple[int, Whole]]:
        """What was written to the partitions that `newest` has read since the last call; waits for so long at most."""
        with transient():
            consumer = self._connected()
            names = {KafkaPartition(self.topic, number) for number in self._following}
            if consumer.assignment() != names:
                consumer.assign(sorted(names))
                for name in names:
                    consumer.seek(name, self._at[name.partition])
            found = []
            for name, records in consumer.poll(timeout_ms=int(1000 * seconds)).items():
                for record in records:
                    whole = self._following[name.partition].add(record)
                    self._at[name.partition] = record.offset + 1
                    if whole is not None:
                        found.append((name.partition, whole))
        return found

    def _between(self, partition: int, start: int, end: int, assembler: Assembler) -> Iterator[Whole]:
        consumer, name = self._connected(), KafkaPartition(self.topic, partition)
        consumer.assign([name])
        consumer.seek(name, start)
        at, moved = start, time.monotonic()
        while at < end:
            for record in consumer.poll(timeout_ms=200).get(name, ()):
                if record.offset < end and (whole := assembler.add(record)) is not None:
                    yield whole
            before, at = at, consumer.position(name, timeout_ms=WAIT_MS)
            if at != before:
                moved = time.monotonic()
            waited = time.monotonic() - moved
            if waited > OPEN_TRANSACTION_SECONDS and _end(consumer, name) < end:
                raise OpenTransaction(f"a transaction on {self.topic}-{partition} has not ended yet")
            if waited > BROKER_TIMEOUT_SECONDS:
                raise Transient(f"the broker does not deliver {self.topic}-{partition}")

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

    def close(self) -> None:
        """Close the clients."""
        for client in (self._consumer, self._ends):
            if client is not None:
                client.close(timeout_ms=2000)
        self._consumer = self._ends = None
        self._following, self._at = {}, {}


def _end(consumer: KafkaConsumer, name: KafkaPartition) -> int:
    """Where a partition ends for a consumer: for one that reads what is committed, at the first open transaction."""
    (end,) = consumer.end_offsets([name], timeout_ms=WAIT_MS).values()
    return int(end)
