"""Request and response models for the API's description; responses are not validated against them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from streamclust.lineage import MAX_NAME_CHARACTERS

Method = Literal["rbhc", "abc", "bhc"]


class GroupMember(BaseModel):
    """Status that a member of the consumer group has sent."""

    member: str
    at: float
    """Time of the status, in seconds since 1970."""
    positions: dict[str, int]
    lag: dict[str, int]
    stopped: dict[str, str]
    """Assigned partitions that it does not read, and why."""
    events: int
    events_per_second: float
    model_version: int | None
    """Version of the model that its assignments use."""
    leads: bool
    """Whether it is the leader, which computes the model."""
    checked_at: float
    """Time at which it last found, as the leader, everything learnt in the model."""


class GroupStatus(BaseModel):
    """The consumer group and its model."""

    leads: bool
    """Whether this process is the leader, which computes the model."""
    model_version: int | None
    model_staleness_seconds: float | None
    members: list[GroupMember]


class Status(BaseModel):
    """Status of the service."""

    version: str
    ready: bool
    not_ready: str
    """Reason why it is not ready; empty if it is."""
    uptime_seconds: float
    events: int
    """Number of events learnt, including those before the last restart."""
    effective_events: float | None
    """Number of independent events that they were worth a few seconds ago; null before that was first computed."""
    events_per_second: float
    dead_letters: int
    refused: int
    invalid: dict[str, int]
    failed_refits: int
    """Number of failed refits, after which the last good model was kept."""
    lag: dict[str, int]
    """Records not learnt yet, by topic and partition, where known."""
    lag_total: int | None
    memory_bytes: int
    model_version: int | None
    n_clusters: int
    last_checkpoint_age_seconds: float | None
    features: list[str]
    family: str
    source: str
    vector: str | None
    """Path of the vector in an event of a request; null if an event is an object of numbers."""
    waiting: dict[str, str]
    """Assigned partitions that are not read yet, and why the last attempt failed; empty text before the first."""
    stopped: dict[str, str]
    """Assigned partitions that are not read, and why."""
    group: GroupStatus | None
    """Present if a consumer group shares one model; events, features and clusters are then the group's."""


class Component(BaseModel):
    """A Gaussian component of a cluster."""

    weight: float
    mean: list[float]
    """In the order of the service's `features`."""
    covariance: list[list[float]] | list[float] | float | None
    """A matrix, its diagonal or a number, depending on the family."""


class ClusterName(BaseModel):
    """Name of a cluster."""

    id: int
    name: str | None


class Posterior(BaseModel):
    """How well a cluster is known, by the last refit."""

    events: float
    """Number of independent events that it is worth."""
    degrees_of_freedom: float | None
    """Of the mean of a feature; null for counts and yes/no features."""
    share_error: float
    """Standard error of the share."""
    mean_error: dict[str, float | None]
    """Standard errors of the means; null where nothing is known."""
    probability: float
    """Probability that it is a cluster of its own, given the labels."""


class ClusterSummary(BaseModel):
    """A cluster as it is now."""

    id: int
    name: str | None
    """Name that it was given; null if it has none."""
    weight: float
    share: float
    words: str
    """The features that set it apart from all events, in words."""
    mean: dict[str, float]
    covariance: list[list[float]] | list[float] | float | None
    """A matrix, its diagonal or a number, depending on the family."""
    born: int
    """Number of events learnt when it was born."""
    last_seen: int
    age: int
    """Number of events since it was born."""
    trend: float
    """Change of its share over the last minute."""
    components: list[Component]
    """Components, the heaviest first; one unless components are joined to shapes."""
    posterior: Posterior | None
    """Null before the first refit."""


class Clusters(BaseModel):
    """All clusters, the heaviest first."""

    model_version: int | None
    clusters: list[ClusterSummary]


class KeyStatus(BaseModel):
    """Status of a service with a model for each key."""

    version: str
    ready: bool
    not_ready: str
    """Reason why it is not ready; empty if it is."""
    events: int
    events_per_second: float
    dead_letters: int
    lag_total: int | None
    memory_bytes: int
    last_checkpoint_age_seconds: float | None
    source: str
    keys: int
    """Number of keys with a model."""
    keys_in_memory: int


class KeySummary(BaseModel):
    """A key as of the last checkpoint."""

    key: str
    partition: int
    events: int
    n_clusters: int


