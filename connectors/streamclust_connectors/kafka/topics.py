"""Creates and checks the topics of a group's states and model; errors say what to create or change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient, errors
from kafka.admin import ConfigResource, NewTopic

from streamclust_connectors.interfaces import Transient, UnfitTopic
from streamclust_connectors.kafka.error_translation import translated_errors

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(64 << 20),
    "min.compaction.lag.ms": "60000",
}
"""Settings of the topics. Old states are compacted soon, since every state is written in full."""

log = logging.getLogger(__name__)


def state_topic(topic: str) -> str:
    """Name of the topic that holds the states of partitions."""
    return f"{topic}.streamclust.state"


def model_topic(topic: str) -> str:
    """Name of the topic that holds the group's model and the status of its members."""
    return f"{topic}.streamclust.model"


def prepare(topic: str, options: Mapping[str, Any]) -> int:
    """Create or check the topics that belong to an input topic; returns its number of partitions.

    UnfitTopic if a topic must be created or changed by an administrator; Transient if the input topic does not exist.
    """
    known = {name: value for name, value in options.items() if name in KafkaAdminClient.DEFAULT_CONFIG}
    with translated_errors(), closing(KafkaAdminClient(**known)) as admin:
        try:
            n = partitions_of(admin, topic)
        except errors.AuthorizationError as error:
            raise UnfitTopic(
                f"this process is not authorised to read topic {topic} ({error_name(error)})"
            ) from error
        if not n:
            raise Transient(f"there is no topic {topic}")
        for name, wanted in ((state_topic(topic), n), (model_topic(topic), 1)):
            try:
                have = partitions_of(admin, name)
            except errors.AuthorizationError as error:
                raise UnfitTopic(
                    f"this process is not authorised to use topic {name} ({error_name(error)}): allow Read, Write and "
                    f"Describe. {how_to_create(name, wanted)}"
                ) from error
            if not have:
                create(admin, name, wanted)
            elif have < wanted:
                grow(admin, name, have, wanted)
            elif name == model_topic(topic) and have > wanted:
                raise UnfitTopic(
                    f"topic {name} has {counted_partitions(have)} but must have 1; delete it, and it is created again"
                )
            check_compaction(admin, name)
    return n


def partitions_of(admin: KafkaAdminClient, topic: str) -> int:
    """Number of partitions of a topic; 0 if the topic does not exist."""
    (found,) = admin.describe_topics([topic])
    code = found.get("error_code", 0)
    if code and errors.for_code(code) is not errors.UnknownTopicOrPartitionError:
        raise errors.for_code(code)(topic)
    return len(found["partitions"])


def create(admin: KafkaAdminClient, name: str, partitions: int) -> None:
    """Create a compacted topic with the brokers' default replication."""
    try:
        admin.create_topics([NewTopic(name, partitions, -1, topic_configs=COMPACTED)], wait_for_metadata=True)
        log.info("created topic %s with %s", name, counted_partitions(partitions))
    except errors.TopicAlreadyExistsError:
        pass  # another member of the group has created it
    except (errors.AuthorizationError, errors.PolicyViolationError) as error:
        raise UnfitTopic(
            f"topic {name} does not exist, and this process is not authorised to create it ({error_name(error)}). "
            f"{how_to_create(name, partitions)}"
        ) from error


def grow(admin: KafkaAdminClient, name: str, have: int, wanted: int) -> None:
    """Add partitions to a topic of states, since partitions were added to the input."""
    try:
        admin.create_partitions({name: wanted})
        log.info("topic %s now has %s, as many as the input", name, counted_partitions(wanted))
    except errors.InvalidPartitionsError as error:
        if partitions_of(admin, name) < wanted:  # else another member of the group has added them
            raise Transient(f"partitions cannot be added to topic {name}: {error}") from error
    except (errors.AuthorizationError, errors.PolicyViolationError) as error:
        raise UnfitTopic(
            f"topic {name} has {counted_partitions(have)} but needs {wanted}, as many as the input, and this process "
            f"is not authorised to add them ({error_name(error)}). To add them: kafka-topics.sh --alter --topic "
            f"{name} --partitions {wanted}; the added partitions are read soon after, without a restart"
        ) from error


def counted_partitions(n: int) -> str:
    """A number of partitions, in the singular for 1."""
    return f"{n} partition" if n == 1 else f"{n} partitions"


def how_to_create(name: str, partitions: int) -> str:
    """A sentence with the command that creates a topic."""
    settings = " ".join(f"--config {key}={value}" for key, value in COMPACTED.items())
    return f"To create it: kafka-topics.sh --create --topic {name} --partitions {partitions} {settings}"


def error_name(error: errors.KafkaError) -> str:
    """Name of an error in the broker's documentation."""
    return str(getattr(error, "message", None) or type(error).__name__)


def check_compaction(admin: KafkaAdminClient, name: str) -> None:
    """Refuse a topic that is not compacted; warn if its settings cannot be read."""
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
            f"topic {name} has cleanup.policy={policy}, which would delete saved states. Change it: "
            f"kafka-configs.sh --alter --topic {name} --add-config cleanup.policy=compact"
        )
