"""How finely a feature tells values apart, from how often values are equal."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats, Ints

MIN_BLUR_DEVIATIONS = 1e-4
"""The least blur of a feature, in its standard deviations."""
NEIGHBOUR_VALUES, NEIGHBOUR_EVENTS = 3, 16
"""Distinct values on either side, and events, over which the density beside a value is taken, at least: of three
events its error would be of its own size, and the blur of an atom would change from refit to refit."""


def blur_of(points: Floats, weight: Floats, variance: Floats) -> Floats:
    """(D,): the variance within what each feature cannot tell apart, of an event on average.

    Two events of a continuous feature are never equal. A value that a share p of the events has stands for a step of
    width p/f, where f is the density beside it: the step of values that were rounded, whatever their distribution,
    and a wide one where many events have a value that few others come near. Its variance is p²/(12 f²), and at most p²
    times the feature's: a cluster of events that all have this value then gains log 1/p for each, what the value tells.

    >>> rng = np.random.default_rng(0)
    >>> x = np.round(rng.normal(size=(20000, 1)) + 1000 * rng.integers(2, size=(20000, 1)), 1)
    >>> blur = blur_of(x, np.ones(20000), x.var(axis=0))
    >>> float(np.sqrt(12 * (blur[0] - MIN_BLUR_DEVIATIONS**2 * x.var())).round(1))
    0.1
    """
    steps = [
        step_variance(column, weight, float(most)) for column, most in zip(points.T, variance, strict=True)
    ]
    return np.asarray(steps) + MIN_BLUR_DEVIATIONS**2 * variance


def n_distinct_rows(points: Floats) -> int:
    """Number of distinct rows.

    >>> n_distinct_rows(np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 1.0]]))
    2
    """
    if any(len(np.unique(column)) == len(points) for column in points.T):  # the usual case, and quickly seen
        return len(points)
    return len(np.unique(points, axis=0))


def n_independent_rows(points: Floats) -> int:
    """Number of rows that are evidence of their own: distinct ones where events are repeated, else all.

    Events that are repeated, and draws from a catalogue, tie in several features at once: two features alone have about
    as many values each as there are distinct rows. Rounded values tie in one feature and differ in another.

    >>> rng = np.random.default_rng(0)
    >>> n_independent_rows(np.repeat(rng.normal(size=(50, 2)), 4, axis=0))
    50
    >>> n_independent_rows(rng.integers(9, size=(200, 2)))
    200
    """
    distinct = n_distinct_rows(points)
    if distinct == len(points) or points.shape[1] < 2:
        return len(points)
    second_most = sorted(len(np.unique(column)) for column in points.T)[-2]
    return distinct if 2 * second_most >= distinct else len(points)


def step_variance(values: Floats, weight: Floats, variance: float) -> float:
    """The mean over events of the variance within the step that an event's value stands for.

    >>> step_variance(np.array([1.0, 2.0, 3.0]), np.ones(3), 1.0)
    0.0
    >>> step_variance(np.repeat([0.0, 1.0], 1000), np.ones(2000), 0.25) < 0.25**2
    True
    """
    ordered = np.sort(values)
    if np.all(ordered[1:] != ordered[:-1]):  # a continuous feature
        return 0.0
    order = np.argsort(values, kind="stable")
    ordered, w = values[order], weight[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    value, total, count = ordered[first], np.add.reduceat(w, first), np.diff(np.append(first, len(ordered)))
    n = float(total.sum())
    # the share of the others that have an event's value: with itself, no two events would differ enough
    share = np.maximum(total - np.add.reduceat(w**2, first) / total, 0.0) / n
    if len(value) == 1:
        return float(share[0]) ** 2 * variance
    above = spacing(value, total / n, count)
    below = spacing(-value[::-1], total[::-1] / n, count[::-1])[::-1]
    # A value of one event stands for no step, though it may be infinitely far from the others.
    shared = share > 0
    step = share[shared] * np.minimum(above, below)[shared]
    return float(total[shared] @ np.minimum(step**2 / 12, share[shared] ** 2 * variance)) / n


def spacing(value: Floats, share: Floats, count: Ints) -> Floats:
    """One over the density above each of some sorted values; +∞ above the last, and where the next weigh nothing.

    share  of the weight that has the value
    count  of the events that have it

    >>> spacing(np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.25, 0.25]), np.array([2, 1, 1]))
    array([ 4.,  4., inf])
    """
    last = len(value) - 1
    events = np.cumsum(count)
    enough = np.searchsorted(events, events + NEIGHBOUR_EVENTS)
    there = np.minimum(np.maximum(enough, np.arange(len(value)) + NEIGHBOUR_VALUES), last)
    # summed from the other end: what lies above a value that most events have would cancel
    beyond = np.append(np.cumsum(share[:0:-1])[::-1], 0.0)
    held = beyond - beyond[there]
    held[last] = 1.0
    distance = value[there] - value
    distance[last] = np.inf
    return np.asarray(np.divide(distance, held, out=np.full(len(held), np.inf), where=held > 0))
