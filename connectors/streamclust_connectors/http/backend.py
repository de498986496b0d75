"""The service as the HTTP application uses it. Predicting needs no lock: a published model never changes."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamclust import __version__
from streamclust.hierarchy import MethodName
from streamclust.lineage import Kind
from streamclust.streaming import Cluster, Model, StreamClusterer
from streamclust.summaries import Moments
from streamclust_connectors.http import bodies, detail
from streamclust_connectors.http.history import Journal, Sample, SampleHistory
from streamclust_connectors.http.kept import LOCK_TIMEOUT_SECONDS, Kept
from streamclust_connectors.http.problems import HttpProblem
from streamclust_connectors.http.view import PlaneView, view
from streamclust_connectors.service import Service
from streamclust_connectors.settings.sections import HttpSection
from streamclust_connectors.shelf import MAX_SNAPSHOTS, TakenSnapshot
from streamclust_connectors.sources import Brought

MAX_FAILED_REFITS = 3
"""Not ready after so many failed refits in a row."""
NOVELTY_EVENTS = 256
"""Number of latest events over which a sample averages novelty."""


class Predicted(msgspec.Struct):
    """Which cluster each event belongs to, how probable that is, and how novel the event is."""

    model_version: int | None
    cluster: list[int] | list[None]
    probability: list[float] | list[None]
    novelty: list[float] | list[None]


class Picture(NamedTuple):
    """Clusters, leaves and recent events, copied at one moment."""

    clusters: list[Cluster]
    model: Model | None
    events: int
    """Number of events learnt."""
    latest: NDArray[np.float64]
    """Some of the latest events."""


class Backend:
    """Thread-safe access to a running service."""

    def __init__(
        self,
        service: Service,
        source: str = "memory",
        limits: HttpSection | None = None,
        now: Callable[[], float] = time.time,
        vector: str | None = None,
    ) -> None:
        self.service, self.source, self.limits = service, source, limits or HttpSection()
        self.vector = vector
        """The field in which events of requests have their numbers; None: they are their own fields."""
        self.history, self.journal = SampleHistory(), Journal()
        self._picture = Kept(service.lock, self._take_picture, of=self._holds)
        self._scene = Kept(
            service.lock, lambda: service.shown.view(), shortest=1.9, of=self._holds
        )  # the dearest
        self._closeup = Kept(
            service.lock, lambda: detail.closeup(service.shown), shortest=1.9, of=self._holds
        )
        self._events_sampled = 0
        self._now, self._began = now, now()

    def _holds(self) -> object:
        """Changes when state is loaded and when partitions come or go: clusters change with them at once."""
        return self.service.shown, frozenset(self.service.stats.positions)

    # ---------------------------------------------------------------- figures

    def status(self) -> dict[str, Any]:
        """Status of the service; takes no lock."""
        stats, clusterer = self.service.stats, self.service.shown
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
            "failed_refits": clusterer.n_failed_refits,
            "lag": lag,
            "lag_total": sum(lag.values()) if lag else None,
            "memory_bytes": memory(),
            "model_version": None if model is None else model.version,
            "n_clusters": clusterer.n_clusters,
            "last_checkpoint_age_seconds": self.checkpoint_age,
            "features": [str(name) for name in clusterer.feature_names],
            "family": clusterer.family,
            "source": self.source,
            "stopped": {f"{topic}-{number}": why for (topic, number), why in dict(stats.stopped).items()},
            "group": self.group(),
        }

    @property
    def refit_trouble(self) -> str:
        """Why the model is no longer kept up to date: several refits in a row have failed; empty otherwise."""
        learner = self.service.learner
        if not isinstance(learner, StreamClusterer):
            return ""
        shown = self.service.shown
        if shown.n_failed_in_a_row < MAX_FAILED_REFITS:
            return ""
        return f"the last {shown.n_failed_in_a_row} refits have failed ({shown.last_refit_error})"

    def group(self) -> dict[str, Any] | None:
        """The members of the consumer group and its model; None for a service that has a model of its own."""
        group = self.service.group
        if group is None:
            return None
        return {
            "leads": group.leads,
            "model_version": group.version,
            "model_staleness_seconds": group.staleness,
            "members": [asdict(status) for status in group.present()],
        }

    def lifecycle_counts(self) -> Counter[str]:
        """Lifecycle events of each kind: all since the start or, of features, among the latest."""
        learner = self.service.learner
        kept = self.journal.counts
        if not isinstance(learner, StreamClusterer):
            kept = Counter(change.kind for change in learner.events)
        return Counter({kind: kept[kind] for kind in get_args(Kind)})

    @property
    def checkpoint_age(self) -> float | None:
        """Seconds since everything learnt was in a checkpoint; None before the first."""
        return self.service.stats.checkpoint_age

    def sample(self) -> None:
        """Add a sample to the history; called every second. Without new events its novelty is None."""
        stats, picture = self.service.stats, self._picture()
        mean = high = None
        came, self._events_sampled = stats.events - self._events_sampled, stats.events
        if came and picture.model is not None and len(picture.latest):
            with np.errstate(all="ignore"):
                novelty = picture.model.novelty(picture.latest)
                mean, high = finite(novelty.mean()), finite(np.quantile(novelty, 0.95))
        lag = dict(stats.lag)
        self.history.add(
            Sample(
                at=self._now(),
                events=self.service.shown.n_seen,
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
        clusterer = self.service.shown
        self.journal.update(clusterer.events)
        return Picture(
            clusterer.clusters, clusterer.model, clusterer.n_seen, clusterer.latest(NOVELTY_EVENTS)
        )

    def clusters(self) -> dict[str, Any]:
        """The clusters as of now, the heaviest first."""
        picture = self._picture()
        before = self.history.shares_before(self._now())
        return {
            "model_version": None if picture.model is None else picture.model.version,
            "clusters": [described(cluster, picture.events, before) for cluster in picture.clusters],
        }

    def cluster(self, number: int) -> dict[str, Any]:
        """A cluster in detail; of a cluster that no longer exists, its share over time and its lifecycle."""
        seen = self._closeup()
        self._picture()  # which brings the journal up to date
        lifecycle = detail.concerning(self.journal.after(0), number)
        found = next((cluster for cluster in seen.clusters if cluster.id == number), None)
        if found is None:
            if not lifecycle:
                raise HttpProblem(404, f"there is no cluster {number}, nor was there of late: see /v1/events")
            past = detail.shares(seen.steps, number, None)
            return {"id": number, "alive": False, "history": past, "lifecycle": lifecycle}
        before = self.history.shares_before(self._now())
        return described(found, seen.events, before) | {
            "alive": True,
            "features": detail.features(seen.profiles, number),
            "history": detail.shares(seen.steps, number, (seen.events, found.share)),
            "lifecycle": lifecycle,
            "recent": detail.recent(seen, number),
        }

    def events(self, after: int, limit: int) -> dict[str, Any]:
        """Lifecycle events after a journal entry."""
        self._picture()
        found = self.journal.after(after, limit)
        return {"events": found, "next": found[-1]["seq"] if found else self.journal.last}

    def view(self, x: str | None, y: str | None) -> PlaneView:
        """Leaves and clusters over two axes."""
        seen = self._scene()
        try:
            return view(seen, x, y)
        except ValueError as error:
            raise HttpProblem(422, str(error)) from None

    # ---------------------------------------------------------------- events

    def _read(self, body: bytes) -> bodies.Events:
        events = bodies.read(body, self.vector)
        if len(events) > self.limits.max_events:
            most = self.limits.max_events
            raise HttpProblem(
                413, f"a request has at most {most} events (http.max_events), got {len(events)}"
            )
        return events

    def predict(self, body: bytes) -> Predicted:
        """The cluster of each event of a body."""
        clusterer = self.service.shown
        model, names = clusterer.model, clusterer.feature_names  # in this order: names are never fewer
        try:
            events = self._read(body)
            points = bodies.rows(events, names, clusterer.missing or "impute")
            if model is None or not len(events):
                unknown = [None] * len(events)
                return Predicted(None if model is None else model.version, unknown, unknown, unknown)
            clusterer.check_rows(points)
        except (TypeError, ValueError) as error:
            raise HttpProblem(422, str(error)) from None
        with np.errstate(all="ignore"):  # what overflows is written as null
            found = clusterer.assign_rows(points, model)
        columns = found.cluster.tolist(), found.probability.tolist(), found.novelty.tolist()
        return Predicted(model.version, *columns)

    def learn(self, body: bytes) -> dict[str, Any]:
        """Learn the events of a body, if events come by request."""
        source = self.service.source
        if not isinstance(source, Brought):
            raise HttpProblem(
                409,
                f"this service learns from its source ({self.source}), whose positions go with the state; "
                "`streamclust serve` learns what is sent to it",
            )
        try:
            events = self._read(body)
            with self.service.lock.within(LOCK_TIMEOUT_SECONDS):
                if not self.service.stats.ready:
                    raise HttpProblem(503, "the service is starting or stopping", {"Retry-After": "1"})
                clusterer = self.service.clusterer
                vectors = bodies.vectors(events, clusterer.feature_names)
                bodies.check_features(vectors, clusterer.feature_names, self.limits.max_features)
                checked = clusterer.check(vectors, shard=source.partition)
                self.service.put(checked)
                self._picture.forget()
                self._scene.forget()
                self._closeup.forget()
        except bodies.Unreadable as error:
            raise HttpProblem(422, str(error)) from None
        return {
            "learnt": len(checked),
            "refused": [{"index": i, "reason": str(why)} for i, why in sorted(checked.refused.items())],
        }

    # ---------------------------------------------------------------- snapshots

    def take_snapshot(self, method: MethodName) -> TakenSnapshot:
        """A hierarchy of everything learnt until now."""
        with self.service.lock.within(LOCK_TIMEOUT_SECONDS):
            clusterer = self.service.shown
            if clusterer.model is None or not clusterer.shards:
                raise HttpProblem(
                    409, "there is nothing to take a snapshot of: no event was learnt of any partition here"
                )
            tree = clusterer.snapshot(method)
        return self.service.shelf.keep(tree.to_dict(), clusterer, method)

    @property
    def snapshots(self) -> list[TakenSnapshot]:
        """The snapshots kept, the latest last."""
        return self.service.shelf.kept

    def snapshot(self, version: int) -> TakenSnapshot:
        """A snapshot by its version."""
        for kept in self.snapshots:
            if kept.version == version:
                return kept
        raise HttpProblem(404, f"there is no snapshot {version}; the latest {MAX_SNAPSHOTS} are kept")


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
        "components": components(cluster.components),
    }


def components(rows: Moments) -> list[dict[str, Any]]:
    """The components of a cluster as JSON can hold them."""
    spreads = [None] * len(rows) if rows.kind == "none" else rows.covariance.tolist()
    columns = rows.weight.tolist(), rows.mean.tolist(), spreads
    return [{"weight": w, "mean": m, "covariance": c} for w, m, c in zip(*columns, strict=True)]


def finite(value: float) -> float | None:
    """A number that JSON can hold, or None."""
    return float(value) if np.isfinite(value) else None


def memory() -> int:
    """Resident memory of this process in bytes; its maximum where the system does not report the current value."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  # the quickest way
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most
