"""Loops over rows of moments.

A row is (weight, mean, scatter) with the scatter flattened to `width` numbers. The width tells its kind:
D * D is the full matrix, D its diagonal, 1 its trace, 0 nothing. (With D = 1 the first three are one.)
"""

import numpy as np

from streamclust._kernels.compile import kernel, part, shared_part
from streamclust._kernels.types import Floats, Ints


@part
def dot(a: Floats, b: Floats) -> float:
    """a · b; for short vectors, where a call of BLAS would cost more than the sum."""
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@part
def scaled_square(a: Floats, scale: Floats) -> float:
    """The squared length of a, each element multiplied by its scale first."""
    total = 0.0
    for i in range(a.size):
        scaled = a[i] * scale[i]
        total += scaled * scaled
    return total


@shared_part
def add_outer(scatter: Floats, deviation: Floats, factor: float) -> None:
    """Add factor * deviation deviationᵀ to one flattened scatter."""
    d = deviation.size
    width = scatter.size
    if width == d * d:
        for i in range(d):
            scaled = factor * deviation[i]
            row = scatter[i * d : i * d + d]
            for j in range(d):
                row[j] += scaled * deviation[j]
    elif width == d:
        for i in range(d):
            scatter[i] += factor * deviation[i] * deviation[i]
    elif width == 1:
        total = 0.0
        for i in range(d):
            total += deviation[i] * deviation[i]
        scatter[0] += factor * total


@shared_part
def merge_into(
    weight: Floats,
    mean: Floats,
    scatter: Floats,
    row: int,
    other_weight: float,
    other_mean: Floats,
    other_scatter: Floats,
) -> None:
    """Merge a row of moments into `row` of the arrays: Chan's pairwise update."""
    if other_weight <= 0.0:
        return
    before = weight[row]
    total = before + other_weight
    share = other_weight / total
    d = mean.shape[1]
    deviation = np.empty(d)
    for i in range(d):
        deviation[i] = other_mean[i] - mean[row, i]
        mean[row, i] += share * deviation[i]
    if before <= 0.0:  # an empty row has no mean of its own: whatever stood there gives way exactly
        for i in range(d):
            mean[row, i] = other_mean[i]
        for i in range(scatter.shape[1]):
            scatter[row, i] = other_scatter[i]
    else:
        for i in range(scatter.shape[1]):
            scatter[row, i] += other_scatter[i]
        add_outer(scatter[row], deviation, before * share)
    weight[row] = total


@kernel
def group_rows(
    weight: Floats, mean: Floats, scatter: Floats, labels: Ints, n_groups: int, width: int
) -> tuple[Floats, Floats, Floats]:
    """Merge rows by label; rows labelled below 0 are left out.

    `width` is the width of the result. A narrower `scatter` (width 0) says that every row is a point.
    Two passes, means first, so that the scatter is a sum of squares of true deviations. Means are summed as
    offsets from a row of their own group: groups may lie 1e8 apart and be 1 wide.
    """
    n, d = mean.shape
    out_weight = np.zeros(n_groups)
    out_mean = np.zeros((n_groups, d))
    out_scatter = np.zeros((n_groups, width))
    reference = np.zeros((n_groups, d))
    for r in range(n):
        g = labels[r]
        if g >= 0 and weight[r] > 0.0:
            if out_weight[g] == 0.0:
                for i in range(d):
                    reference[g, i] = mean[r, i]
            out_weight[g] += weight[r]
            for i in range(d):
                out_mean[g, i] += weight[r] * (mean[r, i] - reference[g, i])
    for g in range(n_groups):
        if out_weight[g] > 0.0:
            for i in range(d):
                out_mean[g, i] = reference[g, i] + out_mean[g, i] / out_weight[g]
    deviation = np.empty(d)
    full = width == d * d
    for r in range(n):
        g = labels[r]
        if g >= 0 and weight[r] > 0.0:
            for i in range(d):
                deviation[i] = mean[r, i] - out_mean[g, i]
            for i in range(scatter.shape[1]):
                out_scatter[g, i] += scatter[r, i]
            if full:  # the lower half is enough, for now
                for i in range(d):
                    scaled = weight[r] * deviation[i]
                    row = out_scatter[g, i * d : i * d + i + 1]
                    for j in range(i + 1):
                        row[j] += scaled * deviation[j]
            else:
                add_outer(out_scatter[g], deviation, weight[r])
    if full:
        for g in range(n_groups):
            for i in range(d):
                for j in range(i):
                    out_scatter[g, j * d + i] = out_scatter[g, i * d + j]
    return out_weight, out_mean, out_scatter
