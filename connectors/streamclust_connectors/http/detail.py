"""Details of a cluster: its features compared with all events, share over time, lifecycle, recent events."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamclust.lineage import HistoryStep
from streamclust.streaming import Cluster, Model, Profiles, StreamClusterer

MAX_WATCHED_EVENTS = 4096
"""Number of latest events searched for those of a cluster."""
MAX_RECENT_EVENTS = 5
"""Number of recent events shown for a cluster."""


class DetailData(NamedTuple):
    """Data for the details of clusters, copied under the lock."""

    events: int
    """Number of events learnt."""
    features: tuple[Hashable, ...]
    clusters: list[Cluster]
    profiles: Profiles
    steps: list[HistoryStep]
    model: Model | None
    latest: NDArray[np.float64]


def copy_detail(clusterer: StreamClusterer) -> DetailData:
    """Copy the data from a clusterer."""
    return DetailData(
        events=clusterer.n_seen,
        features=clusterer.feature_names,
        clusters=clusterer.clusters,
        profiles=clusterer.profiles(),
        steps=list(clusterer.lineage.history),
        model=clusterer.model,
        latest=clusterer.latest(MAX_WATCHED_EVENTS),
    )


def features(profiles: Profiles, cluster: int) -> list[dict[str, Any]]:
    """Features of a cluster as JSON values, the most distinctive first."""
    return [
        asdict(each) | {"name": str(each.name), "shift": each.shift} for each in profiles.describe(cluster)
    ]


def shares(steps: Sequence[HistoryStep], cluster: int, now: tuple[int, float] | None) -> dict[str, list[Any]]:
    """Share of a cluster by number of events learnt, while it exists; `now` is the current number and share.

    >>> steps = [HistoryStep(10, 4.0, {0: 4.0}), HistoryStep(20, 4.0, {0: 1.0, 1: 3.0}), HistoryStep(30, 2.0, {0: 2.0})]
    >>> shares(steps, 1, None)
    {'events': [20], 'share': [0.75]}
    >>> shares(steps, 0, (35, 0.9))
    {'events': [10, 20, 30, 35], 'share': [1.0, 0.25, 1.0, 0.9]}
    """
    points = [(step.at, step.shares.get(cluster, 0.0)) for step in steps]
    held = [i for i, (_, share) in enumerate(points) if share > 0]
    points = points[held[0] : held[-1] + 1] if held else []
    if now is not None:
        points = [each for each in points if each[0] < now[0]] + [now]
    return {"events": [at for at, _ in points], "share": [share for _, share in points]}


def recent(seen: DetailData, cluster: int) -> list[dict[str, Any]]:
    """The latest events of a cluster, the newest first, with their novelty."""
    if seen.model is None or not len(seen.latest):
        return []
    own = np.flatnonzero(seen.model.predict(seen.latest) == cluster)[: -MAX_RECENT_EVENTS - 1 : -1]
    rows = seen.latest[own]
    with np.errstate(all="ignore"):  # overflows become null
        novelty = seen.model.novelty(rows) if len(rows) else np.empty(0)
    names = [str(name) for name in seen.features]
    return [
        {"values": dict(zip(names, row, strict=False)), "novelty": value}
        for row, value in zip(rows.tolist(), novelty.tolist(), strict=True)
    ]


def concerning(changes: Sequence[dict[str, Any]], cluster: int) -> list[dict[str, Any]]:
    """The lifecycle events that a cluster took part in."""
    return [
        change for change in changes if any(cluster == i for i, _ in change["parents"] + change["children"])
    ]
