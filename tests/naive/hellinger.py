"""Squared Hellinger distances by summing √(p q) over all values."""

import numpy as np
from scipy import stats


def gaussian(mean, std, other_mean, other_std):
    p, q = stats.norm(mean, std), stats.norm(other_mean, other_std)
    # √(p q) is bell-shaped: equal steps, finer than either deviation, sum it exactly.
    x = np.linspace(
        min(mean - 9 * std, other_mean - 9 * other_std),
        max(mean + 9 * std, other_mean + 9 * other_std),
        20_001,
    )
    return 1 - np.sqrt(p.pdf(x) * q.pdf(x)).sum() * (x[1] - x[0])


def poisson(rate, other_rate):
    counts = np.arange(2000)
    return 1 - np.sqrt(stats.poisson(rate).pmf(counts) * stats.poisson(other_rate).pmf(counts)).sum()


def bernoulli(probability, other):
    return 1 - sum(
        np.sqrt(stats.bernoulli(probability).pmf(x) * stats.bernoulli(other).pmf(x)) for x in (0, 1)
    )
