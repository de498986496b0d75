"""ClusterPosterior: how well a cluster is known, by the evidence of the last refit."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from streamclust._kernels.types import Floats

CORNERS = 64
"""Number of points of a drawn ellipse."""


@dataclass(frozen=True, eq=False)
class ClusterPosterior:
    """How well a cluster is known: posteriors under flat priors, given independent events.

    Of a feature that is measured, the mean has Student's distribution; of a count or yes/no, the error is that of its
    rate under Jeffreys' prior.
    """

    events: float
    """Number of independent events that the cluster is worth, by the last refit."""
    degrees_of_freedom: float
    """Of the mean of a feature: `events` - 1; infinite for counts and yes/no features, NaN for a single event."""
    share_error: float
    """Standard error of the share."""
    mean_error: Mapping[Hashable, float]
    """Standard error of the mean of each feature; infinite where one event says nothing of it."""
    probability: float
    """Probability that it is a cluster of its own, apart from the one it would merge with first; 1 if it is alone.

    By BIC of the difference of two means, given the labels: where clusters overlap, it is too sure.
    """
    mean: Floats = field(repr=False)
    covariance: Floats | None = field(repr=False)

    def ellipse(self, one: Hashable, other: Hashable, probability: float = 0.95) -> Floats:
        """Credible ellipse of the mean in two features, as 65 points (65, 2), the first of which is the last, too.

        By Hotelling's T². ValueError for counts and yes/no features, and for fewer than four independent events.
        """
        if self.covariance is None:
            raise ValueError("there is no ellipse for counts and yes/no features; see mean_error")
        if not self.events > 3.0:
            raise ValueError(
                f"an ellipse needs more than 3 independent events, the cluster has {self.events:.1f}"
            )
        if not 0.0 < probability < 1.0:
            raise ValueError(f"probability must be between 0 and 1, got {probability}")
        names = list(self.mean_error)
        pair = [names.index(one), names.index(other)]
        radius = np.sqrt(squared_radius(self.events, probability))
        values, axes = np.linalg.eigh(matrix(self.covariance, len(names))[np.ix_(pair, pair)] / self.events)
        angle = np.linspace(0.0, 2.0 * np.pi, CORNERS + 1)
        circle = np.stack([np.cos(angle), np.sin(angle)])
        return np.asarray(self.mean[pair] + (radius * (axes * np.sqrt(np.maximum(values, 0.0))) @ circle).T)


def squared_radius(n: float, probability: float) -> float:
    """Quantile of (μ - x̄)ᵀ (S/n)⁻¹ (μ - x̄) in two dimensions: 2 (n - 1)/(n - 2) times that of F(2, n - 2).

    With an unbiased S. F(2, ν) has the quantile ν/2 ((1 - p)^(-2/ν) - 1).
    """
    freedom = n - 2.0
    return float((n - 1.0) * ((1.0 - probability) ** (-2.0 / freedom) - 1.0))


def matrix(covariance: Floats, n_features: int) -> Floats:
    """A covariance as a matrix, kept whole, by its diagonal or as one number."""
    whole = np.asarray(covariance)
    return whole if whole.ndim == 2 else whole * np.eye(n_features)


def posterior_of(
    family: str,
    names: tuple[Hashable, ...],
    mean: Floats,
    covariance: Floats | None,
    share: float,
    n_events: float,
    probability: float,
) -> ClusterPosterior:
    """The posterior of a cluster with this share of `n_events` independent events.

    >>> found = posterior_of("gaussian", ("x",), np.array([3.0]), np.array([4.0]), 0.25, 400.0, 0.9)
    >>> found.events, round(found.mean_error["x"], 4), round(found.share_error, 4)
    (100.0, 0.201, 0.0216)
    """
    n = share * n_events
    counts = covariance is None
    error = rate_errors(family, mean, n) if covariance is None else mean_errors(covariance, len(mean), n)
    return ClusterPosterior(
        events=n,
        degrees_of_freedom=np.inf if counts else n - 1.0 if n > 1.0 else np.nan,
        share_error=float(np.sqrt(share * (1.0 - share) / (n_events + 1.0))),
        mean_error=dict(zip(names, error.tolist(), strict=False)),
        probability=probability,
        mean=mean,
        covariance=covariance if counts or n <= 1.0 else np.asarray(covariance) * n / (n - 1.0),
    )


def mean_errors(covariance: Floats, n_features: int, n: float) -> Floats:
    """s/√n of each feature, s² the unbiased variance; infinite for one event."""
    variance = np.diagonal(matrix(covariance, n_features))
    return np.sqrt(np.maximum(variance, 0.0) / (n - 1.0)) if n > 1.0 else np.full(n_features, np.inf)


def rate_errors(family: str, mean: Floats, n: float) -> Floats:
    """Standard deviation of Beta(1/2 + ones, 1/2 + zeros), or of Gamma(1/2 + counts, n)."""
    if family == "bernoulli":
        ones, zeros = 0.5 + n * mean, 0.5 + n * (1.0 - mean)
        both = ones + zeros
        return np.asarray(np.sqrt(ones * zeros / (both + 1.0)) / both)
    return np.asarray(np.sqrt(0.5 + n * np.maximum(mean, 0.0)) / max(n, 1e-300))
