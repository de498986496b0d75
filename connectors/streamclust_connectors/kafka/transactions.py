"""Aborts transactions that dead members of the group have left open, sooner than the broker would.

If a process is killed within a transaction, the next owner of its partitions cannot read the records and offsets of the
transaction until it ends. The broker aborts it after its time-out, which it checks every 10 s.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition

from streamclust_connectors.interfaces import Transient
from streamclust_connectors.kafka.error_translation import translated_errors
from streamclust_connectors.kafka.sender import KafkaSender

ABANDONED_SECONDS = 2.0
"""A transaction that is open for longer is considered abandoned by a process that has to wait for it."""
OFFSETS_TOPIC = "__consumer_offsets"

log = logging.getLogger(__name__)


def end_abandoned(
    group: str, topic: str, partition: int, options: Mapping[str, Any], own: str | None = None
) -> None:
    """Abort the group's transactions that have been open on a partition for more than ABANDONED_SECONDS.

    For OFFSETS_TOPIC, all partitions are considered. Transactions of the transactional id `own` are not aborted. To be
    called by the current owner of the partition: its previous owner could not commit any more and, if it is alive but
    slow, starts a new transaction. Errors of the broker are logged.
    """
    known = {name: value for name, value in options.items() if name in KafkaAdminClient.DEFAULT_CONFIG}
    try:
        with translated_errors(), closing(KafkaAdminClient(**known)) as admin:
            for name in abandoned_transactional_ids(admin, group, topic, partition):
                if name == own:
                    continue
                KafkaSender(name, options).close(
                    0.0
                )  # connecting a producer with this id aborts its transaction
                log.warning("aborted an abandoned transaction of %s on %s-%d", name, topic, partition)
    except Transient as error:
        log.info("abandoned transactions on %s-%d cannot be aborted now: %s", topic, partition, error)
    except Exception as error:  # not authorised, or an old broker without this request
        log.info("abandoned transactions on %s-%d will be aborted by the broker: %s", topic, partition, error)


def abandoned_transactional_ids(admin: KafkaAdminClient, group: str, topic: str, partition: int) -> list[str]:
    """Transactional ids of the group (`group.…`) with an abandoned transaction on a partition."""
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
