"""Data-informed priors of the Gaussian families [BKM eqs. 21, 22], from points or from a summary of a stream.

No constant here is absolute: every floor is relative to the spread of the data or, where there is none, to
its magnitude, so that data at 1e8 from the origin or at a scale of 1e-8 get the prior they would get
anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, get_args

import numpy as np

from streamclust._kernels.families.neighbours import closest_neighbours
from streamclust._kernels.hashing import splitmix64
from streamclust._kernels.types import Floats, Ints
from streamclust.families.base import Rule, Summary, check_finite
from streamclust.families.linalg import floor_eigenvalues
from streamclust.moments import Moments, Scatter
from streamclust.utils.outliers import outlying

MAX_NEIGHBOUR_POINTS = 5_000
"""Points among which neighbours are sought, at most: more would cost, and shrink d as a stream grows."""
CLOSEST_PAIRS = 3
"""Closest pairs whose mean distance is d_small."""
MIN_CASES = 30
"""Points that nearest neighbours are found for, at least (or all): 10% of a small sample would be one or two."""
MIN_RELATIVE_DISTANCE = 1e-3
"""Least d_small in rms standard deviations: duplicated or rounded points have d = 0."""
MIN_RELATIVE_DEVIATION = 1e-6
"""Least standard deviation of a feature in rms ones: a constant feature would make B0 singular."""
MIN_CORRELATION_EIGENVALUE = 1e-6
"""Floor of the correlation matrix's eigenvalues, relative to their mean, 1: for n <= D, copied features."""
RELATIVE_RESOLUTION = 1e-14
"""Spreads below this share of the data's magnitude are rounding (some 50 units in the last place)."""
MIN_MAGNITUDE = 1e-130
"""Numbers below this count as 0: their squares would have few digits, or none."""
SMOOTHING_SHARE = 0.01
"""The generators' ridge, relative to the mean variance [relaxed BHC]."""


def spread_indices(n: int, size: int) -> Ints:
    """`size` different rows out of n, those whose numbers have the smallest hashes: the same every time.

    Rows chosen at regular steps would, in data that cycle through their sources, come from a few of them alone.
    """
    if size >= n:
        return np.arange(n)
    return np.sort(np.argpartition(splitmix64(np.arange(1, n + 1)), size)[:size])


def d_small(points: Floats, fraction: float = 0.1) -> float:
    """The paper's d_small, below (21): nearest neighbours of 10% of the cases, mean of the 3 closest pairs.

    Mutual neighbours are one pair. Cases are chosen by `spread_indices`, and are at least 30 (or
    all); `fraction=1` asks every point. No floor is applied here, so duplicates can give 0; so does a
    single point.

    >>> d_small(np.array([[0.0], [1.0], [10.0], [12.0], [30.0], [33.0]]))
    2.0
    """
    points = points[spread_indices(len(points), MAX_NEIGHBOUR_POINTS)]
    wanted = max(MIN_CASES, int(np.ceil(fraction * len(points))))
    if len(points) < 2:
        return 0.0
    distance = closest_pairs(points, spread_indices(len(points), wanted), CLOSEST_PAIRS)
    return float(distance.mean())


def closest_pairs(points: Floats, cases: Ints, count: int) -> Floats:
    """Distances of the `count` closest pairs (or all) of a case and its nearest neighbour, ascending."""
    # In the widest features few points are as near as the closest pairs found so far.
    widest = np.argsort(-np.ptp(points, axis=0), kind="stable")
    order = np.argsort(points[:, widest[0]])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return np.sqrt(closest_neighbours(np.ascontiguousarray(points[order][:, widest].T), rank[cases], count))


def mean_squared_neighbour(points: Floats) -> float:
    """mean(NN²) over the points whose nearest neighbour is not a duplicate (0 if there are none)."""
    points = points[spread_indices(len(points), MAX_NEIGHBOUR_POINTS)]
    if len(points) < 2:
        return 0.0
    from scipy.spatial import cKDTree  # slow to import, and not needed to start from a checkpoint

    distance = cKDTree(points).query(points, k=2)[0][:, 1]
    apart = distance[distance > 0]
    return float(np.mean(apart**2)) if len(apart) else 0.0


# ---------------------------------------------------------------- what the data say


def read(data: Summary | Floats, kind: Scatter) -> tuple[Moments, Floats]:
    """The total, one row of Moments with scatter `kind`, and a sample of points."""
    total, points, _ = read_weighted(data, kind)
    return total, points


def read_weighted(data: Summary | Floats, kind: Scatter) -> tuple[Moments, Floats, Floats]:
    """`read`, and the points' weights. Measurements far from all others are left out: they would decide the scale."""
    total, points, weight = _read_all(data, kind)
    if kind != "none" and (found := outlying(points, weight)).any():
        points, weight = points[~found], weight[~found]
        total = Moments.of_points(points, weight, kind=kind)
    return total, points, weight


def _read_all(data: Summary | Floats, kind: Scatter) -> tuple[Moments, Floats, Floats]:
    """The total, a sample of points and their weights, as the data have them."""
    if hasattr(data, "total") and hasattr(data, "sample"):
        total = data.total.to(kind)
        points, weight = (np.asarray(part, dtype=float) for part in data.sample())
    else:
        points = np.asarray(data, dtype=float)
        if points.ndim != 2:
            raise ValueError(f"points must be a table of rows and columns, got shape {points.shape}")
        check_finite(points)
        total, weight = Moments.of_points(points, kind=kind), np.ones(len(points))
    if len(total) != 1 or not total.weight[0] > 0:
        raise ValueError(
            "a data-informed prior needs data; learn at least one event first, or give the prior"
        )
    return total, points, weight


