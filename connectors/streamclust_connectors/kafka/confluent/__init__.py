"""Kafka by librdkafka, which the package confluent-kafka wraps: its work for each record is done in C."""

from streamclust_connectors.kafka.confluent.source import ConfluentSource

__all__ = ["ConfluentSource"]
