"""Whole runs of ME iterations [BKM section 6]: rows to their cheapest clusters, clusters learn their rows, and again.

A search runs thousands of them over a few hundred rows: array operations would spend it all on calls.
"""

import math

import numpy as np

from streamclust._kernels.blocks import BLOCK, block_distances_within
from streamclust._kernels.compile import kernel, part, shared_part
from streamclust._kernels.families.normal_wishart import digamma, learn, log_marginal, log_marginal_prior
from streamclust._kernels.moments import group_rows
from streamclust._kernels.types import Bools, Floats, Ints


@part
def add_traces(spread: Floats, start: int, size: int, precision: Floats, out: Floats) -> None:
    """out[b] += Σ precision · spread of the rows start..start+size, four terms at once."""
    width = len(precision)
    j = 0
    while j + 3 < width:
        p, q, r, s = precision[j], precision[j + 1], precision[j + 2], precision[j + 3]
        a, b = spread[j, start : start + size], spread[j + 1, start : start + size]
        c, d = spread[j + 2, start : start + size], spread[j + 3, start : start + size]
        for i in range(size):
            out[i] += p * a[i] + q * b[i] + r * c[i] + s * d[i]
        j += 4
    while j < width:
        p, a = precision[j], spread[j, start : start + size]
        for i in range(size):
            out[i] += p * a[i]
        j += 1


@part
def pack_precision(W: Floats, scale: float, packed: Floats) -> None:
    """The upper half of scale WᵀW, row by row, for lower triangular W."""
    d = len(W)
    j = 0
    for a in range(d):
        for b in range(a, d):
            total = 0.0
            for i in range(b, d):
                total += W[i, a] * W[i, b]
            packed[j] = scale * total
            j += 1


@part
def total_free_energy(terms: Floats, alive: Bools, weight: float, phi0: float) -> float:
    """F of the clusters that are alive under a finite mixture [BKM eq. 19]."""
    total, k = 0.0, 0
    for c in range(len(terms)):
        if alive[c]:
            total += terms[c]
            k += 1
    return total + math.lgamma(weight + k * phi0) - math.lgamma(k * phi0)


@shared_part
def nearest_clusters(mean: Floats, weight: Floats, root: Floats, found: Ints) -> None:
    """found[c] = the nearest other clusters of c, by Ward's distance in the metric of a root of S⁻¹; k > their number.

    Ward's distance is n_a n_b / (n_a + n_b) times the squared distance.
    """
    k, d = mean.shape
    x = np.zeros((k, d))
    for c in range(k):
        for i in range(d):
            for j in range(i + 1):
                x[c, i] += root[i, j] * (mean[c, j] - mean[0, j])
    distance = np.empty(k)
    for a in range(k):
        for b in range(k):
            squared = 0.0
            for i in range(d):
                squared += (x[a, i] - x[b, i]) * (x[a, i] - x[b, i])
            distance[b] = squared * weight[a] * weight[b] / (weight[a] + weight[b])
        distance[a] = np.inf
        for place in range(found.shape[1]):
            nearest = 0 if a > 0 else 1
            for b in range(k):
                if distance[b] < distance[nearest]:
                    nearest = b
            found[a, place] = nearest
            distance[nearest] = np.inf


@part
def sorted_by_label(labels: Ints, k: int) -> Ints:
    """The rows in the order of their labels."""
    first = np.zeros(k + 1, dtype=np.int64)
    for label in labels:
        first[label + 1] += 1
    for c in range(k):
        first[c + 1] += first[c]
    order = np.empty(len(labels), dtype=np.int64)
    for r in range(len(labels)):
        order[first[labels[r]]] = r
        first[labels[r]] += 1
    return order


@part
def reordered(rows: Floats, order: Ints) -> Floats:
    """The columns in another order."""
    out = np.empty(rows.shape)
    for i in range(len(rows)):
        for r in range(len(order)):
            out[i, r] = rows[i, order[r]]
    return out


