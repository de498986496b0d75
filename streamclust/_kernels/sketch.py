"""Projection of wide rows onto the directions of a sketch.

A row is summed alone, in the same order whatever its batch: a product of matrices by BLAS would not, and learning in
other batches would leave other bits.
"""

import math

import numpy as np

from streamclust._kernels.compile import kernel, kernel_with_free_sums, part_with_free_sums
from streamclust._kernels.types import Floats, Ints


@kernel_with_free_sums
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

    `directions` (d, D). Rows are taken by twos, four directions at a time, which spares passes over memory; the last
    row of an odd number is taken twice. The order of sums is the compiler's, and the same for every row.
    """
    last_row, last = x.shape[0] - 1, z.shape[1] - 1
    known = min(x.shape[1], directions.shape[1])
    rows = np.empty((2, x.shape[1]))
    for i in range(0, x.shape[0], 2):
        other = min(i + 1, last_row)
        squares[i] = scale_row(x, i, centre, inverse, unit, outer, rows[0])
        squares[other] = scale_row(x, other, centre, inverse, unit, outer, rows[1])
        for k in range(0, z.shape[1], 4):
            k1, k2, k3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            e, f, g, h = 0.0, 0.0, 0.0, 0.0
            for j in range(known):
                one, two = rows[0, j], rows[1, j]
                a += one * directions[k, j]
                b += one * directions[k1, j]
                c += one * directions[k2, j]
                d += one * directions[k3, j]
                e += two * directions[k, j]
                f += two * directions[k1, j]
                g += two * directions[k2, j]
                h += two * directions[k3, j]
            z[i, k], z[i, k1], z[i, k2], z[i, k3] = a, b, c, d
            z[other, k], z[other, k1], z[other, k2], z[other, k3] = e, f, g, h


@part_with_free_sums
def scale_row(
    x: Floats, i: int, centre: Floats, inverse: Floats, unit: bool, outer: float, row: Floats
) -> float:
    """Write the distances of a row's values from the centre, in their units, to `row`; the sum of their squares.

    Columns past those of the sketch have the centre 0 and the unit 1 / `outer`. All sums are of double precision, so
    that a row of single precision has the same ones.
    """
    known = min(len(row), len(centre))
    for j in range(len(row)):
        row[j] = x[i, j]
    inverse_norm = 1.0
    if unit:
        total = 0.0
        for j in range(len(row)):
            total += row[j] * row[j] if row[j] == row[j] else 0.0
        inverse_norm = 1.0 / math.sqrt(total) if total > 0.0 else 1.0
    for j in range(known):
        gap = (row[j] * inverse_norm - centre[j]) * inverse[j]
        row[j] = gap if gap == gap else 0.0
    for j in range(known, len(row)):
        gap = row[j] * inverse_norm * outer
        row[j] = gap if gap == gap else 0.0
    length = 0.0
    for j in range(len(row)):
        length += row[j] * row[j]
    return length


@kernel
def project_cells(
    indptr: Ints,
    indices: Ints,
    data: Floats,
    centre: Floats,
    inverse: Floats,
    directions: Floats,
    origin: Floats,
    length_of_origin: float,
    unit: bool,
    outer: float,
    z: Floats,
    squares: Floats,
) -> None:
    """The same for sparse rows, in which what is absent is 0; the cost is that of the values they hold.

    `directions` (D, d); `origin` and its squared length are those of a row of zeros.
    """
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


@kernel
def compress_rows(x: Floats, knee: Floats) -> None:
    """Dense rows, in place: asinh(value / knee) in the columns that have a knee."""
    for j in range(min(x.shape[1], len(knee))):
        if knee[j] > 0.0:
            for i in range(x.shape[0]):
                x[i, j] = math.asinh(x[i, j] / knee[j])


@kernel
def compress_cells(indices: Ints, data: Floats, knee: Floats) -> None:
    """The same for the values of sparse rows."""
    for place in range(len(data)):
        j = indices[place]
        if j < len(knee) and knee[j] > 0.0:
            data[place] = math.asinh(data[place] / knee[j])
