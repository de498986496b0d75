"""A normal-Wishart prior θ = (ξ0, η0, B0 = η0 S) learnt from clusters by their evidence: rounds of EM for ξ0 and S.

A search learns it anew after every few iterations: array operations would spend it all on calls.
"""

import math

import numpy as np

from streamclust._kernels.compile import kernel, part, shared_part
from streamclust._kernels.families.evidence import eta_of_most_evidence
from streamclust._kernels.families.normal_wishart import learn, log_marginal, log_marginal_prior, update
from streamclust._kernels.triangular import add_gram, add_row, add_two_rows, factorise_in_place, invert_lower
from streamclust._kernels.types import Floats

ROUNDING = 1e-12
"""A loss that is lower by a smaller share of it is not lower."""


@shared_part
def inverse_factor(matrix: Floats, least: float, factor: Floats, inverse: Floats) -> float:
    """L⁻¹ of matrix = L Lᵀ, whose lower half is read, and log |matrix|; -∞ where a pivot is not above `least`."""
    d = len(matrix)
    for i in range(d):
        for j in range(i + 1):
            factor[i, j] = matrix[i, j]
    log_det = factorise_in_place(factor, least)
    if log_det == math.inf:
        return -math.inf
    invert_lower(factor, inverse)
    return log_det


@part
def mirror(lower: Floats) -> None:
    """Make a matrix symmetric whose lower half is given."""
    for i in range(len(lower)):
        for j in range(i):
            lower[j, i] = lower[i, j]


@part
def congruent(root: Floats, turned: Floats, lower: Floats, half: Floats, out: Floats) -> None:
    """The lower half of R A Rᵀ, for lower triangular R, its transpose, and the lower half of a symmetric A."""
    d = len(root)
    mirror(lower)
    for i in range(d):
        half[i, :] = 0.0
        for k in range(0, i, 2):
            add_two_rows(half[i], root[i, k], lower[k], root[i, k + 1], lower[k + 1])
        if i % 2 == 0:
            add_row(half[i], root[i, i], lower[i])
    for i in range(d):
        out[i, : i + 1] = 0.0
        for k in range(0, i, 2):
            first, second = turned[k, k : i + 1], turned[k + 1, k : i + 1]
            add_two_rows(out[i, k : i + 1], half[i, k], first, half[i, k + 1], second)
        if i % 2 == 0:
            out[i, i] += half[i, i] * turned[i, i]


@part
def tridiagonalise(a: Floats, diagonal: Floats, off: Floats, e: Floats) -> None:
    """Householder's reduction of a symmetric matrix (lower half, overwritten): diagonal and squared off-diagonals."""
    d = len(a)
    mirror(a)
    off[0] = 0.0
    for i in range(d - 1, 0, -1):
        row, product = a[i, :i], e[:i]
        size = 0.0
        for k in range(i):
            size += abs(row[k])
        if i == 1 or size == 0.0:
            off[i] = row[i - 1] * row[i - 1]
            continue
        h = 0.0
        for k in range(i):
            row[k] /= size
            h += row[k] * row[k]
        g = -math.copysign(math.sqrt(h), row[i - 1])
        off[i] = size * size * h
        h -= row[i - 1] * g
        row[i - 1] -= g
        product[:] = 0.0
        for j in range(0, i - 1, 2):  # A v
            add_two_rows(product, row[j], a[j], row[j + 1], a[j + 1])
        if i % 2 == 1:
            add_row(product, row[i - 1], a[i - 1])
        f = 0.0
        for j in range(i):
            product[j] /= h
            f += product[j] * row[j]
        f /= 2 * h
        for j in range(i):
            product[j] -= f * row[j]
        for j in range(i):
            add_two_rows(a[j, :i], -row[j], product, -product[j], row)
    for i in range(d):
        diagonal[i] = a[i, i]


@part
def loss_of(
    weight: Floats, mean: Floats, scatter: Floats, xi0: float, m0: Floats, eta0: float, S: Floats, blur: Floats,
    cost: float, B0: Floats, m: Floats, B: Floats, factor: Floats,
) -> float:  # fmt: skip
    """-log p(clusters | θ), and `cost`."""
    d = len(m0)
    for i in range(d):
        for j in range(d):
            B0[i, j] = eta0 * S[i, j]
    prior = log_marginal_prior(eta0, B0, factor)
    total = cost
    for c in range(len(weight)):
        total -= log_marginal(weight[c], mean[c], scatter[c], xi0, m0, eta0, B0, blur, prior, m, B, factor)
    return total


