"""Kafka: sources that start at the offsets of the checkpoint (kafka-python or librdkafka), and a sink for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from streamclust_connectors.kafka.group_model import GroupModel
from streamclust_connectors.kafka.sink import KafkaSink
from streamclust_connectors.kafka.source import KafkaSource
from streamclust_connectors.kafka.state_topic import KafkaState

if TYPE_CHECKING:
    from streamclust_connectors.kafka.confluent import ConfluentSource

__all__ = ["GroupModel", "KafkaSink", "KafkaSource", "KafkaState", "source_type"]


def source_type(client: Literal["kafka-python", "confluent"]) -> type[KafkaSource | ConfluentSource]:
    """Class of the source for a client; "confluent" is the package confluent-kafka, which wraps librdkafka.

    >>> source_type("kafka-python").__name__
    'KafkaSource'
    """
    if client == "kafka-python":
        return KafkaSource
    from streamclust_connectors.kafka.confluent import ConfluentSource

    return ConfluentSource
