"""λ², the price of a cluster or a feature: given, from a rough number of clusters, or from the noise."""

from __future__ import annotations

import math
import warnings

import numpy as np

from streamclust._kernels.refit.dp_means import farthest_first
from streamclust._kernels.types import Floats
from streamclust.moments import Moments

ROUGH_CLUSTERS = 8
"""The rough K where neither it nor a penalty is given."""
MARGIN = 1e-6
"""The share by which λ² from a rough K exceeds the squared distance of the K-th pick."""
NO_NOISE = 1e-10
"""Where the data have no noise, λ² is this share of their sum of squares: whatever repeats pays."""


def check_penalty(penalty: float) -> float:
    """λ² as a float; refused unless positive and finite."""
    try:
        value = float(penalty)
    except (TypeError, ValueError):
        value = math.nan
    if isinstance(penalty, (str, bytes)) or not 0.0 < value < math.inf:
        raise ValueError(
            f"penalty (λ², what one more cluster or feature costs) must be positive and finite, got {penalty!r}; "
            "use None to have it chosen"
        )
    return value


def check_count(name: str, value: int) -> int:
    """A whole number, at least 1; anything else is refused."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number, at least 1, got {value!r}")
    return int(value)


def warn_of_growth(most: int, penalty: float, what: str = "clusters") -> None:
    """Say that there would be more clusters or features than allowed."""
    warnings.warn(
        f"{what} were stopped at max_{what}={most}: at penalty {penalty:g} there would be more; raise the penalty (λ²) "
        f"if that many are not wanted, max_{what} if they are",
        RuntimeWarning,
        stacklevel=2,
    )


def penalty_for_clusters(rows: Moments, n_clusters: int = ROUGH_CLUSTERS) -> float:
    """λ² at which DP-means opens about `n_clusters` clusters [Kulis & Jordan 2012, section 5].

    Farthest-first traversal from the mean of all: the squared distance of the K-th pick, and a millionth more. At that
    distance itself rounding would decide whether the K-th pick, one too many beside the mean of all, opens a cluster.
    Where rows have fewer different places than that, every place may have its cluster.

    >>> round(penalty_for_clusters(Moments.rows_of_points([[0.0], [1.0], [10.0], [11.0]]), 2), 3)
    30.25
    """
    n_clusters = check_count("n_clusters_hint", n_clusters)
    rows = rows[np.flatnonzero(rows.weight > 0)]
    if len(rows) == 0:
        raise ValueError("there are no rows of any weight to choose a penalty from")
    centre = rows.to("none").total().mean[0]
    points = np.ascontiguousarray(rows.mean, dtype=float)
    _, radius = farthest_first(points, centre, min(n_clusters, len(points)))
    if len(radius) == n_clusters and radius[-1] > 0:
        return float(radius[-1]) * (1.0 + MARGIN)
    positive = radius[radius > 0]
    # Two places a gap g apart are g / 2 from the mean between them: λ² must be below g² / 4 to part them.
    return float(positive[-1]) / 8 if len(positive) else 1.0


def penalty_from_noise(points: Floats, weight: Floats | None = None) -> float:
    """λ² = σ² (√N + √D)²: what the strongest direction of noise alone would explain.

    A feature that explains less than this is not told from noise. σ² is the median squared singular value
    over that of pure noise [Marchenko & Pastur 1967], which a few features among many columns hardly move;
    with as many features as columns σ² is too large, and λ² should be given.

    >>> noise = np.random.default_rng(0).normal(size=(400, 30))
    >>> round(penalty_from_noise(noise) / (400**0.5 + 30**0.5) ** 2, 1)
    1.0
    """
    n = float(len(points) if weight is None else weight.sum())
    centred = points - points.mean(axis=0)
    variance = np.linalg.svd(centred, compute_uv=False) ** 2
    rows, d = centred.shape
    rank = min(rows - 1, d)
    if rank < 1 or not variance.sum() > 0:
        return NO_NOISE * float((points**2).sum()) or 1.0
    median = float(np.median(variance[:rank])) / max(rows - 1, d)
    noise = median / marchenko_pastur_median(rank / max(rows - 1, d))
    return float(max(noise * (math.sqrt(n) + math.sqrt(d)) ** 2, NO_NOISE * variance.sum()))


def marchenko_pastur_median(ratio: float) -> float:
    """Median of the limiting law of squared singular values, of unit noise with `ratio` columns per row (at most 1).

    >>> marchenko_pastur_median(1e-6).__round__(3), round(marchenko_pastur_median(1.0), 3)
    (1.0, 0.653)
    """
    from scipy.integrate import quad  # both slow to import, and not needed to start from a checkpoint
    from scipy.optimize import brentq

    low, high = (1.0 - math.sqrt(ratio)) ** 2, (1.0 + math.sqrt(ratio)) ** 2

    def density(angle: float) -> float:
        # t = centre + half · sin(angle): the square roots at both ends of the law become smooth.
        half = (high - low) / 2
        t = (high + low) / 2 + half * math.sin(angle)
        return float((half * math.cos(angle)) ** 2 / (2 * math.pi * ratio * max(t, 1e-300)))

    def excess(angle: float) -> float:
        return float(quad(density, -math.pi / 2, angle)[0]) - 0.5

    angle = brentq(excess, -math.pi / 2, math.pi / 2)
    return float((high + low) / 2 + (high - low) / 2 * math.sin(angle))
