"""Costs of merges: energies of unions of rows of statistics.

A row is (energy, weight, statistic (D), scatter). Gaussian rows keep their mean, relative to the prior's, and a
centred scatter: the upper triangle row by row, its diagonal, or its trace. Rows of counts keep their sums.

`prior` is (φ0 or α, ξ0, η0 or a0, smoothing, constant, then B0 in the scatter's form or, for counts, one
parameter per feature and, for Poisson, one rate per feature). RBHC of a Gaussian is -n φ = (n/2) log |S/n + aI|,
the same form as evidence: ξ0 = η0 = 0, B0 = aI, and the scatter over n. `table` holds log Γ where all weights
and counts are whole numbers, and has no columns where they are not.
"""

import math

import numpy as np

from streamclust._kernels.compile import kernel, part, shared_part
from streamclust._kernels.types import Floats, Ints

RBHC, ABC, BHC = 0, 1, 2
SPHERICAL, DIAGONAL, GAUSSIAN, MULTINOMIAL, BERNOULLI, POISSON = 0, 1, 2, 3, 4, 5

ENERGY, WEIGHT, STATISTIC = 0, 1, 2
"""Columns of a row; the scatter follows the statistic."""
MIXING, XI, ETA, SMOOTHING, CONSTANT, SHAPE = 0, 1, 2, 3, 4, 5
"""Places in `prior`; from SHAPE on, what has a shape."""
BY_WEIGHT, BY_COUNT, BY_TOTAL = 0, 1, 2
"""Rows of `table`: the terms in the weight alone, log Γ(prior + count), log Γ(sum of priors + count)."""

LOG_PI = math.log(math.pi)
LEAST_PIVOT = 1e-14
"""A pivot is at least so much of its diagonal entry: rounding can leave less, or less than nothing."""
SMALL, LARGE = 1e-60, 1e60
"""A product of pivots beyond these bounds is taken apart: the next pivot may be a squared value times a weight."""


@part
def full_logs(
    method: int, rows: Floats, slot: int, others: Ints, count: int, prior: Floats, logs: Floats
) -> None:
    """log |B| of the posterior (18) of `slot` with each other, or log |S/n + aI|: one L D Lᵀ each.

    B = B0 + S_a + S_b + (|a||b|/n) δδᵀ + (nξ0/ξ) m mᵀ, with δ = x̄_a - x̄_b and m the union's mean. Nothing
    here depends on the order of a and b. One logarithm of the product of pivots is taken, or more where the
    product would leave the range of numbers.
    """
    width = len(prior) - SHAPE
    d = rows.shape[1] - STATISTIC - width
    base = prior[SHAPE:]
    own, own_scatter = rows[slot, STATISTIC : STATISTIC + d], rows[slot, STATISTIC + d :]
    matrix, delta, mean = np.empty(width), np.empty(d), np.empty(d)
    first = rows[slot, WEIGHT]
    for k in range(count):
        row, scatter = rows[others[k], STATISTIC : STATISTIC + d], rows[others[k], STATISTIC + d :]
        second = rows[others[k], WEIGHT]
        n = first + second
        between = first * second / n if n > 0.0 else 0.0
        scale = 1.0 / n if method == RBHC else 1.0
        shrink = prior[XI] / (prior[XI] + n) / n if prior[XI] > 0.0 and n > 0.0 else 0.0
        for i in range(d):
            delta[i] = row[i] - own[i]
            mean[i] = first * own[i] + second * row[i]
        at = 0
        for i in range(d):
            a, b = between * delta[i], shrink * mean[i]
            for j in range(i, d):
                within = own_scatter[at] + scatter[at] + a * delta[j]
                matrix[at] = base[at] + scale * within + b * mean[j]
                at += 1
        total, product = 0.0, 1.0
        if d == 2:  # the most common case, at half the time
            square = matrix[0] * matrix[2]
            if SMALL < square < LARGE:
                logs[k] = math.log(max(square - matrix[1] * matrix[1], LEAST_PIVOT * square))
                continue
        start = 0
        for j in range(d):
            pivot_row = matrix[start : start + d - j]
            pivot = pivot_row[0]
            start += d - j
            below = start
            for i in range(1, d - j):
                lower = matrix[below : below + d - j - i]
                ratio = pivot_row[i] / pivot
                spare = LEAST_PIVOT * lower[0]
                for c in range(d - j - i):
                    lower[c] -= ratio * pivot_row[i + c]
                lower[0] = max(lower[0], spare)
                below += d - j - i
            product *= pivot
            if product < SMALL or product > LARGE:
                total += math.log(product)
                product = 1.0
        logs[k] = total + math.log(product)


