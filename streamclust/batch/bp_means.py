"""BPMeans: features that points share, scikit-learn style."""

from __future__ import annotations

from typing import Self

from numpy.typing import ArrayLike

from streamclust.batch.feature_estimator import FeatureEstimator
from streamclust.refit.bp_means.fit import MAX_FEATURES, fit_features
from streamclust.refit.bp_means.start import Init


class BPMeans(FeatureEstimator):
    """BP-means: each point is a sum of features, any number of them, and how many there are is found.

    It descends tr (X - ZA)ᵀ(X - ZA) + λ² K over binary Z [MAD-Bayes eq. 6].

    Parameters
    ----------
    penalty
        λ², what a feature must explain. None takes what the strongest direction of the data's noise would.
    collapsed
        Let each point choose knowing how its choice moves the means (algorithm 3).
    restarts
        The best of this number of runs is kept.
    init
        "greedy": several residuals tried for each feature, each refined. "plus-plus": the paper's single draw.
    max_features
        The bound on K; reaching it warns.
    seed
        The same seed gives the same features.

    Attributes
    ----------
    features_ : A (K, D), the feature that most points have first
    allocations_ : Z (points, K), which point has which
    n_features_, objective_, penalty_ : K, what was reached, at which λ²
    allocation_ : the whole result

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> parts = rng.integers(2, size=(200, 3)) @ (4.0 * rng.normal(size=(3, 20)))
    >>> model = BPMeans().fit(parts + rng.normal(size=(200, 20)))
    >>> model.n_features_, model.transform(parts[:5]).shape
    (3, (5, 3))
    """

    def __init__(
        self,
        penalty: float | None = None,
        collapsed: bool = False,
        restarts: int = 5,
        init: Init = "greedy",
        max_features: int = MAX_FEATURES,
        seed: int = 0,
    ) -> None:
        self.penalty = penalty
        self.collapsed = collapsed
        self.restarts = restarts
        self.init = init
        self.max_features = max_features
        self.seed = seed

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Find the features of the points, each counted `sample_weight` times (once)."""
        points, weight = self._checked(X, sample_weight)
        return self._publish(
            fit_features(
                points,
                self.penalty,
                weight,
                self.collapsed,
                self.restarts,
                self.init,
                self.max_features,
                self.seed,
            )
        )
