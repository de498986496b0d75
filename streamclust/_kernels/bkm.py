"""Loops of Bayesian k-means: costs of many clusters for blocks of points, and who gets which row.

Points come transposed, one row per feature, so that the innermost loops run along points and can use vectors
without any sum changing its order.
"""

import numpy as np
from numba import njit

from streamclust._kernels.compile import kernel
from streamclust._kernels.types import Bools, Floats, Ints

BLOCK = 128
"""Points worked on at once: a block of them with its scratch stays in the first cache."""


fused = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
"""A product and the sum it goes into are one operation, rounded once: half the work of a distance."""


@fused
def block_distances(
    columns: Floats, start: int, size: int, mean: Floats, W: Floats, y: Floats, z: Floats, out: Floats
) -> None:
    """out[b] = ‖W (x - mean)‖² for the points start..start+size, W lower triangular; y, z are scratch."""
    d = len(mean)
    for j in range(d):
        x, here, m = columns[j, start : start + size], y[j], mean[j]
        for b in range(size):
            here[b] = x[b] - m
    for b in range(size):
        out[b] = 0.0
    # Four coordinates and four terms at once: each y read serves four sums, each sum is written once in four.
    z0, z1, z2, z3 = z[0], z[1], z[2], z[3]
    i = 0
    while i + 3 < d:
        for b in range(size):
            z0[b], z1[b], z2[b], z3[b] = 0.0, 0.0, 0.0, 0.0
        for j in range(0, i + 4, 4):  # beyond the diagonal W is 0
            a0, a1, a2, a3 = W[i, j], W[i, j + 1], W[i, j + 2], W[i, j + 3]
            b0, b1, b2, b3 = W[i + 1, j], W[i + 1, j + 1], W[i + 1, j + 2], W[i + 1, j + 3]
            c0, c1, c2, c3 = W[i + 2, j], W[i + 2, j + 1], W[i + 2, j + 2], W[i + 2, j + 3]
            d0, d1, d2, d3 = W[i + 3, j], W[i + 3, j + 1], W[i + 3, j + 2], W[i + 3, j + 3]
            y0, y1, y2, y3 = y[j], y[j + 1], y[j + 2], y[j + 3]
            for b in range(size):
                p, q, r, s = y0[b], y1[b], y2[b], y3[b]
                z0[b] += a0 * p + a1 * q + a2 * r + a3 * s
                z1[b] += b0 * p + b1 * q + b2 * r + b3 * s
                z2[b] += c0 * p + c1 * q + c2 * r + c3 * s
                z3[b] += d0 * p + d1 * q + d2 * r + d3 * s
        for b in range(size):
            out[b] += z0[b] * z0[b] + z1[b] * z1[b] + z2[b] * z2[b] + z3[b] * z3[b]
        i += 4
    while i < d:
        for b in range(size):
            z0[b] = 0.0
        for j in range(i + 1):
            w, here = W[i, j], y[j]
            for b in range(size):
                z0[b] += w * here[b]
        for b in range(size):
            out[b] += z0[b] * z0[b]
        i += 1


@kernel
def quadratic_costs(
    columns: Floats, weight: Floats, mean: Floats, W: Floats, scale: Floats, constant: Floats
) -> Floats:
    """weight_n (constant_k + scale_k ‖W_k (x_n - m_k)‖²), clusters x points."""
    d, n = columns.shape
    k = len(mean)
    cost = np.empty((k, n))
    y, z, distance = np.empty((d, BLOCK)), np.empty((4, BLOCK)), np.empty(BLOCK)
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        for c in range(k):
            block_distances(columns, start, size, mean[c], W[c], y, z, distance)
            for b in range(size):
                if weight[start + b] > 0.0:  # an infinite constant does not touch rows of weight 0
                    cost[c, start + b] = weight[start + b] * (constant[c] + scale[c] * distance[b])
                else:
                    cost[c, start + b] = 0.0
    return cost


@kernel
def choose(cost: Floats, labels: Ints) -> tuple[Ints, Bools]:
    """The cheapest cluster of each row, its own one among equals; and which clusters lose or gain rows."""
    k, n = cost.shape
    chosen = np.empty(n, dtype=np.int64)
    touched = np.zeros(k, dtype=np.bool_)
    least = np.empty(BLOCK)
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        for b in range(size):
            chosen[start + b] = labels[start + b]
            least[b] = cost[labels[start + b], start + b]
        for c in range(k):
            for b in range(size):
                if cost[c, start + b] < least[b]:
                    least[b] = cost[c, start + b]
                    chosen[start + b] = c
        for b in range(size):
            if chosen[start + b] != labels[start + b]:
                touched[chosen[start + b]] = True
                touched[labels[start + b]] = True
    return chosen, touched


@kernel
def gain_of_merge(cost: Floats, labels: Ints, merged: Floats, a: int, b: int) -> float:
    """How much labelling costs fall by the next choice if a and b become one that charges `merged`.

    Other clusters' rows are taken to be at rest: the merged one is all that could attract them.
    """
    k, n = cost.shape
    gain = 0.0
    for r in range(n):
        own = labels[r]
        if own != a and own != b:
            gain += max(cost[own, r] - merged[r], 0.0)
            continue
        least = merged[r]
        for c in range(k):
            if c != a and c != b:
                least = min(least, cost[c, r])
        gain += merged[r] - least
    return gain


@kernel
def seed_centres(points: Floats, weight: Floats, uniforms: Floats, trials: int) -> Ints:
    """k-means++: each next centre is drawn in proportion to weight x squared distance to the nearest one.

    Of `trials` draws, the one that lowers the summed distance most is taken. One row of uniforms per centre.
    Returns fewer centres where fewer rows are distinct.
    """
    n, d = points.shape
    k = len(uniforms)
    centres = np.empty(k, dtype=np.int64)
    nearest = np.full(n, 1.0)
    distance = np.empty(n)
    best_distance = np.empty(n)
    for c in range(k):
        mass = np.empty(n)
        total = 0.0
        for r in range(n):
            total += weight[r] * nearest[r]
            mass[r] = total
        if not total > 0.0:
            return centres[:c]
        best_sum = np.inf
        for t in range(1 if c == 0 else trials):
            pick = min(np.searchsorted(mass, uniforms[c, t] * total, side="right"), n - 1)
            summed = 0.0
            for r in range(n):
                squared = 0.0
                for i in range(d):
                    gap = points[r, i] - points[pick, i]
                    squared += gap * gap
                distance[r] = squared if c == 0 else min(squared, nearest[r])
                summed += weight[r] * distance[r]
            if summed < best_sum:
                best_sum = summed
                centres[c] = pick
                best_distance[:] = distance
        nearest[:] = best_distance
    return centres
