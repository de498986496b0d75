"""The topics that a group keeps its state and its model in: created as they must be, or refused with what to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient, errors
from kafka.admin import ConfigResource, NewTopic

from streamclust_connectors.kafka.failures import transient
from streamclust_connectors.ports import Transient, UnfitTopic

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(64 << 20),
    "min.compaction.lag.ms": "60000",
}
"""Settings of the topics: old states go soon, since a state is as large as all its changes."""

log = logging.getLogger(__name__)


def state_topic(topic: str) -> str:
    """Name of the topic of partitions' states."""
    return f"{topic}.streamclust.state"


def model_topic(topic: str) -> str:
    """Name of the topic of the group's model and members."""
    return f"{topic}.streamclust.model"


def prepare(topic: str, options: Mapping[str, Any]) -> int:
    """Create or check the topics that belong to an input topic; returns its number of partitions.

    UnfitTopic says what to create or to change; Transient, that there is no such input topic yet.
    """
    known = {name: value for name, value in options.items() if name in KafkaAdminClient.DEFAULT_CONFIG}
    with transient(), closing(KafkaAdminClient(**known)) as admin:
        try:
            n = partitions_of(admin, topic)
        except errors.AuthorizationError as error:
            raise UnfitTopic(
                f"this process has no right to read topic {topic} ({error_name(error)})"
            ) from error
        if not n:
            raise Transient(f"there is no topic {topic}")
        for name, wanted in ((state_topic(topic), n), (model_topic(topic), 1)):
            try:
                have = partitions_of(admin, name)
            except errors.AuthorizationError as error:
                raise UnfitTopic(
                    f"this process has no right to topic {name} ({error_name(error)}): let it read, write and describe "
                    f"it. {how_to_create(name, wanted)}"
                ) from error
            if not have:
                create(admin, name, wanted)
            elif have != wanted:
                raise UnfitTopic(
                    f"topic {name} has {have} partitions, and needs {wanted}, as {topic} has. Where partitions were "
                    f"added to {topic}: kafka-topics.sh --alter --topic {name} --partitions {wanted}"
                )
            check_compaction(admin, name)
    return n


def partitions_of(admin: KafkaAdminClient, topic: str) -> int:
    """Number of partitions of a topic; 0 if there is none."""
    (found,) = admin.describe_topics([topic])
    code = found.get("error_code", 0)
    if code and errors.for_code(code) is not errors.UnknownTopicOrPartitionError:
        raise errors.for_code(code)(topic)
    return len(found["partitions"])


def create(admin: KafkaAdminClient, name: str, partitions: int) -> None:
    """Create a compacted topic with the brokers' replication."""
    try:
        admin.create_topics([NewTopic(name, partitions, -1, topic_configs=COMPACTED)], wait_for_metadata=True)
        log.info("created topic %s of %d partitions", name, partitions)
    except errors.TopicAlreadyExistsError:
        pass  # another member of the group was quicker
    except (errors.AuthorizationError, errors.PolicyViolationError) as error:
        raise UnfitTopic(
            f"there is no topic {name}, and this process may not create it ({error_name(error)}). "
            f"{how_to_create(name, partitions)}"
        ) from error


def how_to_create(name: str, partitions: int) -> str:
    """A sentence with the command that creates a topic."""
    settings = " ".join(f"--config {key}={value}" for key, value in COMPACTED.items())
    return f"To create it: kafka-topics.sh --create --topic {name} --partitions {partitions} {settings}"


def error_name(error: errors.KafkaError) -> str:
    """Name of an error in the broker's documentation."""
    return str(getattr(error, "message", None) or type(error).__name__)


def check_compaction(admin: KafkaAdminClient, name: str) -> None:
    """Refuse a topic whose records are deleted by age or size; where settings may not be read, warn."""
    try:
        resource = ConfigResource("TOPIC", name)
        (by_name,) = admin.describe_configs([resource], config_filter="all").values()
        policy = by_name[name]["cleanup.policy"]["value"]
    except (errors.AuthorizationError, KeyError, ValueError) as error:
        log.warning(
            "the settings of topic %s cannot be read (%s): it must have cleanup.policy=compact", name, error
        )
        return
    if policy != "compact":
        raise UnfitTopic(
            f"topic {name} has cleanup.policy={policy}: what was learnt would be deleted with old records. Set it: "
            f"kafka-configs.sh --alter --topic {name} --add-config cleanup.policy=compact"
        )
