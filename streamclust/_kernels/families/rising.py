"""Rising factorials log Γ(p + t) - log Γ(p), what the evidence of counts is made of, with their derivatives in p."""

import math

import numpy as np

from streamclust._kernels.compile import kernel, part
from streamclust._kernels.families.normal_wishart import digamma
from streamclust._kernels.types import Floats


@part
def trigamma(x: float) -> float:
    """ψ'(x) for x > 0: by recurrence up to 10, then by its asymptotic series."""
    total = 0.0
    while x < 10.0:
        total += 1.0 / (x * x)
        x += 1.0
    r = 1.0 / (x * x)
    series = r * (1 / 6 - r * (1 / 30 - r * (1 / 42 - r * (1 / 30 - r * (5 / 66 - r * 691 / 2730)))))
    return total + 1.0 / x + 0.5 * r + series / x


@kernel
def rising(prior: Floats, count: Floats) -> tuple[Floats, Floats, Floats]:
    """Σ_c log Γ(p_d + t_cd) - log Γ(p_d) for each column d of the counts, and its first two derivatives in p_d.

    Counts of 0 add nothing, and cost nothing: most words are in few clusters.
    """
    k, d = count.shape
    value, slope, curvature = np.zeros(d), np.zeros(d), np.zeros(d)
    logs, first, second = np.empty(d), np.empty(d), np.empty(d)
    for j in range(d):
        logs[j], first[j], second[j] = math.lgamma(prior[j]), digamma(prior[j]), trigamma(prior[j])
    for c in range(k):
        for j in range(d):
            if count[c, j] > 0.0:
                p = prior[j] + count[c, j]
                value[j] += math.lgamma(p) - logs[j]
                slope[j] += digamma(p) - first[j]
                curvature[j] += trigamma(p) - second[j]
    return value, slope, curvature
