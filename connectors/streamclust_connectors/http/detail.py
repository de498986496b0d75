"""Details of a cluster: its features compared with all events, share over time, lifecycle, recent events."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamclust.lineage import HistoryStep
from streamclust.streaming import Cluster, Example, Model, Profiles, Representatives, StreamClusterer
from streamclust_connectors.event_keys import MAX_EXAMPLES, fingerprint
from streamclust_connectors.interfaces import EventKey

MAX_WATCHED_EVENTS = 4096
"""Number of latest events searched for those of a cluster."""
MAX_RECENT_EVENTS = 5
"""Number of recent events shown for a cluster."""
CLEAR_PROBABILITY = 0.95
"""Probability of an event's cluster from which it does not lie between two."""


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
    representatives: Representatives
    keys: Mapping[int, EventKey]
    """Keys of events where the service has them: by number, or by fingerprint."""
    by_fingerprint: bool = False


def copy_detail(
    clusterer: StreamClusterer, keys: Mapping[int, EventKey] | None = None, by_fingerprint: bool = False
) -> DetailData:
    """Copy the data from a clusterer; `keys` is a copy of the service's."""
    return DetailData(
        events=clusterer.n_seen,
        features=clusterer.feature_names,
        clusters=clusterer.clusters,
        profiles=clusterer.profiles(),
        steps=list(clusterer.lineage.history),
        model=clusterer.model,
        latest=clusterer.latest(MAX_WATCHED_EVENTS),
        representatives=clusterer.representatives(),
        keys=keys or {},
        by_fingerprint=by_fingerprint,
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


def examples(seen: DetailData, cluster: int) -> list[dict[str, Any]]:
    """The most typical recent events of a cluster."""
    return [_example(seen, each) for each in seen.representatives.typical(cluster, MAX_EXAMPLES)]


def border(seen: DetailData, cluster: int) -> dict[str, Any]:
    """The neighbour of a cluster, and the recent events between the two, if there are any."""
    other = seen.representatives.neighbour(cluster)
    found = [] if other is None else seen.representatives.between(cluster, other, MAX_EXAMPLES)
    doubtful = [_example(seen, each) for each in found if each.probability < CLEAR_PROBABILITY]
    return {"cluster": other, "events": doubtful}


def _example(seen: DetailData, example: Example) -> dict[str, Any]:
    event = seen.keys.get(fingerprint(example.values) if seen.by_fingerprint else example.number)
    return {
        "number": example.number,
        "cluster": example.cluster,
        "probability": example.probability,
        "values": {str(name): value for name, value in example.values.items()},
        "id": None if event is None else event.id,
        "key": None if event is None else event.key,
        "time": None if event is None else event.time,
    }


def concerning(changes: Sequence[dict[str, Any]], cluster: int) -> list[dict[str, Any]]:
    """The lifecycle events that a cluster took part in."""
    return [
        change for change in changes if any(cluster == i for i, _ in change["parents"] + change["children"])
    ]
