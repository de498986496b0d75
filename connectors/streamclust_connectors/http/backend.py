"""What the application asks of a running service. Predicting needs no lock: a published model never changes."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamclust import __version__
from streamclust.engine import Model
from streamclust.hierarchy.agglomerate import MethodName
from streamclust.refit.bkm import check_points
from streamclust.streaming import StreamClusterer
from streamclust.streaming.stream_clusterer import Cluster
from streamclust.tree.rows import check_rows
from streamclust_connectors.http import bodies
from streamclust_connectors.http.history import History, Journal, Sample
from streamclust_connectors.http.kept import PATIENCE, Kept
from streamclust_connectors.http.problems import Problem
from streamclust_connectors.http.view import View, scene, view
from streamclust_connectors.service import Service
from streamclust_connectors.settings.sections import Http
from streamclust_connectors.sources import Brought

SNAPSHOTS = 20
"""Snapshots that are kept."""
LARGEST = 2_000_000
"""Bytes of a snapshot; a larger one is kept without the leaves' scatter."""
LATEST = 256
"""Events whose novelty a sample takes."""


class Predicted(msgspec.Struct):
    """Which cluster each event belongs to, how probable that is, and how novel the event is."""

    model_version: int | None
    cluster: list[int] | list[None]
    probability: list[float] | list[None]
    novelty: list[float] | list[None]


class Picture(NamedTuple):
    """What was learnt, as of a moment."""

    clusters: list[Cluster]
    model: Model | None
    events: int
    """Learnt until then."""
    latest: NDArray[np.float64]
    """Some of the latest of them."""


@dataclass(frozen=True)
class Snapshot:
    """A hierarchy, as of a moment."""

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