@part
def any_below(cost: Floats, limit: Floats) -> bool:
    """Whether any cost is below its limit."""
    for b in range(len(cost)):
        if cost[b] < limit[b]:
            return True
    return False


UNKNOWN, BOUNDED, KNOWN = 0, 1, 2
"""State of `cost` for a cluster and a block of rows: not computed, a lower bound, exact."""


@part
def price_block(
    columns: Floats, spread: Floats, start: int, size: int, heavy: Floats, least: Floats, mean: Floats, W: Floats,
    scale: float, constant: float, precision: Floats, most: Floats, y: Floats, z: Floats, distance: Floats,
    cost: Floats,
) -> int:  # fmt: skip
    """Write what a cluster charges a block of rows, or less where that is above the `least` of each of them.

    Returns KNOWN or BOUNDED.
    """
    for b in range(size):
        if heavy[b] > 0.0:
            each = least[b] / heavy[b]
            most[b] = (each - constant + 1e-12 * (abs(each) + abs(constant))) / scale
        else:
            most[b] = -math.inf
    whole = block_distances_within(columns, start, size, mean, W, most, y, z, distance)
    for b in range(size):
        cost[b] = heavy[b] * (constant + scale * distance[b])
    if whole and len(spread) > 0:
        add_traces(spread, start, size, precision, cost)
    return KNOWN if whole else BOUNDED