class Keys(BaseModel):
    """Keys in their order."""

    keys: list[KeySummary]
    next: str | None
    """`after` of the request for the next keys; null at the end."""


class KeyClusters(Clusters):
    """Clusters of a key's model."""

    key: str
    partition: int
    events: int
    """Number of events learnt."""
    lifecycle: list[dict[str, Any]]
    """Latest lifecycle events of its clusters, the oldest first."""


class LevelSummary(BaseModel):
    """Level: a number of clusters."""

    n_clusters: int
    persistence: float | None
    """Log of the factor in evidence per event over which it holds; null for one cluster, which always does."""
    zeta: float
    """Evidence per event below which it gives way to the next coarser level."""
    shown: bool
    """Whether it is on show."""
    probability: float
    """Probability of this number of clusters among the levels, given the labels."""


class Levels(BaseModel):
    """All levels, the finest first."""

    levels: list[LevelSummary]


class Event(BaseModel):
    """Lifecycle event: `parents` became `children`; each is an id and its weight at that time."""

    seq: int
    kind: Literal["born", "died", "returned", "split", "merged"]
    at: int
    """Number of events learnt when it happened."""
    version: int
    parents: list[tuple[int, float]]
    children: list[tuple[int, float]]
    away: int | None = None
    """Number of events for which a cluster that returned was away; null for other kinds."""
    level: int | None = None
    """Number of clusters of the level on show then; null if all that are found are shown by request."""
    parent_names: list[tuple[int, str]] = []
    """Names that parents had, by id."""
    child_names: list[tuple[int, str]] = []
    """Names that children have since, by id."""


class Events(BaseModel):
    """Lifecycle events, the oldest first."""

    events: list[Event]
    next: int
    """Value of `after` for the next request."""


class ClusterFeature(BaseModel):
    """A feature of a cluster compared with all events."""

    name: str
    mean: float
    std: float | None
    """Standard deviation; null if unknown."""
    overall_mean: float
    overall_std: float
    shift: float
    """Difference of the cluster's mean from the mean of all events, in standard deviations of all events."""
    distance: float
    """Squared Hellinger distance between the cluster's values and all values: 0 equal, 1 no overlap."""


class ShareHistory(BaseModel):
    """Share of a cluster by number of events learnt."""

    events: list[int]
    share: list[float]


class RecentEvent(BaseModel):
    """A recent event of a cluster; missing values are imputed."""

    values: dict[str, float]
    novelty: float | None


class ExampleEvent(BaseModel):
    """A recent event that is typical of a cluster, or lies between two."""

    number: int
    """Number of events learnt before it."""
    cluster: int
    probability: float
    """Probability of its cluster."""
    values: dict[str, float]
    """Its features; those that it lacks are left out."""
    id: str | None
    """Id of the event in outputs; null if it is not known."""
    key: Any
    """Key of the event; null if it has none, or it is not known."""
    time: float | None


class Border(BaseModel):
    """Recent events between a cluster and its neighbour."""

    cluster: int | None
    """The neighbour: the cluster to which most of the events would belong otherwise; null if there is no other."""
    events: list[ExampleEvent]
    """The events that are hardest to tell apart, the hardest first; none if all are clear."""


class ClusterDetail(ClusterSummary):
    """A current cluster with its details."""

    alive: Literal[True]
    features: list[ClusterFeature]
    """Features, the most distinctive first."""
    history: ShareHistory
    lifecycle: list[Event]
    """Its lifecycle events, the oldest first."""
    recent: list[RecentEvent]
    """Some of its latest events, the newest first."""
    examples: list[ExampleEvent]
    """The most typical of its recent events."""
    border: Border


class LastSeen(BaseModel):
    """A cluster as it was shortly before it ended."""

    at: int
    """Number of events learnt when it was last seen."""
    name: str | None
    weight: float
    share: float
    words: str
    features: list[ClusterFeature]
    """Its most distinctive features, in order."""
    recent: list[RecentEvent]
    examples: list[ExampleEvent]


class PastCluster(BaseModel):
    """A cluster that no longer exists."""

    id: int
    alive: Literal[False]
    history: ShareHistory
    lifecycle: list[Event]
    last: LastSeen | None
    """Null if it lived only for seconds, or ended before the service was started."""


