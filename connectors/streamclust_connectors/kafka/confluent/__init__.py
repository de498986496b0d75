"""Kafka client librdkafka, wrapped by the package confluent-kafka: it processes records in C."""

from streamclust_connectors.kafka.confluent.source import ConfluentSource

__all__ = ["ConfluentSource"]
