"""Factors of small symmetric matrices, and products of triangular ones.

The innermost loops run along rows and take two terms at a time; each element's sum keeps its order.
"""

import math

from streamclust._kernels.compile import inlined, part, shared_part
from streamclust._kernels.types import Floats


@inlined
def add_row(row: Floats, a: float, x: Floats) -> None:
    """Add a x to row, whose length counts."""
    for j in range(len(row)):
        row[j] += a * x[j]


@inlined
def add_two_rows(row: Floats, a: float, x: Floats, b: float, y: Floats) -> None:
    """Add a x, then b y to row, whose length counts."""
    for j in range(len(row)):
        row[j] = (row[j] + a * x[j]) + b * y[j]


@part
def factor_column(factor: Floats, k: int, least: float) -> float:
    """Finish column k, whose transpose goes into the upper half; its log pivot, or +∞ if that is not above `least`."""
    if not factor[k, k] > least:
        return math.inf
    pivot = math.sqrt(factor[k, k])
    factor[k, k] = pivot
    for i in range(k + 1, len(factor)):
        factor[i, k] /= pivot
        factor[k, i] = factor[i, k]
    return math.log(pivot)


@shared_part
def factorise_in_place(factor: Floats, least: float) -> float:
    """L of a matrix L Lᵀ whose lower half stands in `factor`, and Lᵀ above it; log |L Lᵀ|.

    +∞ where the square of a pivot is not above `least`.
    """
    d = len(factor)
    log_det = 0.0
    for k in range(0, d, 2):
        log_det += 2.0 * factor_column(factor, k, least)
        if k + 1 < d and log_det < math.inf:
            for i in range(k + 1, d):
                factor[i, k + 1] -= factor[k, i] * factor[k, k + 1]
            log_det += 2.0 * factor_column(factor, k + 1, least)
        if log_det == math.inf:
            break
        for i in range(k + 2, d):
            first, second = factor[k, k + 2 : i + 1], factor[k + 1, k + 2 : i + 1]
            add_two_rows(factor[i, k + 2 : i + 1], -factor[k, i], first, -factor[k + 1, i], second)
    return log_det


@shared_part
def invert_lower(factor: Floats, inverse: Floats) -> None:
    """L⁻¹ of the lower half of `factor`; 0 above it."""
    d = len(factor)
    for i in range(d):
        for j in range(d):
            inverse[i, j] = 0.0
        inverse[i, i] = 1.0
        for k in range(0, i - 1, 2):
            add_two_rows(
                inverse[i, : k + 2], -factor[i, k], inverse[k, : k + 2], -factor[i, k + 1], inverse[k + 1, : k + 2]
            )  # fmt: skip
        if i % 2 == 1:
            add_row(inverse[i, :i], -factor[i, i - 1], inverse[i - 1, :i])
        for j in range(i + 1):
            inverse[i, j] /= factor[i, i]


@part
def add_gram(lower: Floats, scale: float, total: Floats) -> None:
    """Add scale WᵀW to the lower half of `total`, for lower triangular W with zeros above its diagonal."""
    d = len(lower)
    for j in range(d):
        row = total[j, : j + 1]
        first = j
        if (d - j) % 2 == 1:
            add_row(row, scale * lower[j, j], lower[j])
            first = j + 1
        for i in range(first, d, 2):
            add_two_rows(row, scale * lower[i, j], lower[i], scale * lower[i + 1, j], lower[i + 1])
