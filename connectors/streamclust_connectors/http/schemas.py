"""What the API takes and answers, for its description. Answers are written by msgspec, and not checked again here."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

Method = Literal["rbhc", "abc", "bhc"]


class Status(BaseModel):
    """How the service does."""

    version: str
    ready: bool
    uptime_seconds: float
    events: int
    """Learnt in all, before the last restart too."""
    events_per_second: float
    dead_letters: int
    refused: int
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


class Cluster(BaseModel):
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


class Clusters(BaseModel):
    """All clusters, the heaviest first."""

    model_version: int | None
    clusters: list[Cluster]


class Event(BaseModel):
    """What happened to clusters: `parents` became `children`, each an id with its weight then."""

    seq: int
    kind: Literal["born", "died", "split", "merged"]
    at: int
    """After so many events."""
    version: int
    parents: list[tuple[int, float]]
    children: list[tuple[int, float]]


class Events(BaseModel):
    """Lifecycle events, the oldest first."""

    events: list[Event]
    next: int
    """What to give as `after` next time."""


class History(BaseModel):
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
    """A closed line."""

    x: list[float]
    y: list[float]


class Dots(BaseModel):
    """Leaves of the summary."""

    x: list[float]
    y: list[float]
    weight: list[float]
    cluster: list[int]


class Drawn(BaseModel):
    """A cluster, and the ellipse two standard deviations around its mean."""

    id: int
    share: float
    x: float
    y: float
    ellipse: Curve | None


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
    """What became of the events sent."""

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
    """The loop turns."""

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
        "vectors": {"type": "array", "items": {"type": "array", "items": NUMBER}},
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
