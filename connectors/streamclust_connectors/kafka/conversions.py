"""Converts partitions and offsets to and from kafka-python's types."""

from __future__ import annotations

from collections.abc import Mapping

from kafka import OffsetAndMetadata
from kafka import TopicPartition as KafkaPartition

from streamclust_connectors.interfaces import Partition


def plain(name: KafkaPartition) -> Partition:
    """Convert a partition from kafka-python's type."""
    return name.topic, name.partition


def offsets(positions: Mapping[Partition, int]) -> dict[KafkaPartition, OffsetAndMetadata]:
    """Convert offsets to kafka-python's type."""
    return {KafkaPartition(*name): OffsetAndMetadata(at, "", -1) for name, at in positions.items()}