@part
def simple_logs(
    method: int,
    family: int,
    rows: Floats,
    slot: int,
    others: Ints,
    count: int,
    d: int,
    prior: Floats,
    logs: Floats,
) -> None:
    """Log determinants where B is diagonal, Σ_d log B_dd, or one number, log b."""
    scatter = STATISTIC + d
    first = rows[slot, WEIGHT]
    for k in range(count):
        other = others[k]
        second = rows[other, WEIGHT]
        n = first + second
        between = first * second / n if n > 0.0 else 0.0
        scale = 1.0 / n if method == RBHC else 1.0
        shrink = prior[XI] / (prior[XI] + n) / n if prior[XI] > 0.0 and n > 0.0 else 0.0
        total, product = 0.0, 1.0
        spread, offset = rows[slot, scatter] + rows[other, scatter], 0.0
        for i in range(d):
            delta = rows[other, STATISTIC + i] - rows[slot, STATISTIC + i]
            mean = first * rows[slot, STATISTIC + i] + second * rows[other, STATISTIC + i]
            if family == SPHERICAL:
                spread += between * delta * delta
                offset += shrink * mean * mean
                continue
            within = rows[slot, scatter + i] + rows[other, scatter + i] + between * delta * delta
            product *= prior[SHAPE + i] + scale * within + shrink * mean * mean
            if product < SMALL or product > LARGE:
                total += math.log(product)
                product = 1.0
        if family == SPHERICAL:
            product = prior[SHAPE] + spread + offset
        logs[k] = total + math.log(product)


@part
def count_evidence(
    family: int, rows: Floats, slot: int, other: int, d: int, prior: Floats, table: Floats
) -> float:
    """-log_marginal of counts, without `weight_terms`: (39), (45) and the Poisson's, a cluster's part."""
    n = rows[slot, WEIGHT] + rows[other, WEIGHT]
    whole = table.shape[1] > 0
    value, total, priors = 0.0, 0.0, 0.0
    for i in range(d):
        count = rows[slot, STATISTIC + i] + rows[other, STATISTIC + i]
        own = prior[SHAPE + i]
        value -= table[BY_COUNT, int(count + 0.5)] if whole else math.lgamma(own + count)
        if family == MULTINOMIAL:
            total += count
            priors += own
        elif family == BERNOULLI:
            zeros = max(n - count, 0.0)
            value -= table[BY_COUNT, int(zeros + 0.5)] if whole else math.lgamma(own + zeros)
        else:
            value += (own + count) * math.log(prior[SHAPE + d + i] + n)
    if family == MULTINOMIAL:
        value += table[BY_TOTAL, int(total + 0.5)] if whole else math.lgamma(priors + total)
    return value


@part
def count_information(family: int, rows: Floats, slot: int, other: int, d: int, a: float) -> float:
    """-n φ of the union's mean counts, smoothed by `a` [relaxed BHC]."""
    n = rows[slot, WEIGHT] + rows[other, WEIGHT]
    total, words = 0.0, 0.0
    for i in range(d):
        count = rows[slot, STATISTIC + i] + rows[other, STATISTIC + i]
        words += count
        if family == POISSON:
            rate = count / n + a
            total += rate * math.log(rate) - rate
        elif family == BERNOULLI:
            t = (1 - a) * min(count / n, 1.0) + a / 2
            total += t * math.log(t) + (1 - t) * math.log(1 - t)
    if family != MULTINOMIAL:
        return -n * total
    if words > 0.0:
        for i in range(d):
            t = (1 - a) * (rows[slot, STATISTIC + i] + rows[other, STATISTIC + i]) + a * words / d
            total += t * math.log(t / words)
    return -total


@part
def weight_terms(method: int, family: int, n: float, d: int, prior: Floats) -> float:
    """The terms of the energy that the weight alone decides: mixing, and the Γ's of Gaussian evidence.

    Mixing is -log Γ(φ0+n) + log Γ(φ0) for ABC (19), -log α Γ(n) for BHC, where less than one event counts
    as one: -log Γ(n) falls to -∞ as n goes to 0 (erratum 5).
    """
    total = prior[CONSTANT]
    if method == ABC:
        total += math.lgamma(prior[MIXING]) - math.lgamma(prior[MIXING] + n)
    else:
        total -= math.log(prior[MIXING]) + math.lgamma(max(n, 1.0))
    if family < MULTINOMIAL:
        total += d / 2 * (n * LOG_PI + math.log(prior[XI] + n))
        if family == GAUSSIAN:
            for k in range(d):
                total -= math.lgamma((prior[ETA] + n - k) / 2)
        elif family == DIAGONAL:
            total -= d * math.lgamma((prior[ETA] + n) / 2)
        else:
            total -= math.lgamma(prior[ETA] + n * d / 2)
    elif family == BERNOULLI:
        for k in range(d):
            total += math.lgamma(2 * prior[SHAPE + k] + n)
    return total


