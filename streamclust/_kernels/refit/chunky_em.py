"""Loops of chunky EM over boxes and components."""

import math

import numpy as np

from streamclust._kernels.compile import kernel
from streamclust._kernels.types import Floats

NOTHING = -40.0
"""A share of exp(-40) is nothing beside 1 in double precision: its exponential is not worth taking."""


@kernel
def share_rows(joint: Floats, weight: Floats, bound: Floats) -> float:
    """Log joints (rows, K) become responsibilities times the row's weight, in place [chunky EM eq. 3.14].

    `bound` gets each row's free energy per point, F_b / |b| (3.13); their sum F is returned.
    """
    n, k = joint.shape
    total = 0.0
    for r in range(n):
        row = joint[r]
        largest = row[0]
        for c in range(1, k):
            largest = max(largest, row[c])
        mass = 0.0
        for c in range(k):
            less = row[c] - largest
            row[c] = math.exp(less) if less > NOTHING else 0.0
            mass += row[c]
        factor = weight[r] / mass
        for c in range(k):
            row[c] *= factor
        bound[r] = largest + math.log(mass)
        total += weight[r] * bound[r]
    return total


@kernel
def share_with_candidates(
    score: Floats, bound: Floats, weight: Floats, log_rest: Floats, gain: Floats
) -> None:
    """A candidate's log joints (rows, candidates) become its responsibilities times weight [chunky EM eq. 3.24].

    `bound` is F_b / |b| of the mixture that the candidate would join with a share of 1 - exp(log_rest). To
    `gain` is added what F gains over these rows (3.26).
    """
    n, m = score.shape
    for r in range(n):
        for c in range(m):
            ahead = score[r, c] - bound[r] - log_rest[c]
            if ahead > NOTHING:
                behind = math.exp(-abs(ahead))
                responsibility = 1.0 / (1.0 + behind) if ahead >= 0.0 else behind / (1.0 + behind)
                more = max(ahead, 0.0) + math.log1p(behind)
            else:
                responsibility = 0.0
                more = 0.0
            score[r, c] = weight[r] * responsibility
            gain[c] += weight[r] * (log_rest[c] + more)


@kernel
def upper_products(mean: Floats) -> Floats:
    """x_i x_j for i <= j, row by row."""
    n, d = mean.shape
    out = np.empty((n, d * (d + 1) // 2))
    for r in range(n):
        at = 0
        for i in range(d):
            for j in range(i, d):
                out[r, at] = mean[r, i] * mean[r, j]
                at += 1
    return out
