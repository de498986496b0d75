"""Which clusters are near each other: merges of others need not be tried."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.families import DiagonalGaussian, Gaussian
from streamclust.families.gaussian_simple import AnyGaussian
from streamclust.families.linalg import cholesky
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.problem import Problem

NEIGHBOURS = 8
"""Merges are tried with so many nearest clusters of each."""


def near_pairs(state: Labelling, neighbours: int = NEIGHBOURS) -> tuple[Ints, Ints]:
    """Pairs a < b of clusters of which one is among the nearest of the other; all, where the prior is not learnt.

    Nearest by Ward's distance, n_a n_b / (n_a + n_b) times the squared distance, in the metric of the prior's B0.
    """
    clusters, k = state.clusters, state.n_clusters
    if k <= neighbours + 1 or state.problem.learner is None:
        first, second = np.triu_indices(k, 1)
        return first, second
    x = metric(state.problem, clusters.mean)
    squares = (x**2).sum(axis=1)
    n = clusters.weight
    distance = np.maximum(squares[:, None] + squares - 2 * (x @ x.T), 0.0) * (
        n[:, None] * n / (n[:, None] + n)
    )
    np.fill_diagonal(distance, np.inf)
    near = np.argpartition(distance, neighbours, axis=1)[:, :neighbours]
    mine = np.repeat(np.arange(k), neighbours)
    pairs = np.unique(np.minimum(mine, near.ravel()) * k + np.maximum(mine, near.ravel()))
    return pairs // k, pairs % k


def metric(problem: Problem, x: Floats) -> Floats:
    """Points moved and stretched so that the prior's B0 is the unit matrix; counts by their square roots."""
    family = problem.family
    if family.scatter == "none":
        return x if family.name == "bernoulli" else root_counts(family.name, x)
    assert isinstance(family, AnyGaussian)
    y = x - family.m0
    if isinstance(family, Gaussian):
        return np.asarray(np.linalg.solve(cholesky(family.B0), y.T).T)
    return np.asarray(y / np.sqrt(family.B0)) if isinstance(family, DiagonalGaussian) else y


def root_counts(name: str, counts: Floats) -> Floats:
    """Square roots of counts, of variance ¼ whatever the rate; of proportions, where the family is multinomial."""
    x = np.maximum(counts, 0.0)  # the mean of a leaf's counts may be a rounding below
    if name == "multinomial":  # Hellinger distance between proportions
        total = x.sum(axis=1, keepdims=True)
        x = x / np.where(total > 0, total, 1.0)
    return np.sqrt(x)
