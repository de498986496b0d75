"""First labels of a search: the nearest of K_init centres drawn by k-means++."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.refit.bkm import seed_centres
from streamclust._kernels.types import Floats, Ints
from streamclust.blas import product
from streamclust.moments import Moments
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.tuning import TUNING


def nearest_seed(problem: Problem, n_clusters: int, rng: np.random.Generator) -> Ints:
    """Index of the nearest of `n_clusters` k-means++ centres, for each row; fewer if fewer rows are distinct."""
    x = coordinates(problem)
    trials = 2 + int(np.log(n_clusters))
    centres = x[seed_centres(projected(x), problem.rows.weight, rng.random((n_clusters, trials)), trials)]
    distance = (centres**2).sum(axis=1) - 2 * product(x, centres.T)
    return distance.argmin(axis=1) if len(centres) else np.zeros(len(x), dtype=np.int64)


def coordinates(problem: Problem) -> Floats:
    """Rows in the coordinates in which k-means++ measures distances: variances made comparable for the family."""
    x, name = problem.rows.mean, problem.family.name
    if name in ("multinomial", "poisson"):
        return root_counts(name, x)
    if name in ("spherical", "bernoulli"):
        return np.ascontiguousarray(x - x[:1])
    total = Moments(problem.rows.weight, x, np.zeros((len(x), 0)), "none").to_groups(None, kind="diagonal")
    deviation = np.sqrt(total.covariance)
    return np.ascontiguousarray((x - total.mean) / np.where(deviation > 0, deviation, 1.0))


def root_counts(name: str, counts: Floats) -> Floats:
    """Square roots of counts, of variance ¼ for any rate; of proportions if the family is multinomial."""
    x = np.maximum(counts, 0.0)  # the mean of a leaf's counts may be a rounding below
    if name == "multinomial":  # Hellinger distance between proportions
        total = x.sum(axis=1, keepdims=True)
        x = x / np.where(total > 0, total, 1.0)
    return np.sqrt(x)


def projected(x: Floats) -> Floats:
    """Wide rows in fixed random directions: distances to about a tenth, enough for k-means++ [Johnson & Lindenstrauss].

    Rows of at most twice `seed_directions` features are returned as they are.
    """
    directions = TUNING.seed_directions
    if x.shape[1] <= 2 * directions:
        return x
    axes = np.random.default_rng(0).normal(size=(x.shape[1], directions))
    return np.ascontiguousarray(x @ axes / np.sqrt(directions))
