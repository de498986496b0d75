"""How far two distributions of one feature are apart: squared Hellinger distance, 0 the same, 1 no overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from streamclust._kernels.types import Floats

ROUNDING_ULPS = 4.0
"""The error of means and variances, in units in the last place of the mean."""


def gaussian_distance(mean: Floats, variance: Floats, other_mean: Floats, other_variance: Floats) -> Floats:
    """1 - √(2 s t / (s² + t²)) exp(-(m - n)² / 4 (s² + t²)) for N(m, s²) and N(n, t²)."""
    size = np.maximum(np.abs(mean), np.abs(other_mean))
    blur = (ROUNDING_ULPS * np.finfo(float).eps * size) ** 2
    a, b = variance + blur, other_variance + blur
    both = a + b
    known = both > 0  # two constants that are zero are the same
    safe = np.where(known, both, 1.0)
    overlap = np.sqrt(2 * np.sqrt(a) * np.sqrt(b) / safe) * np.exp(-((mean - other_mean) ** 2) / (4 * safe))
    return np.where(known, 1.0 - overlap, 0.0)


def poisson_distance(mean: Floats, variance: Floats, other_mean: Floats, other_variance: Floats) -> Floats:
    """1 - exp(-(√λ - √μ)² / 2), from the means alone."""
    gap = np.sqrt(np.maximum(mean, 0.0)) - np.sqrt(np.maximum(other_mean, 0.0))
    return cast(Floats, -np.expm1(-(gap**2) / 2))


def bernoulli_distance(mean: Floats, variance: Floats, other_mean: Floats, other_variance: Floats) -> Floats:
    """1 - √(p q) - √((1-p)(1-q)), from the means alone."""
    p, q = np.clip(mean, 0.0, 1.0), np.clip(other_mean, 0.0, 1.0)
    return 1.0 - np.sqrt(p * q) - np.sqrt((1 - p) * (1 - q))


DISTANCES: dict[str, Callable[[Floats, Floats, Floats, Floats], Floats]] = {
    "gaussian": gaussian_distance,
    "diagonal": gaussian_distance,
    "spherical": gaussian_distance,
    "mixed": gaussian_distance,  # a category's value by the mean and variance of its column of 0 and 1
    "multinomial": poisson_distance,  # how often a category comes in an event, of whatever length
    "bernoulli": bernoulli_distance,
    "poisson": poisson_distance,
}


def hellinger(
    family: str, mean: Floats, variance: Floats, other_mean: Floats, other_variance: Floats
) -> Floats:
    """The squared Hellinger distance between one feature's distributions of that family, elementwise.

    >>> hellinger("gaussian", np.array([0.0, 3.0]), np.array([1.0, 1.0]), np.zeros(2), np.ones(2)).round(3)
    array([0.   , 0.675])
    >>> hellinger("bernoulli", np.array([1.0]), np.array([0.0]), np.array([0.0]), np.array([0.0]))
    array([1.])
    """
    return np.clip(DISTANCES[family](mean, variance, other_mean, other_variance), 0.0, 1.0)
