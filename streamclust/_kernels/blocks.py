"""Distances of blocks of points: one row per feature, so that the innermost loops run along points."""

from streamclust._kernels.compile import fused_part, inlined
from streamclust._kernels.types import Floats

BLOCK = 128
"""Points worked on at once: a block of them with its scratch stays in the first cache."""


@inlined
def is_zero(
    a0: float, a1: float, a2: float, a3: float, b0: float, b1: float, b2: float, b3: float, c0: float, c1: float,
    c2: float, c3: float, d0: float, d1: float, d2: float, d3: float,
) -> bool:  # fmt: skip
    """Whether 16 numbers are 0."""
    return (
        (a0 == 0.0 and a1 == 0.0 and a2 == 0.0 and a3 == 0.0)
        and (b0 == 0.0 and b1 == 0.0 and b2 == 0.0 and b3 == 0.0)
        and (c0 == 0.0 and c1 == 0.0 and c2 == 0.0 and c3 == 0.0)
        and (d0 == 0.0 and d1 == 0.0 and d2 == 0.0 and d3 == 0.0)
    )


@fused_part
def block_distances(
    columns: Floats, start: int, size: int, mean: Floats, W: Floats, y: Floats, z: Floats, out: Floats
) -> None:
    """out[b] = ‖W (x - mean)‖² for the points start..start+size, W lower triangular; y, z are scratch."""
    d = len(mean)
    for b in range(size):
        out[b] = 0.0
    for i in range(0, d, 4):
        add_coordinates(columns, start, size, mean, W, i, y, z, out)


@fused_part
def block_distances_within(
    columns: Floats, start: int, size: int, mean: Floats, W: Floats, most: Floats, y: Floats, z: Floats, out: Floats
) -> bool:  # fmt: skip
    """`block_distances`, but False once every point is farther than its `most`: then `out` are lower bounds."""
    d = len(mean)
    for b in range(size):
        out[b] = 0.0
    for i in range(0, d, 4):
        add_coordinates(columns, start, size, mean, W, i, y, z, out)
        if i + 4 < d:
            beyond = 0
            for b in range(size):
                beyond += out[b] > most[b]
            if beyond == size:
                return False
    return True


@fused_part
def add_coordinates(
    columns: Floats, start: int, size: int, mean: Floats, W: Floats, i: int, y: Floats, z: Floats, out: Floats
) -> None:  # fmt: skip
    """Add the squares of the coordinates i to i+3 of W (x - mean), or of those there are; y has x - mean before i.

    Four coordinates and four terms at once: each y read serves four sums, each sum is written once in four.
    """
    d = len(mean)
    for j in range(i, min(i + 4, d)):
        x, here, m = columns[j, start : start + size], y[j], mean[j]
        for b in range(size):
            here[b] = x[b] - m
    z0, z1, z2, z3 = z[0], z[1], z[2], z[3]
    if i + 3 < d:
        for b in range(size):
            z0[b], z1[b], z2[b], z3[b] = 0.0, 0.0, 0.0, 0.0
        for j in range(0, i + 4, 4):  # beyond the diagonal W is 0
            a0, a1, a2, a3 = W[i, j], W[i, j + 1], W[i, j + 2], W[i, j + 3]
            b0, b1, b2, b3 = W[i + 1, j], W[i + 1, j + 1], W[i + 1, j + 2], W[i + 1, j + 3]
            c0, c1, c2, c3 = W[i + 2, j], W[i + 2, j + 1], W[i + 2, j + 2], W[i + 2, j + 3]
            d0, d1, d2, d3 = W[i + 3, j], W[i + 3, j + 1], W[i + 3, j + 2], W[i + 3, j + 3]
            if j < i and is_zero(a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3):
                continue  # most of a diagonal W
            y0, y1, y2, y3 = y[j], y[j + 1], y[j + 2], y[j + 3]
            for b in range(size):
                p, q, r, s = y0[b], y1[b], y2[b], y3[b]
                z0[b] += a0 * p + a1 * q + a2 * r + a3 * s
                z1[b] += b0 * p + b1 * q + b2 * r + b3 * s
                z2[b] += c0 * p + c1 * q + c2 * r + c3 * s
                z3[b] += d0 * p + d1 * q + d2 * r + d3 * s
        for b in range(size):
            out[b] += z0[b] * z0[b] + z1[b] * z1[b] + z2[b] * z2[b] + z3[b] * z3[b]
        return
    for k in range(i, d):
        for b in range(size):
            z0[b] = 0.0
        for j in range(k + 1):
            w, here = W[k, j], y[j]
            for b in range(size):
                z0[b] += w * here[b]
        for b in range(size):
            out[b] += z0[b] * z0[b]
