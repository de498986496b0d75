"""Steps of a merge path: F of the clusters, and merges of neighbours."""

import math

import numpy as np

from streamclust._kernels.compile import kernel, part
from streamclust._kernels.families.learnt_prior import inverse_factor
from streamclust._kernels.families.normal_wishart import log_marginal, log_marginal_prior
from streamclust._kernels.refit.changes import change_of_normaliser, change_of_terms, term_of
from streamclust._kernels.refit.iterations import nearest_clusters
from streamclust._kernels.types import Bools, Floats, Ints


@part
def mark_near_pairs(mean: Floats, weight: Floats, root: Floats, neighbours: int, near: Bools) -> None:
    """near[a, b], a < b: whether one is among the nearest of the other."""
    k = len(mean)
    few = k <= neighbours + 1
    for a in range(k):
        for b in range(k):
            near[a, b] = few and a < b
    if not few:
        found = np.empty((k, neighbours), dtype=np.int64)
        nearest_clusters(mean, weight, root, found)
        for a in range(k):
            for b in found[a]:
                near[min(a, b), max(a, b)] = True


@kernel
def choose_merges(pairs: Ints, change: Floats, k: int, into: Ints) -> None:
    """into[b] = a for the better half of the merges that pay, at most K/5; where none pays, for the best K/6.

    No cluster is in two of them.
    """
    paying = 0
    for p in range(len(change)):
        paying += int(change[p] < 0.0)
    count = max(1, min((paying + 1) // 2, k // 5) if paying > 0 else k // 6)
    free = np.ones(k, dtype=np.bool_)
    for c in range(k):
        into[c] = c
    for _ in range(count):
        best = -1
        for p in range(len(change)):
            if free[pairs[p, 0]] and free[pairs[p, 1]] and (best < 0 or change[p] < change[best]):
                best = p
        if best < 0 or (paying > 0 and not change[best] < 0.0):
            break
        into[pairs[best, 1]] = pairs[best, 0]
        free[pairs[best, 0]] = free[pairs[best, 1]] = False


@part
def merge_rows(into: Ints, weight: Floats, mean: Floats, scatter: Floats) -> None:
    """Add the moments of every b to those of into[b], if that is another [Chan, Golub & LeVeque 1979]."""
    d = mean.shape[1]
    for b in range(len(into)):
        a = into[b]
        if a == b:
            continue
        n = weight[a] + weight[b]
        share = weight[b] / n
        for i in range(d):
            step = weight[a] * share * (mean[b, i] - mean[a, i])
            for j in range(d):
                scatter[a, i * d + j] += scatter[b, i * d + j] + step * (mean[b, j] - mean[a, j])
        for i in range(d):
            mean[a, i] += share * (mean[b, i] - mean[a, i])
        weight[a] = n


@part
def close_up(into: Ints, labels: Ints, weight: Floats, mean: Floats, scatter: Floats) -> int:
    """Forget the clusters c with into[c] != c, whose rows into[c] has now; how many are left."""
    k = len(into)
    place = np.empty(k, dtype=np.int64)
    left = 0
    for c in range(k):
        if into[c] == c:
            place[c] = left
            weight[left] = weight[c]
            for i in range(mean.shape[1]):
                mean[left, i] = mean[c, i]
            for i in range(scatter.shape[1]):
                scatter[left, i] = scatter[c, i]
            left += 1
    for r in range(len(labels)):
        labels[r] = place[into[labels[r]]]
    return left


@part
def score(
    weight: Floats, mean: Floats, scatter: Floats, everything: float, xi0: float, m0: Floats, eta0: float, S: Floats,
    blur: Floats, variance: Floats, strength: float, phi0: float, terms: Floats, B0: Floats, root: Floats,
) -> float:  # fmt: skip
    """F with the cost of θ; writes each cluster's term, B0, and a root of S⁻¹."""
    k, d = mean.shape
    m, B, factor = np.empty(d), np.empty((d, d)), np.empty((d, d))
    total = 0.0
    for i in range(d):
        total += strength / 2 * (S[i, i] / variance[i] - 1.0)
        for j in range(d):
            B0[i, j] = eta0 * S[i, j]
            B[i, j] = S[i, j] / math.sqrt(variance[i] * variance[j])
    total -= strength / 2 * inverse_factor(B, 0.0, factor, root)
    for i in range(d):
        for j in range(i + 1):
            root[i, j] /= math.sqrt(variance[j])
    prior = log_marginal_prior(eta0, B0, factor)
    for c in range(k):
        value = log_marginal(weight[c], mean[c], scatter[c], xi0, m0, eta0, B0, blur, prior, m, B, factor)
        terms[c] = term_of(value, weight[c], phi0)
        total += terms[c]
    return total + math.lgamma(everything + k * phi0) - math.lgamma(k * phi0)


@part
def scales_of(labels: Ints, row_weight: Floats, weight: Floats, evidence: float) -> Floats:
    """Each cluster's local scale, max(1, evidence · Kish_c / n_c): 1 if `evidence` is 0 (the rows are no sample)."""
    f = np.zeros(len(weight))
    for r in range(len(labels)):
        f[labels[r]] += row_weight[r] * row_weight[r]
    for c in range(len(weight)):
        f[c] = max(1.0, evidence * weight[c] / f[c]) if evidence > 0.0 else 1.0
    return f


@part
def merges_of(
    weight: Floats, mean: Floats, scatter: Floats, terms: Floats, f: Floats, everything: float, xi0: float, m0: Floats,
    eta0: float, B0: Floats, blur: Floats, phi0: float, root: Floats, neighbours: int, past_rest: bool, into: Ints,
) -> bool:  # fmt: skip
    """Choose the merges of a round; False where none pays, unless `past_rest`."""
    k, d = mean.shape
    near = np.empty((k, k), dtype=np.bool_)
    mark_near_pairs(mean, weight, root, neighbours, near)
    count = 0
    for a in range(k):
        for b in range(a + 1, k):
            count += int(near[a, b])
    pairs, change = np.empty((count, 2), dtype=np.int64), np.empty(count)
    middle, spread, m = np.empty(d), np.empty(d * d), np.empty(d)
    B, factor = np.empty((d, d)), np.empty((d, d))
    prior = log_marginal_prior(eta0, B0, factor)
    p, pays = 0, False
    for a in range(k):
        for b in range(a + 1, k):
            if near[a, b]:
                pairs[p, 0], pairs[p, 1] = a, b
                at = f[a] if weight[a] <= weight[b] else f[b]
                change[p] = change_of_normaliser(at * everything, k, k - 1, phi0) + change_of_terms(
                    a, b, weight, mean, scatter, terms, at, xi0, m0, eta0, B0, blur, phi0, prior,
                    middle, spread, m, B, factor,
                )  # fmt: skip
                pays = pays or change[p] < 0.0
                p += 1
    choose_merges(pairs, change, k, into)
    return pays or past_rest


@kernel
def score_clusters(
    weight: Floats, mean: Floats, scatter: Floats, everything: float, xi0: float, m0: Floats, eta0: float, S: Floats,
    blur: Floats, variance: Floats, strength: float, phi0: float, terms: Floats, B0: Floats, root: Floats, near: Ints,
) -> float:  # fmt: skip
    """F with the cost of θ; writes each cluster's term, B0 and a root of S⁻¹.

    Writes the nearest clusters of each too, as many as `near` has columns.
    """
    energy = score(
        weight, mean, scatter, everything, xi0, m0, eta0, S, blur, variance, strength, phi0, terms, B0, root
    )
    if near.shape[1] > 0:
        nearest_clusters(mean, np.ones(len(mean)), root, near)
    return energy


@kernel
def merge_some(
    labels: Ints, row_weight: Floats, weight: Floats, mean: Floats, scatter: Floats, terms: Floats, everything: float,
    xi0: float, m0: Floats, eta0: float, B0: Floats, blur: Floats, phi0: float, root: Floats, evidence: float,
    neighbours: int, past_rest: bool,
) -> int:  # fmt: skip
    """A round of merges: rewrites labels and moments, and returns how many clusters are left; 0 where no merge pays.

    With `evidence` above 0 each is judged at the effective size of its smaller cluster. With `past_rest` the best are
    made even where none pays.
    """
    into = np.empty(len(weight), dtype=np.int64)
    f = scales_of(labels, row_weight, weight, evidence)
    if not merges_of(
        weight, mean, scatter, terms, f, everything, xi0, m0, eta0, B0, blur, phi0, root, neighbours, past_rest, into
    ):  # fmt: skip
        return 0
    merge_rows(into, weight, mean, scatter)
    return close_up(into, labels, weight, mean, scatter)