@part
def ward_costs(rows: Floats, slot: int, others: Ints, count: int, d: int, costs: Floats) -> None:
    """½ |a||b|/(|a|+|b|) ‖x̄_a - x̄_b‖²: as a difference of energies it would lose digits."""
    for k in range(count):
        other = others[k]
        squares = 0.0
        for i in range(STATISTIC, STATISTIC + d):
            deviation = rows[other, i] - rows[slot, i]
            squares += deviation * deviation
        first, second = rows[slot, WEIGHT], rows[other, WEIGHT]
        costs[k] = np.inf if other == slot else 0.5 * first * second / (first + second) * squares


@shared_part
def union_costs(
    method: int,
    family: int,
    rows: Floats,
    d: int,
    prior: Floats,
    table: Floats,
    slot: int,
    others: Ints,
    count: int,
    costs: Floats,
) -> None:
    """E(a ∪ b) - E(a) - E(b) of `slot` with each other, E(a ∪ b) being that of one cluster; +∞ with itself."""
    if family == SPHERICAL and method == RBHC:
        ward_costs(rows, slot, others, count, d, costs)
        return
    if family == GAUSSIAN:
        full_logs(method, rows, slot, others, count, prior, costs)
    elif family < GAUSSIAN:
        simple_logs(method, family, rows, slot, others, count, d, prior, costs)
    for k in range(count):
        other = others[k]
        if other == slot:  # twice a row may be more than the tables hold
            costs[k] = np.inf
            continue
        n = rows[slot, WEIGHT] + rows[other, WEIGHT]
        if family == SPHERICAL:
            value = (prior[ETA] + n * d / 2) * costs[k]
        elif family <= GAUSSIAN:
            value = (prior[ETA] + n) / 2 * costs[k]
        elif method == RBHC:
            value = count_information(family, rows, slot, other, d, prior[SMOOTHING])
        else:
            value = count_evidence(family, rows, slot, other, d, prior, table)
        if table.shape[1] > 0:
            value += table[BY_WEIGHT, int(n + 0.5)]
        elif method != RBHC:
            value += weight_terms(method, family, n, d, prior)
        costs[k] = value - (rows[slot, ENERGY] + rows[other, ENERGY])


@shared_part
def unite(method: int, family: int, rows: Floats, a: int, b: int, d: int, cost: float) -> None:
    """Row a becomes the union of a and b, which costs `cost` [Chan, Golub & LeVeque 1979].

    BHC's energy is that of both hypotheses together: one cluster, or the two subtrees.
    """
    rows[a, ENERGY] += rows[b, ENERGY] + cost
    if method == BHC:
        rows[a, ENERGY] -= max(cost, 0.0) + math.log1p(math.exp(-abs(cost)))
    first, second = rows[a, WEIGHT], rows[b, WEIGHT]
    rows[a, WEIGHT] = first + second
    for i in range(STATISTIC + d, rows.shape[1]):
        rows[a, i] += rows[b, i]
    share = second / (first + second)
    factor = first * share
    at = STATISTIC + d
    for i in range(STATISTIC, STATISTIC + d):
        if family > GAUSSIAN:
            rows[a, i] += rows[b, i]
            continue
        deviation = rows[b, i] - rows[a, i]
        if family == GAUSSIAN:
            for j in range(i, STATISTIC + d):  # means after this one are still a's own
                rows[a, at] += factor * deviation * (rows[b, j] - rows[a, j])
                at += 1
        else:
            rows[a, at] += factor * deviation * deviation
            at += 1 if family == DIAGONAL else 0
        rows[a, i] += share * deviation


@kernel
def price(
    method: int,
    family: int,
    rows: Floats,
    d: int,
    prior: Floats,
    table: Floats,
    slot: int,
    taken: int,
    others: Ints,
    count: int,
    costs: Floats,
) -> None:
    """Costs of merging `slot` with each of the first `count` others.

    First, if `taken` is not negative, that row is merged into the slot. Every search goes through here:
    whoever else called the costs would compile all of them once more.
    """
    if taken >= 0:
        pair, cost = np.full(1, taken), np.empty(1)
        union_costs(method, family, rows, d, prior, table, slot, pair, 1, cost)
        unite(method, family, rows, slot, taken, d, cost[0])
    union_costs(method, family, rows, d, prior, table, slot, others, count, costs)


@kernel
def fill_table(method: int, family: int, d: int, prior: Floats, table: Floats) -> None:
    """log Γ of everything that whole numbers of events or counts can ask for."""
    priors = 0.0
    if family >= MULTINOMIAL:
        for k in range(d):
            priors += prior[SHAPE + k]
    for n in range(table.shape[1]):
        table[BY_WEIGHT, n] = weight_terms(method, family, float(n), d, prior)
        if family >= MULTINOMIAL:
            table[BY_COUNT, n] = math.lgamma(prior[SHAPE] + n)
            table[BY_TOTAL, n] = math.lgamma(priors + n)
