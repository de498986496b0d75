"""Questions about partitions, asked by a client of their own: extents and committed offsets.

The consumer polls meanwhile. The client is replaced when a question fails.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from streamclust_connectors.interfaces import Extent, Partition, Transient
from streamclust_connectors.kafka.client_protocols import COMMITTED_TIMEOUT_SECONDS, INQUIRY_TIMEOUT_SECONDS
from streamclust_connectors.kafka.confluent.error_translation import CLIENT_ERRORS, failure, translated_errors
from streamclust_connectors.kafka.confluent.librdkafka_log import log as librdkafka_log


class ConfluentInquiries:
    """Answers questions about partitions; any thread may ask, one question at a time."""

    def __init__(self, options: Mapping[str, Any], shared: Mapping[str, Any]) -> None:
        self.options = {name: value for name, value in options.items() if name != "group.instance.id"}
        self.shared = dict(shared)
        """Properties of an admin client."""
        self._client: Consumer | None = None
        self._turn = threading.Lock()

    @contextmanager
    def _asking(self) -> Iterator[Consumer]:
        """The client, which is replaced if the question fails."""
        with self._turn, translated_errors():
            if self._client is None:
                self._client = Consumer(self.options, logger=librdkafka_log)
            try:
                yield self._client
            except BaseException:
                self._drop()
                raise

    def extent(self, partition: Partition) -> Extent:
        """First and end offset, topic id and number of partitions."""
        with self._asking() as client:
            first, end = self._watermarks(client, partition)
            topic = self.describe(partition[0])
        return Extent(first, end, topic["topic_id"], len(topic["partitions"]))

    @staticmethod
    def _watermarks(
        client: Consumer, partition: Partition, seconds: float = INQUIRY_TIMEOUT_SECONDS
    ) -> tuple[int, int]:
        found = client.get_watermark_offsets(TopicPartition(*partition), seconds)
        if found is None:
            raise Transient(f"the broker did not return the end offset of {partition[0]}-{partition[1]}")
        return found

    def describe(self, topic: str) -> dict[str, Any]:
        """Description of a topic by a broker."""
        admin = AdminClient(self.shared, logger=librdkafka_log)
        futures = admin.describe_topics(TopicCollection([topic]), request_timeout=INQUIRY_TIMEOUT_SECONDS)
        found = futures[topic].result()
        bits = found.topic_id.get_most_significant_bits(), found.topic_id.get_least_significant_bits()
        whole = b"".join(part.to_bytes(8, "big", signed=True) for part in bits)
        return {"topic_id": str(uuid.UUID(bytes=whole)), "partitions": found.partitions}

    def end(self, partition: Partition, seconds: float = INQUIRY_TIMEOUT_SECONDS) -> int:
        """End offset of a partition."""
        with self._asking() as client:
            return self._watermarks(client, partition, seconds)[1]

    def committed(self, partition: Partition) -> int | None:
        """Offset committed by the group; waits for pending transactions."""
        with self._asking() as client:
            (found,) = client.committed([TopicPartition(*partition)], COMMITTED_TIMEOUT_SECONDS)
            if found.error is not None:
                raise failure(found.error)
        return int(found.offset) if found.offset >= 0 else None

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(*CLIENT_ERRORS, RuntimeError):
                client.close()

    def close(self) -> None:
        """Close the client, unless a question is under way: its thread ends with the process."""
        if self._turn.acquire(timeout=0.5):
            try:
                self._drop()
            finally:
                self._turn.release()
