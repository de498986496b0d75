"""Thread-safe access of the HTTP application to the service. Predicting takes no lock: models are immutable."""

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
from streamclust.parameters import LevelName
from streamclust.streaming import Cluster, ClusterPosterior, Model, StreamClusterer, compare_snapshots
from streamclust.summaries import Moments
from streamclust_connectors.http import bodies, detail
from streamclust_connectors.http.cached_value import LOCK_TIMEOUT_SECONDS, CachedValue
from streamclust_connectors.http.history import Journal, Sample, SampleHistory
from streamclust_connectors.http.past import PastClusters
from streamclust_connectors.http.problems import HttpProblem
from streamclust_connectors.http.view import PlaneView, UnknownFeature, view
from streamclust_connectors.service import Service
from streamclust_connectors.service.key_models import KeyModels
from streamclust_connectors.service.recent_snapshots import MAX_SNAPSHOTS, TakenSnapshot
from streamclust_connectors.settings.sections import HttpSection
from streamclust_connectors.sources import HttpSource

MAX_FAILED_REFITS = 3
"""Number of failed refits in a row after which the service is not ready."""
VIEW_CACHE_SECONDS = 1.9
"""Minimal cache time of the two most expensive values: the view, and the details of clusters."""
REMEMBER_SECONDS = 4.0
"""Seconds between two copies of the clusters' details, from which those that die are described."""
NOVELTY_EVENTS = 256
"""Number of latest events over which the novelty of a sample is averaged."""


class Predicted(msgspec.Struct):
    """Cluster of each event, its probability, and the novelty of the event."""

    model_version: int | None
    cluster: list[int] | list[None]
    probability: list[float] | list[None]
    novelty: list[float] | list[None]


