"""Ending transactions that members of the group have left open, sooner than the broker would.

A process that is killed in a transaction holds up whoever takes over its partitions: what was written after it began,
and the offsets in it, cannot be read until it ends. The broker ends it after its time-out, for which it looks every
10 s.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition

from streamclust_connectors.kafka.failures import transient
from streamclust_connectors.kafka.producer import KafkaSender
from streamclust_connectors.ports import Transient

ABANDONED_SECONDS = 2.0
"""A transaction that is open for longer is taken for abandoned by whoever has to wait for it."""
OFFSETS_TOPIC = "__consumer_offsets"

log = logging.getLogger(__name__)


def end_abandoned(
    group: str, topic: str, partition: int, options: Mapping[str, Any], own: str | None = None
) -> None:
    """Abort the group's transactions that have been open on a partition for more than ABANDONED_SECONDS.

    Of OFFSETS_TOPIC all partitions count, whatever `partition` is. Transactions of the transactional id `own` are left
    alone. To be called by the process that owns the partition now: whoever had it before could not commit any more, and
    one that is alive but slow starts another transaction. If the broker refuses, that is logged.
    """
    known = {name: value for name, value in options.items() if name in KafkaAdminClient.DEFAULT_CONFIG}
    try:
        with transient(), closing(KafkaAdminClient(**known)) as admin:
            for name in held_up_by(admin, group, topic, partition):
                if name == own:
                    continue
                KafkaSender(name, options).close(0.0)  # a new producer of this id ends its transaction
                log.warning("ended an abandoned transaction of %s on %s-%d", name, topic, partition)
    except Transient as error:
        log.info("abandoned transactions on %s-%d cannot be ended: %s", topic, partition, error)
    except Exception as error:  # no right to, or a broker too old to be asked
        log.info("abandoned transactions on %s-%d are left to the broker: %s", topic, partition, error)


def held_up_by(admin: KafkaAdminClient, group: str, topic: str, partition: int) -> list[str]:
    """Transactional ids of the group, as `group.…`, with an abandoned transaction on a partition."""
    listed = admin.list_transactions(
        state_filters=["Ongoing"], duration_filter_ms=int(1000 * ABANDONED_SECONDS)
    )
    ids = [one.transactional_id for of_broker in listed.values() for one in of_broker]
    ours = [id for id in ids if id.startswith(f"{group}.")]
    if not ours:
        return []
    wanted = KafkaPartition(topic, partition)
    return [
        id
        for id, found in sorted(admin.describe_transactions(ours).items())
        if wanted in found.topic_partitions
        or (topic == OFFSETS_TOPIC and any(one.topic == topic for one in found.topic_partitions))
    ]
