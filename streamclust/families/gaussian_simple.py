"""Gaussian clusters with diagonal and with spherical covariance.

Their data-informed priors are what the full family's prior says of a single feature: the marginal of a
Wishart with η0 = D over one feature has one degree of freedom, so η0 = 1 and a0 = ½, with B0's diagonal, or
its mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self, cast

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.families.base import Family, Rule, Summary, as_rows, check_finite
from streamclust.families.cost_form import Quadratic, diagonal_roots
from streamclust.families.gaussian import (
    Gaussian,
    GaussianParameters,
    checked_blur,
    no_blur,
    per_point,
    row_cost,
    shrunk_mean,
)
from streamclust.families.priors import SMOOTHING_SHARE, gaussian_prior
from streamclust.moments import Moments, Scatter
from streamclust.utils.late import digamma, gammaln


class NormalGammas(NamedTuple):
    """Posteriors of diagonal clusters: a one-dimensional normal-Wishart per feature, ξ and η shared."""

    xi: Floats
    mean: Floats
    eta: Floats
    B: Floats
    constant: Floats
    """The part of the labelling cost that no point touches."""


class NormalGamma(NamedTuple):
    """Posteriors of spherical clusters: one precision ω ~ Gamma(a, rate b/2) for all features."""

    xi: Floats
    mean: Floats
    a: Floats
    b: Floats
    constant: Floats
    """The part of the labelling cost that no point touches."""


def squared_distance(scale: Floats, mean: Floats, rows: Moments) -> Floats:
    """Σ_d scale_d (x_d - m_d)² summed over each row's points, for rows x clusters; scale is (clusters, D).

    Differences are squared, never expanded: x² - 2xm + m² cancels away from the origin.
    """
    distance = np.empty((len(rows), len(mean)))
    for k in range(len(mean)):
        distance[:, k] = (rows.mean - mean[k]) ** 2 @ scale[k]
    distance *= rows.weight[:, None]
    if rows.kind == "diagonal":
        distance += rows.scatter @ scale.T
    elif rows.kind == "scalar":
        distance += rows.scatter[:, None] * scale[:, 0]
    return distance


@dataclass(frozen=True, eq=False)
class DiagonalGaussian:
    """Gaussians of diagonal covariance: D independent one-dimensional normal-Wisharts.

    >>> family = DiagonalGaussian.informed(np.array([[0.0, 0.0], [1.0, 50.0], [9.0, 10.0]]))
    >>> family.B0.shape, family.eta0
    ((2,), 1.0)
    """

    name: ClassVar[str] = "diagonal"
    scatter: ClassVar[Scatter] = "diagonal"
    concentration: ClassVar[float] = 2.0

    xi0: float
    m0: Floats
    eta0: float
    B0: Floats
    smoothing: float = 0.0
    """The ridge a of the generator; 0 takes 0.01 of B0's mean entry."""
    blur: Floats = field(default_factory=no_blur)
    """(D,): variance that every event adds to B, below which features tell nothing apart; zeros unless given."""

    def __post_init__(self) -> None:
        m0, B0 = np.asarray(self.m0, dtype=float), np.asarray(self.B0, dtype=float)
        object.__setattr__(self, "blur", checked_blur(self.blur, m0.size))
        if m0.ndim != 1 or B0.shape != m0.shape:
            raise ValueError(f"m0 and B0 must be (D,), got {m0.shape} and {B0.shape}")
        if not (self.xi0 > 0 and self.eta0 > 0 and np.all(B0 > 0)):
            raise ValueError(f"xi0, eta0 and B0 must be positive, got {self.xi0}, {self.eta0}, {B0}")
        object.__setattr__(self, "m0", m0)
        object.__setattr__(self, "B0", B0)
        if not self.smoothing > 0:
            object.__setattr__(self, "smoothing", SMOOTHING_SHARE * float(B0.mean()))

    @classmethod
    def informed(
        cls, data: Summary | Floats, rule: Rule = "bkm", B0: float | Floats | None = None, scale: float = 1.0
    ) -> Self:
        """The diagonal of (21) or (22) with η0 = 1; see `priors.gaussian_prior`."""
        prior = gaussian_prior(data, cls.scatter, rule, B0, scale)
        return cls(prior.xi0, prior.m0, 1.0, prior.B0, prior.smoothing)

    @classmethod
    def check(cls, points: Floats) -> None:
        """Any finite numbers will do."""
        check_finite(points)

    def log_base(self, points: Floats) -> Floats:
        """Zero: a Gaussian has no base measure of its own."""
        return np.zeros(len(points))

    def _update(self, moments: Moments) -> tuple[Floats, Floats, Floats, Floats]:
        """ξ, m, η and the diagonal of B: (18) for each feature."""
        rows = as_rows(moments, self.scatter)
        xi, m, deviation = shrunk_mean(rows.weight, rows.mean, self.xi0, self.m0)
        B = self.B0 + rows.weight[:, None] * (self.blur + (self.xi0 / xi)[:, None] * deviation**2)
        if rows.kind == "diagonal":
            B += rows.scatter
        return xi, m, self.eta0 + rows.weight, B

    def log_marginal(self, moments: Moments) -> Floats:
        """The full family's at D = 1, summed over features."""
        d = moments.n_features
        xi, _, eta, B = self._update(moments)
        shared = (
            -moments.weight / 2 * np.log(np.pi)
            + np.log(self.xi0 / xi) / 2
            + gammaln(eta / 2)
            - gammaln(self.eta0 / 2)
        )
        scales = self.eta0 * np.log(self.B0).sum() - eta * np.log(B).sum(axis=1)
        return cast(Floats, d * shared + scales / 2)

    def posterior(self, moments: Moments) -> NormalGammas:
        """(18) for each feature; a row of weight 0 gives the prior."""
        xi, m, eta, B = self._update(moments)
        constant = np.log(B).sum(axis=1) / 2 + m.shape[1] * (1 / xi - digamma(eta / 2)) / 2
        constant = constant + eta / 2 * (self.blur / B).sum(axis=1)
        return NormalGammas(xi, m, eta, B, constant)

    def parameters(self, posterior: NormalGammas) -> GaussianParameters:
        """m, and the inverses of the mean precisions η / B."""
        return GaussianParameters(posterior.mean, posterior.B / posterior.eta[:, None])

    def labelling_cost(self, posterior: NormalGammas, rows: Floats | Moments) -> Floats:
        """(20) at D = 1, summed over features and over each row's points."""
        rows = as_rows(rows, self.scatter)
        precision = posterior.eta[:, None] / posterior.B
        return row_cost(
            rows.weight, posterior.constant, squared_distance(precision / 2, posterior.mean, rows)
        )

    def cost_form(self, posterior: NormalGammas, mixing: float | Floats = 0.0) -> Quadratic:
        """The labelling cost less its mixing term, as a quadratic with diagonal roots."""
        scale = posterior.eta[:, None] / posterior.B / 2
        return Quadratic(posterior.mean, diagonal_roots(scale), posterior.constant - mixing)

    def predictive(self, posterior: NormalGammas, points: Floats) -> Floats:
        """A product of Student-t densities, each with η degrees of freedom."""
        xi, eta, B = posterior.xi, posterior.eta, posterior.B
        d = points.shape[1]
        constant = d * (gammaln((eta + 1) / 2) - gammaln(eta / 2) - np.log(np.pi * (xi + 1) / xi) / 2)
        constant = constant - np.log(B).sum(axis=1) / 2
        out = np.empty((len(points), len(xi)))
        for k in range(len(xi)):
            distance = (points - posterior.mean[k]) ** 2 * (xi[k] / (xi[k] + 1) / B[k])
            out[:, k] = constant[k] - (eta[k] + 1) / 2 * np.log1p(distance).sum(axis=1)
        return out

    @classmethod
    def log_density(cls, parameters: GaussianParameters, rows: Floats | Moments) -> Floats:
        """Mean log N(x|μ, diag C) over each row's points."""
        rows = per_point(as_rows(rows, cls.scatter))
        covariance = parameters.covariance
        constant = np.log(2 * np.pi * covariance).sum(axis=1)
        return cast(Floats, -0.5 * (constant + squared_distance(1 / covariance, parameters.mean, rows)))

    def generator(self, moments: Moments) -> Floats:
        """-½ Σ_d log(S_dd/n + a), up to terms linear in the statistic [relaxed BHC]."""
        rows = as_rows(moments, self.scatter)
        covariance = rows.covariance if rows.kind == "diagonal" else np.zeros_like(rows.mean)
        return cast(Floats, -0.5 * np.log(covariance + self.smoothing).sum(axis=1))


