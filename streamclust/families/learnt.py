"""A prior that is learnt: θ = (ξ0, η0, B0) of the Gaussian families by the evidence of the clusters found.

The free energy is minimised over the labels and over θ. η0 learnt large says that clusters share a covariance, S =
B0 / η0, which is what few events per dimension need; learnt small, that each has its own. S itself has a weak prior, as
if D + 1 events more had been seen that vary as all the data do, feature by feature: with fewer events than
dimensions nothing else would keep it from becoming singular. m0, the mean of the data, is fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from streamclust._kernels.families.evidence import best_eta
from streamclust._kernels.families.learnt_prior import improved_prior
from streamclust._kernels.types import Floats
from streamclust.families.base import Summary
from streamclust.families.gaussian import Gaussian
from streamclust.families.gaussian_simple import (
    AnyGaussian,
    DiagonalGaussian,
    NormalGamma,
    NormalGammas,
    SphericalGaussian,
)
from streamclust.families.linalg import cholesky, log_determinant, whitener
from streamclust.families.priors import MIN_MAGNITUDE, RELATIVE_RESOLUTION, read_weighted
from streamclust.families.resolution import blur_of
from streamclust.moments import Moments
from streamclust.utils.outliers import FAR_DEVIATIONS, near_variance

MAX_XI = 1.0
"""The largest ξ0: cluster means are spread no less than the events of one cluster."""
MIN_ETA_FACTOR = 4.0
"""The least η0, in units of `PriorLearner.strength`: D + 1, or 2 where features are independent."""
CONSTANT_FEATURE_DEVIATION = 1e-6
"""The standard deviation given to a feature that has one value only, relative to that value (to 1, where it is 0)."""
FIRST_XI, FIRST_ETA_FACTOR = 0.01, 4.0
"""ξ0 and, in the same units, η0 to begin with."""
MIN_EIGENVALUE = 1e-14
"""S counts as singular unless its eigenvalues, in units of the data's variances, are above this."""


class Expected(NamedTuple):
    """Posterior expectations summed over clusters: Σ E[Ω], and Σ E[(μ-m0)ᵀ Ω (μ-m0)]."""

    precision: Floats
    spread: float


