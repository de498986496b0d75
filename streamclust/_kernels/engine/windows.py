"""Events of a window in the cells of a model, and whether two windows differ."""

import math

import numpy as np

from streamclust._kernels.compile import kernel, part
from streamclust._kernels.engine.assign import assign_points
from streamclust._kernels.types import Floats, Ints

ORDINARY_DEVIATIONS = 3.0
"""A χ² statistic no farther above its expectation, in standard deviations, has a p-value of at least .001."""


@part
def whiten(point: Floats, centre: Floats, root: Floats, out: Floats) -> None:
    """√2 root (point - centre), for a lower triangular root with zeros above; four sums at a time."""
    d = len(point)
    unit = np.sqrt(2.0)
    for i in range(0, d, 4):
        end = min(i + 4, d)
        a, b, c, e = root[i], root[min(i + 1, d - 1)], root[min(i + 2, d - 1)], root[min(i + 3, d - 1)]
        p, q, r, s = 0.0, 0.0, 0.0, 0.0
        for j in range(end):
            gap = point[j] - centre[j]
            p += a[j] * gap
            q += b[j] * gap
            r += c[j] * gap
            s += e[j] * gap
        out[i] = unit * p
        if i + 1 < d:
            out[i + 1] = unit * q
        if i + 2 < d:
            out[i + 2] = unit * r
        if i + 3 < d:
            out[i + 3] = unit * s


@kernel
def see_points(
    points: Floats,
    vector: Floats,
    root: Floats,
    offset: Floats,
    directions: Floats,
    within: float,
    cell: Ints,
    whitened: Floats,
) -> None:
    """The cluster of least cost of each point, and its deviation from the mean in the cluster's own units.

    A point beyond `within` (half a squared Mahalanobis distance) of every cluster is in a cell of its own, the last.
    """
    n = len(points)
    cost, nearest = np.empty(n), np.empty(n)
    assign_points(points, vector, root, offset, directions, cell, cost, nearest)
    for p in range(n):
        c = cell[p]
        inside = nearest[p] <= within
        if not inside:
            cell[p] = offset.size
            whitened[p] = 0.0
        else:
            whiten(points[p], vector[c], root[c], whitened[p])


@kernel
def block_sums(cell: Ints, whitened: Floats, weight: Floats, n_cells: int, size: int) -> Floats:
    """Sums over blocks of `size` events, the newest block (the last events) first: (blocks, cells, 2 + 2D).

    Each holds Σw, Σw² and, for each feature, Σwy and Σwy².
    """
    n, d = whitened.shape
    blocks = n // size
    sums = np.zeros((blocks, n_cells, 2 + 2 * d))
    for p in range(n - blocks * size, n):
        row = sums[(n - 1 - p) // size, cell[p]]
        w = weight[p]
        row[0] += w
        row[1] += w * w
        for i in range(d):
            wy = w * whitened[p, i]
            row[2 + i] += wy
            row[2 + d + i] += wy * whitened[p, i]
    return sums


@kernel
def mean_statistics(new: Floats, old: Floats, fewest: float) -> Floats:
    """How far the means of two windows lie apart in all cells of at least `fewest` events in both: χ² statistics.

    Windows are cells x sums, as in `block_sums`; the last cell has no mean. Weights count by their effective
    number [Kish]. Returns the sum of the statistics, the largest of one cell, and the number of cells.
    """
    n_cells, width = new.shape
    d = (width - 2) // 2
    result = np.zeros(3)
    for c in range(n_cells - 1):
        if not (new[c, 1] > 0.0 and old[c, 1] > 0.0):
            continue
        a, b = new[c, 0] * new[c, 0] / new[c, 1], old[c, 0] * old[c, 0] / old[c, 1]
        if a < fewest or b < fewest:
            continue
        statistic = 0.0
        for i in range(d):
            m, o = new[c, 2 + i] / new[c, 0], old[c, 2 + i] / old[c, 0]
            inner = new[c, 2 + d + i] / new[c, 0] - m * m
            outer = old[c, 2 + d + i] / old[c, 0] - o * o
            variance = max(1.0, (a * inner + b * outer) / (a + b))
            statistic += a * b / (a + b) * (m - o) ** 2 / variance
        result[0] += statistic
        result[1] = max(result[1], statistic)
        result[2] += 1.0
    return result


@kernel
def ladder_statistics(blocks: Floats, fewest: float) -> Floats:
    """`mean_statistics` of the newest 1, 2, 4, ... blocks against as many before them, one row each.

    Blocks are those of `block_sums`, the newest first.
    """
    n, n_cells, width = blocks.shape
    rungs = 0
    while 2 << rungs <= n:
        rungs += 1
    found = np.empty((rungs, 3))
    new, old = np.zeros((n_cells, width)), np.zeros((n_cells, width))
    end = 0
    for r in range(-1, rungs):  # in round -1 the newest block alone becomes `new`
        start, end = end, 1 << (r + 1)
        for c in range(n_cells):
            for i in range(width):
                old[c, i] = 0.0
                for b in range(start, end):
                    old[c, i] += blocks[b, c, i]
        if r >= 0:
            statistics = mean_statistics(new, old, fewest)
            for j in range(3):
                found[r, j] = statistics[j]
        for c in range(n_cells):
            for i in range(width):
                new[c, i] += old[c, i]
    return found


@kernel
def fit_statistics(window: Floats, fewest: float) -> Floats:
    """`mean_statistics` of a window against an endless one that fits the model exactly."""
    n_cells, width = window.shape
    d = (width - 2) // 2
    ideal = np.zeros((n_cells, width))
    for c in range(n_cells):
        ideal[c, 0] = ideal[c, 1] = 1e9
        for i in range(d):
            ideal[c, 2 + d + i] = 1e9
    return mean_statistics(window, ideal, fewest)


@part
def ordinary(every: float, largest: float, cells: float, d: int) -> bool:
    """Whether a row of `mean_statistics` is as chance makes it, without a p-value."""
    both = every <= d * cells + ORDINARY_DEVIATIONS * math.sqrt(2.0 * d * cells)
    return both and largest <= d + ORDINARY_DEVIATIONS * math.sqrt(2.0 * d)


@kernel
def at_rest(newest: Floats, blocks: Floats, tolerated: float, fewest: float) -> bool:
    """Whether neither the newest window against the model, nor any of the ladder, needs a p-value: all are ordinary.

    Nor is a share of the newest window above `tolerated` outside all clusters.
    """
    d = (newest.shape[1] - 2) // 2
    total = 0.0
    for c in range(len(newest)):
        total += newest[c, 0]
    if newest[len(newest) - 1, 0] > tolerated * total:
        return False
    own = fit_statistics(newest, fewest)
    if not ordinary(own[0], own[1], own[2], d):
        return False
    rungs = ladder_statistics(blocks, fewest)
    for r in range(len(rungs)):
        if not ordinary(rungs[r, 0], rungs[r, 1], rungs[r, 2], d):
            return False
    return True
