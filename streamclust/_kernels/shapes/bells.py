"""Two Gaussians fitted to a histogram by EM, in units of its bins."""

import math

import numpy as np

from streamclust._kernels.compile import part
from streamclust._kernels.shapes.line import BINS
from streamclust._kernels.types import Floats

STEPS = 40
"""EM iterations."""
STILL = 1e-6
"""Bins; EM ends where no mean moves by more."""
LEAST_VARIANCE = 0.7**2
"""Of a bell, in squared bins."""
LEAST_MASS = 1e-9
"""A bell with a smaller share of the events is none."""
LOG_2PI = math.log(2 * math.pi)


@part
def two_bells(coarse: Floats, log_mass: Floats) -> tuple[float, float]:
    """Fit two Gaussians to the events of both owners, started from ownership; returns their peaks, mass / σ.

    `log_mass` gets the log of each bin's mass under the two. Peaks of 0: one of the bells has no events.
    """
    mass, mean, variance, peak = np.empty(2), np.zeros(2), np.empty(2), np.empty(2)
    bins, seen, share, half = np.empty(BINS, dtype=np.int64), np.empty(BINS), np.empty((2, BINS)), np.empty(2)
    count, total = 0, 0.0
    for b in range(BINS):  # bins without events are left out
        if coarse[0, b] + coarse[1, b] != 0.0:
            bins[count], seen[count] = b, coarse[0, b] + coarse[1, b]
            share[0, count], share[1, count] = coarse[0, b], coarse[1, b]
            total += seen[count]
            count += 1
    for _ in range(STEPS + 1):
        moved = 0.0
        for k in range(2):
            before = mean[k]
            mass[k] = 0.0
            first = 0.0
            square = 0.0
            for b in range(count):
                place = bins[b] - before
                mass[k] += share[k, b]
                first += share[k, b] * place
                square += share[k, b] * place * place
            if not mass[k] > LEAST_MASS * total:
                return 0.0, 0.0
            first /= mass[k]
            mean[k] = before + first
            variance[k] = max(square / mass[k] - first * first, LEAST_VARIANCE)
            peak[k] = math.log(mass[k] / total) - (math.log(variance[k]) + LOG_2PI) / 2
            moved = max(moved, abs(first))
        if moved < STILL:
            break
        half[0], half[1] = 0.5 / variance[0], 0.5 / variance[1]
        for b in range(count):
            one = peak[0] - (bins[b] - mean[0]) ** 2 * half[0]
            two = peak[1] - (bins[b] - mean[1]) ** 2 * half[1]
            share[0, b] = seen[b] / (1.0 + math.exp(min(two - one, 700.0)))
            share[1, b] = seen[b] - share[0, b]
    for b in range(BINS):
        one = peak[0] - (b - mean[0]) ** 2 / variance[0] / 2
        two = peak[1] - (b - mean[1]) ** 2 / variance[1] / 2
        log_mass[b] = max(one, two) + math.log1p(math.exp(-abs(one - two)))
    return mass[0] / math.sqrt(variance[0]), mass[1] / math.sqrt(variance[1])
