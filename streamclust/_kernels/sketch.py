"""Projection of wide rows onto the directions of a sketch.

Sums keep their order whatever the batch: a product of matrices by BLAS would not, and learning in other batches would
leave other bits.
"""

import math

import numpy as np

from streamclust._kernels.compile import inlined, kernel
from streamclust._kernels.types import Floats, Ints


@kernel
def project_rows(
    x: Floats,
    centre: Floats,
    inverse: Floats,
    directions: Floats,
    unit: bool,
    outer: float,
    z: Floats,
    squares: Floats,
) -> None:
    """Coordinates of dense rows, and the squared length of each in scaled units; NaN counts as the centre.

    Columns past those of the sketch have no direction: they count, times `outer`, in the length alone.
    """
    known = min(x.shape[1], directions.shape[0])
    fours = known - known % 4
    for i in range(x.shape[0]):
        inverse_norm = 1.0
        if unit:
            total = squared_length(x, i)
            inverse_norm = 1.0 / math.sqrt(total) if total > 0.0 else 1.0
        length = 0.0
        for k in range(z.shape[1]):
            z[i, k] = 0.0
        for j in range(0, fours, 4):  # four features at a time: fewer passes over the coordinates
            a = scaled_gap(x[i, j], inverse_norm, centre[j], inverse[j])
            b = scaled_gap(x[i, j + 1], inverse_norm, centre[j + 1], inverse[j + 1])
            c = scaled_gap(x[i, j + 2], inverse_norm, centre[j + 2], inverse[j + 2])
            d = scaled_gap(x[i, j + 3], inverse_norm, centre[j + 3], inverse[j + 3])
            length += (a * a + b * b) + (c * c + d * d)
            for k in range(z.shape[1]):
                z[i, k] += (a * directions[j, k] + b * directions[j + 1, k]) + (
                    c * directions[j + 2, k] + d * directions[j + 3, k]
                )
        for j in range(fours, known):
            a = scaled_gap(x[i, j], inverse_norm, centre[j], inverse[j])
            length += a * a
            for k in range(z.shape[1]):
                z[i, k] += a * directions[j, k]
        for j in range(known, x.shape[1]):
            a = scaled_gap(x[i, j], inverse_norm, 0.0, outer)
            length += a * a
        squares[i] = length


@inlined
def scaled_gap(value: float, inverse_norm: float, centre: float, inverse: float) -> float:
    """The distance of a value from the centre, in its unit; 0 for one that is missing."""
    gap = (np.float64(value) * inverse_norm - centre) * inverse
    return gap if gap == gap else 0.0


@inlined
def squared_length(x: Floats, i: int) -> float:
    """The squared length of a row; a missing value is 0. In four sums, which do not wait for each other."""
    fours = x.shape[1] - x.shape[1] % 4
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for j in range(0, fours, 4):
        a += square_or_zero(x[i, j])
        b += square_or_zero(x[i, j + 1])
        c += square_or_zero(x[i, j + 2])
        d += square_or_zero(x[i, j + 3])
    for j in range(fours, x.shape[1]):
        a += square_or_zero(x[i, j])
    return (a + b) + (c + d)


@inlined
def square_or_zero(value: float) -> float:
    """The square of a number; 0 for one that is missing."""
    number = np.float64(value)
    return number * number if number == number else 0.0


@kernel
def project_cells(
    indptr: Ints,
    indices: Ints,
    data: Floats,
    centre: Floats,
    inverse: Floats,
    directions: Floats,
    unit: bool,
    outer: float,
    z: Floats,
    squares: Floats,
) -> None:
    """The same for sparse rows, in which what is absent is 0; the cost is that of the values they hold."""
    origin = np.zeros(directions.shape[1])  # coordinates of a row of zeros
    length_of_origin = 0.0
    for j in range(len(centre)):
        gap = -centre[j] * inverse[j]
        length_of_origin += gap * gap
        for k in range(directions.shape[1]):
            origin[k] += gap * directions[j, k]
    for i in range(len(indptr) - 1):
        norm = 1.0
        if unit:
            total = 0.0
            for place in range(indptr[i], indptr[i + 1]):
                total += data[place] * data[place]
            norm = math.sqrt(total) if total > 0.0 else 1.0
        length = length_of_origin
        for k in range(z.shape[1]):
            z[i, k] = origin[k]
        for place in range(indptr[i], indptr[i + 1]):
            j = indices[place]
            if j >= len(centre):
                gap = data[place] / norm * outer
                length += gap * gap
                continue
            gap = data[place] / norm * inverse[j]
            length += gap * (gap - 2.0 * centre[j] * inverse[j])
            for k in range(z.shape[1]):
                z[i, k] += gap * directions[j, k]
        squares[i] = length
