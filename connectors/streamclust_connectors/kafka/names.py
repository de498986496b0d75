"""The client: which one it is, and partitions and positions as the service has them and as it has them."""

from __future__ import annotations

from collections.abc import Mapping

from kafka import OffsetAndMetadata, __version__
from kafka import TopicPartition as KafkaPartition

from streamclust_connectors.ports import Partition

KNOWN = __version__.startswith("3.0.")
"""Whether the client is one whose insides are known: then batches are read and written whole (`reading`, `sending`)."""


def plain(name: KafkaPartition) -> Partition:
    """A partition as the service has it."""
    return name.topic, name.partition


def offsets(positions: Mapping[Partition, int]) -> dict[KafkaPartition, OffsetAndMetadata]:
    """Positions as Kafka has them."""
    return {KafkaPartition(*name): OffsetAndMetadata(at, "", -1) for name, at in positions.items()}
