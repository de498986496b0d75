"""Local splits: clusters' own points between two halves of each, several first cuts at once."""

import numpy as np

from streamclust._kernels.blocks import BLOCK, block_distances
from streamclust._kernels.compile import kernel, part_with_free_sums
from streamclust._kernels.families.normal_wishart import digamma, learn
from streamclust._kernels.types import Bools, Floats, Ints


@kernel
def iterate_halves(
    columns: Floats, row_weight: Floats, edges: Ints, moving: Bools, weight: Floats, mean: Floats, scatter: Floats,
    xi0: float, m0: Floats, eta0: float, B0: Floats, blur: Floats, shift: float, steps: int, side: Ints,
) -> tuple[Floats, Floats, Floats, Floats, Bools]:  # fmt: skip
    """At most `steps` ME iterations between the halves of every cluster c that is moving under cut t.

    The points of cluster c stand between two edges; `side[t]` (0 or 1) is rewritten. A half's mixing term is
    ψ(shift + N). Returns weights, means, scatters and summed squared weights of the halves, (cuts, clusters, 2,
    ...), and which still moved in the last iteration.
    """
    d = len(columns)
    cuts, k = moving.shape
    half_weight, half_square = np.zeros((cuts, k, 2)), np.zeros((cuts, k, 2))
    half_mean, half_scatter = np.zeros((cuts, k, 2, d)), np.zeros((cuts, k, 2, d * d))
    moved = np.zeros((cuts, k), dtype=np.bool_)
    first, Q = np.empty(d), np.empty((d, d))
    m, W = np.empty((2, d)), np.empty((2, d, d))
    B, factor = np.empty((d, d)), np.empty((d, d))
    scale, constant = np.empty(2), np.empty(2)
    y, z = np.empty((d, BLOCK)), np.empty((4, BLOCK))
    u, near, far = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for t in range(cuts):
        for c in range(k):
            if not moving[t, c]:
                continue
            for step in range(steps + 1):
                if step > 0:
                    for h in range(2):
                        n = half_weight[t, c, h]
                        _, _, constant[h] = learn(
                            n, half_mean[t, c, h], half_scatter[t, c, h], xi0, m0, eta0, B0, blur,
                            m[h], B, W[h], factor,
                        )  # fmt: skip
                        constant[h] -= digamma(shift + n)
                        scale[h] = (eta0 + n) / 2
                first[:] = 0.0
                Q[:] = 0.0
                n0, n1, square0, square1, changes = 0.0, 0.0, 0.0, 0.0, 0
                for start in range(edges[c], edges[c + 1], BLOCK):
                    size = min(BLOCK, edges[c + 1] - start)
                    sides = side[t, start : start + size]
                    if step > 0:
                        block_distances(columns, start, size, m[0], W[0], y, z, near)
                        block_distances(columns, start, size, m[1], W[1], y, z, far)
                        for b in range(size):
                            a0 = constant[0] + scale[0] * near[b]
                            a1 = constant[1] + scale[1] * far[b]
                            better = sides[b] if a0 == a1 else int(a1 < a0)
                            changes += int(better != sides[b])
                            sides[b] = better
                    for b in range(size):
                        w = row_weight[start + b]
                        u[b] = w * sides[b]
                        rest = w - u[b]  # w or 0; sums of a half as differences of sums would cancel
                        n0 += rest
                        n1 += u[b]
                        square0 += rest * rest
                        square1 += u[b] * u[b]
                    _add_block(columns, start, size, mean[c], u, y, z[0], first, Q)
                if step > 0 and changes == 0:
                    moved[t, c] = False
                    break
                moved[t, c] = True
                half_square[t, c, 0], half_square[t, c, 1] = square0, square1
                if min(n0, n1) <= 1e-12 * weight[c]:  # one half has all: nothing stands to be split
                    half_weight[t, c, :] = 0.0
                    moved[t, c] = False
                    break
                half_weight[t, c, 0], half_weight[t, c, 1] = n0, n1
                for i in range(d):
                    half_mean[t, c, 0, i] = mean[c, i] - first[i] / n0
                    half_mean[t, c, 1, i] = mean[c, i] + first[i] / n1
                    for j in range(i + 1):
                        product = first[i] * first[j]
                        inner = Q[i, j] - product / n1
                        outer = scatter[c, i * d + j] - Q[i, j] - product / n0
                        if i == j:
                            inner, outer = max(inner, 0.0), max(outer, 0.0)
                        half_scatter[t, c, 0, i * d + j] = half_scatter[t, c, 0, j * d + i] = outer
                        half_scatter[t, c, 1, i * d + j] = half_scatter[t, c, 1, j * d + i] = inner
    return half_weight, half_mean, half_scatter, half_square, moved


@part_with_free_sums
def _add_block(
    columns: Floats,
    start: int,
    size: int,
    centre: Floats,
    u: Floats,
    y: Floats,
    v: Floats,
    first: Floats,
    Q: Floats,
) -> None:
    """Add Σ u (x - centre) and the lower half of Σ u (x - centre)(x - centre)ᵀ of a block of points."""
    d = len(columns)
    for i in range(d):
        x, here = columns[i, start : start + size], y[i]
        total = 0.0
        for b in range(size):
            here[b] = x[b] - centre[i]
            v[b] = u[b] * here[b]
            total += v[b]
        first[i] += total
        for j in range(i + 1):
            other = y[j]
            total = 0.0
            for b in range(size):
                total += v[b] * other[b]
            Q[i, j] += total
