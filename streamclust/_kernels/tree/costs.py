"""Costs of points for clusters, and their bounds over boxes [BKM section 9.1].

A cluster's cost is offset + ‖root (x - vector)‖² with a lower triangular root or, where `root` is None, offset +
vector · x. That it is None the compiler knows, and drops what belongs to the other form: testing a flag in these
loops would make them ten times slower. For the same reason `dims` is a tuple of D zeros, whose length the
compiler knows, so that loops over a few features unroll; an empty one stands for any D.

A box is a centre and half-widths: box[node, 0] and box[node, 1].
"""

import numpy as np

from streamclust._kernels.compile import kernel, part, unkept
from streamclust._kernels.types import Bools, Floats, Ints

spliced = unkept(forceinline=True)
"""Written into its callers by LLVM: arrays handed to it cost nothing, not even a count of references."""

bounding = unkept(forceinline=True, fastmath={"contract", "reassoc", "nsz"})
"""`spliced` with sums in any order: bounds allow for rounding, costs of points are compared to the last bit."""

PAPER, BALL, ROTATED, DIFFERENCE = 0, 1, 2, 3


@spliced
def point_cost(
    points: Floats, p: int, vector: Floats, root: Floats | None, offset: Floats, c: int, d: int
) -> float:
    """The cost of one point, always summed in this order: brute force and descent agree in every bit."""
    total = 0.0
    if root is None:
        for j in range(d):
            total += vector[c, j] * points[p, j]
    else:
        for i in range(d):
            y = 0.0
            for j in range(i + 1):
                y += root[c, i, j] * (points[p, j] - vector[c, j])
            total += y * y
    return total + offset[c]


@kernel
def label_points(
    points: Floats, vector: Floats, root: Floats | None, offset: Floats, dims: tuple[int, ...], labels: Ints
) -> None:
    """The cluster of least cost of each point, the first of equals: K x N costs, one by one."""
    d = len(dims) if len(dims) > 0 else vector.shape[1]
    for p in range(points.shape[0]):
        owner = 0
        least = point_cost(points, p, vector, root, offset, 0, d)
        for c in range(1, offset.size):
            cost = point_cost(points, p, vector, root, offset, c, d)
            if cost < least:
                least = cost
                owner = c
        labels[p] = owner


# ---------------------------------------------------------------- bounds over a box


@bounding
def expand(
    box: Floats, node: int, vector: Floats, root: Floats | None, offset: Floats, c: int, d: int,
    s: int, value: Floats, gradient: Floats, whitened: Floats,
) -> None:  # fmt: skip
    """Cost and gradient of cluster c at the box's centre."""
    total = 0.0
    if root is None:
        for j in range(d):
            total += vector[c, j] * box[node, 0, j]
            gradient[s, j] = vector[c, j]
    else:
        for i in range(d):
            y = 0.0
            for j in range(i + 1):
                y += root[c, i, j] * (box[node, 0, j] - vector[c, j])
            total += y * y
            whitened[i] = y
        for j in range(d):
            rise = 0.0
            for i in range(j, d):
                rise += root[c, i, j] * whitened[i]
            gradient[s, j] = 2.0 * rise
    value[s] = total + offset[c]


@spliced
def size(
    box: Floats, node: int, vector: Floats, root: Floats | None, offset: Floats, norm: Floats, c: int, d: int
) -> float:
    """No less than the sum of the sizes of all that is added up for a cost within the box: rounding goes by it."""
    far = 0.0
    if root is None:
        for j in range(d):
            far += abs(vector[c, j]) * (abs(box[node, 0, j]) + box[node, 1, j])
        return far + abs(offset[c])
    for j in range(d):
        reach = abs(box[node, 0, j] - vector[c, j]) + box[node, 1, j]
        far += reach * reach
    return norm[c] * far + abs(offset[c])


