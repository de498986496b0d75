"""The closest pairs of a set of points."""

import numpy as np

from streamclust._kernels.compile import kernel, part
from streamclust._kernels.types import Floats, Ints

BLOCK = 128
"""Points looked at together."""
SCREENED = 4
"""Features after which, again and again, a block whose points are all too far already is left."""


@kernel
def closest_neighbours(columns: Floats, cases: Ints, count: int) -> Floats:
    """Squared distances of the `count` closest pairs of a case and its nearest neighbour, ascending.

    Points are columns (one row per feature), sorted by the first feature. Each case looks to both sides of itself,
    no farther than its nearest so far, or than the farthest of the pairs kept: only a closer one would count.
    Two cases that are each other's neighbours are one pair.
    """
    n = columns.shape[1]
    count = min(count, cases.size)
    kept = np.full(count, np.inf)
    low, high = np.full(count, -1), np.full(count, -1)
    squared = np.empty(BLOCK)
    found = 0
    for case in cases:
        nearest, neighbour = kept[count - 1], -1
        start = case + 1
        while start < n and (columns[0, start] - columns[0, case]) ** 2 <= nearest:
            stop = min(start + BLOCK, n)
            nearest, neighbour = _nearest_of(columns, case, start, stop, squared, nearest, neighbour)
            start = stop
        stop = case
        while stop > 0 and (columns[0, stop - 1] - columns[0, case]) ** 2 <= nearest:
            start = max(stop - BLOCK, 0)
            nearest, neighbour = _nearest_of(columns, case, start, stop, squared, nearest, neighbour)
            stop = start
        first, second = min(case, neighbour), max(case, neighbour)
        known = neighbour < 0
        for k in range(found):
            known = known or (low[k] == first and high[k] == second)
        if known:
            continue
        place = min(found, count - 1)
        while place > 0 and kept[place - 1] > nearest:
            kept[place], low[place], high[place] = kept[place - 1], low[place - 1], high[place - 1]
            place -= 1
        if nearest < kept[place]:
            kept[place], low[place], high[place] = nearest, first, second
            found = min(found + 1, count)
    return kept[:found]


@part
def _nearest_of(
    columns: Floats, case: int, start: int, stop: int, squared: Floats, nearest: float, neighbour: int
) -> tuple[float, int]:
    """The nearest of the points start..stop to the case, if nearer than the nearest so far."""
    size = stop - start
    for b in range(size):
        squared[b] = 0.0
    for j in range(len(columns)):
        x, feature = columns[j, case], columns[j, start:stop]
        for b in range(size):
            squared[b] += (feature[b] - x) * (feature[b] - x)
        if j % SCREENED == SCREENED - 1:
            near = 0
            for b in range(size):
                near += int(squared[b] <= nearest)
            if near == 0:
                return nearest, neighbour
    for b in range(size):
        if squared[b] < nearest or (squared[b] == nearest and neighbour < 0):
            nearest, neighbour = squared[b], start + b
    return nearest, neighbour
