"""Whether clusters are Gaussian: by how much single rows differ in scale from what their clusters let expect.

In many dimensions the distance of a Gaussian row from the mean hardly varies; rows of other distributions come from
narrow cores and wide tails. Two Gaussians that share a mean describe such a cluster well, and differ in covariance
alone. So only clusters whose rows have one scale are evidence of clusters that differ in covariance.
"""

from __future__ import annotations

import numpy as np

from streamclust.families import Gaussian
from streamclust.refit.bkm.labelling import Labelling
from streamclust.utils.late import digamma, polygamma


def scale_variance(state: Labelling) -> float:
    """Variance of the log of the rows' scales: 0 of Gaussian clusters, ψ'(ν/2) of t distributions of ν degrees.

    The squared distance of a row, without which its cluster is learnt, is the ratio of two Gamma variables under the
    model, whose logs vary by ψ'(D/2) + ψ'((η - D + 1)/2); other variances of the log of scales come on top.

    Each row is priced without itself in closed form. Clusters that have but one row do not count.
    """
    problem = state.problem
    family, rows = problem.family, problem.rows
    assert isinstance(family, Gaussian)
    d, posterior = rows.n_features, family.posterior(state.clusters)
    total, weight = 0.0, 0.0
    for c in range(state.n_clusters):
        own = np.flatnonzero(state.labels == c)
        if len(own) < 2:
            continue
        w = rows.weight[own]
        step = (rows.mean[own] - posterior.mean[c]) @ posterior.whitener[c].T
        xi, left = posterior.xi[c], posterior.xi[c] - w
        squares = np.maximum((step**2).sum(axis=1), np.finfo(float).tiny)
        squares = squares / np.maximum(
            1.0 - w * xi / left * squares, np.finfo(float).eps
        )  # under B without it
        log_ratio = np.log(xi**2 / (left * (left + 1.0)) * squares)
        half = (posterior.eta[c] - w - d + 1) / 2
        expected = digamma(d / 2) - digamma(half)
        chance = polygamma(1, d / 2) + polygamma(1, half)
        total += float(w @ ((log_ratio - expected) ** 2 - chance))
        weight += float(w.sum())
    return total / weight if weight > 0 else np.inf
