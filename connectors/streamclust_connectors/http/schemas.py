"""Request and response models, for the API's description only: responses are not validated against them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

Method = Literal["rbhc", "abc", "bhc"]


class GroupMember(BaseModel):
    """A process of the consumer group, as it has told of itself."""

    member: str
    at: float
    """When; seconds since 1970."""
    positions: dict[str, int]
    lag: dict[str, int]
    stopped: dict[str, str]
    """Partitions that it does not read, and why."""
    events: int
    events_per_second: float
    model_version: int | None
    """Version of the model that it assigns by."""
    leads: bool
    """Whether it makes the model."""
    checked_at: float
    """When, as the leader, it last found all that was learnt in the model."""


class GroupStatus(BaseModel):
    """The consumer group and its model."""

    leads: bool
    """Whether this process makes the model."""
    model_version: int | None
    model_staleness_seconds: float | None
    members: list[GroupMember]


class Status(BaseModel):
    """Status of the service."""

    version: str
    ready: bool
    uptime_seconds: float
    events: int
    """Events learnt in all, also before the last restart."""
    events_per_second: float
    dead_letters: int
    refused: int
    failed_refits: int
    """Refits that failed; each time the last good model stayed."""
    lag: dict[str, int]
    """Records still to be read, by topic and partition."""
    lag_total: int | None
    memory_bytes: int
    model_version: int | None
    n_clusters: int
    last_checkpoint_age_seconds: float | None
    features: list[str]
    family: str
    source: str
    stopped: dict[str, str]
    """Partitions that are held here and not read, and why."""
    group: GroupStatus | None
    """With one model for a whole consumer group; events, features and clusters are then the group's."""


class Component(BaseModel):
    """One of the Gaussians that a cluster is made of."""

    weight: float
    mean: list[float]
    """In the order of the service's `features`."""
    covariance: list[list[float]] | list[float] | float | None
    """A matrix, its diagonal or a number, as the family has it."""


class ClusterSummary(BaseModel):
    """A cluster as it is now."""

    id: int
    weight: float
    share: float
    mean: dict[str, float]
    covariance: list[list[float]] | list[float] | float | None
    """A matrix, its diagonal or a number, as the family has it."""
    born: int
    """After so many events."""
    last_seen: int
    age: int
    """Events since it was born."""
    trend: float
    """Its share now less its share a minute ago."""
    components: list[Component]
    """The heaviest first; one, unless shapes are joined."""


class Clusters(BaseModel):
    """All clusters, the heaviest first."""

    model_version: int | None
    clusters: list[ClusterSummary]


class Event(BaseModel):
    """What happened to clusters: `parents` became `children`, each an id with its weight then."""

    seq: int
    kind: Literal["born", "died", "returned", "split", "merged"]
    at: int
    """After so many events."""
    version: int
    parents: list[tuple[int, float]]
    children: list[tuple[int, float]]
    away: int | None = None
    """Number of events for which a cluster that returned was away; null for other kinds."""


class Events(BaseModel):
    """Lifecycle events, the oldest first."""

    events: list[Event]
    next: int
    """What to give as `after` next time."""


class ClusterFeature(BaseModel):
    """One feature of a cluster against all events."""

    name: str
    mean: float
    std: float | None
    """Standard deviation; null if unknown."""
    overall_mean: float
    overall_std: float
    shift: float
    """From the mean of all events to the cluster's, in standard deviations of all events."""
    distance: float
    """How far the cluster's values are from all values: 0 the same, 1 no overlap (squared Hellinger distance)."""


class ShareHistory(BaseModel):
    """A cluster's share of the stream after so many events."""

    events: list[int]
    share: list[float]


class RecentEvent(BaseModel):
    """One of a cluster's latest events; values that were missing are filled in."""

    values: dict[str, float]
    novelty: float | None


