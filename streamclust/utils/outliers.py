"""Values far from all others: they tell nothing of how the others vary, and must not decide a feature's scale.

Of one value in a million that is a billion deviations off, nearly all of the variance comes. A scale of half of the
values does not see it.
"""

from __future__ import annotations

import math

import numpy as np

from streamclust._kernels.types import Bools, Floats

FAR_DEVIATIONS = 1e3
"""Robust deviations from the middle of its feature beyond which a value is far. Fewer would take tails of skew features
for outliers; more would let one value in a thousand widen the deviation by more than clusters lie apart."""
MAX_FAR_SHARE = 0.125
"""Where a larger share of the values is far, the feature varies at two scales, and none of them is an outlier."""
NORMAL_SHORTEST_HALF = 1.349
"""Length of the shortest interval that holds half of a normal distribution, in its deviations."""
ROUNDING = 1e-9
"""Relative error of a sum of weights."""
SLACK = 1e-6
"""Relative slack of a rough test, well above what its sums and quotients are rounded by."""
MIN_ROWS = 32
"""Of fewer rows none is called far: half of them tell too little of a scale."""
MIN_GROUP_ROWS = 5
"""Far values, none of them far from the next, that are a group and may be a cluster; fewer are outliers."""


def middle_and_unit(values: Floats, weight: Floats | None = None) -> tuple[float, float]:
    """Middle of the shortest interval that holds half of the weight of sorted values, and the deviation it would be of.

    Where half of the weight is at one value: that value, and the median distance of the others from it; 0 if there are
    none.

    >>> middle_and_unit(np.array([0.0, 1.0, 2.0, 3.0, 1e9]))[0]
    1.0
    >>> middle_and_unit(np.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0]))
    (0.0, 2.0)
    """
    n = len(values)
    if weight is None:
        last = np.arange(n) + max(math.ceil((0.5 - ROUNDING) * n), 1) - 1
    else:
        reached = np.cumsum(weight)
        last = np.searchsorted(reached, np.append(0.0, reached[:-1]) + (0.5 - ROUNDING) * reached[-1])
    first = np.flatnonzero(last < len(values))
    width = values[last[first]] - values[first]
    start = int(first[np.argmin(width)])
    low, high = float(values[start]), float(values[last[start]])
    if high > low:
        return low / 2 + high / 2, (high - low) / NORMAL_SHORTEST_HALF
    others = np.abs(values[values != low] - low)
    return low, float(np.median(others)) if len(others) else 0.0


def none_is_far(values: Floats, mass: Floats) -> bool:
    """Whether no value is far, as is mostly seen without sorting them.

    None is if half of the weight needs more than so small a part of the range that the farthest value is within reach.

    >>> even = np.linspace(0.0, 1.0, 100)
    >>> none_is_far(even, np.ones(100)), none_is_far(np.append(even, 1e6), np.ones(101))
    (True, False)
    """
    low = float(values.min())
    width = (float(values.max()) - low) * (1.0 + SLACK) * NORMAL_SHORTEST_HALF / FAR_DEVIATIONS
    if not 0.0 < width < np.inf:
        return False
    held = np.bincount(((values - low) / width).astype(np.int64), mass)
    return bool((held[1:] + held[:-1]).max() < (0.5 - SLACK) * held.sum())


def far_reach(values: Floats, weight: Floats | None = None) -> tuple[float, float] | None:
    """Middle of a feature, and the distance beyond which values are far; None where none is, or too many are.

    A feature that is constant but for a few values is known by its size alone.

    >>> far_reach(np.append(np.ones(99), 1e9)), far_reach(np.append(np.zeros(99), 1e9))
    ((1.0, 1000.0), None)
    """
    known = ~np.isnan(values)
    if weight is not None:
        known &= weight > 0
    values = values[known]
    given = None if weight is None else weight[known]
    if len(values) < MIN_ROWS or none_is_far(values, np.ones(len(values)) if given is None else given):
        return None
    ordered, mass = sorted_with(values, given)
    middle, unit = middle_and_unit(ordered, mass)
    if middle != 0.0 and np.count_nonzero(ordered != middle) < MIN_GROUP_ROWS:
        unit = min(unit, abs(middle))
    reach = FAR_DEVIATIONS * unit
    far = np.abs(ordered - middle) > reach
    # of few rows that weigh much, or of many that weigh little
    share = float(np.mean(far))
    if mass is not None:
        share = min(share, float(mass @ far / mass.sum()))
    return (middle, reach) if unit > 0.0 and 0.0 < share <= MAX_FAR_SHARE else None


def sorted_with(values: Floats, weight: Floats | None) -> tuple[Floats, Floats | None]:
    """Sorted values with their weights; None for equal weights: to sort an index takes much longer."""
    if weight is None or np.ptp(weight) == 0:
        return np.sort(values), None
    order = np.argsort(values, kind="stable")
    return values[order], weight[order]


def far_values(points: Floats, weight: Floats | None = None) -> Bools:
    """(n, D): which values are far; missing ones (NaN) are not.

    >>> x = np.random.default_rng(0).normal(size=(100, 2))
    >>> x[3, 1] = 1e9
    >>> np.argwhere(far_values(x))
    array([[3, 1]])
    """
    found = np.zeros(points.shape, dtype=bool)
    for j in range(points.shape[1]):
        if limits := far_reach(points[:, j], weight):
            found[:, j] = np.abs(points[:, j] - limits[0]) > limits[1]
    return found


def outlying(points: Floats, weight: Floats | None = None) -> Bools:
    """(n,): which rows have a far value, and too few others near it to be a cluster.

    >>> x = np.random.default_rng(0).normal(size=(200, 1))
    >>> x[:3] += 1e9
    >>> x[3:13] -= 1e9
    >>> np.flatnonzero(outlying(x))
    array([0, 1, 2])
    """
    found = np.zeros(len(points), dtype=bool)
    for column in points.T:
        if limits := far_reach(column, weight):
            rows = np.flatnonzero(np.abs(column - limits[0]) > limits[1])
            rows = rows[np.argsort(column[rows], kind="stable")]
            group = np.cumsum(np.append(0, np.diff(column[rows]) > limits[1]))
            found[rows[np.bincount(group)[group] < MIN_GROUP_ROWS]] = True
    return found


def near_variance(points: Floats, weight: Floats, variance: Floats) -> Floats:
    """(D,): a given variance of each feature or, where some values are far, that of the others.

    >>> x = np.append(np.random.default_rng(0).normal(size=99), 1e9)[:, None]
    >>> bool(near_variance(x, np.ones(100), x.var(axis=0)) < 2.0)
    True
    """
    far = far_values(points, weight)
    found = np.array(variance, dtype=float)
    for j in np.flatnonzero(far.any(axis=0)):
        x, w = points[~far[:, j], j], weight[~far[:, j]]
        if w.sum() > 0:
            gaps = x - x[0]
            gaps = gaps - w @ gaps / w.sum()
            found[j] = w @ gaps**2 / w.sum()
    return found
