"""Why a service is not ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from streamclust_connectors.interfaces import Group, Partition, Source
from streamclust_connectors.service.assigned_partitions import AssignedPartitions

Value = TypeVar("Value")


def not_ready_reason(
    source: Source, partitions: AssignedPartitions, group: Group | None, silent: Mapping[Partition, str]
) -> str:
    """Why the service is not ready; empty if every assigned partition is read and there is a model.

    `silent` partitions deliver nothing though they have records.
    """
    unread = {**silent, **partitions.waiting, **partitions.stopped}
    if unread:
        names = ", ".join(f"{topic}-{number}" for topic, number in sorted(unread))
        why = next((f": {reason}" for reason in unread.values() if reason), "")
        return f"not all assigned partitions are read ({names}){why}"
    if not partitions.positions:
        return "the service is connecting" if source.connecting else "no partitions are assigned"
    if group is not None and not group.ready:
        return "the group has no model yet"
    return ""


def by_name(by_partition: Mapping[Partition, Value]) -> dict[str, Value]:
    """Values of partitions by the names that members of a group tell each other.

    >>> by_name({("events", 3): 7})
    {'events-3': 7}
    """
    return {f"{topic}-{number}": value for (topic, number), value in by_partition.items()}