class ModelCopy(NamedTuple):
    """Clusters, model and recent events, copied under the lock."""

    clusters: list[Cluster]
    model: Model | None
    events: int
    """Number of events learnt."""
    effective_events: float
    """Number of independent events that they are worth."""
    latest: NDArray[np.float64]
    """Some of the latest events."""
    finest: Model | None
    """The published model with the finest clusters."""


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
        """Path of the vector in an event of a request; None if the event itself is an object of numbers."""
        self.history, self.journal, self.past = SampleHistory(), Journal(), PastClusters()
        self._remembered_at = now()
        self._model_copy = CachedValue(service.lock, self._copy_model, key=self._cache_key)
        self._view_data = CachedValue(
            service.lock,
            lambda: service.displayed_clusterer.view(),
            min_seconds=VIEW_CACHE_SECONDS,
            key=self._cache_key,
        )
        self._detail = CachedValue(
            service.lock,
            lambda: detail.copy_detail(
                service.displayed_clusterer, service.example_keys(), service.group is not None
            ),
            min_seconds=VIEW_CACHE_SECONDS,
            key=self._cache_key,
        )
        self._finest_view = CachedValue(
            service.lock,
            lambda: service.displayed_clusterer.view("fine"),
            min_seconds=VIEW_CACHE_SECONDS,
            key=self._cache_key,
        )
        self._events_sampled = 0
        self._now, self._began = now, now()

    def _cache_key(self) -> object:
        """Cache key: changes when a state is loaded, or partitions are assigned or revoked."""
        return self.service.displayed_clusterer, frozenset(self.service.stats.positions)

    # ---------------------------------------------------------------- status

    def status(self) -> dict[str, Any]:
        """Status of the service; takes no lock."""
        stats, clusterer = self.service.stats, self.service.displayed_clusterer
        model, copied = clusterer.model, self._model_copy.last()
        lag = {f"{topic}-{number}": behind for (topic, number), behind in dict(stats.lag).items()}
        return {
            "version": __version__,
            "ready": stats.ready,
            "not_ready": stats.not_ready,
            "uptime_seconds": self._now() - self._began,
            "events": clusterer.n_seen,
            "effective_events": None if copied is None else copied.effective_events,
            "events_per_second": stats.rate,
            "dead_letters": stats.dead_letters,
            "refused": stats.refused + clusterer.n_refused,
            "invalid": {str(name): n for name, n in clusterer.n_invalid.items()},
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
            "vector": self.vector,
            "waiting": {f"{topic}-{number}": why for (topic, number), why in dict(stats.waiting).items()},
            "stopped": {f"{topic}-{number}": why for (topic, number), why in dict(stats.stopped).items()},
            "group": self.group(),
        }

    @property
    def refit_trouble(self) -> str:
        """Message if several refits in a row have failed, so that the model is out of date; else empty."""
        learner = self.service.learner
        if not isinstance(learner, StreamClusterer):
            return ""
        clusterer = self.service.displayed_clusterer
        if clusterer.n_failed_in_a_row < MAX_FAILED_REFITS:
            return ""
        return f"the last {clusterer.n_failed_in_a_row} refits failed ({clusterer.last_refit_error})"

    def group(self) -> dict[str, Any] | None:
        """Members and model of the consumer group; None without a group model."""
        group = self.service.group
        if group is None:
            return None
        return {
            "leads": group.leads,
            "model_version": group.version,
            "model_staleness_seconds": group.staleness,
            "members": [asdict(status) for status in group.active_members()],
        }

    def lifecycle_counts(self) -> Counter[str]:
        """Number of lifecycle events of each kind; for features, among the latest ones only."""
        learner = self.service.learner
        counts = self.journal.counts
        if isinstance(learner, KeyModels):
            counts = learner.kinds
        elif not isinstance(learner, StreamClusterer):
            counts = Counter(change.kind for change in learner.events)
        return Counter({kind: counts[kind] for kind in get_args(Kind)})

    @property
    def checkpoint_age(self) -> float | None:
        """Seconds since a checkpoint held everything learnt; None before the first."""
        return self.service.stats.checkpoint_age

    def sample(self) -> None:
        """Add a sample to the history; called every second. Its novelty is None without new events."""
        stats, copied = self.service.stats, self._model_copy()
        mean = high = None
        new_events, self._events_sampled = stats.events - self._events_sampled, stats.events
        if new_events and copied.model is not None and len(copied.latest):
            with np.errstate(all="ignore"):
                novelty = copied.model.novelty(copied.latest)
                mean, high = finite(novelty.mean()), finite(np.quantile(novelty, 0.95))
        if new_events and self._now() - self._remembered_at >= REMEMBER_SECONDS:
            self._remembered_at = self._now()
            self.past.update(self._detail())
        lag = dict(stats.lag)
        self.history.add(
            Sample(
                at=self._now(),
                events=self.service.displayed_clusterer.n_seen,
                events_per_second=stats.rate,
                lag=sum(lag.values()) if lag else None,
                memory_bytes=memory(),
                novelty=mean,
                novelty_high=high,
                shares={cluster.id: cluster.share for cluster in copied.clusters},
                finest={} if copied.finest is None else shares_of(copied.finest),
            )
        )

    # ---------------------------------------------------------------- clusters

    def _copy_model(self) -> ModelCopy:
        clusterer = self.service.displayed_clusterer
        self.journal.update(clusterer.events)
        return ModelCopy(
            clusterer.clusters,
            clusterer.model,
            clusterer.n_seen,
            clusterer.effective_events,
            clusterer.latest(NOVELTY_EVENTS),
            clusterer.model_at("fine"),
        )

    def clusters(self) -> dict[str, Any]:
        """Current clusters, the heaviest first."""
        copied = self._model_copy()
        before = self.history.shares_before(self._now())
        return {
            "model_version": None if copied.model is None else copied.model.version,
            "clusters": [cluster_json(cluster, copied.events, before) for cluster in copied.clusters],
        }

    def cluster(self, number: int) -> dict[str, Any]:
        """Details of a cluster; of one that no longer exists, its share over time and its lifecycle."""
        seen = self._detail()
        self.past.update(seen)
        self._model_copy()  # updates the journal
        lifecycle = detail.concerning(self.journal.after(0), number)
        found = next((cluster for cluster in seen.clusters if cluster.id == number), None)
        if found is None:
            if not lifecycle:
                raise HttpProblem(
                    404, f"there is no cluster {number}, now or recently; see /v1/clusters and /v1/events"
                )
            past = detail.shares(seen.steps, number, None)
            return {
                "id": number, "alive": False, "history": past, "lifecycle": lifecycle, "last": self.past.get(number),
            }  # fmt: skip
        before = self.history.shares_before(self._now())
        return cluster_json(found, seen.events, before) | {
            "alive": True,
            "features": detail.features(seen.profiles, number),
            "history": detail.shares(seen.steps, number, (seen.events, found.share)),
            "lifecycle": lifecycle,
            "recent": detail.recent(seen, number),
            "examples": detail.examples(seen, number),
            "border": detail.border(seen, number),
        }

    def name_cluster(self, number: int, name: str | None) -> dict[str, Any]:
        """Give a name to a cluster, or take it away."""
        try:
            with self.service.lock.within(LOCK_TIMEOUT_SECONDS):
                if not self.service.stats.ready:  # a state that is loaded next would not have the name
                    raise HttpProblem(503, "the service is starting or stopping", {"Retry-After": "1"})
                self.service.name_cluster(number, name)
        except KeyError as error:
            raise HttpProblem(404, str(error.args[0])) from None
        except ValueError as error:
            raise HttpProblem(422, str(error)) from None
        self._model_copy.clear()
        self._detail.clear()
        return {"id": number, "name": self.service.displayed_clusterer.names.get(number)}

    def events(self, after: int, limit: int) -> dict[str, Any]:
        """Lifecycle events after a journal entry."""
        self._model_copy()
        found = self.journal.after(after, limit)
        return {"events": found, "next": found[-1]["seq"] if found else self.journal.last}

    def view(self, x: str | None, y: str | None, level: LevelName = None) -> PlaneView:
        """Leaves and clusters of a level over two axes."""
        try:
            if level is None:
                return view(self._view_data(), x, y)
            return view(self._finest_view().grouped(self._parents(level)), x, y)
        except UnknownFeature as error:
            raise HttpProblem(404, str(error)) from None

    def samples(self, since: float, level: LevelName = None) -> dict[str, list[Any]]:
        """Samples after a time, with the shares of a level."""
        return self.history.since(since, None if level is None else self._parents(level))

    def _parents(self, level: LevelName) -> dict[int, int]:
        """Ids of the finest clusters, and of the cluster of a level that each is part of."""
        self._model_at(level)  # refuses a level that there is not
        return self.service.displayed_clusterer.parents("fine", level)

    # ---------------------------------------------------------------- events

    def read(self, body: bytes) -> bodies.Events:
        """The events of a request body; a problem if there are too many."""
        events = bodies.read(body, self.vector)
        if len(events) > self.limits.max_events:
            most = self.limits.max_events
            raise HttpProblem(
                413,
                f"a request may have at most {most} events (http.max_events), got {len(events)}; send several requests",
            )
        return events

    def _model_at(self, level: LevelName) -> Model | None:
        """The published model with the clusters of a level."""
        try:
            return self.service.displayed_clusterer.model_at(level)
        except ValueError as error:
            raise HttpProblem(404, str(error)) from None

    def levels(self) -> dict[str, Any]:
        """The levels that can be shown, the finest first."""
        found = self.service.displayed_clusterer.levels
        return {
            "levels": [
                {
                    "n_clusters": level.n_clusters,
                    "persistence": finite(level.persistence),
                    "zeta": level.zeta,
                    "shown": level.shown,
                    "probability": level.probability,
                }
                for level in found
            ]
        }

    def clusters_at(self, level: LevelName) -> dict[str, Any]:
        """Clusters of a level, as published, the heaviest first."""
        clusterer, model = self.service.displayed_clusterer, self._model_at(level)
        found = [] if model is None else clusterer.clusters_at(level)
        return {
            "model_version": None if model is None else model.version,
            "clusters": [cluster_json(cluster, clusterer.n_seen, {}) for cluster in found],
        }

    def predict(self, body: bytes, level: LevelName = None) -> Predicted:
        """Cluster of each event of a request body, at a level."""
        return assigned(self.service.displayed_clusterer, self._model_at(level), self.read, body)

    def learn(self, body: bytes) -> dict[str, Any]:
        """Learn the events of a request body, if HTTP is the source of the service."""
        source = self.service.source
        if not isinstance(source, HttpSource):
            raise HttpProblem(
                409,
                f"this service learns from its source ({self.source}) only; "
                "start `streamclust serve` to learn events by HTTP",
            )
        try:
            events = self.read(body)
            with self.service.lock.within(LOCK_TIMEOUT_SECONDS):
                if not self.service.stats.ready:
                    raise HttpProblem(503, "the service is starting or stopping", {"Retry-After": "1"})
                clusterer = self.service.clusterer
                vectors = bodies.vectors(events, clusterer.feature_names)
                bodies.check_features(vectors, clusterer.feature_names, self.limits.max_features)
                checked = clusterer.check(vectors, shard=source.partition)
                self.service.learn_checked(checked)
                self._model_copy.clear()
                self._view_data.clear()
                self._finest_view.clear()
                self._detail.clear()
        except bodies.Unfit as error:
            raise HttpProblem(409, str(error)) from None
        except bodies.InvalidBody as error:
            raise HttpProblem(422, str(error)) from None
        return {
            "learnt": len(checked),
            "refused": [{"index": i, "reason": str(why)} for i, why in sorted(checked.refused.items())],
        }

    # ---------------------------------------------------------------- snapshots

    def take_snapshot(self, method: MethodName) -> TakenSnapshot:
        """Take a snapshot: the hierarchy of all events learnt so far."""
        with self.service.lock.within(LOCK_TIMEOUT_SECONDS):
            clusterer = self.service.displayed_clusterer
            if clusterer.model is None or not clusterer.shards:
                raise HttpProblem(
                    409,
                    "no event has been learnt yet, so there is no hierarchy; try again after the first events",
                )
            tree = clusterer.snapshot(method)
        return self.service.snapshots.add(tree, clusterer, method)

    @property
    def snapshots(self) -> list[TakenSnapshot]:
        """Kept snapshots, the latest last."""
        return self.service.snapshots.all

    def snapshot(self, version: int) -> TakenSnapshot:
        """Snapshot of a version."""
        for taken in self.snapshots:
            if taken.version == version:
                return taken
        raise HttpProblem(404, f"there is no snapshot {version}; only the latest {MAX_SNAPSHOTS} are kept")

    def changes(self, version: int, since: int) -> dict[str, Any]:
        """Changes of the clusters from one snapshot to another."""
        before, now = self.snapshot(since), self.snapshot(version)
        found = compare_snapshots(before.portrait, now.portrait)
        return {
            "since": before.summary,
            "until": now.summary,
            "clusters": [
                asdict(line)
                | {
                    "feature": None if line.feature is None else str(line.feature),
                    "events_now": list(line.events_now.items()),
                    "words": line.words(),
                }
                for line in found
            ],
        }


