"""The cheapest and the nearest of a few clusters for points, one by one: for predictions, where K is small.

A cluster's cost is offset + ‖root (x - vector)‖² with a lower triangular root or, where `root` is None, offset +
vector · x, as in `costs`.
"""

import numpy as np

from streamclust._kernels.blocks import BLOCK, block_distances
from streamclust._kernels.compile import kernel
from streamclust._kernels.types import Floats, Ints


@kernel
def cheapest(
    points: Floats, p: int, vector: Floats, root: Floats | None, offset: Floats
) -> tuple[int, float, float]:
    """The cluster of least cost of a point, the first of equals; that cost; and the least ‖root (x - vector)‖².

    A sum of squares is given up as soon as it can win neither.
    """
    d = points.shape[1]
    owner = 0
    least = np.inf
    nearest = np.inf
    for c in range(offset.size):
        total = 0.0
        if root is None:
            for j in range(d):
                total += vector[c, j] * points[p, j]
        else:
            enough = max(least - offset[c], nearest)
            for i in range(d):
                y = 0.0
                for j in range(i + 1):
                    y += root[c, i, j] * (points[p, j] - vector[c, j])
                total += y * y
                if total > enough:
                    break
            nearest = min(nearest, total)
        if total + offset[c] < least:
            least = total + offset[c]
            owner = c
    return owner, least, nearest


@kernel
def assign_points(
    points: Floats,
    vector: Floats,
    root: Floats | None,
    offset: Floats,
    labels: Ints,
    cost: Floats,
    nearest: Floats,
) -> None:
    """`cheapest` of every point: a block of points at once, cluster by cluster."""
    n, d = points.shape
    if root is None:
        for p in range(n):
            labels[p], cost[p], nearest[p] = cheapest(points, p, vector, root, offset)
        return
    columns, y, z = np.empty((d, BLOCK)), np.empty((d, BLOCK)), np.empty((4, BLOCK))
    distance = np.empty(BLOCK)
    first = int(np.int64(0))  # for a literal 0 numba would compile another form of `block_distances`
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        end = start + size
        owner, least, near = labels[start:end], cost[start:end], nearest[start:end]
        for b in range(size):
            owner[b], least[b], near[b] = 0, np.inf, np.inf
            for j in range(d):
                columns[j, b] = points[start + b, j]
        for c in range(offset.size):
            block_distances(columns, first, size, vector[c], root[c], y, z, distance)
            for b in range(size):
                if distance[b] < near[b]:
                    near[b] = distance[b]
                if distance[b] + offset[c] < least[b]:
                    least[b] = distance[b] + offset[c]
                    owner[b] = c
