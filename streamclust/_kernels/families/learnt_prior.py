"""A normal-Wishart prior θ = (ξ0, η0, B0 = η0 S) learnt from clusters by their evidence: rounds of EM for ξ0 and S.

A search learns it anew after every few iterations: array operations would spend it all on calls.
"""

import math

import numpy as np

from streamclust._kernels.compile import kernel, part, shared_part
from streamclust._kernels.families.evidence import eta_of_most_evidence
from streamclust._kernels.families.normal_wishart import learn, log_marginal, log_marginal_prior, update
from streamclust._kernels.types import Floats

ROUNDING = 1e-12
"""A loss that is lower by a smaller share of it is not lower."""


@shared_part
def inverse_factor(matrix: Floats, least: float, factor: Floats, inverse: Floats) -> float:
    """L⁻¹ of matrix = L Lᵀ, whose lower half is read, and log |matrix|; -∞ where a pivot is not above `least`."""
    d = len(matrix)
    log_det = 0.0
    for i in range(d):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if j < i:
                factor[i, j] = total / factor[j, j]
            else:
                if not total > least:
                    return -math.inf
                factor[i, i] = math.sqrt(total)
                log_det += math.log(total)
    for i in range(d):
        for j in range(d):
            inverse[i, j] = 0.0
        inverse[i, i] = 1.0
        for k in range(i):
            for j in range(k + 1):
                inverse[i, j] -= factor[i, k] * inverse[k, j]
        for j in range(i + 1):
            inverse[i, j] /= factor[i, i]
    return log_det


@part
def congruent(root: Floats, lower: Floats, half: Floats, out: Floats) -> None:
    """The lower half of R A Rᵀ, for lower triangular R and the lower half of a symmetric A."""
    d = len(root)
    for i in range(d):
        for j in range(d):
            half[i, j] = 0.0
        for k in range(i + 1):
            r = root[i, k]
            for j in range(k + 1):
                half[i, j] += r * lower[k, j]
            for j in range(k + 1, d):
                half[i, j] += r * lower[j, k]
        for j in range(i + 1):
            total = 0.0
            for k in range(j + 1):
                total += half[i, k] * root[j, k]
            out[i, j] = total


@part
def tridiagonalise(a: Floats, diagonal: Floats, off: Floats, e: Floats) -> None:
    """Householder's reduction of a symmetric matrix (lower half, overwritten): diagonal and squared off-diagonals."""
    d = len(a)
    off[0] = 0.0
    for i in range(d - 1, 0, -1):
        row = a[i]
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
        for j in range(i):
            e[j] = 0.0
        for j in range(i):  # e = A v, from the lower half
            total = 0.0
            for k in range(j):
                total += a[j, k] * row[k]
                e[k] += a[j, k] * row[j]
            e[j] += total + a[j, j] * row[j]
        f = 0.0
        for j in range(i):
            e[j] /= h
            f += e[j] * row[j]
        f /= 2 * h
        for j in range(i):
            e[j] -= f * row[j]
            for k in range(j + 1):
                a[j, k] -= row[j] * e[k] + e[j] * row[k]
    for i in range(d):
        diagonal[i] = a[i, i]


@part
def loss_of(
    weight: Floats, mean: Floats, scatter: Floats, xi0: float, m0: Floats, eta0: float, S: Floats, blur: Floats,
    cost: float, B0: Floats, m: Floats, B: Floats, factor: Floats, column: Floats,
) -> float:  # fmt: skip
    """-log p(clusters | θ), and `cost`."""
    d = len(m0)
    for i in range(d):
        for j in range(d):
            B0[i, j] = eta0 * S[i, j]
    prior = log_marginal_prior(eta0, B0, factor, column)
    total = cost
    for c in range(len(weight)):
        total -= log_marginal(
            weight[c], mean[c], scatter[c], xi0, m0, eta0, B0, blur, prior, m, B, factor, column
        )
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
    m, e, column = np.empty(d), np.empty(d), np.empty(d)
    B0, B, W, factor = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    root, half, tried, none = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.zeros((d, d))
    precision, stepped, relative = np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
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
    lowest = loss_of(weight, mean, scatter, xi0, m0, eta0, S, blur, cost, B0, m, B, factor, column)
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
            xi, _, _ = learn(n, mean[c], scatter[c], xi0, m0, eta0, B0, blur, m, B, W, factor, column)
            pace += n / eta
            spread += d / xi
            for i in range(d):
                between = 0.0
                for j in range(i + 1):
                    between += W[i, j] * (m[j] - m0[j])
                    step = eta * W[i, j]
                    for b in range(j + 1):
                        precision[j, b] += step * W[i, b]
                spread += eta * between * between
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
                for c in range(k):
                    update(weight[c], mean[c], scatter[c], new_xi, m0, none, blur, m, B)
                    congruent(root, B, half, W)
                    tridiagonalise(W, ratio[c], off[c], e)
                new_eta = eta_of_most_evidence(
                    least_eta, most_eta, weight, ratio, off, shifts, 1.0, 1.0, float(d)
                )
                cost = strength / 2 * (trace - log_det - d)
                loss = loss_of(
                    weight, mean, scatter, new_xi, m0, new_eta, tried, blur, cost, B0, m, B, factor, column
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
