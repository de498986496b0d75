"""Compiled merge path, for full Gaussians under a learnt prior; `merge_path` has the same for any family."""

from __future__ import annotations

import math

import numpy as np

from streamclust._kernels.families.learnt_prior import improved_prior
from streamclust._kernels.moments import group_rows
from streamclust._kernels.refit.iterations import iterate_rows
from streamclust._kernels.refit.merge_path import merge_some, score_clusters
from streamclust._kernels.types import Ints
from streamclust.families import Gaussian
from streamclust.families.learnt import PriorLearner
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.tuning import TUNING


class GaussianMergePath:
    """Labels, clusters and prior θ along a merge path."""

    def __init__(self, problem: Problem, labels: Ints, n_clusters: int) -> None:
        family, learner = problem.family, problem.learner
        assert isinstance(family, Gaussian)
        assert isinstance(learner, PriorLearner)
        self.problem, self.learner = problem, learner
        self.limits = learner.limits
        self.variance, self.strength = self.limits[:2]
        self.rows = problem.grouped[:3]
        self.labels = labels.copy()
        self.m0, self.blur = family.m0, family.blur
        self.prior = float(family.xi0), float(family.eta0), learner.shape(family)
        d = len(self.m0)
        self.B0, self.root = np.empty((d, d)), np.empty((d, d))
        self.cost = np.empty((n_clusters, len(labels)))
        self.group(n_clusters)
        self.everything = 0.0
        for n in self.weight.tolist():
            self.everything += n

    def group(self, k: int) -> None:
        """Compute the moments of k clusters from the labels."""
        self.weight, self.mean, self.scatter = group_rows(*self.rows, self.labels, k, len(self.m0) ** 2)

    def score(self, neighbours: int = 0) -> float:
        """F with the cost of θ; finds each cluster's terms, and that many of its neighbours."""
        k = len(self.weight)
        xi0, eta0, S = self.prior
        self.terms, self.near = np.empty(k), np.empty((k, neighbours), dtype=np.int64)
        energy: float = score_clusters(
            self.weight, self.mean, self.scatter, self.everything, xi0, self.m0, eta0, S, self.blur, self.variance,
            self.strength, self.problem.mixture.phi0, self.terms, self.B0, self.root, self.near,
        )  # fmt: skip
        return energy

    def settle(self, iterations: int) -> None:
        """ME iterations, then θ.

        If clusters are more than twice `offered_clusters`, rows choose among those nearest to their own alone.
        """
        offered = TUNING.offered_clusters
        k = len(self.weight)
        self.score(offered if k > 2 * offered else 0)
        xi0, eta0, S = self.prior
        alive, _, _ = iterate_rows(
            self.problem.columns, self.problem.spread, *self.rows, self.labels, self.weight, self.mean, self.scatter,
            self.terms, self.cost[:k], np.ones(k, dtype=np.bool_), xi0, self.m0, eta0, self.B0, self.blur,
            self.problem.mixture.phi0, iterations, self.near,
        )  # fmt: skip
        if not alive.all():
            self.labels[:] = (np.cumsum(alive) - 1)[self.labels]
            self.weight, self.mean, self.scatter = self.weight[alive], self.mean[alive], self.scatter[alive]
        _, xi0, eta0, S = improved_prior(
            self.weight,
            self.mean,
            self.scatter,
            xi0,
            self.m0,
            eta0,
            S,
            self.blur,
            *self.limits,
            TUNING.path_prior_rounds,
        )
        self.prior = xi0, eta0, S

    def merge(self, past_rest: bool) -> bool:
        """A round of merges; whether any was made."""
        xi0, eta0, _ = self.prior
        k = merge_some(
            self.labels, self.rows[0], self.weight, self.mean, self.scatter, self.terms, self.everything, xi0, self.m0,
            eta0, self.B0, self.blur, self.problem.mixture.phi0, self.root, float(self.problem.evidence),
            TUNING.neighbours, past_rest,
        )  # fmt: skip
        if k == 0:
            return False
        self.weight, self.mean, self.scatter = self.weight[:k], self.mean[:k], self.scatter[:k]
        return True

    def descend(self, iterations: int, end: float, past_rest: bool) -> Labelling:
        """The labelling of least F on the path.

        The path ends where K falls below `end` of the best or, unless `past_rest`, where no merge lowers F.
        """
        best_labels, best_k, best_prior, lowest = self.labels, len(self.weight), self.prior, math.inf
        for _ in range(TUNING.short_iterations):
            self.settle(iterations)
        while True:
            energy, k = self.score(), len(self.weight)
            if energy < lowest:
                best_labels, best_k, best_prior, lowest = self.labels.copy(), k, self.prior, energy
            if k == 1 or k < end * best_k or not self.merge(past_rest):
                break
            self.settle(iterations)
        self.labels, self.prior = best_labels, best_prior
        self.group(best_k)
        self.settle(iterations)
        return Labelling(self.problem.under(self.learner.family(*self.prior)), self.labels, len(self.weight))