class Backend:
    """A service, as seen from outside."""

    def __init__(
        self,
        service: Service,
        source: str = "memory",
        limits: Http | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.service, self.source, self.limits = service, source, limits or Http()
        self.history, self.journal = History(), Journal()
        self._picture = Kept(service.lock, self._take_picture)
        self._scene = Kept(service.lock, lambda: scene(service.clusterer), shortest=1.9)  # the dearest of all
        self._snapshots: deque[Snapshot] = deque(maxlen=SNAPSHOTS)
        self._versions = count(1)
        self._now, self._began = now, now()

    # ---------------------------------------------------------------- figures

    def status(self) -> dict[str, Any]:
        """How the service does, without a word to the loop."""
        stats, clusterer = self.service.stats, self.service.clusterer
        model = clusterer.model
        lag = {f"{topic}-{number}": behind for (topic, number), behind in dict(stats.lag).items()}
        return {
            "version": __version__,
            "ready": stats.ready,
            "uptime_seconds": self._now() - self._began,
            "events": clusterer.n_seen,
            "events_per_second": stats.rate,
            "dead_letters": stats.dead_letters,
            "refused": stats.refused + clusterer.n_refused,
            "lag": lag,
            "lag_total": sum(lag.values()) if lag else None,
            "memory_bytes": memory(),
            "model_version": None if model is None else model.version,
            "n_clusters": clusterer.n_clusters,
            "last_checkpoint_age_seconds": self.checkpoint_age,
            "features": [str(name) for name in clusterer.feature_names],
            "family": clusterer.family,
            "source": self.source,
        }

    @property
    def checkpoint_age(self) -> float | None:
        """Seconds since the last checkpoint; None before the first."""
        stats = self.service.stats
        return None if stats.last_checkpoint is None else stats.clock() - stats.last_checkpoint

    def sample(self) -> None:
        """Take note of how things stand; to be called every second or so."""
        stats, picture = self.service.stats, self._picture()
        mean = high = None
        if picture.model is not None and len(picture.latest):
            with np.errstate(all="ignore"):
                novelty = picture.model.novelty(picture.latest)
                mean, high = finite(novelty.mean()), finite(np.quantile(novelty, 0.95))
        lag = dict(stats.lag)
        self.history.add(
            Sample(
                at=self._now(),
                events=self.service.clusterer.n_seen,
                events_per_second=stats.rate,
                lag=sum(lag.values()) if lag else None,
                memory_bytes=memory(),
                novelty=mean,
                novelty_high=high,
                shares={cluster.id: cluster.share for cluster in picture.clusters},
            )
        )

    # ---------------------------------------------------------------- clusters

    def _take_picture(self) -> Picture:
        clusterer = self.service.clusterer
        self.journal.update(clusterer.events)
        return Picture(clusterer.clusters, clusterer.model, clusterer.n_seen, latest_events(clusterer))

    def clusters(self) -> dict[str, Any]:
        """The clusters as of now, the heaviest first."""
        picture = self._picture()
        before = self.history.shares_before(self._now())
        return {
            "model_version": None if picture.model is None else picture.model.version,
            "clusters": [described(cluster, picture.events, before) for cluster in picture.clusters],
        }

    def cluster(self, number: int) -> dict[str, Any]:
        """One of them."""
        for cluster in self.clusters()["clusters"]:
            if cluster["id"] == number:
                found: dict[str, Any] = cluster
                return found
        raise Problem(404, f"there is no cluster {number}; it may have died, split or merged: see /v1/events")

    def events(self, after: int, limit: int) -> dict[str, Any]:
        """What happened to clusters after an entry of the journal."""
        self._picture()
        found = self.journal.after(after, limit)
        return {"events": found, "next": found[-1]["seq"] if found else self.journal.last}

    def view(self, x: str | None, y: str | None) -> View:
        """Leaves and clusters over two axes."""
        seen = self._scene()
        try:
            return view(seen, x, y)
        except ValueError as error:
            raise Problem(422, str(error)) from None

    # ---------------------------------------------------------------- events

    def _read(self, body: bytes) -> bodies.Events:
        events = bodies.read(body)
        if len(events) > self.limits.max_events:
            most = self.limits.max_events
            raise Problem(413, f"a request has at most {most} events (http.max_events), got {len(events)}")
        return events

    def predict(self, body: bytes) -> Predicted:
        """The cluster of each event of a body."""
        clusterer = self.service.clusterer
        model, names = clusterer.model, clusterer.feature_names  # in this order: names are never fewer
        try:
            events = self._read(body)
            points = bodies.rows(events, names, clusterer.missing)
            if model is None or not len(events):
                unknown = [None] * len(events)
                return Predicted(None if model is None else model.version, unknown, unknown, unknown)
            check(clusterer, points)
        except (TypeError, ValueError) as error:
            raise Problem(422, str(error)) from None
        with np.errstate(all="ignore"):  # what overflows is written as null
            found = model.assign(points)
        columns = found.cluster.tolist(), found.probability.tolist(), found.novelty.tolist()
        return Predicted(model.version, *columns)

    def learn(self, body: bytes) -> dict[str, Any]:
        """Learn the events of a body, if events come by request."""
        source = self.service.source
        if not isinstance(source, Brought):
            raise Problem(
                409,
                f"this service learns from its source ({self.source}), whose positions go with the state; "
                "`streamclust serve` learns what is sent to it",
            )
        try:
            events = self._read(body)
            with self.service.lock.within(PATIENCE):
                if not self.service.stats.ready:
                    raise Problem(503, "the service is starting or stopping", {"Retry-After": "1"})
                clusterer = self.service.clusterer
                vectors = bodies.vectors(events, clusterer.feature_names)
                bodies.check_features(vectors, clusterer.feature_names, self.limits.max_features)
                refused = bodies.refusals(clusterer, vectors)
                self.service.put(source.partition, bodies.without(vectors, refused), len(refused))
                self._picture.forget()
                self._scene.forget()
        except bodies.Unreadable as error:
            raise Problem(422, str(error)) from None
        return {
            "learnt": len(vectors) - len(refused),
            "refused": [{"index": i, "reason": reason} for i, reason in sorted(refused.items())],
        }

    # ---------------------------------------------------------------- snapshots

    def take_snapshot(self, method: MethodName) -> Snapshot:
        """A hierarchy of everything learnt until now."""
        with self.service.lock.within(PATIENCE):
            clusterer = self.service.clusterer
            if clusterer.model is None or not clusterer.shards:
                raise Problem(
                    409, "there is nothing to take a snapshot of: no event was learnt of any partition here"
                )
            tree, events, n_clusters = clusterer.snapshot(method), clusterer.n_seen, clusterer.n_clusters
        content = tree.to_dict()
        value = msgspec.json.encode(content)
        if len(value) > LARGEST:
            value = msgspec.json.encode(content | {"scatter": None})
        taken = Snapshot(next(self._versions), self._now(), events, method, n_clusters, msgspec.Raw(value))
        self._snapshots.append(taken)
        return taken

    @property
    def snapshots(self) -> list[Snapshot]:
        """Those that are kept, the latest last."""
        return list(self._snapshots)

    def snapshot(self, version: int) -> Snapshot:
        """One of them."""
        for kept in self.snapshots:
            if kept.version == version:
                return kept
        raise Problem(404, f"there is no snapshot {version}; the latest {SNAPSHOTS} are kept")


def described(cluster: Cluster, events: int, before: dict[int, float]) -> dict[str, Any]:
    """A cluster as JSON can hold it."""
    return {
        "id": cluster.id,
        "weight": cluster.weight,
        "share": cluster.share,
        "mean": {str(name): value for name, value in cluster.mean.items()},
        "covariance": None if cluster.covariance is None else np.asarray(cluster.covariance).tolist(),
        "born": cluster.born,
        "last_seen": cluster.last_seen,
        "age": events - cluster.born,
        "trend": cluster.share - before.get(cluster.id, 0.0 if before else cluster.share),
    }


def check(clusterer: StreamClusterer, points: NDArray[np.float64]) -> None:
    """Refuse points that no event of the stream could be."""
    filled = np.where(np.isnan(points), 0.0, points)
    check_rows(points.shape[1], filled, None, None)
    check_points(clusterer.family, filled)


def latest_events(clusterer: StreamClusterer) -> NDArray[np.float64]:
    """Rows of the latest events that are watched."""
    shards = clusterer._engine.shards
    return shards.latest(LATEST // len(shards) + 1) if shards else np.empty((0, 0))


def finite(value: Any) -> float | None:  # noqa: ANN401
    """A number that JSON can hold, or None."""
    return float(value) if np.isfinite(value) else None


def memory() -> int:
    """Bytes of memory that this process holds, or held at most where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  # the quickest way
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most
