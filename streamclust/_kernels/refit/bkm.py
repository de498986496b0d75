"""Loops of Bayesian k-means: costs of many clusters for blocks of points, and who gets which row.

Points come transposed, one row per feature, so that the innermost loops run along points and can use vectors
without any sum changing its order.
"""

import numpy as np

from streamclust._kernels.blocks import BLOCK, block_distances
from streamclust._kernels.compile import kernel, part
from streamclust._kernels.types import Bools, Floats, Ints


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
    nearest = np.ones(n)
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
            pick = first_above(mass, uniforms[c, t] * total)
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
                for r in range(n):
                    best_distance[r] = distance[r]
        for r in range(n):
            nearest[r] = best_distance[r]
    return centres


@part
def first_above(sums: Floats, value: float) -> int:
    """The first of increasing sums that exceeds the value, or the last of them."""
    low, high = 0, sums.size - 1
    while low < high:
        middle = (low + high) // 2
        if sums[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low
