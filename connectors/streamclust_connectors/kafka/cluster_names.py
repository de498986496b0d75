"""Names that people give to clusters of a group's model: at any member, through the topic of models, to the leader.

A name is sent until it is seen in the topic. The leader gives it to its clusterer, and publishes the model anew: from
then on every member has it. A published model says up to which offset the leader has read names, and the next leader
reads on from there, so that a name that was sent is never lost.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from streamclust.checkpoint import State
from streamclust.streaming import StreamClusterer
from streamclust_connectors.interfaces import Output
from streamclust_connectors.kafka.state_records import StoredState, parts

PREFIX = "name/"
"""Beginning of the names of such records; the cluster's id follows."""
READ_TO = "names_read_to"
"""Value of a published model: the offset up to which its leader had read names."""

log = logging.getLogger(__name__)


class NameRecord(msgspec.Struct, frozen=True):
    """A name given to a cluster; None takes it away."""

    cluster: int
    name: str | None
    token: str
    """Tells apart two records of the same content."""


def name_record(stored: StoredState) -> NameRecord | None:
    """The name that a record of the topic gives; None if the record is something else.

    >>> name_record(StoredState("name/3", "", b'{"cluster": 3, "name": "night shift", "token": "a"}')).name
    'night shift'
    """
    if not stored.name.startswith(PREFIX) or stored.body is None:
        return None
    try:
        return msgspec.json.decode(stored.body, type=NameRecord)
    except msgspec.DecodeError as error:  # of another version
        log.warning("%s cannot be read: %s", stored.name, error)
        return None


def names_in(state: State | None) -> dict[int, str]:
    """Names of clusters of the level on show in a published model."""
    if state is None:
        return {}
    on_show = state.values.get("level", {}).get("lineage") or state.values["lineage"]
    found: Iterable[Any] = on_show.get("names", ())
    return {int(cluster): name for cluster, name in found}


def give(clusterer: StreamClusterer, record: NameRecord) -> None:
    """Name a cluster, unless it is gone."""
    try:
        clusterer.name(record.cluster, record.name)
    except (KeyError, ValueError) as error:
        log.info("cluster %d cannot be named %r: %s", record.cluster, record.name, error)


class GivenNames:
    """Names on their way: given here and not yet in the topic, or in the topic and not yet in a published model."""

    def __init__(self) -> None:
        self._unsent: dict[int, NameRecord] = {}
        self._unpublished: dict[int, tuple[NameRecord, int]] = {}
        """Names in the topic, by cluster, and an offset behind each."""

    def add(self, cluster: int, name: str | None) -> None:
        """A name was given here."""
        self._unsent = {**self._unsent, cluster: NameRecord(cluster, name, uuid.uuid4().hex)}

    def messages(self, group: str) -> list[Output]:
        """The records to send."""
        return [
            message
            for cluster, record in self._unsent.items()
            for message in parts(group, f"{PREFIX}{cluster}", msgspec.json.encode(record), 1 << 20)
        ]

    def seen(self, record: NameRecord, behind: int) -> None:
        """A name was read from the topic, before this offset."""
        self._unsent = {i: own for i, own in self._unsent.items() if own.token != record.token}
        self._unpublished = {**self._unpublished, record.cluster: (record, behind)}

    def published(self, values: Mapping[str, Any]) -> None:
        """A model was published, with all names below an offset."""
        read_to = values.get(READ_TO, 0)
        self._unpublished = {i: one for i, one in self._unpublished.items() if one[1] > read_to}

    def give_to(self, clusterer: StreamClusterer) -> None:
        """Show these names already."""
        for record, _ in self._unpublished.values():
            give(clusterer, record)
        for record in self._unsent.values():
            give(clusterer, record)
