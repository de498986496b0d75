"""The cheapest and the nearest of a few clusters for points, one by one: for predictions, where K is small.

A cluster's cost is offset + ‖root (x - vector)‖² with a lower triangular root or, where `root` is None, offset +
vector · x, as in `costs`.
"""

import numpy as np

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
    """`cheapest` of every point."""
    for p in range(points.shape[0]):
        labels[p], cost[p], nearest[p] = cheapest(points, p, vector, root, offset)
