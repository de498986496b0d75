"""ChunkyGaussianMixture: a Gaussian mixture and its number of components, scikit-learn style."""

from __future__ import annotations

import warnings
from typing import Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamclust._kernels.types import Floats, Ints
from streamclust.batch.shaped import ShapedMixin, check_shape
from streamclust.refit.chunky_em.covariance import Covariance, count_free, form_of
from streamclust.refit.chunky_em.fit import MIN_DEVIATION_SHARE, Start, check, chunky_em_steps, point_em_steps
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.tree import SummaryTree
from streamclust.tree.rows import whole_number

CAUTION_ERRORS = 2.0
"""Standard errors by which two components must be one plateau to be joined: those of a mixture overlap."""


class ChunkyGaussianMixture(ShapedMixin, ClusterMixin, DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A Gaussian mixture by chunky greedy EM: boxes of points share their responsibilities [Nunnink].

    Components are inserted one by one where they raise the free energy most, on boxes that are opened where that
    pays. In the end a few passes of ordinary EM over all points settle what the boxes left open.

    Parameters
    ----------
    n_components
        K. None finds it: the mixture of least BIC.
    covariance
        "full", "diagonal" or "spherical".
    max_leaves
        None fits all points. A number fits a summary of at most that number of leaves: the time then hardly depends on
        the number of points.
    floor
        No component is narrower, in any direction, than so much of the data's deviation there.
    start
        Where to begin: a Mixture, a Partition, or clusters as Moments; None begins from one component.
    seed
        The same seed gives the same mixture.
    verbose
        Print each step with its free energy.
    shape
        "ellipse": each component is a cluster. "any": components that are pieces of one shape are joined into one
        cluster. They overlap, so this is done cautiously: where it is clear by two standard errors.

    Attributes
    ----------
    weights_, means_, covariances_ : of each component, the heaviest first
    n_components_ : how many there are
    labels_ : the cluster of the component of largest responsibility for each point
    n_clusters_ : how many clusters there are: as many as components, unless some are joined
    component_labels_ : the cluster of each component
    merge_tree_ : how components were joined, at what heights; with `shape="any"`
    lower_bound_ : F (3.13) per point: with `max_leaves`, of the boxes; else the points' mean log-likelihood
    n_iter_ : EM iterations, on boxes and on points
    mixture_ : the same as a Mixture; its `notes` say what was done that was not asked for

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([0.0, 8.0, 16.0], 100)[:, None]
    >>> model = ChunkyGaussianMixture().fit(points)
    >>> model.n_components_, model.predict([[8.1, 7.9]]) == model.labels_[150]
    (3, array([ True]))
    """

    def __init__(
        self,
        n_components: int | None = None,
        covariance: Covariance = "full",
        max_leaves: int | None = None,
        floor: float = MIN_DEVIATION_SHARE,
        start: Start = None,
        seed: int = 0,
        verbose: bool = False,
        shape: str = "ellipse",
    ) -> None:
        self.n_components = n_components
        self.covariance = covariance
        self.max_leaves = max_leaves
        self.floor = floor
        self.start = start
        self.seed = seed
        self.verbose = verbose
        self.shape = shape

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the mixture to the points, each counted `sample_weight` times (once)."""
        check(self.covariance, self.n_components, self.floor)
        check_shape(self.shape)
        points = validate_data(self, X, dtype=np.float64)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, points, dtype=np.float64, ensure_non_negative=True)
        settings = (self.start, self.seed, self.covariance, self.n_components, self.floor)
        if self.max_leaves is None:
            steps = point_em_steps(points, weight, *settings)
        else:
            leaves = whole_number("max_leaves", self.max_leaves, least=1)
            tree = SummaryTree(points.shape[1], form_of(self.covariance).scatter, leaves, seed=self.seed)
            tree.insert(points, weight)
            steps = chunky_em_steps(tree, *settings)
        self.n_iter_ = 0
        for i, progress in enumerate(steps):
            self.n_iter_ += progress.move == "iterate"
            if self.verbose:
                print(
                    f"{i:4d}  {progress.stage:<7} {progress.move:<8} K = {progress.n_clusters:<4d} "
                    f"F = {progress.objective:.6g}"
                )
        assert progress.result is not None
        self.mixture_ = progress.result
        for note in self.mixture_.notes if self.verbose else ():
            print(f"      {note}")
        if self.n_components is not None and self.n_components_ != self.n_components:
            warnings.warn(self.mixture_.notes[0], UserWarning, stacklevel=2)
        labels = self.mixture_.labels if self.max_leaves is None else self.mixture_.assign(points)
        self._own_clusters(self.n_components_)
        if self.shape == "any":
            x, w = (points, weight) if self.max_leaves is None else tree.sample()
            self._join(self.mixture_.clusters, x, w, CAUTION_ERRORS)
        self.labels_ = self.component_labels_[labels]
        return self

    # ---------------------------------------------------------------- what was found

    @property
    def _found(self) -> Mixture:
        check_is_fitted(self, "mixture_")
        return self.mixture_

    @property
    def n_components_(self) -> int:
        """K."""
        return self._found.n_clusters

    @property
    def n_clusters_(self) -> int:
        """How many clusters the components are joined into."""
        check_is_fitted(self, "mixture_")
        return self._n_joined

    @property
    def weights_(self) -> Floats:
        """Each component's share of the points."""
        return self._found.weights

    @property
    def means_(self) -> Floats:
        """Mean of each component."""
        return self._found.means

    @property
    def covariances_(self) -> Floats:
        """Covariance of each component: (K, D, D), (K, D) or (K,), as `covariance` says."""
        return self._found.covariances

    @property
    def lower_bound_(self) -> float:
        """F per point."""
        return self._found.free_energy / self._found.total

    # ---------------------------------------------------------------- asking

    def _asked(self, X: ArrayLike) -> tuple[Mixture, Floats]:
        mixture = self._found
        return mixture, cast(Floats, validate_data(self, X, dtype=np.float64, reset=False))

    def predict(self, X: ArrayLike) -> Ints:
        """The cluster of the component of largest responsibility for each point."""
        mixture, points = self._asked(X)
        return np.asarray(self.component_labels_[mixture.assign(points)])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Each component's responsibility for each point, added up over the components of each cluster."""
        mixture, points = self._asked(X)
        return self._summed(mixture.probability(points))

    def score_samples(self, X: ArrayLike) -> Floats:
        """log p(x) of each point: low for a novelty."""
        mixture, points = self._asked(X)
        return mixture.log_density(points)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def bic(self, X: ArrayLike) -> float:
        """The criterion that chooses K, on these points: the lower the better."""
        log_density = self.score_samples(X)
        free = count_free(form_of(self.covariance), self.n_components_, self.n_features_in_)
        return float(-2.0 * log_density.sum() + free * np.log(len(log_density)))

    def sample(self, n_samples: int = 1) -> tuple[Floats, Ints]:
        """Points drawn from the mixture, and the component of each; the same for the same seed."""
        return self._found.sample(whole_number("n_samples", n_samples, least=1), self.seed)
