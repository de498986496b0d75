"""The cheapest and the nearest of a few clusters for points, one by one: for predictions, where K is small.

A cluster's cost is offset + ‖root (x - vector)‖² with a lower triangular root or, where `root` is None, offset +
vector · x, as in `costs`.
"""

import numpy as np

from streamclust._kernels.blocks import BLOCK, block_distances
from streamclust._kernels.compile import kernel, part
from streamclust._kernels.engine.bounds import (
    bounding_roots,
    guess_owners,
    lower_bounds,
    project,
    upper_bounds,
)
from streamclust._kernels.types import Floats, Ints

CHUNK = 512
"""Points whose bounds are kept at a time."""
MAX_PRICED_SHARE = 0.3
"""Share of clusters that price a point, above which bounds take more time than they save."""
ROUNDING = 1e-12
"""Relative error of a difference of costs, at most."""


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


@part
def fill_columns(points: Floats, columns: Floats) -> None:
    """Write points as columns."""
    for b in range(len(points)):
        for j in range(len(columns)):
            columns[j, b] = points[b, j]


@part
def price_all(
    columns: Floats, size: int, vector: Floats, root: Floats, offset: Floats, y: Floats, z: Floats, owner: Ints,
    least: Floats, near: Floats,
) -> None:  # fmt: skip
    """The cheapest and the nearest cluster of each point."""
    distance = z[4]
    for b in range(size):
        owner[b], least[b], near[b] = 0, np.inf, np.inf
    for start in range(0, size, BLOCK):
        end = min(start + BLOCK, size)
        for c in range(offset.size):
            block_distances(columns, start, end - start, vector[c], root[c], y, z, distance)
            for p in range(start, end):
                if distance[p - start] < near[p]:
                    near[p] = distance[p - start]
                if distance[p - start] + offset[c] < least[p]:
                    least[p], owner[p] = distance[p - start] + offset[c], c


@part
def price_some(
    columns: Floats, some: Ints, size: int, c: int, vector: Floats, root: Floats, offset: float, x: Floats, y: Floats,
    z: Floats, owner: Ints, least: Floats, near: Floats,
) -> None:  # fmt: skip
    """Give the points `some` to cluster c if it is cheaper."""
    first = int(np.int64(0))  # for a literal 0 numba would compile another form of `block_distances`
    distance = z[4]
    for j in range(len(columns)):
        here, there = columns[j], x[j]
        for b in range(size):
            there[b] = here[some[b]]
    block_distances(x, first, size, vector, root, y, z, distance)
    for b in range(size):
        p = some[b]
        if distance[b] < near[p]:
            near[p] = distance[b]
        if distance[b] + offset < least[p]:
            least[p], owner[p] = distance[b] + offset, c


@kernel
def assign_points(
    points: Floats,
    vector: Floats,
    root: Floats | None,
    offset: Floats,
    directions: Floats,
    labels: Ints,
    cost: Floats,
    nearest: Floats,
) -> None:
    """`cheapest` of every point: a block of points at once, cluster by cluster.

    With `directions` (some, D), in which clusters lie apart, each point is priced by those clusters alone that it may
    belong to.
    """
    n, d = points.shape
    if root is None:
        for p in range(n):
            labels[p], cost[p], nearest[p] = cheapest(points, p, vector, root, offset)
        return
    k, q = offset.size, len(directions)
    pruned = q > 0
    x, y, z, some = (
        np.empty((d, BLOCK)),
        np.empty((d, BLOCK)),
        np.empty((5, BLOCK)),
        np.empty(BLOCK, dtype=np.int64),
    )
    columns, along, bound = np.empty((d, CHUNK)), np.empty((q, CHUNK)), np.empty((k * int(pruned), CHUNK))
    centre, small = np.empty((q, k)), np.empty((k * int(pruned), q, q))
    if pruned:
        project(vector, vector[0], directions, centre)
        bounding_roots(root, np.ascontiguousarray(directions.T), small)
    centre = np.ascontiguousarray(centre.T)
    for start in range(0, n, CHUNK):
        end = min(start + CHUNK, n)
        here, owner, least, near = points[start:end], labels[start:end], cost[start:end], nearest[start:end]
        fill_columns(here, columns)
        if not pruned:
            price_all(columns, end - start, vector, root, offset, y, z, owner, least, near)
            continue
        project(here, vector[0], directions, along)
        lower_bounds(along, end - start, centre, small, y, z, bound)
        guess_owners(bound, end - start, offset, least, owner)
        upper_bounds(here, vector, root, offset, owner, least, near)
        n_priced = 0
        for c in range(k):
            left = 0
            for b in range(end - start):
                slack = ROUNDING * (abs(least[b]) + abs(offset[c]))
                some[left] = b
                left += int(not bound[c, b] > max(least[b] - offset[c], near[b]) + slack)
                if left == BLOCK or (left > 0 and b == end - start - 1):
                    price_some(
                        columns, some, left, c, vector[c], root[c], offset[c], x, y, z, owner, least, near
                    )
                    n_priced += left
                    left = 0
        pruned = n_priced < MAX_PRICED_SHARE * k * (end - start)
