"""Loops of BP-means: which features each row has.

Costs are told by what changes: with residual r = x - zA, flipping features by δ (+1 on, -1 off) costs
-2 δ·(A r) + δᵀ(A Aᵀ)δ. So a base feature far from the origin, which never flips, costs no digits.
"""

import numpy as np

from streamclust._kernels.compile import inlined, kernel, part
from streamclust._kernels.types import Bools, Floats, Ints


@kernel
def flip_all(projection: Floats, gram: Floats, order: Ints, Z: Bools) -> int:
    """The best of all 2^K combinations for each row, in Gray code order; returns how many rows changed.

    projection is A r of each row, gram A Aᵀ. `order` has the features of small norm first: they flip most often,
    and the rounding of a large one enters once.
    """
    n, k = projection.shape
    delta, through = np.zeros(k), np.zeros(k)
    changed = 0
    for r in range(n):
        delta[:] = 0.0
        through[:] = 0.0
        cost, best, chosen = 0.0, 0.0, 0
        scale = 0.0
        for f in range(k):
            scale = max(scale, abs(projection[r, f]))
        for i in range(1, 1 << k):
            bit = 0
            while not (i >> bit) & 1:
                bit += 1
            f = order[bit]
            e = -1.0 if Z[r, f] else 1.0
            if delta[f] != 0.0:
                e = -e
            cost += e * (2.0 * (through[f] - projection[r, f]) + e * gram[f, f])
            delta[f] += e
            for g in range(k):
                through[g] += e * gram[f, g]
            if cost < best - 1e-12 * scale:
                best, chosen = cost, i ^ (i >> 1)
        if chosen != 0:
            changed += 1
            for bit in range(k):
                if (chosen >> bit) & 1:
                    Z[r, order[bit]] = not Z[r, order[bit]]
    return changed


@kernel
def flip_some(projection: Floats, gram: Floats, starts: Bools, Z: Bools) -> int:
    """For many features: flips of one or two at a time, from the row's own and from given combinations."""
    n, k = projection.shape
    delta, through, single = np.zeros(k), np.zeros(k), np.zeros(k)
    found = np.zeros(k)
    changed = 0
    for r in range(n):
        best = 0.0
        scale = 0.0
        for f in range(k):
            scale = max(scale, abs(projection[r, f]))
        found[:] = 0.0
        for s in range(len(starts) + 1):
            cost = 0.0
            delta[:] = 0.0
            through[:] = 0.0
            if s > 0:
                for f in range(k):
                    if starts[s - 1, f] != Z[r, f]:
                        e = -1.0 if Z[r, f] else 1.0
                        cost += e * (2.0 * (through[f] - projection[r, f]) + e * gram[f, f])
                        delta[f] = e
                        for g in range(k):
                            through[g] += e * gram[f, g]
            while True:
                gain, first, second = -1e-12 * scale, -1, -1
                for f in range(k):
                    on = Z[r, f] if delta[f] == 0.0 else not Z[r, f]
                    e = -1.0 if on else 1.0
                    single[f] = e * (2.0 * (through[f] - projection[r, f]) + e * gram[f, f])
                    if single[f] < gain:
                        gain, first, second = single[f], f, -1
                    for g in range(f):
                        on_g = Z[r, g] if delta[g] == 0.0 else not Z[r, g]
                        both = single[f] + single[g] + 2.0 * gram[f, g] * (e if not on_g else -e)
                        if both < gain:
                            gain, first, second = both, f, g
                if first < 0:
                    break
                cost += gain
                for f in (first, second):
                    if f >= 0:
                        on = Z[r, f] if delta[f] == 0.0 else not Z[r, f]
                        e = -1.0 if on else 1.0
                        delta[f] += e
                        for g in range(k):
                            through[g] += e * gram[f, g]
            if cost < best - 1e-12 * scale:
                best = cost
                found[:] = delta
        row_changed = False
        for f in range(k):
            if found[f] != 0.0:
                Z[r, f] = not Z[r, f]
                row_changed = True
        changed += row_changed
    return changed


ALONE = 1e-7
"""A row whose leverage is within this of 1 holds a feature alone: without it the others could not tell that feature."""


@inlined
def multiply(H: Floats, z: Floats, out: Floats) -> float:
    """Write H z to `out`; returns zᵀ H z."""
    product = 0.0
    for f in range(len(z)):
        total = 0.0
        for g in range(len(z)):
            total += H[f, g] * z[g]
        out[f] = total
        product += z[f] * total
    return product


@inlined
def subtract_features(x: Floats, z: Floats, A: Floats, residual: Floats) -> None:
    """Write x - zA to `residual`."""
    for j in range(len(x)):
        total = x[j]
        for f in range(len(z)):
            total -= z[f] * A[f, j]
        residual[j] = total


@inlined
def project_residual(A: Floats, residual: Floats, projection: Floats, gram: Floats) -> None:
    """Write A r to `projection` and A Aᵀ to `gram`."""
    for f in range(len(A)):
        total = 0.0
        for j in range(len(residual)):
            total += A[f, j] * residual[j]
        projection[f] = total
        for g in range(f + 1):
            total = 0.0
            for j in range(len(residual)):
                total += A[f, j] * A[g, j]
            gram[f, g] = total
            gram[g, f] = total


@inlined
def price_with(w: float, squares: float, levers: float) -> float:
    """Cost of joining a row to the others: w ‖x - zA₋‖² / (1 + w zᵀH₋z)."""
    return w * max(squares, 0.0) / (1.0 + w * max(levers, 0.0))


