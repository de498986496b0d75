"""Gaussian clusters with full covariance: the normal-Wishart family [BKM sections 5-8], and its flat limit.

The diagonal and spherical families stand in `gaussian_simple`. All three leave the same constant, (D/2) log
π per point, out of the labelling cost, as (20) does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self, cast

import numpy as np

from streamclust._kernels.families.normal_wishart import log_marginals, posteriors
from streamclust._kernels.types import Bools, Floats
from streamclust.families.base import Family, Rule, Summary, as_rows, check_finite
from streamclust.families.cost_form import Quadratic
from streamclust.families.linalg import cholesky, log_determinant, multigammaln, whitener
from streamclust.families.priors import (
    RELATIVE_RESOLUTION,
    SMOOTHING_SHARE,
    Scales,
    gaussian_prior,
    positive_covariance,
    read,
)
from streamclust.moments import Moments, Scatter
from streamclust.utils.late import gammaln


def no_blur() -> Floats:
    """An empty array, which means no blur in any feature."""
    return np.zeros(0)


def checked_blur(blur: Floats, d: int) -> Floats:
    """The blur as an array (D,), zeros for `no_blur()`."""
    blur = np.asarray(blur, dtype=float)
    blur = blur if blur.size else np.zeros(d)
    if blur.shape != (d,) or not np.all(blur >= 0):
        raise ValueError(f"blur must be {d} variances of at least 0, got {blur}")
    return blur


class NormalWishart(NamedTuple):
    """Posteriors (18) of clusters, one per row, with what the costs need ready."""

    xi: Floats
    mean: Floats
    eta: Floats
    B: Floats
    whitener: Floats
    """W = L⁻¹ with B = L Lᵀ: (x-m)ᵀ B⁻¹ (x-m) = ‖W(x-m)‖²."""
    log_det: Floats
    constant: Floats
    """The part of the labelling cost (20) that no point touches."""


class GaussianParameters(NamedTuple):
    """Point parameters: means (clusters, D), covariances (clusters, D, D), (clusters, D) or (clusters,)."""

    mean: Floats
    covariance: Floats


def shrunk_mean(weight: Floats, mean: Floats, xi0: float, m0: Floats) -> tuple[Floats, Floats, Floats]:
    """ξ, m and x̄ - m0 of (18), with m as a step from m0: (n x̄ + ξ0 m0)/ξ loses digits far from the origin."""
    xi = xi0 + weight
    deviation = np.where(weight[:, None] > 0, mean - m0, 0.0)
    return xi, m0 + (weight / xi)[:, None] * deviation, deviation


def row_cost(weight: Floats, constant: Floats, quadratic: Floats) -> Floats:
    """n · constant + quadratic for rows x clusters; an infinite constant does not touch rows of weight 0."""
    product = np.multiply(weight[:, None], constant, out=np.zeros_like(quadratic), where=weight[:, None] > 0)
    return cast(Floats, product + quadratic)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Gaussians of any covariance, with a normal-Wishart prior ξ0, m0, η0, B0 [BKM eq. 15].

    >>> points = np.array([[0.0, 0.0], [1.0, 0.5], [0.2, -1.0], [8.0, 8.0], [9.0, 7.5]])
    >>> family = Gaussian.informed(points)
    >>> clusters = Moments.rows_of_points(points).to_groups(np.array([0, 0, 0, 1, 1]), kind="full")
    >>> family.labelling_cost(family.posterior(clusters), points).argmin(axis=1)
    array([0, 0, 0, 1, 1])
    """

    name: ClassVar[str] = "gaussian"
    scatter: ClassVar[Scatter] = "full"
    concentration: ClassVar[float] = 2.0

    xi0: float
    m0: Floats
    eta0: float
    B0: Floats
    smoothing: float = 0.0
    """The ridge a of the generator; 0 takes 0.01 of B0's mean diagonal entry."""
    blur: Floats = field(default_factory=no_blur)
    """(D,): variance that every event adds to B, below which features tell nothing apart; zeros unless given."""

    def __post_init__(self) -> None:
        m0, B0 = (np.array(part, dtype=float, order="C") for part in (self.m0, self.B0))
        d = m0.size
        object.__setattr__(self, "blur", checked_blur(self.blur, d))
        if m0.shape != (d,) or B0.shape != (d, d):
            raise ValueError(f"m0 must be (D,) and B0 (D, D), got {m0.shape} and {B0.shape}")
        if not self.xi0 > 0 or not self.eta0 > d - 1:
            raise ValueError(
                f"the prior needs xi0 > 0 and eta0 > D - 1 = {d - 1}, got {self.xi0}, {self.eta0}"
            )
        object.__setattr__(self, "m0", m0)
        object.__setattr__(self, "B0", B0)
        if not self.smoothing > 0:
            object.__setattr__(self, "smoothing", SMOOTHING_SHARE * float(np.trace(B0)) / d)

    @classmethod
    def informed(
        cls, data: Summary | Floats, rule: Rule = "bkm", B0: float | Floats | None = None, scale: float = 1.0
    ) -> Self:
        """The data-informed prior (21) or, for agglomeration, (22); see `priors.gaussian_prior`. η0 = D."""
        prior = gaussian_prior(data, cls.scatter, rule, B0, scale)
        return cls(prior.xi0, prior.m0, float(len(prior.m0)), prior.B0, prior.smoothing)

    @classmethod
    def check(cls, points: Floats) -> None:
        """Any finite numbers will do."""
        check_finite(points)

    def log_base(self, points: Floats) -> Floats:
        """Zero: a Gaussian has no base measure of its own."""
        return np.zeros(len(points))

    # ---------------------------------------------------------------- conjugacy

    def prior_and(
        self, moments: Moments
    ) -> tuple[Floats, Floats, Floats, float, Floats, float, Floats, Floats]:
        """Rows and prior as kernels read them."""
        rows = as_rows(moments, self.scatter)
        weight, mean = np.asarray(rows.weight, dtype=float), np.ascontiguousarray(rows.mean, dtype=float)
        return weight, mean, rows.flat_scatter, float(self.xi0), self.m0, float(self.eta0), self.B0, self.blur

    def log_marginal(self, moments: Moments) -> Floats:
        """log ∫ p(X|θ) p(θ) dθ of each row, its part of -(19)."""
        return log_marginals(*self.prior_and(moments))

    def posterior(self, moments: Moments) -> NormalWishart:
        """Posterior (18) of each row; a row of weight 0 gives the prior."""
        xi, m, B, W, log_det, constant = posteriors(*self.prior_and(moments))
        return NormalWishart(xi, m, self.eta0 + moments.weight, B, W, log_det, constant)

    def evidence_change(self, posterior: NormalWishart, quadratic: Floats, weight: float) -> Floats:
        """log_marginal with a point more, less log_marginal without; `weight` < 0 takes the point away.

        `quadratic` is (x-m)ᵀB⁻¹(x-m), clusters x points: a point changes B by rank one, so |B| by a factor.
        A point that the cluster does not hold cannot be taken away: that gives NaN or +∞.
        """
        d = posterior.mean.shape[1]
        xi, eta = posterior.xi + weight, posterior.eta + weight
        same = (
            -weight * d / 2 * np.log(np.pi)
            + d / 2 * np.log(posterior.xi / xi)
            - weight / 2 * posterior.log_det
            + multigammaln(eta / 2, d)
            - multigammaln(posterior.eta / 2, d)
        )
        factor = np.log1p((weight * posterior.xi / xi)[:, None] * quadratic)
        return cast(Floats, same[:, None] - eta[:, None] / 2 * factor)

    def parameters(self, posterior: NormalWishart) -> GaussianParameters:
        """m, and the inverse of the mean precision E[Ω] = η B⁻¹ [BKM eq. 49]."""
        return GaussianParameters(posterior.mean, posterior.B / posterior.eta[:, None, None])

    # ---------------------------------------------------------------- costs and densities

    def labelling_cost(self, posterior: NormalWishart, rows: Floats | Moments) -> Floats:
        """(20) without its mixing term, summed over each row's points.

        n · constant + (η/2) [n (x̄-m)ᵀB⁻¹(x̄-m) + tr(B⁻¹S)].
        """
        rows = as_rows(rows, self.scatter)
        distance = mahalanobis(posterior.whitener, posterior.mean, rows)
        return row_cost(rows.weight, posterior.constant, posterior.eta / 2 * distance)

    def cost_form(self, posterior: NormalWishart, mixing: float | Floats = 0.0) -> Quadratic:
        """(20) less its mixing term, as a quadratic: the root is √(η/2) W."""
        root = np.sqrt(posterior.eta / 2)[:, None, None] * posterior.whitener
        return Quadratic(posterior.mean, root, posterior.constant - mixing)

    def predictive(self, posterior: NormalWishart, points: Floats) -> Floats:
        """Student-t with η+1-D degrees of freedom, location m, scale matrix B (ξ+1)/(ξ (η+1-D))."""
        d = points.shape[1]
        xi, eta = posterior.xi, posterior.eta
        distance = mahalanobis(posterior.whitener, posterior.mean, Moments.rows_of_points(points))
        return cast(
            Floats,
            gammaln((eta + 1) / 2)
            - gammaln((eta + 1 - d) / 2)
            - d / 2 * np.log(np.pi * (xi + 1) / xi)
            - posterior.log_det / 2
            - (eta + 1) / 2 * np.log1p(distance * xi / (xi + 1)),
        )

    @classmethod
    def log_density(cls, parameters: GaussianParameters, rows: Floats | Moments) -> Floats:
        """Mean log N(x|μ, C) over each row's points [chunky EM, unnumbered, for eq. 3.14].

        -½ [D log 2π + log|C| + (x̄-μ)ᵀC⁻¹(x̄-μ) + tr(C⁻¹S)/n].
        """
        rows = per_point(as_rows(rows, cls.scatter))
        factor = cholesky(parameters.covariance)
        distance = mahalanobis(whitener(factor), parameters.mean, rows)
        return cast(Floats, -0.5 * (rows.n_features * np.log(2 * np.pi) + log_determinant(factor) + distance))

    def generator(self, moments: Moments) -> Floats:
        """-½ log |S/n + aI|, up to terms linear in the statistic, which cancel [relaxed BHC]."""
        d = moments.n_features
        rows = as_rows(moments, self.scatter)
        covariance = rows.covariance if rows.kind == "full" else np.zeros((len(rows), d, d))
        return -0.5 * log_determinant(cholesky(covariance + self.smoothing * np.eye(d)))


