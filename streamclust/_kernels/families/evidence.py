"""The evidence of clusters as a function of η0, the strength of the prior on their covariances, alone."""

import math

import numpy as np

from streamclust._kernels.compile import kernel, part, shared_part
from streamclust._kernels.types import Floats

GRID = 12
"""Values of η0 tried first, spread evenly over the range of its logarithm."""
SECTIONS = 8
"""Golden sections around the best of them."""
LOG_TWO, LOG_ROOT_PI, LOG_ROOT_TAU = math.log(2.0), 0.5 * math.log(math.pi), 0.5 * math.log(2 * math.pi)


@part
def log_gamma(x: float) -> float:
    """log Γ(x) for x > 0: up to where Stirling's series has all digits."""
    product = 1.0
    while x < 8.0:
        product *= x
        x += 1.0
    z = 1.0 / (x * x)
    series = 1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z * (1 / 1188 - z * 691 / 360360))))
    return (x - 0.5) * math.log(x) - x + LOG_ROOT_TAU + series / x - math.log(product)


@part
def log_gammas(x: float, shifts: Floats) -> float:
    """Σ_j log Γ(x - shift_j); two that differ by ½ are one [Legendre's duplication formula]."""
    total = 0.0
    j = 0
    while j < len(shifts):
        if j + 1 < len(shifts) and shifts[j + 1] - shifts[j] == 0.5:
            y = 2 * (x - shifts[j + 1])
            total += log_gamma(y) + (1.0 - y) * LOG_TWO + LOG_ROOT_PI
            j += 2
        else:
            total += log_gamma(x - shifts[j])
            j += 1
    return total


@part
def log_det_plus_unit(diagonal: Floats, off: Floats, factor: float) -> float:
    """log |I + factor T| of a tridiagonal T that has no eigenvalue below 0; `off` has its off-diagonals squared."""
    logs, product, above = 0.0, 1.0, 1.0
    for i in range(len(diagonal)):
        pivot = 1.0 + factor * diagonal[i]
        if i > 0:
            pivot -= factor * factor * off[i] / above
        above = max(pivot, 1.0)
        product *= above
        if product > 1e150:
            logs += math.log(product)
            product = 1.0
    return logs + math.log(product)


@part
def evidence_of_eta(
    eta0: float,
    weight: Floats,
    ratio: Floats,
    off: Floats,
    shifts: Floats,
    factor: float,
    copies: float,
    features: float,
) -> float:
    """Σ_c of the log evidence with B0 = η0 S, up to what does not depend on η0.

    `ratio` and `off` (K, M) are the diagonals and the squared off-diagonals of tridiagonal matrices that have the
    eigenvalues of S⁻¹ (B_c - B0), each counted features / M times. The normaliser of a Wishart (one of D, D of one
    feature, or a Gamma) is `copies` Σ_j log Γ(factor η/2 - shift_j).
    """
    clusters, m = ratio.shape
    times = features / m
    total = 0.0
    prior = log_gammas(factor * eta0 / 2, shifts)
    for c in range(clusters):
        eta = eta0 + weight[c]
        gamma = log_gammas(factor * eta / 2, shifts) - prior
        # log(η0 + λ), less the log η0 of the prior's own: what cancels for large η0 never enters
        logs = log_det_plus_unit(ratio[c], off[c], 1.0 / eta0)
        total += copies * gamma - eta / 2 * times * logs - weight[c] / 2 * features * math.log(eta0)
    return total


@shared_part
def eta_of_most_evidence(
    low: float,
    high: float,
    weight: Floats,
    ratio: Floats,
    off: Floats,
    shifts: Floats,
    factor: float,
    copies: float,
    features: float,
) -> float:
    """The η0 within low..high of greatest evidence: over a grid of logarithms, then by golden sections."""
    least, most = math.log(low), math.log(high)
    width = (most - least) / (GRID - 1)
    best, greatest = least, -np.inf
    for i in range(GRID):
        x = least + i * width
        value = evidence_of_eta(math.exp(x), weight, ratio, off, shifts, factor, copies, features)
        if value > greatest:
            best, greatest = x, value
    a, b = max(least, best - width), min(most, best + width)
    golden = (math.sqrt(5.0) - 1) / 2
    left, right = b - golden * (b - a), a + golden * (b - a)
    at_left = evidence_of_eta(math.exp(left), weight, ratio, off, shifts, factor, copies, features)
    at_right = evidence_of_eta(math.exp(right), weight, ratio, off, shifts, factor, copies, features)
    for _ in range(SECTIONS):
        if at_left > at_right:
            b, right, at_right = right, left, at_left
            left = b - golden * (b - a)
            at_left = evidence_of_eta(math.exp(left), weight, ratio, off, shifts, factor, copies, features)
        else:
            a, left, at_left = left, right, at_right
            right = a + golden * (b - a)
            at_right = evidence_of_eta(math.exp(right), weight, ratio, off, shifts, factor, copies, features)
    if at_left > greatest:
        best, greatest = left, at_left
    if at_right > greatest:
        best = right
    return math.exp(best)


@kernel
def best_eta(
    low: float, high: float, weight: Floats, ratio: Floats, shifts: Floats, factor: float, copies: float,
    features: float,
) -> float:  # fmt: skip
    """`eta_of_most_evidence` with the eigenvalues themselves in `ratio`."""
    none = np.zeros(ratio.shape)
    return eta_of_most_evidence(low, high, weight, ratio, none, shifts, factor, copies, features)