def assigned(
    clusterer: StreamClusterer, model: Model | None, read: Callable[[bytes], bodies.Events], body: bytes
) -> Predicted:
    """Cluster of each event of a request body by a model of a clusterer."""
    names = clusterer.feature_names  # names after model: they only grow
    try:
        events = read(body)
        if clusterer.categories:
            points = clusterer.rows_of(bodies.vectors(events, names))
        else:
            points = bodies.rows(events, names, clusterer.missing or "impute")
        if model is None or not len(events):
            unknown = [None] * len(events)
            return Predicted(None if model is None else model.version, unknown, unknown, unknown)
        with np.errstate(all="ignore"):  # overflows become null
            found = clusterer.assign_rows(points, model)
    except bodies.Unfit as error:
        raise HttpProblem(409, str(error)) from None
    except (TypeError, ValueError) as error:
        raise HttpProblem(422, str(error)) from None
    columns = found.cluster.tolist(), found.probability.tolist(), found.novelty.tolist()
    return Predicted(model.version, *columns)


def cluster_json(cluster: Cluster, events: int, before: dict[int, float]) -> dict[str, Any]:
    """A cluster as JSON values."""
    return {
        "id": cluster.id,
        "name": cluster.name,
        "weight": cluster.weight,
        "share": cluster.share,
        "words": cluster.words(),
        "mean": {str(name): value for name, value in cluster.mean.items()},
        "covariance": None if cluster.covariance is None else np.asarray(cluster.covariance).tolist(),
        "born": cluster.born,
        "last_seen": cluster.last_seen,
        "age": events - cluster.born,
        "trend": cluster.share - before.get(cluster.id, 0.0 if before else cluster.share),
        "components": components(cluster.components),
        "posterior": None if cluster.posterior is None else posterior(cluster.posterior),
    }


def posterior(known: ClusterPosterior) -> dict[str, Any]:
    """A cluster's posterior as JSON values."""
    return {
        "events": known.events,
        "degrees_of_freedom": finite(known.degrees_of_freedom),
        "share_error": known.share_error,
        "mean_error": {str(name): finite(error) for name, error in known.mean_error.items()},
        "probability": known.probability,
    }


def components(rows: Moments) -> list[dict[str, Any]]:
    """Components of a cluster as JSON values."""
    spreads = [None] * len(rows) if rows.kind == "none" else rows.covariance.tolist()
    columns = rows.weight.tolist(), rows.mean.tolist(), spreads
    return [{"weight": w, "mean": m, "covariance": c} for w, m, c in zip(*columns, strict=True)]


def shares_of(model: Model) -> dict[int, float]:
    """Shares of a model's clusters, by id, as of its last look."""
    weight = model.clusters.weight
    return dict(zip(model.names.tolist(), (weight / weight.sum()).tolist(), strict=True))


def finite(value: float) -> float | None:
    """The number if it is finite, else None."""
    return float(value) if np.isfinite(value) else None


def memory() -> int:
    """Resident memory of this process in bytes; its maximum where the system does not report the current value."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  # fastest
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most