def mahalanobis(W: Floats, mean: Floats, rows: Moments) -> Floats:
    """Σ ‖W(x-m)‖² over each row's points: n ‖W(x̄-m)‖² + tr(WᵀW S), for rows x clusters."""
    distance = np.empty((len(rows), len(mean)))
    for k in range(len(mean)):
        y = (rows.mean - mean[k]) @ W[k].T
        distance[:, k] = np.einsum("ri,ri->r", y, y)
    distance *= rows.weight[:, None]
    if rows.kind == "full":
        precision = np.einsum("kij,kil->kjl", W, W).reshape(len(W), -1)
        distance += np.maximum(rows.flat_scatter @ precision.T, 0.0)
    return distance


def per_point(rows: Moments) -> Moments:
    """Each row scaled to weight 1: sums over its points become means; a row of weight 0 counts as a point."""
    divisor = np.where(rows.weight > 0, rows.weight, 1.0).reshape(-1, *[1] * (rows.scatter.ndim - 1))
    return Moments(np.ones(len(rows)), rows.mean, rows.scatter / divisor, rows.kind)


@dataclass(frozen=True, eq=False)
class FlatGaussian(Gaussian):
    """Full Gaussians under the uninformative prior (30): the limit ξ0 = 0, η0 = -1, B0 = 0 of (18).

    Singular where n <= D (erratum 6) or where a row's points lie in a plane: its log marginal is then -∞
    and its labelling cost +∞, so that no such cluster is ever proposed or joined. `log_volume` is Σ_d
    log(x_max - x_min).
    """

    log_volume: float = 0.0

    def __post_init__(self) -> None:
        """No validation: the limit has no proper prior to validate."""
        object.__setattr__(self, "blur", np.zeros(len(self.m0)))

    @classmethod
    def informed(
        cls, data: Summary | Floats, rule: Rule = "bkm", B0: float | Floats | None = None, scale: float = 1.0
    ) -> Self:
        """The volume of the box around the data; from a summary, around its sample. Nothing else is asked."""
        total, points = read(data, cls.scatter)
        scales = Scales.of(total)
        extent = np.maximum(np.ptp(points, axis=0), scales.resolution)
        d = total.n_features
        volume = float(np.log(extent).sum())
        return cls(0.0, total.mean[0], -1.0, np.zeros((d, d)), scales.smoothing, log_volume=volume)

    def sound(self, moments: Moments) -> Bools:
        """Rows with a proper posterior: n > D, and scatter of full rank."""
        rows = as_rows(moments, self.scatter)
        if rows.kind != "full":
            return np.zeros(len(rows), dtype=bool)
        deviation = np.sqrt(np.maximum(np.einsum("rii->ri", rows.scatter), 0.0))
        resolution = RELATIVE_RESOLUTION * (np.abs(rows.mean) * np.sqrt(rows.weight)[:, None] + deviation)
        spread = np.all(deviation > resolution, axis=1) & (rows.weight > rows.n_features)
        unit = np.where(spread[:, None], deviation, 1.0)
        correlation = np.where(
            spread[:, None, None],
            rows.scatter / (unit[:, :, None] * unit[:, None, :]),
            np.eye(rows.n_features),
        )
        return cast(Bools, spread & (np.linalg.eigvalsh(correlation)[:, 0] > 1e-12))

    def _proper(self, moments: Moments) -> tuple[Bools, Moments]:
        """Which rows are sound, and the rows with I for the others' scatter: the algebra stays finite."""
        sound = self.sound(moments)
        d = moments.n_features
        full = moments.scatter if moments.kind == "full" else np.zeros((len(moments), d, d))
        scatter = np.where(sound[:, None, None], full, np.eye(d))
        return sound, Moments(np.where(sound, moments.weight, d + 1.0), moments.mean, scatter, "full")

    def log_marginal(self, moments: Moments) -> Floats:
        """The cluster's part of -(32), with (D/2) log N_c where the paper has ½ log N_c (erratum 2)."""
        d = moments.n_features
        sound, rows = self._proper(moments)
        n = rows.weight
        log_det = log_determinant(cholesky(rows.scatter))
        value = (
            -d * (n - 1) / 2 * np.log(np.pi)
            - d / 2 * np.log(n)
            - (n - 1) / 2 * log_det
            + multigammaln((n - 1) / 2, d)
            - self.log_volume
        )
        return np.where(sound, value, -np.inf)

    def posterior(self, moments: Moments) -> NormalWishart:
        """(31): ξ = N, m = x̄, η = N-1, B = N S. Its cost is (34) corrected: (N-1)/(2N) S⁻¹ (erratum 3)."""
        sound, rows = self._proper(moments)
        proper = super().posterior(rows)
        return proper._replace(
            constant=np.where(sound, proper.constant, np.inf), log_det=np.where(sound, proper.log_det, np.inf)
        )

    def proper_posterior(self, moments: Moments) -> NormalWishart:
        """`posterior` with finite costs and densities for all: of clusters that are published, whatever they hold.

        A singular cluster is published if all data are: if a feature is constant, or too few events have come. It then
        counts as D + 1 events at least, and its covariance is kept positive definite by the floors of the other
        priors.
        """
        rows = as_rows(moments, self.scatter).to(self.scatter)
        sound, d = self.sound(rows), rows.n_features
        weight = np.where(sound, rows.weight, np.maximum(rows.weight, d + 1.0))
        scatter = np.array(rows.scatter)
        for k in np.flatnonzero(~sound).tolist():
            scatter[k] = weight[k] * positive_covariance(rows[[k]], self.smoothing)
        return super().posterior(Moments(weight, rows.mean, scatter, rows.kind))


if TYPE_CHECKING:  # mypy holds them to the protocol
    _gaussians: tuple[type[Family[NormalWishart, GaussianParameters]], ...] = (Gaussian, FlatGaussian)