@bounding
def least_difference(
    box: Floats, node: int, root: Floats | None, precision: Floats, c: int, other: int, d: int,
    s: int, pivot: int, value: Floats, gradient: Floats, slope: Floats, loose: Bools, enough: float,
) -> float:  # fmt: skip
    """A lower bound, over the box, of the cost of c less the cost of the other.

    The difference is a quadratic in u = (x - centre) / half-width, |u| <= 1. A feature in which it rises or falls
    throughout is set to the end where it is least, which leaves a quadratic in the others; of those that stay
    loose, linear and square terms are minimised together and products bounded by their size. Exact for boxes
    away from the saddle or bowl of the difference, and for linear costs.
    """
    least = value[s] - value[pivot]
    if root is None:
        for j in range(d):
            least -= abs(gradient[s, j] - gradient[pivot, j]) * box[node, 1, j]
    else:
        corner = 0.0  # at the corner against the gradient, the difference is no less than its minimum ...
        surely = 0.0  # ... and with its products all counted against it, no more
        for j in range(d):
            half = box[node, 1, j]
            slope[j] = (gradient[s, j] - gradient[pivot, j]) * half
            loose[j] = True
            square = (precision[c, j, j] - precision[other, j, j]) * half * half
            corner += square - abs(slope[j])
            surely += min(square, 0.0) - abs(slope[j])
            for k in range(j):
                cross = 2.0 * (precision[c, j, k] - precision[other, j, k]) * half * box[node, 1, k]
                surely -= abs(cross)
                corner += cross if (slope[j] > 0.0) == (slope[k] > 0.0) else -cross
        if least + corner <= 0.0:
            return least + corner
        if least + surely > enough:
            return least + surely
        for _ in range(2):
            for j in range(d):
                if loose[j]:
                    half = 2.0 * box[node, 1, j]
                    square = (precision[c, j, j] - precision[other, j, j]) * box[node, 1, j] * box[node, 1, j]
                    bend = 2.0 * abs(square)
                    for k in range(d):
                        if k != j and loose[k]:
                            bend += abs(precision[c, j, k] - precision[other, j, k]) * half * box[node, 1, k]
                    if abs(slope[j]) >= bend:
                        loose[j] = False
                        least += square - abs(slope[j])
                        end = -half if slope[j] > 0.0 else half
                        for k in range(d):
                            if loose[k]:
                                cross = precision[c, j, k] - precision[other, j, k]
                                slope[k] += cross * end * box[node, 1, k]
        for j in range(d):
            if loose[j]:
                square = (precision[c, j, j] - precision[other, j, j]) * box[node, 1, j] * box[node, 1, j]
                if abs(slope[j]) < 2.0 * square:
                    least -= slope[j] * slope[j] / (4.0 * square)
                else:
                    least += square - abs(slope[j])
                for k in range(j):
                    if loose[k]:
                        cross = precision[c, j, k] - precision[other, j, k]
                        least -= 2.0 * abs(cross) * box[node, 1, j] * box[node, 1, k]
    return least


@bounding
def interval(
    bound: int, box: Floats, node: int, vector: Floats, root: Floats | None, offset: Floats, extremes: Floats,
    c: int, d: int, s: int, lower: Floats, upper: Floats, value: Floats,
) -> None:  # fmt: skip
    """Bounds of the cost of c itself over the box."""
    low = 0.0
    high = 0.0
    if root is None:
        for j in range(d):
            high += abs(vector[c, j]) * box[node, 1, j]
        lower[s], upper[s] = value[s] - high, value[s] + high
        return
    if bound == PAPER:  # erratum: clamped in each feature, not for the box as a whole
        for j in range(d):
            gap = abs(box[node, 0, j] - vector[c, j])
            near = max(0.0, gap - box[node, 1, j])
            low += near * near
            high += (gap + box[node, 1, j]) * (gap + box[node, 1, j])
        lower[s], upper[s] = offset[c] + extremes[c, 0] * low, offset[c] + extremes[c, 1] * high
        return
    for i in range(d):
        y = 0.0
        r = 0.0
        for j in range(i + 1):
            y += root[c, i, j] * (box[node, 0, j] - vector[c, j])
            r += abs(root[c, i, j]) * box[node, 1, j]
        if bound == BALL:
            low += y * y
            high += r * r
        else:
            near = max(0.0, abs(y) - r)
            low += near * near
            high += (abs(y) + r) * (abs(y) + r)
    if bound == BALL:
        y, r = np.sqrt(low), np.sqrt(high)
        near = max(0.0, y - r)
        low, high = near * near, (y + r) * (y + r)
    lower[s], upper[s] = offset[c] + low, offset[c] + high


@part
def squared(root: Floats | None, n_clusters: int, d: int) -> tuple[Floats, Floats]:
    """rootᵀ root of each cluster, and its trace."""
    precision, norm = np.zeros((n_clusters, d, d)), np.zeros(n_clusters)
    if root is not None:
        for c in range(n_clusters):
            for i in range(d):
                for j in range(i + 1):
                    norm[c] += root[c, i, j] * root[c, i, j]
                    for k in range(i + 1):
                        precision[c, j, k] += root[c, i, j] * root[c, i, k]
    return precision, norm
