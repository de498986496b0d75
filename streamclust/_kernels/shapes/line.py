"""Events of two components along the line that tells the two apart: who owns them, and their histograms."""

import numpy as np

from streamclust._kernels.blocks import BLOCK, block_distances
from streamclust._kernels.compile import kernel, part
from streamclust._kernels.types import Floats, Ints

BINS = 60
"""Bins of a histogram along the line."""
FINE = 240
"""Bins that narrow gaps are looked for in."""
MARGIN = 0.25
"""The histogram covers the inner 96% of the events, and so much of their range on either side."""
SPAN = 1.0 + 2 * MARGIN
"""The histogram's range, in units of the range of the inner 96%."""
NUDGE = 1e-9
"""Of the histogram's range, by which events are moved: those at a quantile lie, but for rounding, on a bin's edge."""
BUCKETS = 128
"""Into which numbers are put to find their quantiles."""
TAIL = 0.02
"""The share of the events beyond the inner range, on either side."""


@kernel
def best_two(columns: Floats, centre: Floats, root: Floats, offset: Floats) -> tuple[Ints, Ints]:
    """The two components of least offset + ‖root (x - centre)‖² for each point, the first of equals; -1 for none.

    Points come transposed, one row per feature; roots are lower triangular.
    """
    d, n = columns.shape
    first, second = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    least, next_least = np.empty(n), np.empty(n)
    for p in range(n):
        first[p], second[p], least[p], next_least[p] = -1, -1, np.inf, np.inf
    y, z, distance = np.empty((d, BLOCK)), np.empty((4, BLOCK)), np.empty(BLOCK)
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        for c in range(offset.size):
            block_distances(columns, start, size, centre[c], root[c], y, z, distance)
            for b in range(size):
                cost, p = offset[c] + distance[b], start + b
                if cost < next_least[p]:
                    if cost < least[p]:
                        next_least[p], second[p] = least[p], first[p]
                        least[p], first[p] = cost, c
                    else:
                        next_least[p], second[p] = cost, c
    return first, second


@part
def inner_range(t: Floats, weight: Floats) -> tuple[float, float]:
    """The TAIL and 1 - TAIL quantiles of weighted numbers; the whole range where the two are equal."""
    total, least, most = 0.0, np.inf, -np.inf
    for e in range(t.size):
        total += weight[e]
        least = min(least, t[e])
        most = max(most, t[e])
    if not most > least:
        return least, most
    mass = np.zeros(BUCKETS)
    scale = BUCKETS / (most - least)
    for e in range(t.size):
        mass[min(int((t[e] - least) * scale), BUCKETS - 1)] += weight[e]
    low = quantile(t, weight, mass, least, scale, TAIL * total)
    high = quantile(t, weight, mass, least, scale, (1 - TAIL) * total)
    return (low, high) if high > low else (least, most)


@part
def quantile(t: Floats, weight: Floats, mass: Floats, least: float, scale: float, wanted: float) -> float:
    """The first of weighted numbers in ascending order at which they weigh as much as is wanted.

    Only those of one bucket are sorted. Buckets divide the range, from `least` on, evenly; `mass` is what they weigh.
    """
    bucket, below = 0, 0.0
    while bucket < BUCKETS - 1 and below + mass[bucket] < wanted:
        below += mass[bucket]
        bucket += 1
    inside, size = np.empty(t.size, dtype=np.int64), 0
    for e in range(t.size):
        if min(int((t[e] - least) * scale), BUCKETS - 1) == bucket:
            inside[size] = e
            size += 1
    values = np.empty(size)
    for k in range(size):
        values[k] = t[inside[k]]
    order = sorted_order(values)
    for k in order:
        below += weight[inside[k]]
        if below >= wanted:
            return values[k]
    return values[order[size - 1]]


@part
def sorted_order(values: Floats) -> Ints:
    """The places of numbers in ascending order, equal ones as they stand: merge sort, of ever longer runs.

    (`np.argsort` takes as long to compile as all the rest of a kernel here.)
    """
    n = values.size
    order, merged = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for i in range(n):
        order[i] = i
    width = 1
    while width < n:
        for start in range(0, n, 2 * width):
            middle, end = min(start + width, n), min(start + 2 * width, n)
            i, j = start, middle
            for place in range(start, end):
                if i < middle and (j >= end or values[order[i]] <= values[order[j]]):
                    merged[place] = order[i]
                    i += 1
                else:
                    merged[place] = order[j]
                    j += 1
        order, merged = merged, order
        width *= 2
    return order


@part
def histograms(
    points: Floats, weight: Floats, owned_i: Ints, owned_j: Ints, origin: Floats, direction: Floats
) -> tuple[Floats, Floats, float, float]:
    """Events of components i and j along t = direction · (x - origin), which is 0 at i's mean and 1 at j's.

    Their weights are scaled to total their Kish size. Returns a histogram for each of the two (2, BINS), one of both
    in FINE bins, and the places of the two means in fine bins. All zeros where every event is at one place.
    """
    n_i = owned_i.size
    n = n_i + owned_j.size
    t = np.empty(n)
    w = np.empty(n)
    total = 0.0
    squares = 0.0
    for e in range(n):
        p = owned_i[e] if e < n_i else owned_j[e - n_i]
        place = 0.0
        for f in range(direction.size):
            place += direction[f] * (points[p, f] - origin[f])
        t[e] = place
        w[e] = weight[p]
        total += w[e]
        squares += w[e] * w[e]
    low, high = inner_range(t, w)
    coarse = np.zeros((2, BINS))
    fine = np.zeros(FINE)
    if not high > low:
        return coarse, fine, 0.0, 0.0
    scale = total / squares
    for e in range(n):
        y = ((t[e] - low) / (high - low) + MARGIN) / SPAN + NUDGE
        if 0.0 <= y <= 1.0:
            coarse[0 if e < n_i else 1, min(int(y * BINS), BINS - 1)] += w[e] * scale
            fine[min(int(y * FINE), FINE - 1)] += w[e] * scale
    at_i = ((0.0 - low) / (high - low) + MARGIN) / SPAN * FINE
    at_j = ((1.0 - low) / (high - low) + MARGIN) / SPAN * FINE
    return coarse, fine, at_i, at_j
