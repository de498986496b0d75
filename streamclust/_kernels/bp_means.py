"""Loops of BP-means: which features each row has.

Costs are told by what changes: with residual r = x - zA, flipping features by δ (+1 on, -1 off) costs
-2 δ·(A r) + δᵀ(A Aᵀ)δ. So a base feature far from the origin, which never flips, costs no digits.
"""

import numpy as np

from streamclust._kernels.compile import kernel
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
        leverage = 0.0
        for f in range(k):
            total = 0.0
            for g in range(k):
                total += H[f, g] * z[g]
            Hz[f] = total
            leverage += w * z[f] * total
        rest = 1.0 - leverage
        if rest < ALONE:
            continue
        for j in range(d):
            total = X[r, j]
            for f in range(k):
                total -= z[f] * A[f, j]
            residual[j] = total / rest
        for f in range(k):
            for j in range(d):
                lone_A[f, j] = A[f, j] - w * Hz[f] * residual[j]
            for g in range(k):
                lone_H[f, g] = H[f, g] + w * Hz[f] * Hz[g] / rest
        squared = 0.0
        for j in range(d):
            squared += residual[j] * residual[j]
        for f in range(k):
            total = 0.0
            for j in range(d):
                total += lone_A[f, j] * residual[j]
            projection[f] = total
            for g in range(f + 1):
                total = 0.0
                for j in range(d):
                    total += lone_A[f, j] * lone_A[g, j]
                gram[f, g] = total
                gram[g, f] = total
        own_spread = leverage / rest
        stay = w * squared / (1.0 + own_spread)
        best = stay * (1.0 - 1e-10)
        chosen = -1
        delta[:] = 0.0
        through[:] = 0.0
        cost, spread = squared, own_spread / w
        for f in range(k):
            lever[f] = Hz[f] / rest
        if exhaustive:
            for i in range(1, 1 << k):
                bit = 0
                while not (i >> bit) & 1:
                    bit += 1
                f = order[bit]
                e = -1.0 if (z[f] + delta[f]) > 0.5 else 1.0
                cost += e * (2.0 * (through[f] - projection[f]) + e * gram[f, f])
                spread += e * (2.0 * lever[f] + e * lone_H[f, f])
                delta[f] += e
                for g in range(k):
                    through[g] += e * gram[f, g]
                    lever[g] += e * lone_H[f, g]
                price = w * max(cost, 0.0) / (1.0 + w * max(spread, 0.0))
                if price < best:
                    best, chosen = price, i ^ (i >> 1)
            delta[:] = 0.0
            if chosen >= 0:
                for bit in range(k):
                    if (chosen >> bit) & 1:
                        delta[order[bit]] = 1.0 - 2.0 * z[order[bit]]
        else:
            while True:
                pick = -1
                for f in range(k):
                    e = -1.0 if (z[f] + delta[f]) > 0.5 else 1.0
                    squares = cost + e * (2.0 * (through[f] - projection[f]) + e * gram[f, f])
                    levers = spread + e * (2.0 * lever[f] + e * lone_H[f, f])
                    price = w * max(squares, 0.0) / (1.0 + w * max(levers, 0.0))
                    if price < best:
                        best, pick = price, f
                if pick < 0:
                    break
                chosen = pick
                e = -1.0 if (z[pick] + delta[pick]) > 0.5 else 1.0
                cost += e * (2.0 * (through[pick] - projection[pick]) + e * gram[pick, pick])
                spread += e * (2.0 * lever[pick] + e * lone_H[pick, pick])
                delta[pick] += e
                for g in range(k):
                    through[g] += e * gram[pick, g]
                    lever[g] += e * lone_H[pick, g]
        if chosen < 0:
            if stay > most:
                worst, most = r, stay
            continue
        changed += 1
        if best > most:
            worst, most = r, best
        for f in range(k):
            z[f] += delta[f]
            Z[r, f] = z[f] > 0.5
        spread = 0.0
        for f in range(k):
            total = 0.0
            for g in range(k):
                total += lone_H[f, g] * z[g]
            Hz[f] = total
            spread += w * z[f] * total
        for j in range(d):
            total = X[r, j]
            for f in range(k):
                total -= z[f] * lone_A[f, j]
            residual[j] = total
        for f in range(k):
            for j in range(d):
                A[f, j] = lone_A[f, j] + w * Hz[f] / (1.0 + spread) * residual[j]
            for g in range(k):
                H[f, g] = lone_H[f, g] - w * Hz[f] * Hz[g] / (1.0 + spread)
    return changed, worst, most
