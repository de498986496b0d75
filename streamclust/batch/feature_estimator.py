"""FeatureEstimator: base class of the feature estimators."""

from __future__ import annotations

from typing import Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data

from streamclust._kernels.types import Floats
from streamclust.refit.bp_means.feature_allocation import FeatureAllocation


class FeatureEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Base class of BPMeans and KFeatures: transforms between points and allocations of features."""

    def _publish(self, found: FeatureAllocation) -> Self:
        self.allocation_ = found
        self.features_ = found.A
        self.allocations_ = found.Z
        self.n_features_ = found.n_features
        self.objective_ = found.objective
        self.penalty_ = found.penalty
        self._n_features_out = found.n_features
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """1 for each feature that a point has, 0 for the others: the combination whose sum is nearest."""
        check_is_fitted(self, "allocation_")
        points = cast(Floats, validate_data(self, X, dtype=np.float64, reset=False))
        return self.allocation_.assign(points).astype(float)

    def inverse_transform(self, Z: ArrayLike) -> Floats:
        """The points that have these features: ZA."""
        check_is_fitted(self, "allocation_")
        given = check_array(Z, dtype=np.float64, ensure_min_features=0)
        if given.shape[1] != self.n_features_:
            raise ValueError(f"Z has {given.shape[1]} columns, but there are {self.n_features_} features")
        return np.asarray(given @ self.features_)

    def _checked(self, X: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Floats, Floats | None]:
        points = cast(Floats, validate_data(self, X, dtype=np.float64))
        if sample_weight is None:
            return points, None
        return points, _check_sample_weight(sample_weight, points, dtype=np.float64, ensure_non_negative=True)
