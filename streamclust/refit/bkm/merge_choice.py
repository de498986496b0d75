"""Choice of merges: pairs of neighbouring clusters, and the best of them that share no cluster."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.refit.merge_path import choose_merges
from streamclust._kernels.types import Floats, Ints
from streamclust.families import DiagonalGaussian, Gaussian
from streamclust.families.gaussian import FlatGaussian
from streamclust.families.gaussian_simple import AnyGaussian
from streamclust.families.linalg import cholesky
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.seeding import root_counts
from streamclust.refit.bkm.tuning import TUNING


def near_pairs(state: Labelling, neighbours: int = TUNING.neighbours) -> tuple[Ints, Ints]:
    """Pairs a < b of clusters of which one is among the nearest of the other; all pairs of few clusters.

    Nearest by Ward's distance, n_a n_b / (n_a + n_b) times the squared distance, in the metric of the prior's B0.
    A flat prior has no metric: all pairs.
    """
    clusters, k = state.clusters, state.n_clusters
    if k <= neighbours + 1 or isinstance(state.problem.family, FlatGaussian):
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
    if family.name in ("multinomial", "poisson"):
        return root_counts(family.name, x)
    if not isinstance(family, AnyGaussian):
        return x
    y = x - family.m0
    if isinstance(family, Gaussian):
        return np.asarray(np.linalg.solve(cholesky(family.B0), y.T).T)
    return np.asarray(y / np.sqrt(family.B0)) if isinstance(family, DiagonalGaussian) else y


def chosen_merges(a: Ints, b: Ints, change: Floats, k: int) -> list[tuple[int, int]]:
    """The better half of the merges that lower F, at most K/5; if none does, the best K/6 all the same.

    No cluster is in two of them.
    """
    into = np.empty(k, dtype=np.int64)
    choose_merges(np.column_stack([a, b]), change, k, into)
    return [(int(into[c]), c) for c in range(k) if into[c] != c]
