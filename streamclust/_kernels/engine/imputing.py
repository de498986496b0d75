"""Missing values drawn from a mixture: a component in proportion to its probability, then from its distribution.

Both are given what is known of the row. Each row is drawn by uniform numbers of its own, so the same values come out
however rows are batched.
"""

import math

import numpy as np

from streamclust._kernels.compile import kernel, part
from streamclust._kernels.types import Bools, Floats, Ints

MIN_PIVOT = 1e-12
"""Least conditional variance, as a share of the variance: below it rounding errors would decide."""
MAX_INVERTED_RATE = 500.0
"""Counts of a higher rate are drawn as rounded Gaussians: the search through the Poisson distribution would be long."""


@part
def factor_rows(covariance: Floats, place: Ints, first: int, last: int, factor: Floats) -> None:
    """Rows `first` to `last` of the lower Cholesky factor of a covariance whose features are in the order `place`."""
    for i in range(first, last):
        for j in range(i + 1):
            total = covariance[place[i], place[j]]
            for m in range(j):
                total -= factor[i, m] * factor[j, m]
            if i == j:
                factor[i, i] = math.sqrt(max(total, MIN_PIVOT * covariance[place[i], place[i]], 1e-300))
            else:
                factor[i, j] = total / factor[j, j]


@part
def draw_one(score: Floats, uniform: float) -> int:
    """An index drawn in proportion to exp(score)."""
    most = -np.inf
    for k in range(score.size):
        if score[k] > most:
            most = score[k]
    total = 0.0
    for k in range(score.size):
        total += math.exp(score[k] - most)
    reached = 0.0
    last = 0
    for k in range(score.size):
        if score[k] > -np.inf:
            reached += math.exp(score[k] - most)
            last = k
            if reached > uniform * total:
                break
    return last


@part
def normal(uniform: Floats) -> float:
    """A standard normal number of two uniform ones (Box and Muller)."""
    return math.sqrt(-2.0 * math.log(1.0 - uniform[0])) * math.cos(2.0 * math.pi * uniform[1])


@kernel
def draw_gaussians(
    rows: Floats,
    missing: Bools,
    order: Ints,
    uniform: Floats,
    log_share: Floats,
    mean: Floats,
    covariance: Floats,
    reach: Floats,
    joint: Floats,
) -> None:
    """Draw the missing values of rows, in place, from Gaussian components.

    order    rows to complete; those that lack the same features follow each other, and share factorisations
    uniform  for each row, one pair for the component and one for each feature
    reach    by number of known features, the Mahalanobis distance within which a component predicts: farther rows
             are predicted as if at that distance, since a regression line says nothing of what lies beyond its data
    joint    where it has rows: gets the log probability of each component and of what is known, but for constants
    """
    d, k_all = mean.shape[1], mean.shape[0]
    place = np.empty(d, dtype=np.int64)
    factor = np.zeros((k_all, d, d))
    whole = np.zeros(k_all, dtype=np.bool_)
    log_root = np.zeros(k_all)
    score = np.empty(k_all)
    z = np.empty((k_all, d))
    known = 0
    before = -1
    for at in range(order.size):
        r = order[at]
        same = before >= 0
        for j in range(d):
            if same and missing[r, j] != missing[before, j]:
                same = False
        before = r
        if not same:
            known = 0
            for j in range(d):
                if not missing[r, j]:
                    place[known] = j
                    known += 1
            n = known
            for j in range(d):
                if missing[r, j]:
                    place[n] = j
                    n += 1
            for k in range(k_all):
                factor_rows(covariance[k], place, 0, known, factor[k])
                whole[k] = False
                log_root[k] = 0.0
                for i in range(known):
                    log_root[k] += math.log(factor[k, i, i])
        for k in range(k_all):
            square = 0.0
            for i in range(known):
                gap = rows[r, place[i]] - mean[k, place[i]]
                for m in range(i):
                    gap -= factor[k, i, m] * z[k, m]
                z[k, i] = gap / factor[k, i, i]
                square += z[k, i] * z[k, i]
            score[k] = log_share[k] - log_root[k] - 0.5 * square
            if joint.size > 0:
                joint[r, k] = score[k]
        k = draw_one(score, uniform[r, d, 0])
        if not whole[k]:
            factor_rows(covariance[k], place, known, d, factor[k])
            whole[k] = True
        square = 0.0
        for i in range(known):
            square += z[k, i] * z[k, i]
        within = 1.0
        if square > reach[known] * reach[known]:
            within = reach[known] / math.sqrt(square)
        for i in range(known, d):
            z[k, i] = normal(uniform[r, place[i]])
            value = mean[k, place[i]]
            for m in range(known):
                value += factor[k, i, m] * within * z[k, m]
            for m in range(known, i + 1):
                value += factor[k, i, m] * z[k, m]
            rows[r, place[i]] = value


@part
def poisson(rate: float, uniform: Floats) -> float:
    """A count of the given rate: the least whose cumulated probability exceeds a uniform number."""
    if rate > MAX_INVERTED_RATE:
        return max(0.0, math.floor(rate + math.sqrt(rate) * normal(uniform) + 0.5))
    probability = math.exp(-rate)
    reached = probability
    count = 0.0
    while reached <= uniform[0] and count < 2.0 * MAX_INVERTED_RATE:
        count += 1.0
        probability *= rate / count
        reached += probability
    return count


@kernel
def draw_counts(
    rows: Floats,
    missing: Bools,
    order: Ints,
    uniform: Floats,
    log_share: Floats,
    slope: Floats,
    base: Floats,
    rate: Floats,
    shared: bool,
    binary: bool,
    joint: Floats,
) -> None:
    """Draw the missing counts of rows, in place: Poisson with these rates or, if `binary`, 1 with this probability.

    A component's log probability of what is known is the sum of slope · x + base over known features. With `shared`,
    rates are shares of a total, of which the known features tell: of a multinomial.
    """
    k_all, d = rate.shape
    score, held = np.empty(k_all), np.empty(k_all)
    for at in range(order.size):
        r = order[at]
        total = 0.0
        for j in range(d):
            if not missing[r, j]:
                total += rows[r, j]
        for k in range(k_all):
            score[k] = log_share[k]
            held[k] = 0.0
            for j in range(d):
                if not missing[r, j]:
                    score[k] += slope[k, j] * rows[r, j] + base[k, j]
                    held[k] += rate[k, j]
            if shared:
                score[k] -= total * math.log(max(held[k], 1e-300))
            if joint.size > 0:
                joint[r, k] = score[k]
        k = draw_one(score, uniform[r, d, 0])
        scale = total / max(held[k], 1e-300) if shared else 1.0
        for j in range(d):
            if missing[r, j] and binary:
                rows[r, j] = 1.0 if uniform[r, j, 0] < rate[k, j] else 0.0
            elif missing[r, j]:
                rows[r, j] = poisson(scale * rate[k, j], uniform[r, j])
