"""How merges and splits change F, in closed form, for full Gaussians under a finite mixture [BKM eq. 19]."""

import math

import numpy as np

from streamclust._kernels.compile import kernel, part, shared_part
from streamclust._kernels.families.normal_wishart import log_marginal, log_marginal_prior
from streamclust._kernels.types import Bools, Floats, Ints


@part
def term_of(log_evidence: float, weight: float, phi0: float) -> float:
    """Term of a cluster in F under a finite mixture [BKM eq. 19]."""
    return math.lgamma(phi0) - math.lgamma(phi0 + weight) - log_evidence


@shared_part
def term_of_scaled(
    f: float, weight: float, mean: Floats, scatter: Floats, xi0: float, m0: Floats, eta0: float, B0: Floats,
    blur: Floats, phi0: float, prior: float, spread: Floats, m: Floats, B: Floats, factor: Floats,
) -> float:  # fmt: skip
    """`term_of` a cluster with every event counted f times."""
    for i in range(len(scatter)):
        spread[i] = f * scatter[i]
    value = log_marginal(f * weight, mean, spread, xi0, m0, eta0, B0, blur, prior, m, B, factor)
    return term_of(value, f * weight, phi0)


@shared_part
def change_of_terms(
    a: int, b: int, weight: Floats, mean: Floats, scatter: Floats, terms: Floats, f: float,
    xi0: float, m0: Floats, eta0: float, B0: Floats, blur: Floats, phi0: float, prior: float,
    middle: Floats, spread: Floats, m: Floats, B: Floats, factor: Floats,
) -> float:  # fmt: skip
    """The change of the clusters' terms by the merge of a and b, with every event counted f times."""
    d = len(m0)
    n = weight[a] + weight[b]
    share = weight[b] / n
    for i in range(d):
        middle[i] = mean[a, i] + share * (mean[b, i] - mean[a, i])
    for i in range(d):
        step = weight[a] * share * (mean[b, i] - mean[a, i])
        for j in range(i + 1):
            at = i * d + j
            spread[at] = f * (scatter[a, at] + scatter[b, at] + step * (mean[b, j] - mean[a, j]))
    whole = log_marginal(f * n, middle, spread, xi0, m0, eta0, B0, blur, prior, m, B, factor)
    change = term_of(whole, f * n, phi0)
    for c in (a, b):
        if f == 1.0:
            change -= terms[c]
        else:
            change -= term_of_scaled(
                f, weight[c], mean[c], scatter[c], xi0, m0, eta0, B0, blur, phi0, prior, spread, m, B, factor
            )  # fmt: skip
    return change


@part
def change_of_normaliser(weight: float, before: int, after: int, phi0: float) -> float:
    """Change of the term of F that depends on K alone, for clusters of the given total weight."""
    new = math.lgamma(weight + after * phi0) - math.lgamma(after * phi0)
    return new - (math.lgamma(weight + before * phi0) - math.lgamma(before * phi0))


@kernel
def merge_changes(
    one: Ints, other: Ints, scale: Floats, weight: Floats, mean: Floats, scatter: Floats, terms: Floats,
    xi0: float, m0: Floats, eta0: float, B0: Floats, blur: Floats, phi0: float,
) -> Floats:  # fmt: skip
    """`change_of_terms` by each of some merges, at the scale of each."""
    d = len(m0)
    change = np.empty(len(one))
    middle, spread, m = np.empty(d), np.empty(d * d), np.empty(d)
    B, factor = np.empty((d, d)), np.empty((d, d))
    prior = log_marginal_prior(eta0, B0, factor)
    for p in range(len(one)):
        change[p] = change_of_terms(
            one[p], other[p], weight, mean, scatter, terms, scale[p],
            xi0, m0, eta0, B0, blur, phi0, prior, middle, spread, m, B, factor,
        )  # fmt: skip
    return change


@kernel
def split_changes(
    which: Bools, half_weight: Floats, half_square: Floats, half_mean: Floats, half_scatter: Floats, weight: Floats,
    mean: Floats, scatter: Floats, terms: Floats, xi0: float, m0: Floats, eta0: float, B0: Floats, blur: Floats,
    phi0: float, everything: float, evidence: float, fewest: float,
) -> Floats:  # fmt: skip
    """The change of F where a cluster becomes its two halves, for those (cuts, clusters) that are asked for; in order.

    With `evidence` above 0 rows are a sample, each worth that many events: a split is judged at the effective size of
    its smaller half, and infinite if that is worth fewer than `fewest` events.
    """
    cuts, k = which.shape
    d = len(m0)
    change = np.empty(int(which.sum()))
    spread, m = np.empty(d * d), np.empty(d)
    B, factor = np.empty((d, d)), np.empty((d, d))
    prior = log_marginal_prior(eta0, B0, factor)
    p = 0
    for t in range(cuts):
        for c in range(k):
            if not which[t, c]:
                continue
            small = 0 if half_weight[t, c, 0] <= half_weight[t, c, 1] else 1
            n, square = half_weight[t, c, small], half_square[t, c, small]
            f = max(1.0, evidence * n / square) if evidence > 0.0 else 1.0
            total = change_of_normaliser(f * everything, k, k + 1, phi0)
            for h in range(2):
                total += term_of_scaled(
                    f, half_weight[t, c, h], half_mean[t, c, h], half_scatter[t, c, h],
                    xi0, m0, eta0, B0, blur, phi0, prior, spread, m, B, factor,
                )  # fmt: skip
            if f == 1.0:
                total -= terms[c]
            else:
                total -= term_of_scaled(
                    f, weight[c], mean[c], scatter[c], xi0, m0, eta0, B0, blur, phi0, prior, spread, m, B, factor,
                )  # fmt: skip
            change[p] = np.inf if evidence * n * n < fewest * square and evidence > 0.0 else total
            p += 1
    return change
