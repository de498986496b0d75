"""DP-means one event at a time: births beyond λ, provisional until a refit settles them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.dp_means import learn_rows
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.moments import Moments
from streamclust.refit.means_partition import MeansPartition
from streamclust.refit.penalties import check_count, check_penalty, warn_of_growth


class OnlineDPMeans:
    """Clusters of a stream by the rule of DP-means: join the nearest mean, or open a cluster beyond λ of all.

    A single pass depends on the order of the events, so clusters opened here are provisional. A refit of a summary (its
    leaves, say) settles them: `settle` takes its clusters in place of these.

    Parameters
    ----------
    n_features
        D.
    penalty
        λ²: an event at a larger squared distance from every mean opens a cluster.
    max_clusters
        From so many on no cluster opens; the nearest one takes the event, with a warning the first time.

    Examples
    --------
    >>> online = OnlineDPMeans(n_features=1, penalty=4.0)
    >>> online.learn([[0.0], [1.0], [9.0], [0.5]])
    array([0, 0, 1, 0])
    >>> online.clusters.mean.ravel(), online.provisional
    (array([0.5, 9. ]), array([ True,  True]))
    """

    def __init__(self, n_features: int, penalty: float, max_clusters: int = 1000) -> None:
        self.n_features = check_count("n_features", n_features)
        self.penalty = check_penalty(penalty)
        self.max_clusters = check_count("max_clusters", max_clusters)
        self.n_events = 0
        self._warned = False
        self._issue = itertools.count()
        self._take(Moments.empty(0, n_features, "scalar"), [], provisional=True)

    def _take(self, clusters: Moments, ids: Sequence[int], provisional: bool) -> None:
        self._mass, self._mean = np.array(clusters.weight), np.array(clusters.mean)
        self._scatter = np.array(clusters.scatter)
        self._count = len(clusters)
        self._ids = np.array(ids, dtype=np.int64)
        self._settled = 0 if provisional else len(clusters)

    # ---------------------------------------------------------------- learning

    def learn(self, rows: ArrayLike, weight: ArrayLike | None = None) -> Ints:
        """Learn events in their order; returns the id of the cluster each went to. Any chunking gives the same."""
        points = self._checked(rows)
        w = np.ones(len(points)) if weight is None else np.array(weight, dtype=float)
        if w.shape != (len(points),) or not np.all((w >= 0) & (w < np.inf)):
            raise ValueError(f"weight must be {len(points)} finite numbers that are not negative")
        labels = np.empty(len(points), dtype=np.int64)
        done = 0
        while done < len(points):
            done, self._count = learn_rows(
                points, w, done, self.penalty, self.max_clusters, self._count,
                self._mass, self._mean, self._scatter, labels,
            )  # fmt: skip
            if done < len(points):
                self._grow()
        self.n_events += len(points)
        fresh = [next(self._issue) for _ in range(self._count - len(self._ids))]
        self._ids = np.concatenate([self._ids, np.array(fresh, dtype=np.int64)])
        if self._count >= self.max_clusters and not self._warned:
            self._warned = True
            warn_of_growth(self.max_clusters, self.penalty)
        return self._ids[labels]

    def _grow(self) -> None:
        more = max(8, len(self._mass))
        self._mass = np.concatenate([self._mass, np.zeros(more)])
        self._scatter = np.concatenate([self._scatter, np.zeros(more)])
        self._mean = np.concatenate([self._mean, np.zeros((more, self.n_features))])

    def settle(self, found: MeansPartition | Moments, ids: Sequence[int] | None = None) -> list[int]:
        """Take the clusters of a refit in place of these, none of them provisional any more; returns their ids.

        `ids` are those that a lineage gives them, an id of None a new one; without, all ids are new.
        """
        clusters = (found.clusters if isinstance(found, MeansPartition) else found).to("scalar")
        if clusters.n_features != self.n_features:
            raise ValueError(f"clusters must have {self.n_features} features, got {clusters.n_features}")
        given = [None] * len(clusters) if ids is None else list(ids)
        if len(given) != len(clusters):
            raise ValueError(f"{len(clusters)} clusters need as many ids, got {len(given)}")
        kept = [i for i in given if i is not None]
        if len(set(kept)) < len(kept):
            raise ValueError("ids must differ from each other")
        issued = [next(self._issue) if i is None else int(i) for i in given]
        self._issue = itertools.count(max([next(self._issue) - 1, *issued]) + 1)
        self._take(clusters, issued, provisional=False)
        self._warned = False
        return issued

    # ---------------------------------------------------------------- reading

    @property
    def n_clusters(self) -> int:
        """How many clusters there are now."""
        return self._count

    @property
    def ids(self) -> Ints:
        """The id of each cluster: issued once, never again."""
        return self._ids.copy()

    @property
    def provisional(self) -> Bools:
        """Which clusters opened since the last refit."""
        return np.arange(self._count) >= self._settled

    @property
    def clusters(self) -> Moments:
        """One row per cluster, with scalar scatter, as of the last event."""
        k = self._count
        return Moments(self._mass[:k].copy(), self._mean[:k].copy(), self._scatter[:k].copy(), "scalar")

    def predict(self, rows: ArrayLike) -> Ints:
        """The id of the nearest cluster of each row; learns nothing. -1 before the first event."""
        points = self._checked(rows)
        if self._count == 0:
            return np.full(len(points), -1, dtype=np.int64)
        found = MeansPartition(np.empty(0, dtype=np.int64), self.clusters, 0.0, self.penalty)
        return self._ids[found.assign(points)]

    def _checked(self, rows: ArrayLike) -> Floats:
        points = np.array(rows, dtype=float, order="C")
        if points.ndim != 2 or points.shape[1] != self.n_features:
            raise ValueError(f"expected a table of {self.n_features} columns, got shape {points.shape}")
        if not np.isfinite(points).all():
            raise ValueError("every value must be finite; drop or impute the others first")
        return points
