"""Gaussian clusters of one diagonal covariance, which all of them share: the diagonal family at large η0.

A cluster that has a covariance of its own may be wide: in many dimensions it collects what fits nowhere, at hardly any
cost. Clusters that share one divide the events by distance alone, as k-means does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.families.gaussian_simple import AnyGaussian, DiagonalGaussian
from streamclust.families.learnt import MAX_XI, PriorLearner
from streamclust.moments import Moments

TIED_EVENTS = 1e6
"""η0: many more events than a refit counts, few enough for differences of log-gamma functions to keep their digits."""


@dataclass(frozen=True, eq=False)
class TiedGaussian(DiagonalGaussian):
    """Gaussians of one diagonal covariance, S = B0 / η0."""


@dataclass(frozen=True, eq=False)
class TiedLearner(PriorLearner):
    """Learns ξ0 and the covariance that all clusters share.

    >>> points = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([0.0, 8.0, 16.0], 100)[:, None]
    >>> clusters = Moments.rows_of_points(points).to_groups(np.arange(300) // 100, kind="diagonal")
    >>> learner = TiedLearner.of(TiedGaussian, points)
    >>> prior = learner.improved(learner.start(clusters), clusters)
    >>> bool(np.allclose(learner.shape(prior), 1.0, atol=0.2))
    True
    """

    def family(self, xi0: float, eta0: float, S: Floats) -> AnyGaussian:
        """The family with that prior; η0 is what it is."""
        return TiedGaussian(xi0, self.m0, TIED_EVENTS, TIED_EVENTS * S, blur=self.blur)

    def _candidates(self, family: AnyGaussian, clusters: Moments) -> Iterator[AnyGaussian]:
        """θ after one round: S is that of least loss, about the mean square of events about the means.

        It solves (n - s) S + s S²/V = Q, for squares Q, n events, and a prior of s events of variance V.
        """
        assert isinstance(family, TiedGaussian)
        k, d = clusters.mean.shape
        spread = self._expected(family, clusters).spread
        xi0 = min(MAX_XI, k * d / max(spread, d * k * np.finfo(float).tiny))
        squares = (family.posterior(clusters).B - family.B0).sum(axis=0)
        half = float(clusters.weight.sum()) - self.strength
        S = 2 * squares / (half + np.sqrt(half**2 + 4 * self.strength * squares / self.variance))
        if self._is_regular(S):
            yield self.family(xi0, TIED_EVENTS, S)
