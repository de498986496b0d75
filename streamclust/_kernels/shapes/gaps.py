"""Narrow gaps in a fine histogram: a window with clearly fewer events than one on either side of it."""

import math

import numpy as np

from streamclust._kernels.compile import part
from streamclust._kernels.types import Floats

WIDEST = 16
"""Fine bins of the widest window; the others have half as many, and so on down to 1."""
DEVIATIONS = 3.090232306167813
"""Of the normal distribution, that one in 1000 lies beyond."""


@part
def bound_of_ratio(valley: float, peak: float) -> float:
    """About the .999 quantile of q / (1 - q), q ~ Beta(valley + 1, peak); infinite where it has none.

    Wilson and Hilferty's approximation of the F distribution: good enough to choose a window by.
    """
    a, b = 1.0 / (9.0 * (valley + 1.0)), 1.0 / (9.0 * peak)
    z2 = DEVIATIONS * DEVIATIONS
    # ((1 - b) x - (1 - a))² = z² (b x² + a), the larger root
    square = (1 - b) ** 2 - z2 * b
    if not square > 0.0:
        return np.inf
    half = (1 - a) * (1 - b)
    root = (half + math.sqrt(half * half - square * ((1 - a) ** 2 - z2 * a))) / square
    return (valley + 1.0) / peak * root**3


@part
def clearest_gap(fine: Floats, low: int, high: int) -> tuple[float, float]:
    """The events in a window between two fine bins, and those in the lower of the best windows on either side.

    Of all windows the one whose ratio of the two is small most surely. (0, 0): no window fits.
    """
    bins = fine.size
    below = np.zeros(bins + 1)
    for b in range(bins):
        below[b + 1] = below[b] + fine[b]
    valley = 0.0
    peak = 0.0
    least = np.inf
    right = np.empty(bins + 1)
    width = 1
    while width <= WIDEST:
        last = bins - width
        right[last] = below[bins] - below[last]
        for start in range(last - 1, -1, -1):
            right[start] = max(right[start + 1], below[start + width] - below[start])
        left = 0.0
        for start in range(width, min(high - width, bins - 2 * width) + 1):
            left = max(left, below[start] - below[start - width])
            if start < low:
                continue
            inside = below[start + width] - below[start]
            beside = min(left, right[start + width])
            if inside < least * beside or (peak == 0.0 and beside > 0.0):
                bound = bound_of_ratio(inside, beside)
                if bound < least or peak == 0.0:
                    least = bound
                    valley, peak = inside, beside
        width *= 2
    return valley, peak