class ClusterDetail(ClusterSummary):
    """A cluster as it is now, and what it is."""

    alive: Literal[True]
    features: list[ClusterFeature]
    """Those that set it apart most first."""
    history: ShareHistory
    lifecycle: list[Event]
    """What happened to it, the oldest first."""
    recent: list[RecentEvent]
    """Some of its latest events, the newest first."""


class PastCluster(BaseModel):
    """A cluster that no longer exists."""

    id: int
    alive: Literal[False]
    history: ShareHistory
    lifecycle: list[Event]


class ServiceHistory(BaseModel):
    """Samples of every second, older ones sparser; a column for each figure."""

    at: list[float]
    events: list[int]
    events_per_second: list[float]
    lag: list[int | None]
    memory_bytes: list[int]
    novelty: list[float | None]
    novelty_high: list[float | None]
    shares: list[dict[str, float]]


class Curve(BaseModel):
    """A line."""

    x: list[float]
    y: list[float]


class Dots(BaseModel):
    """Leaves of the summary."""

    x: list[float]
    y: list[float]
    weight: list[float]
    cluster: list[int]


class Drawn(BaseModel):
    """A cluster: the mean of its heaviest component, and each component's ellipse of two standard deviations.

    `outline`, for a cluster of several components: the parts of the ellipses that no other of them covers.
    """

    id: int
    share: float
    x: float
    y: float
    ellipses: list[Curve]
    outline: list[Curve]


class View(BaseModel):
    """Leaves and clusters over two axes."""

    labels: tuple[str, str]
    explained: tuple[float, float] | None
    leaves: Dots
    clusters: list[Drawn]


class SnapshotSummary(BaseModel):
    """A snapshot without its tree."""

    version: int
    at: float
    events: int
    method: Method
    n_clusters: int


class Snapshot(SnapshotSummary):
    """The hierarchy of everything learnt until a moment."""

    dendrogram: dict[str, Any]


class SnapshotRequest(BaseModel):
    """What snapshot to take."""

    method: Method = "rbhc"


class Learnt(BaseModel):
    """Result of learning events."""

    learnt: int
    refused: list[Refusal]


class Refusal(BaseModel):
    """An event that could not be learnt."""

    index: int
    reason: str


class Prediction(BaseModel):
    """For each event its cluster; null before anything was learnt."""

    model_version: int | None
    cluster: list[int | None]
    probability: list[float | None]
    novelty: list[float | None]


class Alive(BaseModel):
    """The service loop is running."""

    heartbeat_age_seconds: float


class Ready(BaseModel):
    """State is loaded, and partitions are assigned."""

    ready: bool


NUMBER: dict[str, Any] = {"type": ["number", "null"]}
OBJECT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": NUMBER,
    "description": "Numbers by the name of their feature; null, or no member, where one is missing.",
}
TABLE: dict[str, Any] = {
    "type": "object",
    "required": ["vectors"],
    "additionalProperties": False,
    "properties": {
        "vectors": {
            "type": "array",
            "items": {"anyOf": [{"type": "array", "items": NUMBER}, {"type": "string", "format": "byte"}]},
            "description": "Arrays of numbers, or base64 of float32.",
        },
        "features": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "uniqueItems": True,
            "description": "What the columns are; without it the features known, in their order.",
        },
    },
}
EVENTS: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {"anyOf": [TABLE, {"type": "array", "items": OBJECT}, OBJECT]},
            "examples": {
                "one": {"summary": "one event", "value": {"x": 1.5, "y": -0.5}},
                "many": {"summary": "many", "value": [{"x": 1.5, "y": -0.5}, {"x": 3.0, "y": None}]},
                "table": {
                    "summary": "a table",
                    "value": {"features": ["x", "y"], "vectors": [[1.5, -0.5], [3.0, 2.0]]},
                },
            },
        }
    },
}
"""The body of /v1/learn and /v1/predict."""
SNAPSHOT: dict[str, Any] = {
    "required": False,
    "content": {
        "application/json": {
            "schema": SnapshotRequest.model_json_schema() | {"additionalProperties": False},
        }
    },
}
