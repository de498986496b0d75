"""StreamEstimator: the engine with scikit-learn's partial_fit."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamclust._kernels.types import Floats, Ints
from streamclust.engine import Engine, Settings
from streamclust.moments import Moments


class StreamEstimator(ClusterMixin, DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """The streaming engine, scikit-learn style: `partial_fit` learns, refits come by themselves.

    Labels are ids: they last from refit to refit, and one that has gone does not come back. Parameters are those of
    `StreamClusterer`.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([0.0, 9.0], 300)[:, None]
    >>> model = StreamEstimator()
    >>> for part in np.split(np.random.default_rng(1).permutation(points), 6):
    ...     model = model.partial_fit(part)
    >>> model.n_clusters_, len(set(model.predict(points[:300])))
    (2, 1)
    """

    def __init__(
        self,
        family: str = "gaussian",
        refit: str = "bkm",
        mixture: str = "finite",
        max_leaves: int = 512,
        refit_every: int = 20_000,
        warmup: int = 100,
        half_life: float | None = None,
        background: bool = True,
        seed: int = 0,
    ) -> None:
        self.family = family
        self.refit = refit
        self.mixture = mixture
        self.max_leaves = max_leaves
        self.refit_every = refit_every
        self.warmup = warmup
        self.half_life = half_life
        self.background = background
        self.seed = seed

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the points as a stream from its beginning, and refit at the end."""
        points, weight = self._checked(X, sample_weight, reset=True)
        self._start(points)
        return self._learn(points, weight, settle=True)

    def partial_fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn more points; `labels_` are those of the points given last."""
        first = not hasattr(self, "engine_")
        points, weight = self._checked(X, sample_weight, reset=first)
        if first:
            self._start(points)
        return self._learn(points, weight, settle=False)

    def _checked(
        self, X: ArrayLike, sample_weight: ArrayLike | None, reset: bool
    ) -> tuple[Floats, Floats | None]:
        points = validate_data(self, X, dtype=np.float64, reset=reset)
        if sample_weight is None:
            return points, None
        return points, _check_sample_weight(sample_weight, points, dtype=np.float64, ensure_non_negative=True)

    def _start(self, points: Floats) -> None:
        self.engine_ = Engine(points.shape[1], Settings(**self.get_params()))

    def _learn(self, points: Floats, weight: Floats | None, settle: bool) -> Self:
        self.engine_.learn(points, weight)
        if settle:
            self.engine_.settle()
        self.labels_ = self._model.predict(points)
        return self

    @property
    def _model(self) -> Any:  # noqa: ANN401
        check_is_fitted(self, "engine_")
        return self.engine_.model

    @property
    def n_clusters_(self) -> int:
        """How many clusters there are now."""
        return len(self._model.names)

    @property
    def ids_(self) -> Ints:
        """The id of each row of `clusters_`, and of each column of `predict_proba`."""
        ids: Ints = self._model.names
        return ids

    @property
    def clusters_(self) -> Moments:
        """One row per cluster, as of now."""
        check_is_fitted(self, "engine_")
        return self.engine_.clusters()

    @property
    def means_(self) -> Floats:
        """Mean of each cluster."""
        return self.clusters_.mean

    def _asked(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "engine_")
        points: Floats = validate_data(self, X, dtype=np.float64, reset=False)
        return points

    def predict(self, X: ArrayLike) -> Ints:
        """The id of each point's cluster."""
        points = self._asked(X)
        ids: Ints = self._model.predict(points)
        return ids

    def predict_proba(self, X: ArrayLike) -> Floats:
        """p(cluster | x), a column for each of `ids_`."""
        points = self._asked(X)
        table: Floats = self._model.probability(points)
        return table

    def score_samples(self, X: ArrayLike) -> Floats:
        """log p(x) of each point: low for a novelty."""
        points = self._asked(X)
        return -np.asarray(self._model.novelty(points))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())
