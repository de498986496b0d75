"""Point parameters of some features alone: what is missing is integrated out."""

from __future__ import annotations

from streamclust._kernels.types import Bools
from streamclust.families.discrete import BernoulliParameters, MultinomialParameters, PoissonParameters
from streamclust.families.gaussian import GaussianParameters

PointParameters = GaussianParameters | MultinomialParameters | BernoulliParameters | PoissonParameters


def marginal(parameters: PointParameters, known: Bools) -> PointParameters:
    """The parameters of the distribution of the `known` features (a mask).

    >>> import numpy as np
    >>> both = GaussianParameters(np.array([[1.0, 2.0]]), np.array([[[4.0, 1.0], [1.0, 9.0]]]))
    >>> marginal(both, np.array([False, True])).covariance
    array([[[9.]]])
    """
    if isinstance(parameters, GaussianParameters):
        mean, covariance = parameters.mean[:, known], parameters.covariance
        if covariance.ndim == 3:
            return GaussianParameters(mean, covariance[:, known][:, :, known])
        return GaussianParameters(mean, covariance[:, known] if covariance.ndim == 2 else covariance)
    if isinstance(parameters, MultinomialParameters):  # of the trials that fell on known features
        share = parameters.probability[:, known]
        return MultinomialParameters(share / share.sum(axis=1, keepdims=True))
    if isinstance(parameters, BernoulliParameters):
        return BernoulliParameters(parameters.probability[:, known], parameters.complement[:, known])
    return PoissonParameters(parameters.rate[:, known])
