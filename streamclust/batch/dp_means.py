"""DPMeans: clusters within a radius, scikit-learn style."""

from __future__ import annotations

from typing import Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamclust._kernels.types import Floats, Ints
from streamclust.refit.dp_means.fit import fit_points


class DPMeans(ClusterMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """DP-means: k-means that opens a cluster wherever a point is farther than λ from every mean.

    It descends Σ ‖x - mean‖² + λ² (K - 1) [Kulis & Jordan 2012; MAD-Bayes eq. 3]. The algorithm as published, points in
    the order given, is one of its starts; merges, and swaps of a merge and a cut, go on from there, and from a start at
    the points farthest from each other: the objective is never above the published algorithm's, and depends less
    on the order.

    Parameters
    ----------
    penalty
        λ². None chooses it from `n_clusters_hint`.
    n_clusters_hint
        About how many clusters there are: λ² is the squared distance of the K-th pick of a farthest-first traversal.
        None takes 8.
    collapsed
        Move single points by the exact change of the objective (algorithm 2): a little lower, and slower.
    splits
        Also cut clusters in two wherever the objective falls. Off, as in the paper, λ is a radius and K does not
        depend on the number of points. On, the objective itself is minimised: give a λ² that grows with the number
        of points (above what a split of a cluster would save), or there will be many clusters.
    restarts
        The best of this number of runs is kept. The first is the one described above, the others begin with some
        clusters more than it found: they lower the objective further, mostly with more clusters.
    max_clusters
        The bound on K; reaching it warns.
    seed
        The same seed gives the same clusters.

    Attributes
    ----------
    labels_ : the cluster of each point
    n_clusters_ : how many there are
    cluster_centers_ : their means, the largest cluster first
    objective_, penalty_ : what was reached, at which λ²
    partition_ : the whole result

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([0.0, 9.0, 18.0], 100)[:, None]
    >>> DPMeans(penalty=36.0).fit(points).n_clusters_
    3
    """

    def __init__(
        self,
        penalty: float | None = None,
        n_clusters_hint: int | None = None,
        collapsed: bool = False,
        splits: bool = False,
        restarts: int = 1,
        max_clusters: int = 1000,
        seed: int = 0,
    ) -> None:
        self.penalty = penalty
        self.n_clusters_hint = n_clusters_hint
        self.collapsed = collapsed
        self.splits = splits
        self.restarts = restarts
        self.max_clusters = max_clusters
        self.seed = seed

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster the points, each counted `sample_weight` times (once)."""
        points = validate_data(self, X, dtype=np.float64)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, points, dtype=np.float64, ensure_non_negative=True)
        self.partition_ = fit_points(
            points, self.penalty, self.n_clusters_hint, weight, self.collapsed, self.splits, self.restarts,
            self.max_clusters, self.seed,
        )  # fmt: skip
        self.labels_ = self.partition_.labels
        self.n_clusters_ = self.partition_.n_clusters
        self.cluster_centers_ = self.partition_.means
        self.objective_ = self.partition_.objective
        self.penalty_ = self.partition_.penalty
        return self

    def predict(self, X: ArrayLike) -> Ints:
        """The cluster of the nearest mean for each point."""
        check_is_fitted(self, "partition_")
        return self.partition_.assign(cast(Floats, validate_data(self, X, dtype=np.float64, reset=False)))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Minus the objective of the points under the means found."""
        check_is_fitted(self, "partition_")
        return -self.partition_.cost(validate_data(self, X, dtype=np.float64, reset=False))
