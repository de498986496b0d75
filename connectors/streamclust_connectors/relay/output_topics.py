"""Reads topics of outputs, from offsets that the reader chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as KafkaPartition
from kafka.errors import KafkaError

from streamclust_connectors.interfaces import Partition, Record, Transient
from streamclust_connectors.kafka.error_translation import translated_errors

READER: dict[str, Any] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "allow_auto_create_topics": False,
    "isolation_level": "read_committed",
    "reconnect_backoff_max_ms": 1000,
}
TIMEOUT_MS = 15_000


class OutputTopics:
    """All partitions of some topics, read by one process; it joins no group, but may keep a group's offsets."""

    def __init__(self, topics: Sequence[str], options: Mapping[str, Any], group: str | None = None) -> None:
        self.topics = topics
        self._options = {**options, **READER, "group_id": group}
        self._consumer: KafkaConsumer | None = None

    def partitions(self) -> list[Partition]:
        """All partitions; Transient if a topic does not exist yet."""
        with self._client() as client:
            found = {topic: client.partitions_for_topic(topic) for topic in self.topics}
        if missing := [topic for topic, numbers in found.items() if not numbers]:
            raise Transient(f"there is no topic {', '.join(missing)} yet")
        return [(topic, number) for topic, numbers in found.items() for number in sorted(numbers or ())]

    def committed(self, partition: Partition) -> int | None:
        """Offset that the group has committed."""
        with self._client() as client:
            at = client.committed(KafkaPartition(*partition), timeout_ms=TIMEOUT_MS)
        return None if at is None else int(at)

    def end(self, partition: Partition) -> int:
        """Offset after the last record."""
        name = KafkaPartition(*partition)
        with self._client() as client:
            return int(client.end_offsets([name], timeout_ms=TIMEOUT_MS)[name])

    def seek(self, positions: Mapping[Partition, int]) -> None:
        """Read these partitions from these offsets on."""
        with self._client() as client:
            client.assign([KafkaPartition(*name) for name in positions])
            for name, at in positions.items():
                client.seek(KafkaPartition(*name), at)

    def poll(self, seconds: float) -> Iterator[tuple[Partition, Sequence[Record]]]:
        """The next records of each partition."""
        with self._client() as client:
            found = client.poll(timeout_ms=int(1000 * seconds))
        for name, records in found.items():
            yield (name.topic, name.partition), records

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit offsets of the group."""
        offsets = {KafkaPartition(*name): OffsetAndMetadata(at, "", -1) for name, at in positions.items()}
        with self._client() as client:
            client.commit(offsets)

    @contextmanager
    def _client(self) -> Iterator[KafkaConsumer]:
        """The client; dropped after a failure, for another to be connected."""
        with translated_errors():
            try:
                if self._consumer is None:
                    self._consumer = KafkaConsumer(**self._options)
                yield self._consumer
            except KafkaError:
                self.close()
                raise

    def close(self) -> None:
        """Close the client."""
        if self._consumer is not None:
            client, self._consumer = self._consumer, None
            with suppress(KafkaError):
                client.close(autocommit=False)
