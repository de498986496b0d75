"""Agglomerative Bayesian clustering: merge whatever lowers the free energy most [BKM section 7]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamclust._kernels.hierarchy import costs as kernels
from streamclust._kernels.types import Floats
from streamclust.hierarchy.problem import MergeProblem
from streamclust.utils.late import gammaln


@dataclass(frozen=True)
class Agglomerative:
    """ABC: E = -log_marginal - log Γ(φ0+n) + log Γ(φ0), a cluster's part of (19)."""

    name: ClassVar[str] = "abc"
    code: ClassVar[int] = kernels.ABC
    greedy: ClassVar[bool] = True
    phi0: float = 2.0

    def __post_init__(self) -> None:
        if not (self.phi0 > 0 and np.isfinite(self.phi0)):
            raise ValueError(f"phi0 must be positive, got {self.phi0}")

    @property
    def mixing(self) -> float:
        """φ0."""
        return self.phi0

    def free_energies(self, problem: MergeProblem, cost: Floats) -> Floats:
        """(19) of the partitions into n, n-1, ..., 1 clusters that the merges go through.

        log Γ(N+Kφ0) - log Γ(Kφ0) is the same for every pair at a given K: it moves the best K, never a choice.
        """
        clusters = np.arange(problem.n_leaves, 0, -1)
        terms = problem.energy.sum() + np.concatenate([[0.0], np.cumsum(cost)])
        weight = float(problem.weight.sum())
        return np.asarray(terms + gammaln(weight + clusters * self.phi0) - gammaln(clusters * self.phi0))

    def n_clusters(self, problem: MergeProblem, cost: Floats, height: Floats) -> int:
        """K*, of the least free energy in the sequence; the fewest among equals."""
        energies = self.free_energies(problem, cost)[::-1]
        return int(np.argmin(energies)) + 1
