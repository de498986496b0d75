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

    `directions` (d, D). Rows are taken by fours, two directions at a time, which spares passes over memory; the last
    row is taken again where there are fewer. The order of sums is the compiler's, and the same for every row.
    """
    last_row, last = x.shape[0] - 1, z.shape[1] - 1
    known = min(x.shape[1], directions.shape[1])
    rows = np.empty((4, x.shape[1]))
    for i in range(0, x.shape[0], 4):
        i1, i2, i3 = min(i + 1, last_row), min(i + 2, last_row), min(i + 3, last_row)
        squares[i] = scale_row(x, i, centre, inverse, unit, outer, rows[0])
        squares[i1] = scale_row(x, i1, centre, inverse, unit, outer, rows[1])
        squares[i2] = scale_row(x, i2, centre, inverse, unit, outer, rows[2])
        squares[i3] = scale_row(x, i3, centre, inverse, unit, outer, rows[3])
        for k in range(0, z.shape[1], 2):
            k1 = min(k + 1, last)
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            e, f, g, h = 0.0, 0.0, 0.0, 0.0
            for j in range(known):
                one, two = directions[k, j], directions[k1, j]
                a += rows[0, j] * one
                b += rows[1, j] * one
                c += rows[2, j] * one
                d += rows[3, j] * one
                e += rows[0, j] * two
                f += rows[1, j] * two
                g += rows[2, j] * two
                h += rows[3, j] * two
            z[i, k], z[i1, k], z[i2, k], z[i3, k] = a, b, c, d
            z[i, k1], z[i1, k1], z[i2, k1], z[i3, k1] = e, f, g, h


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
    """Project sparse rows, whose absent values are 0, at the cost of the values they hold.

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
    """Sparse rows, in place: asinh(value / knee) of the values in columns that have a knee."""
    for place in range(len(data)):
        j = indices[place]
        if j < len(knee) and knee[j] > 0.0:
            data[place] = math.asinh(data[place] / knee[j])