@kernel
def iterate_rows(
    columns: Floats, spread: Floats, row_weight: Floats, row_mean: Floats, row_scatter: Floats, labels: Ints,
    weight: Floats, mean: Floats, scatter: Floats, terms: Floats, cost: Floats, stale: Bools,
    xi0: float, m0: Floats, eta0: float, B0: Floats, blur: Floats, phi0: float, limit: int, near: Ints,
) -> tuple[Bools, Bools, int]:  # fmt: skip
    """At most `limit` ME iterations under a finite mixture, while F falls; rewrites what it is given of the clusters.

    `spread` (D (D+1) / 2, rows) holds the upper half of each row's own scatter, off-diagonals doubled; it is empty
    where rows are points. `cost` (clusters x rows) is known where a cluster is not `stale`; a block of rows is priced
    by other clusters only as far as it takes to see that they are dearer. Where `near` (clusters x some) has the
    clusters near each, rows choose among those near the clusters of their block: then all must be stale, and `cost` is
    of no further use. Returns which clusters are left, which have changed, and how many iterations were
    made.
    """
    k, n = cost.shape
    d = len(m0)
    alive, changed, touched = (
        np.ones(k, dtype=np.bool_),
        np.zeros(k, dtype=np.bool_),
        np.empty(k, dtype=np.bool_),
    )
    chosen, own = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    m, W, scale, constant = np.empty((k, d)), np.empty((k, d, d)), np.empty(k), np.empty(k)
    packed = np.empty((k, len(spread)))
    some = near.shape[1] > 0
    order = np.empty(n, dtype=np.int64)
    if some:
        order = sorted_by_label(labels, k)
        columns, spread = reordered(columns, order), reordered(spread, order)
    else:
        for r in range(n):
            order[r] = r
    known, offered = np.empty((k, n // BLOCK + 1), dtype=np.int8), np.ones(k, dtype=np.bool_)
    for c in range(k):
        for block in range(known.shape[1]):
            known[c, block] = UNKNOWN if stale[c] else KNOWN
    mine, heavy = np.empty(BLOCK, dtype=np.int64), np.empty(BLOCK)
    B, factor = np.empty((d, d)), np.empty((d, d))
    y, z, distance, least = np.empty((d, BLOCK)), np.empty((4, BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    most, none = np.empty(BLOCK), np.empty(BLOCK)
    for b in range(BLOCK):
        none[b] = math.inf
    fresh_terms, middle = np.empty(k), np.empty(d)
    prior = log_marginal_prior(eta0, B0, factor)
    everything = 0.0
    for r in range(n):
        everything += row_weight[r]
    lowest = total_free_energy(terms, alive, everything, phi0)
    made = 0
    while made < limit:
        for c in range(k):
            touched[c] = False
            if alive[c] and stale[c]:
                _, _, constant[c] = learn(
                    weight[c], mean[c], scatter[c], xi0, m0, eta0, B0, blur, m[c], B, W[c], factor
                )
                constant[c] -= digamma(phi0 + weight[c])
                scale[c] = (eta0 + weight[c]) / 2
                if len(spread) > 0:
                    pack_precision(W[c], scale[c], packed[c])
        moved = 0
        for start in range(0, n, BLOCK):
            size, block = min(BLOCK, n - start), start // BLOCK
            for b in range(size):
                mine[b], heavy[b] = labels[order[start + b]], row_weight[order[start + b]]
            if some:
                for c in range(k):
                    offered[c] = False
                for b in range(size):
                    if not offered[mine[b]] or b == 0 or mine[b] != mine[b - 1]:
                        offered[mine[b]] = True
                        for c in near[mine[b]]:
                            offered[c] = True
            now = chosen[start : start + size]
            for b in range(size):
                c = mine[b]
                if known[c, block] != KNOWN:
                    known[c, block] = price_block(
                        columns, spread, start, size, heavy, none, m[c], W[c], scale[c], constant[c], packed[c],
                        most, y, z, distance, cost[c, start : start + size],
                    )  # fmt: skip
                now[b] = c
                least[b] = cost[c, start + b]
            for c in range(k):
                if alive[c] and offered[c]:
                    here = cost[c, start : start + size]
                    if known[c, block] == UNKNOWN or (known[c, block] == BOUNDED and any_below(here, least)):
                        known[c, block] = price_block(
                            columns, spread, start, size, heavy, least, m[c], W[c], scale[c], constant[c], packed[c],
                            most, y, z, distance, here,
                        )  # fmt: skip
                    if known[c, block] == BOUNDED:
                        continue
                    for b in range(size):
                        if here[b] < least[b]:
                            least[b], now[b] = here[b], c
            for b in range(size):
                if now[b] != mine[b]:
                    touched[now[b]] = True
                    touched[mine[b]] = True
                    moved += 1
        for c in range(k):
            stale[c] = False
        if moved == 0:
            break
        for i in range(n):
            own[order[i]] = chosen[i] if touched[chosen[i]] else -1
        new_weight, new_mean, new_scatter = group_rows(row_weight, row_mean, row_scatter, own, k, d * d)
        ended = False
        for c in range(k):
            fresh_terms[c] = terms[c]
            if touched[c] and new_weight[c] > 0.0:
                value = log_marginal(
                    new_weight[c], new_mean[c], new_scatter[c], xi0, m0, eta0, B0, blur,
                    prior, middle, B, factor,
                )  # fmt: skip
                fresh_terms[c] = math.lgamma(phi0) - math.lgamma(phi0 + new_weight[c]) - value
            elif touched[c]:
                alive[c], ended = False, True
        after = total_free_energy(fresh_terms, alive, everything, phi0)
        if not after < lowest:  # the fall is below what F's digits show
            for c in range(k):
                alive[c] = alive[c] or touched[c]
            break
        lowest = after
        made += 1
        for c in range(k):
            if touched[c]:
                stale[c] = changed[c] = True
                for block in range(known.shape[1]):
                    known[c, block] = UNKNOWN
                weight[c], terms[c] = new_weight[c], fresh_terms[c]
                for i in range(d):
                    mean[c, i] = new_mean[c, i]
                for i in range(d * d):
                    scatter[c, i] = new_scatter[c, i]
        first = 0
        while ended and not alive[first]:
            first += 1
        for i in range(n):  # rows of weight 0 may be left in a cluster that has ended
            labels[order[i]] = chosen[i] if alive[chosen[i]] else first
    for c in range(k):
        for block in range((n - 1) // BLOCK + 1):
            stale[c] = stale[c] or known[c, block] != KNOWN
    return alive, changed, made
