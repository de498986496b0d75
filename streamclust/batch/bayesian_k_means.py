"""BayesianKMeans: clusters and their number, scikit-learn style."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamclust._kernels.types import Floats, Ints
from streamclust.families import family as family_named
from streamclust.moments import Moments
from streamclust.refit.bkm import Progress, bkm_steps, check_points, check_search, point_steps
from streamclust.refit.on_tree import check_assign
from streamclust.refit.partition import Partition
from streamclust.tree import SummaryTree


class BayesianKMeans(ClusterMixin, DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Bayesian k-means: clusters and their number, by the least free energy [Kurihara & Welling].

    Parameters
    ----------
    family
        What a cluster is: "gaussian", "diagonal", "spherical", "multinomial", "bernoulli", "poisson", or a
        Family with a prior of its own. By default the data inform the prior.
    mixture
        How clusters share the events: "finite", "infinite" (a Dirichlet process) or "uninformative".
    search
        "auto", or "top-down" for the paper's own procedure.
    assign
        How more than some 20,000 points find their clusters: through an exact "tree", by "blas" (all costs, in
        blocks), or "auto": whichever pays, which was never the building of a tree. The labels are the same.
    max_leaves
        None clusters all points. A number clusters a summary of at most so many leaves: the time then
        hardly depends on the number of points. `partial_fit` needs a summary, of 512 leaves unless told.
    seed
        The same seed gives the same clusters.
    verbose
        Print each step of the search with its free energy.

    Attributes
    ----------
    labels_ : the cluster of each point
    n_clusters_ : how many there are
    free_energy_ : of the partition, `log_base` of the points included where they all are at hand
    means_, covariances_, weights_ : of each cluster; covariances where the family has them
    clusters_ : the same as Moments

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([0.0, 8.0, 16.0], 100)[:, None]
    >>> model = BayesianKMeans().fit(points)
    >>> model.n_clusters_, model.predict([[8.1, 7.9]]) == model.labels_[150]
    (3, array([ True]))
    """

    def __init__(
        self,
        family: Any = "gaussian",  # noqa: ANN401
        mixture: Any = "finite",  # noqa: ANN401
        search: str = "auto",
        assign: str = "auto",
        max_leaves: int | None = None,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.family = family
        self.mixture = mixture
        self.search = search
        self.assign = assign
        self.max_leaves = max_leaves
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster the points, each counted `sample_weight` times (once)."""
        points, weight = self._checked(X, sample_weight)
        if hasattr(self, "tree_"):
            del self.tree_
        if self.max_leaves is not None:
            return self._learn(points, weight)
        steps = point_steps(
            self.family, points, weight, self.seed, self.mixture, self.search, self.assign  # type: ignore[arg-type]
        )  # fmt: skip
        partition = self._run(steps)
        self._publish(partition, partition.labels)
        counted = partition.family.log_base(points)
        self.free_energy_ -= float(counted @ (np.ones(len(points)) if weight is None else weight))
        return self

    def partial_fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn more points into a summary of all points so far, and go on from the clusters found last.

        Calls 1, 2, 4, 8, ... also start from nothing, and take that where its free energy is lower: a start from
        given clusters stays close to them. `labels_` are those of the points given last.
        """
        points, weight = self._checked(X, sample_weight, reset=not hasattr(self, "tree_"))
        return self._learn(points, weight)

    def _learn(self, points: Floats, weight: Floats | None) -> Self:
        kind = family_named(self.family)
        known = hasattr(self, "tree_")
        if not known:
            leaves = 512 if self.max_leaves is None else self.max_leaves
            self.tree_ = SummaryTree(points.shape[1], kind.scatter, max_leaves=leaves, seed=self.seed)
            self.n_updates_ = 0
        check_points(kind, points)
        self.tree_.insert(points, weight)
        if not self.tree_.total.weight[0] > 0:
            raise ValueError("every point has weight 0: there is nothing to cluster")
        self.n_updates_ += 1
        starts: list[Partition | None] = []
        if known and hasattr(self, "partition_") and self.search == "auto":
            starts += [self.partition_]
        if not starts or self.n_updates_.bit_count() == 1:
            starts += [None]
        found = [
            self._run(bkm_steps(self.family, self.tree_, start, self.seed, self.mixture, self.search))  # type: ignore[arg-type]
            for start in starts
        ]
        partition = min(found, key=lambda p: p.free_energy)
        self._publish(partition, partition.assign(points))
        return self

    def _checked(
        self, X: ArrayLike, sample_weight: ArrayLike | None, reset: bool = True
    ) -> tuple[Floats, Floats | None]:
        """Everything that can be refused is refused here."""
        check_search(self.search)
        check_assign(self.assign)
        points = validate_data(self, X, dtype=np.float64, reset=reset)
        if sample_weight is None:
            return points, None
        return points, _check_sample_weight(sample_weight, points, dtype=np.float64, ensure_non_negative=True)

    def _run(self, steps: Iterable[Progress]) -> Partition:
        partition = None
        for i, progress in enumerate(steps):
            partition = progress.partition
            if self.verbose:
                print(
                    f"{i:4d}  {progress.stage:<11} {progress.move:<8} "
                    f"K = {progress.n_clusters:<4d} F = {progress.free_energy:.6g}"
                )
        assert partition is not None
        return partition

    def _publish(self, partition: Partition, labels: Ints) -> None:
        self.partition_ = partition
        self.labels_ = labels
        self.free_energy_ = partition.free_energy

    # ---------------------------------------------------------------- what was found

    @property
    def clusters_(self) -> Moments:
        """One row per cluster, the heaviest first."""
        check_is_fitted(self, "partition_")
        return self.partition_.clusters

    @property
    def n_clusters_(self) -> int:
        """K."""
        return len(self.clusters_)

    @property
    def means_(self) -> Floats:
        """Mean of each cluster's points."""
        return self.clusters_.mean

    @property
    def covariances_(self) -> Floats:
        """Covariance of each cluster's points: (K, D, D), (K, D) or (K,), as the family has it."""
        if self.clusters_.kind == "none":
            raise AttributeError(f"{self.partition_.family.name} clusters have no covariances")
        return self.clusters_.covariance

    @property
    def weights_(self) -> Floats:
        """Each cluster's share of the points."""
        return np.asarray(self.clusters_.weight / self.clusters_.weight.sum())

    # ---------------------------------------------------------------- asking

    def _asked(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "partition_")
        points = validate_data(self, X, dtype=np.float64, reset=False)
        self.partition_.family.check(points)
        return cast(Floats, points)

    def predict(self, X: ArrayLike) -> Ints:
        """The cluster of least labelling cost (20) for each point."""
        points = self._asked(X)
        return self.partition_.assign(points)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """p(cluster | x), from posterior predictives and the clusters' shares."""
        points = self._asked(X)
        return self.partition_.probability(points)

    def score_samples(self, X: ArrayLike) -> Floats:
        """log p(x | all that was learnt) of each point: low for a novelty."""
        points = self._asked(X)
        return self.partition_.log_predictive(points)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())