@part
def flip_all_collapsed(
    w: float, z: Floats, squared: float, spread: float, projection: Floats, gram: Floats, lever: Floats, H: Floats,
    order: Ints, best: float, delta: Floats, through: Floats,
) -> tuple[float, bool]:  # fmt: skip
    """Search all 2^K combinations of a row that left the others; writes the flips to `delta`.

    Returns the lowest price, and whether it is below `best`.
    """
    k = len(z)
    delta[:] = 0.0
    through[:] = 0.0
    chosen = 0
    for i in range(1, 1 << k):
        bit = 0
        while not (i >> bit) & 1:
            bit += 1
        f = order[bit]
        e = -1.0 if (z[f] + delta[f]) > 0.5 else 1.0
        squared += e * (2.0 * (through[f] - projection[f]) + e * gram[f, f])
        spread += e * (2.0 * lever[f] + e * H[f, f])
        delta[f] += e
        for g in range(k):
            through[g] += e * gram[f, g]
            lever[g] += e * H[f, g]
        price = price_with(w, squared, spread)
        if price < best:
            best, chosen = price, i ^ (i >> 1)
    delta[:] = 0.0
    for bit in range(k):
        if (chosen >> bit) & 1:
            delta[order[bit]] = 1.0 - 2.0 * z[order[bit]]
    return best, chosen != 0


@part
def flip_some_collapsed(
    w: float, z: Floats, squared: float, spread: float, projection: Floats, gram: Floats, lever: Floats, H: Floats,
    best: float, delta: Floats, through: Floats,
) -> tuple[float, bool]:  # fmt: skip
    """`flip_all_collapsed` for many features: the best single flip, repeated while the price falls."""
    k = len(z)
    delta[:] = 0.0
    through[:] = 0.0
    flipped = False
    while True:
        pick = -1
        for f in range(k):
            e = -1.0 if (z[f] + delta[f]) > 0.5 else 1.0
            squares = squared + e * (2.0 * (through[f] - projection[f]) + e * gram[f, f])
            levers = spread + e * (2.0 * lever[f] + e * H[f, f])
            price = price_with(w, squares, levers)
            if price < best:
                best, pick = price, f
        if pick < 0:
            return best, flipped
        flipped = True
        e = -1.0 if (z[pick] + delta[pick]) > 0.5 else 1.0
        squared += e * (2.0 * (through[pick] - projection[pick]) + e * gram[pick, pick])
        spread += e * (2.0 * lever[pick] + e * H[pick, pick])
        delta[pick] += e
        for g in range(k):
            through[g] += e * gram[pick, g]
            lever[g] += e * H[pick, g]


@kernel
def collapsed_rows(
    X: Floats, weight: Floats, Z: Bools, A: Floats, H: Floats, order: Ints, exhaustive: bool
) -> tuple[int, int, float]:
    """One pass of collapsed BP-means [MAD-Bayes alg. 3, eq. 10], rows in their order.

    H is (ZᵀWZ)⁻¹ and A = H ZᵀWX; both follow each change (they are rewritten). Without the row, the others have
    H₋ and A₋; joining them with z costs exactly w ‖x - zA₋‖² / (1 + w zᵀH₋z). Returns how many rows changed, the row
    that costs most and its cost.
    """
    n, d = X.shape
    k = len(A)
    z, Hz, residual = np.zeros(k), np.zeros(k), np.zeros(d)
    lone_A, lone_H, gram, projection = np.zeros((k, d)), np.zeros((k, k)), np.zeros((k, k)), np.zeros(k)
    delta, through, lever = np.zeros(k), np.zeros(k), np.zeros(k)
    changed, worst, most = 0, -1, 0.0
    for r in range(n):
        w = weight[r]
        for f in range(k):
            z[f] = 1.0 if Z[r, f] else 0.0
        leverage = w * multiply(H, z, Hz)
        rest = 1.0 - leverage
        if rest < ALONE:
            continue
        # The row leaves the others.
        subtract_features(X[r], z, A, residual)
        squared = 0.0
        for j in range(d):
            residual[j] /= rest
            squared += residual[j] * residual[j]
        for f in range(k):
            lever[f] = Hz[f] / rest
            for j in range(d):
                lone_A[f, j] = A[f, j] - w * Hz[f] * residual[j]
            for g in range(k):
                lone_H[f, g] = H[f, g] + w * Hz[f] * Hz[g] / rest
        project_residual(lone_A, residual, projection, gram)
        # It chooses its features anew.
        spread = leverage / rest / w
        stay = price_with(w, squared, spread)
        best = stay * (1.0 - 1e-10)
        if exhaustive:
            best, moves = flip_all_collapsed(
                w, z, squared, spread, projection, gram, lever, lone_H, order, best, delta, through
            )
        else:
            best, moves = flip_some_collapsed(
                w, z, squared, spread, projection, gram, lever, lone_H, best, delta, through
            )
        cost = best if moves else stay
        if cost > most:
            worst, most = r, cost
        if not moves:
            continue
        # It joins them again.
        changed += 1
        for f in range(k):
            z[f] += delta[f]
            Z[r, f] = z[f] > 0.5
        weighted = w / (1.0 + w * multiply(lone_H, z, Hz))
        subtract_features(X[r], z, lone_A, residual)
        for f in range(k):
            for j in range(d):
                A[f, j] = lone_A[f, j] + weighted * Hz[f] * residual[j]
            for g in range(k):
                H[f, g] = lone_H[f, g] - weighted * Hz[f] * Hz[g]
    return changed, worst, most
