"""The latest snapshots of a service, kept in memory for the API."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from streamclust.hierarchy import Dendrogram, MethodName
from streamclust.streaming import Portrait, StreamClusterer, portrait_of_snapshot

MAX_SNAPSHOTS = 20
"""Number of snapshots kept in memory."""
MAX_SNAPSHOT_BYTES = 2_000_000
"""Size above which a snapshot is kept without the leaves' scatter."""


@dataclass(frozen=True)
class TakenSnapshot:
    """A hierarchy, and the time it was taken."""

    version: int
    at: float
    """Seconds since 1970."""
    events: int
    method: str
    n_clusters: int
    dendrogram: msgspec.Raw
    portrait: Portrait
    """Its clusters, to compare them with those of another snapshot."""

    @property
    def summary(self) -> dict[str, Any]:
        """All fields except the tree and what is made from it."""
        return {name: value for name, value in vars(self).items() if name not in ("dendrogram", "portrait")}


class RecentSnapshots:
    """The latest MAX_SNAPSHOTS snapshots, numbered from 1.

    >>> snapshots = RecentSnapshots()
    >>> clusterer = StreamClusterer()
    >>> clusterer.learn_many([{"x": 1.0}, {"x": 2.0}])
    >>> snapshots.take(clusterer, "rbhc").version, [taken.events for taken in snapshots.all]
    (1, [2])
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._snapshots: deque[TakenSnapshot] = deque(maxlen=MAX_SNAPSHOTS)
        self._versions = count(1)

    def take(self, clusterer: StreamClusterer, method: MethodName) -> TakenSnapshot:
        """Take a snapshot of a clusterer, which must have learnt something, and keep it."""
        return self.add(clusterer.snapshot(method), clusterer, method)

    def add(self, tree: Dendrogram, clusterer: StreamClusterer, method: str) -> TakenSnapshot:
        """Keep a clusterer's hierarchy."""
        stored = tree.to_dict()
        value = msgspec.json.encode(stored)
        if len(value) > MAX_SNAPSHOT_BYTES:
            value = msgspec.json.encode({**stored, "scatter": None})
        taken = TakenSnapshot(
            next(self._versions),
            self._now(),
            clusterer.n_seen,
            method,
            clusterer.n_clusters,
            msgspec.Raw(value),
            portrait_of_snapshot(tree, clusterer.family, clusterer.feature_names),
        )
        self._snapshots.append(taken)
        return taken

    @property
    def all(self) -> list[TakenSnapshot]:
        """All kept snapshots, the latest last."""
        return list(self._snapshots)
