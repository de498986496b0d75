"""Fields of the output messages, with their types and descriptions; schemas are made from them."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

Id = Annotated[str, Meta(description="Id of the message, made from topic, partition and offset")]
Version = Annotated[
    int | None, Meta(description="Version of the model that decided it; null before the first model")
]
Key = Annotated[Any, Meta(description="Key of the event, found by decode.key; null without")]
Time = Annotated[float | None, Meta(description="Time of the event, found by decode.time; null without")]
Weights = list[tuple[int, float]]
"""Clusters, each with its weight."""


class AssignmentOutput(msgspec.Struct, gc=False, omit_defaults=True):
    """Cluster of an event under the model published when it arrived; its component if requested, its name if any."""

    id: Id
    cluster: Annotated[int | None, Meta(description="Id of the cluster; null before the first model")]
    probability: Annotated[float | None, Meta(description="Probability of that cluster, 0 to 1")]
    novelty: Annotated[
        float | None, Meta(description="Minus the log density of the event; larger is stranger")
    ]
    version: Version
    revision: Annotated[int | None, Meta(description="Changes of the clusters within the version")]
    key: Key
    time: Time
    component: Annotated[
        int | None, Meta(description="Component within the cluster; with output.component")
    ] = None
    name: Annotated[str | None, Meta(description="Name of the cluster, if it was given one")] = None
    levels: Annotated[
        list[int], Meta(description="Ids of its cluster at the levels of output.levels, in their order")
    ] = msgspec.field(default_factory=list)


class FeaturesOutput(msgspec.Struct, gc=False):
    """Ids of the features of an event, under the model published when it arrived."""

    id: Id
    features: Annotated[list[int], Meta(description="Ids of the features that the event has")]
    version: Version
    key: Key
    time: Time


class LifecycleOutput(msgspec.Struct, gc=False, omit_defaults=True):
    """A change of the set of clusters: born, split, merged, died, returned."""

    id: Annotated[str, Meta(description="Id of the message; a repeat has the same")]
    kind: Annotated[str, Meta(description="born, split, merged, died or returned")]
    at: Annotated[int, Meta(description="Number of events learnt before it")]
    version: Annotated[int, Meta(description="Version of the first model that shows it")]
    parents: Annotated[Weights, Meta(description="Clusters before, each with its weight")]
    children: Annotated[Weights, Meta(description="Clusters after, each with its weight")]
    away: Annotated[int | None, Meta(description="Events for which a cluster that returned was away")] = None
    level: Annotated[int | None, Meta(description="Number of clusters of the level on show")] = None
    key: Annotated[str | None, Meta(description="Key of the model whose clusters changed; with per")] = None


class LifecycleRow(msgspec.Struct, gc=False):
    """A change of the set of clusters, as a row whose columns have one type each."""

    id: Annotated[str, Meta(description="Id of the message; a repeat has the same")]
    kind: Annotated[str, Meta(description="born, split, merged, died or returned")]
    at: Annotated[int, Meta(description="Number of events learnt before it")]
    version: Annotated[int, Meta(description="Version of the first model that shows it")]
    parents: Annotated[list[int], Meta(description="Clusters before")]
    parent_weights: Annotated[list[float], Meta(description="Their weights")]
    children: Annotated[list[int], Meta(description="Clusters after")]
    child_weights: Annotated[list[float], Meta(description="Their weights")]
    away: Annotated[int | None, Meta(description="Events for which a cluster that returned was away")]
    level: Annotated[int | None, Meta(description="Number of clusters of the level on show")]
    key: Annotated[str | None, Meta(description="Key of the model whose clusters changed; null without per")]


class RefusalOutput(msgspec.Struct, gc=False):
    """Origin and reason of a dead letter; the dead letter itself is the record unchanged."""

    id: Annotated[str, Meta(description="Id of the message: topic, partition and offset of the record")]
    topic: Annotated[str, Meta(description="Topic of the record")]
    partition: Annotated[int, Meta(description="Partition of the record")]
    offset: Annotated[int, Meta(description="Offset of the record")]
    stage: Annotated[str, Meta(description="decode or learn")]
    exception: Annotated[str, Meta(description="Type of the error")]
    message: Annotated[str, Meta(description="Reason")]
    timestamp: Annotated[int | None, Meta(description="Timestamp of the record in milliseconds since 1970")]


class SnapshotOutput(msgspec.Struct, gc=False):
    """Hierarchy of all records below some positions."""

    id: Annotated[str, Meta(description="Id of the message, made from the positions")]
    positions: Annotated[list[tuple[str, int, int]], Meta(description="Topic, partition and next offset")]
    events: Annotated[int, Meta(description="Number of events learnt")]
    version: Version
    features: Annotated[list[Any], Meta(description="Names of the features, in their order")]
    dendrogram: Annotated[dict[str, Any], Meta(description="The hierarchy: see hierarchy.Dendrogram.to_dict")]


def lifecycle_row(change: LifecycleOutput) -> LifecycleRow:
    """A change as a row.

    >>> lifecycle_row(LifecycleOutput("a", "split", 9, 2, [(0, 5.0)], [(0, 3.0), (1, 2.0)])).child_weights
    [3.0, 2.0]
    """
    sides = (change.parents, change.children)
    (parents, before), (children, after) = (([i for i, _ in side], [w for _, w in side]) for side in sides)
    return LifecycleRow(
        change.id, change.kind, change.at, change.version, parents, before, children, after, change.away,
        change.level, change.key,
    )  # fmt: skip


class Column(NamedTuple):
    """A field of an output with a stable type."""

    name: str
    kind: Literal["string", "long", "double"]
    is_list: bool
    is_nullable: bool
    description: str


KINDS: dict[Any, Literal["string", "long", "double"]] = {
    str: "string",
    int: "long",
    float: "double",
    Any: "string",
}


def columns(record: type[msgspec.Struct]) -> list[Column]:
    """The columns of a flat output; a field of any type is text there.

    >>> [column.kind for column in columns(AssignmentOutput)]
    ['string', 'long', 'double', 'double', 'long', 'long', 'string', 'double', 'long', 'string', 'long']
    """
    found = []
    for name, hint in get_type_hints(record, include_extras=True).items():
        inner, meta = get_args(hint)
        is_list = get_origin(inner) is list
        parts = get_args(inner) if isinstance(inner, types.UnionType) or is_list else (inner,)
        kind = KINDS[next(part for part in parts if part is not types.NoneType)]
        is_nullable = inner is Any or types.NoneType in parts
        found.append(Column(name, kind, is_list, is_nullable, meta.description))
    return found


def text_key(key: object) -> str | None:
    """A key as text: text as it is, other values as JSON.

    >>> text_key("a"), text_key(5), text_key(None)
    ('a', '5', None)
    """
    return key if key is None or isinstance(key, str) else msgspec.json.encode(key).decode()
