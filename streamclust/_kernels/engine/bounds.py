"""Lower bounds of the distances of points to many clusters, from a few directions in which the clusters lie apart.

The squared Mahalanobis distance along some directions is at most the whole one. With q directions it costs q²/2
products for a cluster and a point instead of D²/2.
"""

import numpy as np

from streamclust._kernels.blocks import BLOCK, block_distances
from streamclust._kernels.compile import part, part_with_free_sums
from streamclust._kernels.triangular import factorise_in_place, invert_lower
from streamclust._kernels.types import Floats, Ints

SLACK = 1e-6
"""Relative error of a bound, at most: directions that a cluster hardly varies in, relative to others, are left out."""
LEAST_PIVOT = 1e-9
"""Least squared pivot of a covariance along the directions, relative to its mean diagonal entry."""
TINY = 1e-300
"""A distance of 0 has an upper bound above it, too."""


@part
def bounding_roots(root: Floats, directions: Floats, found: Floats) -> None:
    """Roots of the inverse covariances along the directions; 0 for clusters that have none of full rank.

    The covariance of a cluster with precision RᵀR along the directions V is YᵀY, where RᵀY = V.
    """
    d, q = directions.shape
    Y, spread = np.empty((d, q)), np.empty((q, q))
    for c in range(len(root)):
        Y[:] = directions
        for i in range(d - 1, -1, -1):
            for p in range(q):
                Y[i, p] /= root[c, i, i]
            for k in range(i):
                step, row, other = root[c, i, k], Y[i], Y[k]
                for p in range(q):
                    other[p] -= step * row[p]
        spread[:] = 0.0
        trace = 0.0
        for i in range(d):
            for p in range(q):
                for r in range(p + 1):
                    spread[p, r] += Y[i, p] * Y[i, r]
        for p in range(q):
            trace += spread[p, p]
        if factorise_in_place(spread, LEAST_PIVOT * trace / q) < np.inf:
            invert_lower(spread, found[c])
        else:
            found[c] = 0.0


@part_with_free_sums
def project(points: Floats, middle: Floats, directions: Floats, out: Floats) -> None:
    """Coordinates of points - middle along the directions, one row per direction."""
    gap = np.empty(len(middle))
    for b in range(len(points)):
        for j in range(len(middle)):
            gap[j] = points[b, j] - middle[j]
        for p in range(len(directions)):
            axis, total = directions[p], 0.0
            for j in range(len(middle)):
                total += axis[j] * gap[j]
            out[p, b] = total


@part
def lower_bounds(
    columns: Floats, size: int, centre: Floats, root: Floats, y: Floats, z: Floats, bound: Floats
) -> None:
    """Lower bounds of the distances of each cluster to some points."""
    for c in range(len(centre)):
        for start in range(0, size, BLOCK):
            n = min(BLOCK, size - start)
            block_distances(columns, start, n, centre[c], root[c], y, z, bound[c, start : start + n])
        for b in range(size):
            bound[c, b] *= 1.0 - SLACK


@part
def guess_owners(bound: Floats, size: int, offset: Floats, cost: Floats, guess: Ints) -> None:
    """The cluster of each point that has the least bound of its cost."""
    for b in range(size):
        guess[b], cost[b] = 0, np.inf
    for c in range(offset.size):
        for b in range(size):
            if bound[c, b] + offset[c] < cost[b]:
                guess[b], cost[b] = c, bound[c, b] + offset[c]


@part_with_free_sums
def upper_bounds(
    points: Floats, vector: Floats, root: Floats, offset: Floats, guess: Ints, cost: Floats, nearest: Floats
) -> None:
    """Upper bounds of the least cost and the least distance of each point, by the cluster guessed for it.

    They are above what that cluster charges, so that it is still found.
    """
    gap = np.empty(points.shape[1])
    for b in range(len(points)):
        c = guess[b]
        for j in range(len(gap)):
            gap[j] = points[b, j] - vector[c, j]
        total = 0.0
        for i in range(len(gap)):
            row, z = root[c, i, : i + 1], 0.0
            for j in range(len(row)):
                z += row[j] * gap[j]
            total += z * z
        nearest[b] = total + SLACK * total + TINY
        cost[b] = nearest[b] + offset[c]
        cost[b] += SLACK * (nearest[b] + abs(offset[c]))
