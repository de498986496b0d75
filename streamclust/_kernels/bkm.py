"""Loops of Bayesian k-means: costs of many clusters for blocks of points, and who gets which row.

Points come transposed, one row per feature, so that the innermost loops run along points and can use vectors
without any sum changing its order.
"""

import numpy as np

from streamclust._kernels.compile import kernel
from streamclust._kernels.types import Bools, Floats, Ints

BLOCK = 128
"""Points worked on at once: a block of them with its scratch stays in the first cache."""


@kernel
def _block_distances(
    columns: Floats, start: int, size: int, mean: Floats, W: Floats, y: Floats, z: Floats, out: Floats
) -> None:
    """out[b] = ‖W (x - mean)‖² for the points start..start+size, W lower triangular."""
    d = len(mean)
    for j in range(d):
        m = mean[j]
        for b in range(size):
            y[j, b] = columns[j, start + b] - m
    for b in range(size):
        out[b] = 0.0
    # Two coordinates and four terms at once: each y read serves two sums, each sum is written once in four.
    u, v = z[0], z[1]
    for i in range(0, d - 1, 2):
        w0, w1 = W[i, 0], W[i + 1, 0]
        for b in range(size):
            u[b] = w0 * y[0, b]
            v[b] = w1 * y[0, b]
        j = 1
        while j + 3 <= i:
            a0, a1, a2, a3 = W[i, j], W[i, j + 1], W[i, j + 2], W[i, j + 3]
            c0, c1, c2, c3 = W[i + 1, j], W[i + 1, j + 1], W[i + 1, j + 2], W[i + 1, j + 3]
            y0, y1, y2, y3 = y[j], y[j + 1], y[j + 2], y[j + 3]
            for b in range(size):
                u[b] += a0 * y0[b] + a1 * y1[b] + a2 * y2[b] + a3 * y3[b]
                v[b] += c0 * y0[b] + c1 * y1[b] + c2 * y2[b] + c3 * y3[b]
            j += 4
        while j <= i + 1:
            w0, w1 = W[i, j], W[i + 1, j]  # beyond the diagonal W is 0
            for b in range(size):
                u[b] += w0 * y[j, b]
                v[b] += w1 * y[j, b]
            j += 1
        for b in range(size):
            out[b] += u[b] * u[b] + v[b] * v[b]
    if d % 2:
        for b in range(size):
            u[b] = 0.0
        for j in range(d):
            w0 = W[d - 1, j]
            for b in range(size):
                u[b] += w0 * y[j, b]
        for b in range(size):
            out[b] += u[b] * u[b]


@kernel
def quadratic_costs(
    columns: Floats, weight: Floats, mean: Floats, W: Floats, scale: Floats, constant: Floats
) -> Floats:
    """weight_n (constant_k + scale_k ‖W_k (x_n - m_k)‖²), clusters x points."""
    d, n = columns.shape
    k = len(mean)
    cost = np.empty((k, n))
    y, z, distance = np.empty((d, BLOCK)), np.empty((2, BLOCK)), np.empty(BLOCK)
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        for c in range(k):
            _block_distances(columns, start, size, mean[c], W[c], y, z, distance)
            for b in range(size):
                if weight[start + b] > 0.0:  # an infinite constant does not touch rows of weight 0
                    cost[c, start + b] = weight[start + b] * (constant[c] + scale[c] * distance[b])
                else:
                    cost[c, start + b] = 0.0
    return cost


@kernel
def add_products(cost: Floats, left: Floats, right: Floats) -> None:
    """cost += left @ right, for few rows of `left`: shapes that BLAS is slow at."""
    k, n = cost.shape
    width = len(right)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        for c in range(k):
            out = cost[c, start:stop]
            p = 0
            while p + 3 < width:
                w0, w1, w2, w3 = left[c, p], left[c, p + 1], left[c, p + 2], left[c, p + 3]
                r0, r1 = right[p, start:stop], right[p + 1, start:stop]
                r2, r3 = right[p + 2, start:stop], right[p + 3, start:stop]
                for b in range(stop - start):
                    out[b] += w0 * r0[b] + w1 * r1[b] + w2 * r2[b] + w3 * r3[b]
                p += 4
            while p < width:
                for b in range(stop - start):
                    out[b] += left[c, p] * right[p, start + b]
                p += 1


@kernel
def choose_sides(
    columns: Floats,
    edges: Ints,
    active: Bools,
    mean: Floats,
    W: Floats,
    scale: Floats,
    constant: Floats,
    side: Ints,
) -> Ints:
    """Both halves of each cluster bid for the cluster's own points, which stand between two edges.

    Halves of cluster c are rows 2c and 2c + 1 of the parameters; `side` (0 or 1) is rewritten. Returns how
    many points of each cluster changed side.
    """
    d = len(columns)
    moved = np.zeros(len(active), dtype=np.int64)
    y, z = np.empty((d, BLOCK)), np.empty((2, BLOCK))
    first, second = np.empty(BLOCK), np.empty(BLOCK)
    for c in range(len(active)):
        if not active[c]:
            continue
        for start in range(edges[c], edges[c + 1], BLOCK):
            size = min(BLOCK, edges[c + 1] - start)
            _block_distances(columns, start, size, mean[2 * c], W[2 * c], y, z, first)
            _block_distances(columns, start, size, mean[2 * c + 1], W[2 * c + 1], y, z, second)
            for b in range(size):
                a0 = constant[2 * c] + scale[2 * c] * first[b]
                a1 = constant[2 * c + 1] + scale[2 * c + 1] * second[b]
                if a0 == a1:
                    continue
                better = 1 if a1 < a0 else 0
                if better != side[start + b]:
                    side[start + b] = better
                    moved[c] += 1
    return moved


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