@dataclass(frozen=True, eq=False)
class PriorLearner:
    """Learns θ from clusters.

    kind      the family
    m0        the mean of the data
    variance  (D,): of each feature, of all the data
    blur      (D,): what every event adds to the variance; see `resolution`

    >>> points = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([0.0, 8.0, 16.0], 100)[:, None]
    >>> clusters = Moments.rows_of_points(points).to_groups(np.arange(300) // 100, kind="full")
    >>> learner = PriorLearner.of(Gaussian, points)
    >>> prior = learner.improved(learner.start(clusters), clusters)
    >>> bool(np.allclose(prior.B0 / prior.eta0, np.eye(2), atol=0.2))
    True
    """

    kind: type[AnyGaussian]
    m0: Floats
    variance: Floats
    blur: Floats

    @classmethod
    def of(cls, kind: type[AnyGaussian], data: Summary | Floats) -> Self:
        """From a tree, or from an array of points."""
        total, points, weight = read_weighted(data, kind.scatter)
        variance = spread(total, points, weight)
        return cls(kind, total.mean[0], variance, blur_of(points, weight, variance))

    @property
    def n_features(self) -> int:
        """D."""
        return len(self.m0)

    @property
    def anchor(self) -> Floats:
        """Prior expectation of S, in the family's shape of a covariance."""
        return self._shaped(self.variance)

    @property
    def strength(self) -> float:
        """Number of events that the expectation of S counts for."""
        return self.n_features + 1.0 if self.kind is Gaussian else 2.0

    @property
    def limits(self) -> tuple[Floats, float, float, float, float]:
        """Prior and bounds of θ, in the order in which kernels take them."""
        return self.variance, self.strength, MAX_XI, MIN_ETA_FACTOR * self.strength, MIN_EIGENVALUE

    # ---------------------------------------------------------------- steps

    def start(self, clusters: Moments) -> AnyGaussian:
        """θ to begin with: S from the scatter within all clusters together, the means spread over the data."""
        n = float(clusters.weight.sum())
        within = clusters.to(self.kind.scatter).scatter.sum(axis=0)
        if self.kind is SphericalGaussian:
            within = within / self.n_features
        S = (within + n * self._shaped(self.blur) + self.strength * self.anchor) / (n + self.strength)
        return self.family(self._first_xi(clusters, S), FIRST_ETA_FACTOR * self.strength, S)

    def _first_xi(self, clusters: Moments, S: Floats) -> float:
        """FIRST_XI or, where means lie FAR_DEVIATIONS apart, what fits them: steps of EM would not get there."""
        variance = np.diagonal(S) if S.ndim == 2 else S
        spread = float(((clusters.mean - self.m0) ** 2 / variance).sum())
        apart = spread / (len(clusters) * self.n_features)
        return 1.0 / apart if apart > FAR_DEVIATIONS**2 else FIRST_XI

    def carried(self, family: AnyGaussian) -> AnyGaussian:
        """A start from a prior learnt from earlier data: its θ, with the mean and the blur of these data."""
        S = self.shape(family)
        if self._is_regular(S):
            return self.family(
                min(family.xi0, MAX_XI), max(self.eta(family), MIN_ETA_FACTOR * self.strength), S
            )
        return self.family(FIRST_XI, FIRST_ETA_FACTOR * self.strength, self.anchor)

    def improved(self, family: AnyGaussian, clusters: Moments, rounds: int = 2) -> AnyGaussian:
        """A prior of no higher F: `rounds` rounds of EM for ξ0 and S, each with a search for η0."""
        if isinstance(family, Gaussian):
            return self._improved_gaussian(family, clusters, rounds)
        lowest = self.loss(family, clusters)
        for _ in range(rounds):
            for candidate in self._candidates(family, clusters):
                loss = self.loss(candidate, clusters)
                if loss < lowest:
                    family, lowest = candidate, loss
                    break
            else:
                break
        return family

    def _improved_gaussian(self, family: Gaussian, clusters: Moments, rounds: int) -> AnyGaussian:
        """`improved` for full covariances, compiled."""
        weight, mean, scatter, xi0, m0, eta0, _, blur = family.prior_and(clusters)
        changed, xi0, eta0, S = improved_prior(
            weight, mean, scatter, xi0, m0, eta0, self.shape(family), blur, *self.limits, rounds
        )
        return self.family(xi0, eta0, S) if changed else family

    def loss(self, family: AnyGaussian, clusters: Moments) -> float:
        """The part of F that depends on θ: -log p(clusters | θ) - log p(θ)."""
        return self.cost(family) - float(family.log_marginal(clusters).sum())

    def cost(self, family: AnyGaussian) -> float:
        """-log p(θ) up to a constant: S as likely as if `strength` events had varied as the data do, 0 at its best."""
        ratio = self._relative(self.shape(family))
        if self.kind is Gaussian:
            log_det, trace = float(log_determinant(cholesky(ratio))), float(np.trace(ratio))
        else:
            each = np.broadcast_to(ratio, self.m0.shape)
            log_det, trace = float(np.log(each).sum()), float(each.sum())
        return self.strength / 2 * (trace - log_det - self.n_features)

    def family(self, xi0: float, eta0: float, S: Floats) -> AnyGaussian:
        """The family with that prior."""
        if self.kind is SphericalGaussian:
            a0 = eta0 * self.n_features / 2
            return SphericalGaussian(xi0, self.m0, a0, float(2 * a0 * S), blur=self.blur)
        return self.kind(xi0, self.m0, eta0, eta0 * S, blur=self.blur)  # type: ignore[arg-type]  # not spherical, as said above

    def eta(self, family: AnyGaussian) -> float:
        """η0, the events that the prior on covariances counts for."""
        if isinstance(family, SphericalGaussian):
            return 2 * family.a0 / self.n_features
        return family.eta0

    def shape(self, family: AnyGaussian) -> Floats:
        """S, the covariance that the prior expects."""
        if isinstance(family, SphericalGaussian):
            return np.asarray(family.b0 / (2 * family.a0))
        return family.B0 / family.eta0

    def _candidates(self, family: AnyGaussian, clusters: Moments) -> Iterator[AnyGaussian]:
        """θ after one round: with S taken as far as Newton's method would, then as EM would."""
        d, eta0, S = self.n_features, self.eta(family), self.shape(family)
        expected = self._expected(family, clusters)
        xi0 = min(MAX_XI, len(clusters) * d / max(expected.spread, d * len(clusters) * np.finfo(float).tiny))
        pull = eta0 * len(clusters) + self.strength
        precision = (eta0 * expected.precision + self.strength * self._inverse(self.anchor)) / pull
        stepped = self._inverse(precision)
        # EM sees 1 in `pace` of what S has to move by where the prior outweighs the clusters.
        pace = len(clusters) / float((clusters.weight / (eta0 + clusters.weight)).sum())
        for S_new in (S + pace * (stepped - S), stepped):
            if self._is_regular(S_new):
                yield self._with_best_eta(xi0, eta0, S_new, clusters)

    def _with_best_eta(self, xi0: float, eta0: float, S: Floats, clusters: Moments) -> AnyGaussian:
        d = self.n_features
        low = MIN_ETA_FACTOR * self.strength
        high = max(float(clusters.weight.sum()), 2 * low)
        trial = self.family(xi0, eta0, S)
        if isinstance(trial, DiagonalGaussian):
            ratio, shifts, factor, copies = (
                (trial.posterior(clusters).B - trial.B0) / S,
                np.zeros(1),
                1.0,
                float(d),
            )
        else:
            assert isinstance(trial, SphericalGaussian)
            ratio = ((trial.posterior(clusters).b - trial.b0) / (d * S))[:, None]
            shifts, factor, copies = np.zeros(1), float(d), 1.0
        ratio = np.ascontiguousarray(np.maximum(ratio, 0.0))
        best = best_eta(low, high, clusters.weight, ratio, shifts, factor, copies, float(d))
        return self.family(xi0, float(best), S)

    def _expected(self, family: AnyGaussian, clusters: Moments) -> Expected:
        """Summed over clusters: E[Ω], and E[(μ-m0)ᵀ Ω (μ-m0)]."""
        posterior = family.posterior(clusters)
        step = posterior.mean - self.m0
        within = float((self.n_features / posterior.xi).sum())
        if isinstance(posterior, NormalGammas):
            precision = posterior.eta[:, None] / posterior.B
            return Expected(precision.sum(axis=0), within + float((precision * step**2).sum()))
        assert isinstance(posterior, NormalGamma)  # full covariances have a kernel of their own
        omega = 2 * posterior.a / posterior.b
        return Expected(np.asarray(omega.sum()), within + float((omega[:, None] * step**2).sum()))

    # ---------------------------------------------------------------- shapes

    def _shaped(self, diagonal: Floats) -> Floats:
        """A covariance of independent features, as the family keeps one."""
        if self.kind is Gaussian:
            return np.diag(diagonal)
        return diagonal if issubclass(self.kind, DiagonalGaussian) else np.asarray(diagonal.mean())

    def _inverse(self, S: Floats) -> Floats:
        if self.kind is not Gaussian:
            return 1.0 / S
        root = whitener(cholesky(S))
        return np.asarray(root.T @ root)

    def _relative(self, S: Floats) -> Floats:
        """S in units of the anchor."""
        if self.kind is Gaussian:
            scale = 1 / np.sqrt(self.variance)
            return S * np.outer(scale, scale)
        return S / self.anchor

    def _is_regular(self, S: Floats) -> bool:
        """Whether S is positive definite, with digits to spare."""
        if self.kind is not Gaussian:
            return bool(np.all(S > 0))
        return bool(np.linalg.eigvalsh(self._relative(S))[0] > MIN_EIGENVALUE)


def spread(total: Moments, points: Floats, weight: Floats) -> Floats:
    """(D,): the variance of each feature, but of far values; a feature that has but one value is given a small one."""
    if total.kind in ("full", "diagonal"):
        variance = total.to("diagonal").covariance[0]
    else:
        variance = Moments.of_points(points, weight, kind="diagonal").covariance[0]
    variance = near_variance(points, weight, variance)
    size = np.abs(total.mean[0])
    flat = variance <= np.maximum(RELATIVE_RESOLUTION * size, MIN_MAGNITUDE) ** 2
    return np.asarray(
        np.where(
            flat, (CONSTANT_FEATURE_DEVIATION * np.where(size > MIN_MAGNITUDE, size, 1.0)) ** 2, variance
        )
    )
