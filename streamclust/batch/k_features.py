"""KFeatures: a given number of features, or as many as pay, scikit-learn style."""

from __future__ import annotations

from typing import Self

from numpy.typing import ArrayLike

from streamclust.batch.feature_estimator import FeatureEstimator
from streamclust.refit.bp_means.fit import MAX_FEATURES
from streamclust.refit.bp_means.k_features import fit_k_features
from streamclust.refit.bp_means.start import Init


class KFeatures(FeatureEstimator):
    """K-features: each point is a sum of some of K features [MAD-Bayes alg. 4].

    Parameters
    ----------
    n_features
        K. None tries K = 1, 2, ... for as long as the objective of BP-means falls (stepwise K-features).
    penalty
        λ², the price of a feature in that objective. None takes what the strongest direction of the data's noise would.
    restarts
        The best of this number of runs is kept, for each K.
    init
        "greedy": several residuals tried for each feature, each refined. "plus-plus": the paper's single draw.
    max_features
        The bound on K where it is found; reaching it warns.
    seed
        The same seed gives the same features.

    Attributes
    ----------
    features_ : A (K, D), the feature that most points have first
    allocations_ : Z (points, K), which point has which
    n_features_, objective_, penalty_ : K, what was reached (λ² K included), at which λ²
    allocation_ : the whole result

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> points = rng.integers(2, size=(100, 2)) @ np.array([[5.0, 0.0, 0.0], [0.0, 7.0, 7.0]])
    >>> model = KFeatures(n_features=2).fit(points)
    >>> bool(np.allclose(model.inverse_transform(model.transform(points)), points))
    True
    """

    def __init__(
        self,
        n_features: int | None = None,
        penalty: float | None = None,
        restarts: int = 5,
        init: Init = "greedy",
        max_features: int = MAX_FEATURES,
        seed: int = 0,
    ) -> None:
        self.n_features = n_features
        self.penalty = penalty
        self.restarts = restarts
        self.init = init
        self.max_features = max_features
        self.seed = seed

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Find the features of the points, each counted `sample_weight` times (once)."""
        points, weight = self._checked(X, sample_weight)
        return self._publish(
            fit_k_features(
                points,
                self.n_features,
                self.penalty,
                weight,
                self.restarts,
                self.init,
                self.max_features,
                self.seed,
            )
        )