@dataclass(frozen=True)
class Scales:
    """The lengths that a prior is made of, floored so that none is zero."""

    rms: float
    """Root mean variance of a feature."""
    resolution: float
    """Least difference that the data's digits can tell."""

    @classmethod
    def of(cls, total: Moments) -> Scales:
        """From one row of moments with any scatter."""
        d = total.n_features
        rms = float(np.sqrt(max(float(total.trace[0]), 0.0) / (total.weight[0] * d)))
        magnitude = float(np.abs(total.mean).max()) + rms
        # Data that are all zero have no scale whatever: 1 stands in.
        return cls(rms, RELATIVE_RESOLUTION * (magnitude if magnitude > MIN_MAGNITUDE else 1.0))

    def floor(self, distance: float) -> float:
        """A distance between points that is safe to square and divide by."""
        return max(distance, MIN_RELATIVE_DISTANCE * self.rms, self.resolution)

    @property
    def smoothing(self) -> float:
        """0.01 of the mean variance."""
        return SMOOTHING_SHARE * max(self.rms, self.resolution) ** 2


# ---------------------------------------------------------------- the priors


class GaussianPrior(NamedTuple):
    """ξ0, m0, B0 in the shape of the family's scatter (a scalar is its mean diagonal), and the ridge a."""

    xi0: float
    m0: Floats
    B0: Floats
    smoothing: float


def gaussian_prior(
    data: Summary | Floats,
    kind: Scatter,
    rule: Rule = "bkm",
    B0: float | Floats | None = None,
    scale: float = 1.0,
) -> GaussianPrior:
    """The data-informed prior by `rule`, with `scale` times the rule's B0, or with a given B0.

    "bkm"            (21): ξ0 = 0.1, B0 = d² D Σ / tr Σ, with d = d_small floored
    "agglomerative"  (22): ξ0 = 0.01, B0 = 0.01 d² I
    "nearest"        as (22), but B0 = mean(NN²)/D I without zero distances, a better default for trees:
                     literal (22) does not reproduce the paper's purity on pendigits
    """
    if rule not in get_args(Rule):
        raise ValueError(f"rule must be one of {', '.join(get_args(Rule))}, got {rule!r}")
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    total, points = read(data, kind)
    scales = Scales.of(total)
    d = total.n_features
    if B0 is not None:
        chosen = np.asarray(B0, dtype=float)
        shape = chosen if chosen.ndim else chosen * _identity(kind, d)
    elif rule == "bkm":
        shape = scale * scales.floor(d_small(points)) ** 2 * _relative_covariance(total, kind, scales)
    elif rule == "agglomerative":
        shape = scale * 0.01 * scales.floor(d_small(points)) ** 2 * _identity(kind, d)
    else:
        squared = scales.floor(float(np.sqrt(mean_squared_neighbour(points)))) ** 2
        shape = scale * squared / d * _identity(kind, d)
    return GaussianPrior(0.1 if rule == "bkm" else 0.01, total.mean[0], shape, scales.smoothing)


def _identity(kind: Scatter, d: int) -> Floats:
    return np.eye(d) if kind == "full" else np.ones(d) if kind == "diagonal" else np.ones(())


def _relative_covariance(total: Moments, kind: Scatter, scales: Scales) -> Floats:
    """D Σ / tr Σ of (21): the covariance scaled to a mean variance of 1, and kept positive definite.

    Features keep their own scales: the floors act on standard deviations and on the correlation matrix, so
    that a feature measured in small units is not drowned by one in large units.
    """
    d = total.n_features
    if kind == "scalar" or scales.rms <= scales.resolution:
        return _identity(kind, d)
    covariance = total.covariance[0] / scales.rms**2
    if kind == "diagonal":
        floored = np.maximum(covariance, MIN_RELATIVE_DEVIATION**2)
        return np.asarray(floored / floored.mean())
    deviation = np.sqrt(np.diagonal(covariance))
    floored_deviation = np.maximum(deviation, MIN_RELATIVE_DEVIATION)
    correlation = covariance / np.outer(floored_deviation, floored_deviation)
    np.fill_diagonal(correlation, 1.0)
    sound = floor_eigenvalues(correlation, MIN_CORRELATION_EIGENVALUE)
    if sound is not correlation or np.any(deviation < floored_deviation):
        covariance = sound * np.outer(floored_deviation, floored_deviation)
    return np.asarray(covariance * (d / np.trace(covariance)))


def positive_covariance(moments: Moments, variance: float) -> Floats:
    """The covariance of one row of moments, kept positive definite; `variance` in every feature if it has none.

    >>> positive_covariance(Moments.of_points(np.array([[0.0, 1.0], [2.0, 1.0]])), 0.01).diagonal()
    array([1.e+00, 5.e-13])
    """
    scales = Scales.of(moments)
    if scales.rms <= scales.resolution:
        return variance * np.eye(moments.n_features)
    return scales.rms**2 * _relative_covariance(moments, "full", scales)
