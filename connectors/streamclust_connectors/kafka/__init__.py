"""Kafka: a source that begins where the checkpoint says, and a sink, transactional where outputs must be exact."""

from streamclust_connectors.kafka.sink import KafkaSink
from streamclust_connectors.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]
