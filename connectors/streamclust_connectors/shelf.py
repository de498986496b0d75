"""The latest snapshots of a service, whoever asked for them: the schedule, a signal, a request."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from streamclust.hierarchy import MethodName
from streamclust.streaming import StreamClusterer

MAX_SNAPSHOTS = 20
"""Number of snapshots kept in memory."""
MAX_SNAPSHOT_BYTES = 2_000_000
"""Size above which a snapshot is kept without the leaves' scatter."""


@dataclass(frozen=True)
class TakenSnapshot:
    """A hierarchy and when it was taken."""

    version: int
    at: float
    """Seconds since 1970."""
    events: int
    method: str
    n_clusters: int
    dendrogram: msgspec.Raw

    @property
    def summary(self) -> dict[str, Any]:
        """All but the tree."""
        return {name: value for name, value in vars(self).items() if name != "dendrogram"}


class Shelf:
    """Keeps the latest snapshots, numbered from 1.

    >>> shelf = Shelf()
    >>> clusterer = StreamClusterer()
    >>> clusterer.learn_many([{"x": 1.0}, {"x": 2.0}])
    >>> shelf.take(clusterer, "rbhc").version, [kept.events for kept in shelf.kept]
    (1, [2])
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._kept: deque[TakenSnapshot] = deque(maxlen=MAX_SNAPSHOTS)
        self._versions = count(1)

    def take(self, clusterer: StreamClusterer, method: MethodName) -> TakenSnapshot:
        """Take a snapshot of a clusterer, which must have learnt something, and keep it."""
        return self.keep(clusterer.snapshot(method).to_dict(), clusterer, method)

    def keep(self, tree: Mapping[str, Any], clusterer: StreamClusterer, method: str) -> TakenSnapshot:
        """Keep a clusterer's hierarchy, as `to_dict` gives it."""
        value = msgspec.json.encode(tree)
        if len(value) > MAX_SNAPSHOT_BYTES:
            value = msgspec.json.encode({**tree, "scatter": None})
        taken = TakenSnapshot(
            next(self._versions),
            self._now(),
            clusterer.n_seen,
            method,
            clusterer.n_clusters,
            msgspec.Raw(value),
        )
        self._kept.append(taken)
        return taken

    @property
    def kept(self) -> list[TakenSnapshot]:
        """The snapshots kept, the latest last."""
        return list(self._kept)
