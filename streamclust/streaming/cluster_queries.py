"""ClusterQueries: the part of a clusterer that tells what was found. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.engine import Model
from streamclust.engine.cluster_view import ClusterView, cluster_view
from streamclust.engine.feature_profiles import FeatureProfile, Profiles, profiles
from streamclust.levels import Level, Path, levels_of
from streamclust.lineage import Change, Lineage
from streamclust.moments import Moments
from streamclust.parameters import LevelName
from streamclust.sketch import Sketch
from streamclust.streaming.clusters import Cluster, clusters_of
from streamclust.streaming.descriptions import Descriptions, describe_all, mixture_of
from streamclust.streaming.pipeline import EventPipeline
from streamclust.streaming.thread_safety import ThreadSafe
from streamclust.tree import SummaryTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from streamclust.hierarchy.agglomerate import MethodName
    from streamclust.hierarchy.dendrogram import Dendrogram


class ClusterQueries(ThreadSafe):
    """The clusters, their lives, the summary and pictures of a stream."""

    _pipeline: EventPipeline
    model_at: Callable[[LevelName], Model | None]
    _hint: Callable[[], None]

    @property
    def model(self) -> Model | None:
        """The published model with the clusters of the level on show; None before the first event."""
        return self._pipeline.engine.shown

    # ---------------------------------------------------------------- levels

    @property
    def path(self) -> Path | None:
        """The merges from the finest clusters to one; None before the first event."""
        model = self._pipeline.engine.model
        return None if model is None else model.path

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels that can be shown, the finest first; which is on show, and how long each persists.

        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> rows = np.random.default_rng(0).normal(size=(600, 2)) + 30.0 * np.arange(3).repeat(200)[:, None]
        >>> model.learn_many(np.random.default_rng(1).permutation(rows))
        >>> [(level.n_clusters, level.shown) for level in model.levels]
        [(3, True), (2, False), (1, False)]
        """
        path, shown = self.path, self.model
        return () if path is None or shown is None else levels_of(path, len(shown.names))

    def clusters_at(self, level: LevelName) -> list[Cluster]:
        """The clusters of a level, as published: a number of clusters, "fine" or (None) the one on show.

        Levels are nested. Each has ids of its own: see `parents`.
        """
        model = self.model_at(level)
        if model is None:
            return []
        engine = self._pipeline.engine
        return self._published_clusters(model, engine.lineage if level is None else engine.stream.lineage)

    def parents(self, level: LevelName, coarser: LevelName) -> dict[int, int]:
        """Ids of clusters at a level, and of the cluster at a coarser one that each is part of.

        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> rows = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([[0.0], [30.0], [200.0]], 200, axis=0)
        >>> model.learn_many(np.random.default_rng(1).permutation(rows))
        >>> len(model.parents("fine", 2)), len(set(model.parents("fine", 2).values()))
        (3, 2)
        """
        fine, coarse = self.model_at(level), self.model_at(coarser)
        if fine is None or coarse is None:
            return {}
        if len(coarse.names) > len(fine.names):
            raise ValueError(
                f"the level of {len(coarse.names)} clusters is not coarser than that of {len(fine.names)}"
            )
        pairs = zip(fine.names[fine.place].tolist(), coarse.names[coarse.place].tolist(), strict=True)
        return dict(sorted(pairs))

    @property
    def n_seen(self) -> int:
        """Number of events learnt."""
        return self._pipeline.projection.n_seen + self._pipeline.n_waiting

    @property
    def sketch(self) -> Sketch | None:
        """The map that reduces wide events; None until it is learnt, and if events are not wide.

        `tree` and `shards.tree` are in its coordinates, everything else is in the features.
        """
        return self._pipeline.projection.sketch

    @property
    def knees(self) -> dict[Hashable, float]:
        """The features that are compared by their logarithm, and the knee of each: below it the transform is linear.

        `tree` and `shards.tree` hold transformed values, asinh(x / knee); all else is in the features' own units. The
        mean of such a feature is a median, and its deviation half the distance between the values one deviation below
        and above.

        >>> from streamclust import StreamClusterer
        >>> rng, model = np.random.default_rng(0), StreamClusterer()
        >>> for slow in rng.integers(2, size=600):
        ...     model.learn_one({"latency": rng.lognormal(6.0 if slow else 1.0, 0.5)})
        >>> list(model.knees), [round(cluster.mean["latency"], -1) for cluster in model.clusters]
        (['latency'], [420.0, 0.0])
        """
        with self._turn, self._lock:
            self._pipeline.flush()
            knee = self._pipeline.engine.transform.knee
            names = self.feature_names[: len(knee)]
            return {name: float(k) for name, k in zip(names, knee, strict=False) if k > 0.0}

    @property
    def effective_events(self) -> float:
        """Number of independent events that those learnt are worth: `n_seen`, or fewer if they depend on each other.

        Slowly wandering sources and repeated events hold less information than as many independent events, and count
        for less in decisions about clusters. Estimated from the latest events.

        >>> from streamclust import StreamClusterer
        >>> rows = np.random.default_rng(0).normal(size=(500, 2))
        >>> independent, repeated = StreamClusterer(), StreamClusterer()
        >>> independent.learn_many(rows)
        >>> repeated.learn_many(np.repeat(rows, 10, axis=0))
        >>> independent.effective_events, repeated.effective_events < 1500
        (500.0, True)
        """
        with self._turn, self._lock:
            self._pipeline.flush()
            return self.n_seen * self._pipeline.engine.present.evidence

    @property
    def n_failed_refits(self) -> int:
        """Number of refits, and looks between them, that failed: each time the last good model stayed."""
        return self._pipeline.engine.counters.n_failed_refits

    @property
    def n_failed_in_a_row(self) -> int:
        """Number of refits and looks that have failed since a refit last succeeded."""
        return self._pipeline.engine.counters.failures_in_a_row

    @property
    def last_refit_error(self) -> str:
        """Reason of the latest failure of a refit; empty if none has failed."""
        return self._pipeline.engine.counters.last_failure

    @property
    def residual_growth(self) -> float:
        """Share of the latest events that `sketch` leaves out, as a multiple of its share when the sketch was learnt.

        About 1 while the stream varies in the same directions, and if events are not wide. A warning (`LeftSketch`)
        says once that the stream has left them.
        """
        return self._pipeline.projection.residual_growth

    @property
    def _n_clusters_now(self) -> int:
        """Number of clusters at the level on show."""
        model = self.model
        if model is None:
            return 0 if self._pipeline.projection.only_cluster is None else 1
        return len(model.names)

    @property
    def clusters(self) -> list[Cluster]:
        """The clusters as of now, the heaviest first; while another thread is learning, as they were published last."""
        return self._if_free(self._clusters_now, self._clusters_published)

    def _clusters_now(self) -> list[Cluster]:
        self._pipeline.flush()
        engine, model = self._pipeline.engine, self.model
        if model is None:
            return self._waiting_cluster()
        rows, parts = self._expanded(engine.queries.clusters()), self._expanded(engine.queries.components())
        return clusters_of(
            model, rows, parts, engine.settings.family_name, self._pipeline.schema, engine.lineage.born_at,
            engine.queries.last_seen(), engine.lineage.names, self._compared(engine.queries.clusters(), model),
        )  # fmt: skip

    def _clusters_published(self) -> list[Cluster]:
        """The clusters of the published model, without waiting for the thread that learns."""
        model = self.model
        if model is None:
            with self._turn, self._lock:
                return self._clusters_now()
        return self._published_clusters(model, self._pipeline.engine.lineage)

    def _published_clusters(self, model: Model, lineage: Lineage) -> list[Cluster]:
        """The clusters of a model."""
        rows, parts = model.clusters, model.active.clusters
        back = model.transform if model.sketch is None else model.sketch
        rows, parts = back.expand_moments(rows), back.expand_moments(parts)
        last_seen = dict.fromkeys(model.names.tolist(), model.n_seen)
        family = self._pipeline.engine.settings.family_name
        return clusters_of(
            model, rows, parts, family, self._pipeline.schema, lineage.born_at, last_seen, lineage.names,
            self._compared(model.clusters, model),
        )  # fmt: skip

    def _compared(self, rows: Moments, model: Model) -> Moments | None:
        """Clusters in transformed values, by which they are described; None if those are the features."""
        return rows if model.sketch is None and not model.transform.is_none else None

    def _waiting_cluster(self) -> list[Cluster]:
        """The cluster of all events while they wait for their sketch; none before the first."""
        projection = self._pipeline.projection
        if projection.only_cluster is None:
            return []
        whole, n = projection.waiting_moments(), projection.n_waiting
        mean = self._pipeline.schema.mapping(whole.mean[0])
        return [
            Cluster(
                projection.only_cluster,
                float(whole.weight[0]),
                1.0,
                mean,
                whole.covariance[0],
                1,
                n,
                whole,
                mixture_of(
                    self._pipeline.engine.settings.family_name, self.feature_names[: whole.n_features], whole
                ),
                0,
            )
        ]

    def _expanded(self, rows: Moments) -> Moments:
        """Moments in the events' own features."""
        back = self._pipeline.engine.transform if self.sketch is None else self.sketch
        return back.expand_moments(rows)

    @property
    def centers(self) -> dict[int, dict[Hashable, float]]:
        """The centre of each cluster by id and feature, as River's metrics read them, the heaviest cluster first.

        Its mean or, for a cluster of several components, the mean of the densest: a ring's own mean is not in it.
        """
        found, model = self.clusters, self.model
        return {
            cluster.id: cluster.mean if len(cluster.components) == 1 else self._densest(model, cluster)
            for cluster in found
        }

    def _densest(self, model: Model | None, cluster: Cluster) -> dict[Hashable, float]:
        """The mean of the component of a cluster that is the least novel."""
        assert model is not None  # clusters of several components are a model's
        means = cluster.components.mean
        return self._pipeline.schema.mapping(means[model.novelty(means).argmin()])

    @overload
    def describe(self) -> Descriptions: ...
    @overload
    def describe(self, cluster: int) -> list[FeatureProfile]: ...
    def describe(self, cluster: int | None = None) -> Descriptions | list[FeatureProfile]:
        """All clusters in words, a line each; of one cluster, its features as numbers.

        Of one: mean and standard deviation of each feature in it, beside those of all events, the most telling first.
        What looks wrong in the data is warned of once (`DataHint`); see `diagnose`.

        >>> rng = np.random.default_rng(0)
        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> for kind in rng.integers(2, size=500):
        ...     model.learn_one({"length": rng.normal(9.0 * kind), "noise": rng.normal()})
        >>> telling, other = model.describe(model.predict_one({"length": 9.0, "noise": 0.0}))
        >>> telling.name, round(telling.mean), round(telling.overall_mean), other.distance < telling.distance / 10
        ('length', 9, 5, True)
        >>> print(model.describe())
        cluster  share      events  trend      what sets it apart
              0    55%         275  steady     length high (73rd percentile)
              1    45%         225  steady     length low (22nd percentile)
        """
        if cluster is not None:
            return self.profiles().describe(cluster)
        self._hint()
        return describe_all(self.clusters, self.lineage.history)

    def profiles(self) -> Profiles:
        """`describe` for all clusters, as arrays that later learning does not change."""
        with self._turn, self._lock:
            self._pipeline.flush()
            return profiles(self._pipeline.engine, self.feature_names, self.sketch)

    def view(self, level: LevelName = None) -> ClusterView:
        """Data for pictures: the clusters, the leaves of the summary, and the cluster of each leaf.

        `level`: a number of clusters or "fine", instead of the level on show.

        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> model.learn_many([{"x": 1.0}, {"x": 1.5}])
        >>> model.view().leaves.weight, model.view().owners
        (array([2.]), array([0]))
        """
        with self._turn, self._lock:
            self._pipeline.flush()
            return cluster_view(
                self._pipeline.engine, self.feature_names, self._expanded, self.model_at(level)
            )

    @property
    def tree(self) -> SummaryTree:
        """The summary of everything learnt: the trees of all shards, merged into a new one; of `sketch`'s coordinates.

        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> model.learn_many([{"x": 1.0}, {"x": 2.0}, {"x": 3.0}])
        >>> model.tree.total.weight, model.tree.total.mean
        (array([3.]), array([[2.]]))
        """
        with self._turn, self._lock:
            self._pipeline.flush()
            return self._pipeline.engine.shards.merged_tree()

    def latest(self, n: int = 256) -> Floats:
        """About n of the latest events as rows in the order of `feature_names`, the oldest first in each shard.

        Not every event is kept: once some thousands have come, one in eight is. Values that were missing are filled in.

        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> model.learn_many([{"x": 1.0}, {"x": 2.0}, {"x": 3.0}])
        >>> model.latest(2)
        array([[2.],
               [3.]])
        """
        with self._turn, self._lock:
            self._pipeline.flush()
            shards, projection = self._pipeline.engine.shards, self._pipeline.projection
            if projection.sketch is not None or projection.waiting:
                return projection.latest(n)
            if not shards:
                return np.empty((0, len(self.feature_names)))
            kept = shards.recent.watched_rows(-(-n // len(shards)))
            return self._pipeline.engine.transform.as_they_came(kept)

    @property
    def events(self) -> list[Change]:
        """Lifecycle events of the clusters (born, died, returned, split, merged); the latest 10,000."""
        return list(self._pipeline.engine.lineage)

    @property
    def lineage(self) -> Lineage:
        """The lives of the clusters: iterates over `events`, has `history`, the shares over time, and `plot()`."""
        return self._pipeline.engine.lineage

    @property
    def feature_names(self) -> tuple[Hashable, ...]:
        """The features seen so far, in the order of their columns."""
        return self._pipeline.schema.names

    def snapshot(self, method: MethodName = "rbhc", consistent: bool = True) -> Dendrogram:
        """The hierarchy of everything learnt until now: "rbhc", "abc" or "bhc".

        Cut at `n_clusters` it gives the clusters, with their ids. `consistent=False` merges the summary's leaves
        whatever their clusters.
        """
        with self._turn, self._lock:
            self._pipeline.flush()
            engine, sketch = self._pipeline.engine, self.sketch
            search, called = engine.queries.snapshot_search(method, consistent), engine.lineage.names
            back = engine.transform if sketch is None else sketch
        found = search()
        names = {i: called[i] for i in sorted(called.keys() & set(found.ids.tolist()))}
        return replace(found, names=names, leaves=back.expand_moments(found.leaves))

    # ---------------------------------------------------------------- for people

    def plot(
        self, features: tuple[Hashable, Hashable] | None = None, level: LevelName = None, **options: Any
    ) -> Axes:
        """The clusters and the latest events over two features, given by name: see `streamclust.plots.plot_clusters`.

        `level`: a number of clusters or "fine", instead of the level on show; `path.plot()` draws all levels.

        `lineage.plot()` draws what became of the clusters, `snapshot().plot()` their hierarchy.
        """
        from streamclust.plots import plot_clusters

        with self._turn, self._lock:
            self._pipeline.flush()
            model = self.model_at(level)
            if model is None:
                raise ValueError("there is nothing to draw: learn at least one event first")
            names = self.feature_names
            latest = (
                self.latest()
                if self.sketch is not None
                else self._pipeline.engine.transform.back(self._pipeline.engine.shards.recent.watched_rows())
            )
            components = self._expanded(self._pipeline.engine.queries.components())
        if features is not None and not set(features) <= set(names):
            raise ValueError(f"features must be two of {list(names)}, got {tuple(features)}")
        shown: dict[str, Any] = {
            "features": (0, 1) if features is None else tuple(map(names.index, features)),
            "ids": model.names[model.place],
            "events": latest,
            "labels": model.predict(latest),
            "names": names,
            "cluster_names": self._pipeline.engine.lineage.names if level is None else {},
        }
        return plot_clusters(components, **(shown | options))

    def __str__(self) -> str:
        """The clusters in words; before the first event the name of the class, which River names steps by."""
        name = type(self).__name__
        if not self.n_seen:
            return name
        return f"{name}: {self._n_clusters_now} clusters of {self.n_seen:,} events\n{self.describe()}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{c.id}</td><td>{c.weight:.6g}</td><td>{c.share:.1%}</td><td>{c.born:,}</td>"
            f"<td>{', '.join(f'{n}={v:.4g}' for n, v in list(c.mean.items())[:8])}</td></tr>"
            for c in self.clusters
        )
        changes = "".join(f"<li>{change!r}</li>" for change in self.events[-5:])
        return (
            f"<table><caption>{self._n_clusters_now} clusters of {self.n_seen:,} events</caption>"
            f"<tr><th>id<th>weight<th>share<th>born<th>mean</tr>{rows}</table><ul>{changes}</ul>"
        )