@kernel
def improved_prior(
    weight: Floats, mean: Floats, scatter: Floats, xi0: float, m0: Floats, eta0: float, S: Floats, blur: Floats,
    variance: Floats, strength: float, most_xi: float, least_eta: float, least_pivot: float, rounds: int,
) -> tuple[bool, float, float, Floats]:  # fmt: skip
    """Whether a θ of lower loss was found in `rounds` rounds, and ξ0, η0, S of the best.

    S has a prior of its own, as if `strength` events had varied by `variance`, feature by feature. Each round tries S
    as far as Newton's method would take it, then as EM would, and η0 anew for it.
    """
    k, d = mean.shape
    S = S.copy()
    scale, shifts = np.empty(d), np.empty(d)
    for i in range(d):
        scale[i], shifts[i] = 1.0 / math.sqrt(variance[i]), i / 2
    m, e = np.empty(d), np.empty(d)
    B0, B, W, factor = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    root, half, tried, none = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.zeros((d, d))
    precision, stepped, relative, turned = (
        np.empty((d, d)),
        np.empty((d, d)),
        np.empty((d, d)),
        np.zeros((d, d)),
    )
    ratio, off = np.empty((k, d)), np.empty((k, d))
    everything, pace = 0.0, 0.0
    for c in range(k):
        everything += weight[c]
    most_eta = max(everything, 2 * least_eta)
    trace = 0.0
    for i in range(d):
        for j in range(d):
            relative[i, j] = S[i, j] * scale[i] * scale[j]
        trace += relative[i, i]
    log_det = inverse_factor(relative, 0.0, factor, root)
    cost = strength / 2 * (trace - log_det - d)
    lowest = loss_of(weight, mean, scatter, xi0, m0, eta0, S, blur, cost, B0, m, B, factor)
    changed = False
    for _ in range(rounds):
        spread, pace = 0.0, 0.0
        for i in range(d):
            for j in range(d):
                precision[i, j] = 0.0
                B0[i, j] = eta0 * S[i, j]
        for c in range(k):
            n = weight[c]
            eta = eta0 + n
            xi, _, _ = learn(n, mean[c], scatter[c], xi0, m0, eta0, B0, blur, m, B, W, factor)
            pace += n / eta
            spread += d / xi
            for i in range(d):
                between = 0.0
                for j in range(i + 1):
                    between += W[i, j] * (m[j] - m0[j])
                spread += eta * between * between
            add_gram(W, eta, precision)
        new_xi = min(most_xi, k * d / max(spread, d * k * 2.3e-308))
        pull = eta0 * k + strength
        for i in range(d):
            for j in range(i + 1):
                precision[i, j] *= eta0 / pull
            precision[i, i] += strength / (variance[i] * pull)
        found = False
        if inverse_factor(precision, 0.0, factor, root) > -math.inf:
            for i in range(d):
                for j in range(i + 1):
                    total = 0.0
                    for b in range(i, d):
                        total += root[b, i] * root[b, j]
                    stepped[i, j] = stepped[j, i] = total
            pace = k / pace
            for attempt in range(2):
                trace = 0.0
                for i in range(d):
                    for j in range(d):
                        step = stepped[i, j] - S[i, j]
                        tried[i, j] = S[i, j] + pace * step if attempt == 0 else stepped[i, j]
                        relative[i, j] = tried[i, j] * scale[i] * scale[j]
                    trace += relative[i, i]
                log_det = inverse_factor(relative, least_pivot, factor, root)
                if log_det == -math.inf:
                    continue
                for i in range(d):
                    for j in range(i + 1):
                        root[i, j] *= scale[j]
                        turned[j, i] = root[i, j]
                for c in range(k):
                    update(weight[c], mean[c], scatter[c], new_xi, m0, none, blur, m, B)
                    congruent(root, turned, B, half, W)
                    tridiagonalise(W, ratio[c], off[c], e)
                new_eta = eta_of_most_evidence(
                    least_eta, most_eta, weight, ratio, off, shifts, 1.0, 1.0, float(d)
                )
                cost = strength / 2 * (trace - log_det - d)
                loss = loss_of(
                    weight, mean, scatter, new_xi, m0, new_eta, tried, blur, cost, B0, m, B, factor
                )
                if loss < lowest - ROUNDING * abs(lowest):
                    lowest, xi0, eta0, found, changed = loss, new_xi, new_eta, True, True
                    for i in range(d):
                        for j in range(d):
                            S[i, j] = tried[i, j]
                    break
        if not found:
            break
    return changed, xi0, eta0, S