class ServiceHistory(BaseModel):
    """Samples as columns: one per second, fewer for older times."""

    at: list[float]
    events: list[int]
    events_per_second: list[float]
    lag: list[int | None]
    memory_bytes: list[int]
    novelty: list[float | None]
    novelty_high: list[float | None]
    shares: list[dict[str, float]]


class Curve(BaseModel):
    """A line in the plane."""

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
    """Leaves and clusters in the plane of two axes."""

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
    """Hierarchy of all events learnt until it was taken."""

    dendrogram: dict[str, Any]


class SnapshotChange(BaseModel):
    """A cluster in two snapshots."""

    before: int | None
    """Its id in the earlier snapshot; null if it is new."""
    now: int | None
    """Its id in the later snapshot; null if it is gone."""
    name: str | None
    kinds: list[Literal["gone", "new", "grown", "shrunk", "moved", "same"]]
    share_before: float
    share_now: float
    shift: float
    """Most that the mean of a feature has moved, in standard deviations of the cluster; 0 if new or gone."""
    feature: str | None
    """The feature that moved most; null if new or gone."""
    events_now: list[tuple[int, float]]
    """Parts of its events of then by the clusters that they would be in now; of a new one by those of then."""
    words: str


class SnapshotChanges(BaseModel):
    """Changes of the clusters between two snapshots."""

    since: SnapshotSummary
    until: SnapshotSummary
    clusters: list[SnapshotChange]


class SnapshotRequest(BaseModel):
    """Options of a snapshot."""

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
    """Cluster of each event; null before the first event was learnt."""

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


NUMBER: dict[str, Any] = {"type": ["number", "null"], "format": "double"}
PACKED: dict[str, Any] = {
    "type": "string",
    "contentEncoding": "base64",
    "pattern": "^(?:[A-Za-z0-9+/]{16})*(?:[A-Za-z0-9+/]{6}==|[A-Za-z0-9+/]{11}=|[A-Za-z0-9+/]{16})$",
}
"""Base64 of 4, 8, 12, ... bytes."""
TABLE: dict[str, Any] = {
    "type": "object",
    "required": ["vectors"],
    "additionalProperties": False,
    "properties": {
        "vectors": {
            "type": "array",
            "items": {"anyOf": [{"type": "array", "items": NUMBER}, PACKED]},
            "description": "Arrays of numbers, or base64 of float32; all of one length.",
        },
        "features": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "uniqueItems": True,
            "description": "Names of the columns; by default the known features, in their order.",
        },
    },
}
NO_TABLE: dict[str, Any] = {
    "not": {"type": "object", "required": ["vectors"], "properties": {"vectors": {"type": "array"}}}
}
EXAMPLES: dict[str, Any] = {
    "one": {"summary": "one event", "value": {"x": 1.5, "y": -0.5}},
    "many": {"summary": "many", "value": [{"x": 1.5, "y": -0.5}, {"x": 3.0, "y": None}]},
    "table": {
        "summary": "a table",
        "value": {"features": ["x", "y"], "vectors": [[1.5, -0.5], [3.0, 2.0]]},
    },
}


def events_body(about: str, items: dict[str, Any]) -> dict[str, Any]:
    """Description of a body of events: a table, an array of events or one event."""
    one: dict[str, Any] = {"type": "object", "description": about} | NO_TABLE
    schema = {"anyOf": [TABLE, {"type": "array", "items": items}, one]}
    return {"required": True, "content": {"application/json": {"schema": schema, "examples": EXAMPLES}}}


LEARN = events_body(
    "Numbers by the name of their feature; null, or no member, where one is missing. An event of an array that is "
    "something else, or has other values, is refused in the answer.",
    {},
)
"""The body of /v1/learn."""
PREDICT = events_body(
    "Numbers by the name of their feature; null, or no member, where one is missing. Features that are not known "
    "are left aside, whatever their values.",
    {"type": "object"},
)
"""The body of /v1/predict."""


class NameRequest(BaseModel):
    """Body of PUT /v1/clusters/{id}/name."""

    name: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)] | None
    """Name, which is kept in one line; null, or nothing to be printed, takes it away."""


NAME: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {"schema": NameRequest.model_json_schema() | {"additionalProperties": False}}
    },
}
SNAPSHOT: dict[str, Any] = {
    "required": False,
    "content": {
        "application/json": {
            "schema": SnapshotRequest.model_json_schema() | {"additionalProperties": False},
        }
    },
}