@dataclass(frozen=True, eq=False)
class SphericalGaussian:
    """Gaussians with one variance for all features: ω ~ Gamma(a0, rate b0/2).

    >>> family = SphericalGaussian.informed(np.array([[0.0, 0.0], [1.0, 1.0], [9.0, 9.0]]))
    >>> clusters = Moments.rows_of_points(np.array([[0.0, 0.0], [9.0, 9.0]])).to_groups(None, kind="scalar")
    >>> family.posterior(clusters).a
    array([2.5])
    """

    name: ClassVar[str] = "spherical"
    scatter: ClassVar[Scatter] = "scalar"
    concentration: ClassVar[float] = 2.0

    xi0: float
    m0: Floats
    a0: float
    b0: float
    smoothing: float = 0.0
    """Unused by the generator, which is finite everywhere; 0 takes 0.01 b0, as its siblings do."""
    blur: Floats = field(default_factory=no_blur)
    """(D,): variance that every event adds to b, below which features tell nothing apart; zeros unless given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "m0", np.asarray(self.m0, dtype=float))
        object.__setattr__(self, "blur", checked_blur(self.blur, self.m0.size))
        if self.m0.ndim != 1 or not (self.xi0 > 0 and self.a0 > 0 and self.b0 > 0):
            raise ValueError(
                "the prior needs m0 of shape (D,) and positive xi0, a0, b0, got "
                f"{self.m0.shape}, {self.xi0}, {self.a0}, {self.b0}"
            )
        if not self.smoothing > 0:
            object.__setattr__(self, "smoothing", SMOOTHING_SHARE * self.b0)

    @classmethod
    def informed(
        cls, data: Summary | Floats, rule: Rule = "bkm", B0: float | None = None, scale: float = 1.0
    ) -> Self:
        """The mean diagonal entry of (21) or (22), with a0 = ½; see `priors.gaussian_prior`."""
        prior = gaussian_prior(data, cls.scatter, rule, B0, scale)
        return cls(prior.xi0, prior.m0, 0.5, float(prior.B0), prior.smoothing)

    @classmethod
    def check(cls, points: Floats) -> None:
        """Any finite numbers will do."""
        check_finite(points)

    def log_base(self, points: Floats) -> Floats:
        """Zero: a Gaussian has no base measure of its own."""
        return np.zeros(len(points))

    def _update(self, moments: Moments) -> tuple[Floats, Floats, Floats, Floats]:
        """ξ, m, a = a0 + nD/2 and b = b0 + tr S + (nξ0/ξ) ‖x̄-m0‖²."""
        rows = as_rows(moments, self.scatter)
        n = rows.weight
        xi, m, deviation = shrunk_mean(n, rows.mean, self.xi0, self.m0)
        spread = self.blur.sum() + self.xi0 / xi * np.einsum("ri,ri->r", deviation, deviation)
        b = self.b0 + rows.trace + n * spread
        return xi, m, self.a0 + n * rows.n_features / 2, b

    def log_marginal(self, moments: Moments) -> Floats:
        """-(nD/2) log π + (D/2) log(ξ0/ξ) + a0 log b0 - a log b + log Γ(a) - log Γ(a0)."""
        d = moments.n_features
        xi, _, a, b = self._update(moments)
        return cast(
            Floats,
            -d / 2 * (moments.weight * np.log(np.pi) + np.log(xi / self.xi0))
            + self.a0 * np.log(self.b0)
            - a * np.log(b)
            + gammaln(a)
            - gammaln(self.a0),
        )

    def posterior(self, moments: Moments) -> NormalGamma:
        """The conjugate update; a row of weight 0 gives the prior."""
        xi, m, a, b = self._update(moments)
        constant = m.shape[1] / 2 * (1 / xi + np.log(b) - digamma(a)) + a / b * self.blur.sum()
        return NormalGamma(xi, m, a, b, constant)

    def parameters(self, posterior: NormalGamma) -> GaussianParameters:
        """m, and the inverse of the mean precision 2a/b."""
        return GaussianParameters(posterior.mean, posterior.b / (2 * posterior.a))

    def _scale(self, posterior: NormalGamma) -> Floats:
        """½ E[ω] = a/b, for each feature."""
        return np.repeat((posterior.a / posterior.b)[:, None], posterior.mean.shape[1], axis=1)

    def labelling_cost(self, posterior: NormalGamma, rows: Floats | Moments) -> Floats:
        """½E[ω]‖x-m‖² + D/(2ξ) - (D/2)E[log ω] without (D/2) log 2π - (D/2) log 2, summed over points."""
        rows = as_rows(rows, self.scatter)
        distance = squared_distance(self._scale(posterior), posterior.mean, rows)
        return row_cost(rows.weight, posterior.constant, distance)

    def cost_form(self, posterior: NormalGamma, mixing: float | Floats = 0.0) -> Quadratic:
        """The labelling cost less its mixing term, as a quadratic with roots √(a/b) I."""
        roots = diagonal_roots(self._scale(posterior))
        return Quadratic(posterior.mean, roots, posterior.constant - mixing)

    def predictive(self, posterior: NormalGamma, points: Floats) -> Floats:
        """Student-t with 2a degrees of freedom and squared scale b (ξ+1)/(2aξ)."""
        xi, a, b = posterior.xi, posterior.a, posterior.b
        d = points.shape[1]
        scale = np.repeat((xi / (xi + 1) / b)[:, None], d, axis=1)
        distance = squared_distance(scale, posterior.mean, Moments.rows_of_points(points))
        constant = gammaln(a + d / 2) - gammaln(a) - d / 2 * np.log(np.pi * b * (xi + 1) / xi)
        return cast(Floats, constant - (a + d / 2) * np.log1p(distance))

    @classmethod
    def log_density(cls, parameters: GaussianParameters, rows: Floats | Moments) -> Floats:
        """Mean log N(x|μ, c I) over each row's points."""
        rows = per_point(as_rows(rows, cls.scatter))
        d = rows.n_features
        scale = np.repeat((1 / parameters.covariance)[:, None], d, axis=1)
        constant = d * np.log(2 * np.pi * parameters.covariance)
        return -0.5 * (constant + squared_distance(scale, parameters.mean, rows))

    def generator(self, moments: Moments) -> Floats:
        """½‖x̄-m0‖², the generator of known variance: RBHC is then Ward.

        ½‖x̄‖² less a linear term and a constant, which cancel; taken from m0 they leave no digits behind
        far from the origin.
        """
        deviation = moments.mean - self.m0
        return cast(Floats, 0.5 * np.einsum("ri,ri->r", deviation, deviation))


AnyGaussian = Gaussian | DiagonalGaussian | SphericalGaussian

if TYPE_CHECKING:  # mypy holds them to the protocol
    _diagonal: type[Family[NormalGammas, GaussianParameters]] = DiagonalGaussian
    _spherical: type[Family[NormalGamma, GaussianParameters]] = SphericalGaussian
