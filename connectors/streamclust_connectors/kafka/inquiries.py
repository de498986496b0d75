"""Questions about partitions, asked by a client of their own: extents and committed offsets.

The consumer polls meanwhile. The client is replaced when a question fails: kafka-python may keep outdated metadata for
good after brokers have failed over.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from streamclust_connectors.interfaces import Extent, Partition
from streamclust_connectors.kafka.client_protocols import COMMITTED_TIMEOUT_SECONDS, INQUIRY_TIMEOUT_SECONDS
from streamclust_connectors.kafka.error_translation import translated_errors

TIMEOUT_MS = 1000 * INQUIRY_TIMEOUT_SECONDS
NOT_ASKED = ("group_instance_id", "partition_assignment_strategy", "client_rack")
"""Options of a member of a group, which this client never becomes."""


class Inquiries:
    """Answers questions about partitions; any thread may ask, one question at a time."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = {name: value for name, value in options.items() if name not in NOT_ASKED}
        self._client: KafkaConsumer | None = None
        self._turn = threading.Lock()

    @contextmanager
    def _asking(self) -> Iterator[KafkaConsumer]:
        """The client, which is replaced if the question fails."""
        with self._turn, translated_errors():
            if self._client is None:
                self._client = KafkaConsumer(**self.options)
            try:
                yield self._client
            except BaseException:
                self._drop()
                raise

    def extent(self, partition: Partition) -> Extent:
        """First and end offset, topic id and number of partitions."""
        name = KafkaPartition(*partition)
        with self._asking() as client:
            (first,) = client.beginning_offsets([name], timeout_ms=TIMEOUT_MS).values()
            (end,) = client.end_offsets([name], timeout_ms=TIMEOUT_MS).values()
            topic = self.describe(partition[0])
        return Extent(first, end, topic.get("topic_id"), len(topic["partitions"]))

    def describe(self, topic: str) -> dict[str, Any]:
        """Description of a topic by a broker."""
        known = {key: self.options[key] for key in KafkaAdminClient.DEFAULT_CONFIG if key in self.options}
        admin = KafkaAdminClient(**known)
        try:
            (found,) = admin.describe_topics([topic])
        finally:
            admin.close()
        return dict(found)

    def end(self, partition: Partition, seconds: float = INQUIRY_TIMEOUT_SECONDS) -> int:
        """End offset of a partition."""
        with self._asking() as client:
            (end,) = client.end_offsets([KafkaPartition(*partition)], timeout_ms=1000 * seconds).values()
        return int(end)

    def committed(self, partition: Partition) -> int | None:
        """Offset committed by the group; waits for pending transactions."""
        with self._asking() as client:
            found: int | None = client.committed(
                KafkaPartition(*partition), timeout_ms=1000 * COMMITTED_TIMEOUT_SECONDS
            )
        return found

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # it has failed already
                client.close(autocommit=False, timeout_ms=500)

    def close(self) -> None:
        """Close the client, unless a question is under way: its thread ends with the process."""
        if self._turn.acquire(timeout=0.5):
            try:
                self._drop()
            finally:
                self._turn.release()
