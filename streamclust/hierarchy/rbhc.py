"""Relaxed BHC: merge what loses least Bregman information [Lee & Choi]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamclust._kernels.hierarchy import costs as kernels
from streamclust._kernels.types import Floats
from streamclust.families import AnyFamily
from streamclust.families.priors import spread_indices
from streamclust.hierarchy.problem import MergeProblem
from streamclust.moments import Moments

K_MEANS_MULTIPLE = 3.5
"""Clusters of the k-means, as a multiple of the rough guess; 3 to 4 gives about the true number of clusters."""
MAX_K_MEANS_ROWS = 10_000
"""Bound on the rows given to k-means."""


@dataclass(frozen=True)
class Relaxed:
    """RBHC: E = -n φ(t̄), so a merge costs |a|φ(t̄_a) + |b|φ(t̄_b) - |a∪b|φ(t̄_ab) >= 0. Stop above λ."""

    name: ClassVar[str] = "rbhc"
    code: ClassVar[int] = kernels.RBHC
    greedy: ClassVar[bool] = False
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None and not self.threshold >= 0:
            raise ValueError(
                f"threshold must not be negative, got {self.threshold}; use infinity to merge everything"
            )

    @property
    def mixing(self) -> float:
        """None."""
        return 1.0

    def n_clusters(self, problem: MergeProblem, cost: Floats, height: Floats) -> int | None:
        """Stop when the least cost exceeds λ."""
        if self.threshold is None:
            return None
        return len(cost) + 1 - int(np.searchsorted(height, self.threshold, side="right"))


def threshold_rule(family: AnyFamily, moments: Moments, rough_guess: int = 10, seed: int = 0) -> float:
    """λ from a rough guess of the number of clusters [relaxed BHC, heuristics for choosing λ].

    The mean cost of merging two clusters of a k-means with 3.5 times as many. The clusters keep their sizes:
    between centres of weight one, as the paper has it, λ is far too small.

    >>> from streamclust.families import SphericalGaussian
    >>> points = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([0.0, 8.0, 16.0], 100)[:, None]
    >>> threshold_rule(SphericalGaussian.informed(points), Moments.rows_of_points(points), rough_guess=3) > 0
    True
    """
    if not rough_guess >= 1:
        raise ValueError(f"rough_guess must be at least 1, got {rough_guess}")
    chosen = spread_indices(len(moments), MAX_K_MEANS_ROWS)
    rows = moments[chosen].scale(float(moments.weight.sum() / moments.weight[chosen].sum()))
    distinct = len(np.unique(rows.mean, axis=0))
    k = min(round(K_MEANS_MULTIPLE * rough_guess), distinct)
    if k < 2:
        return np.inf
    from sklearn.cluster import KMeans  # takes as long to import as all the rest

    means = KMeans(k, n_init=1, random_state=seed)
    labels = means.fit_predict(rows.mean - rows.mean.mean(axis=0), sample_weight=rows.weight)
    labels = np.unique(labels, return_inverse=True)[1]
    problem = MergeProblem.of(Relaxed(), family, rows.to_groups(labels, kind=family.scatter))
    costs = [problem.costs(i, np.arange(i)) for i in range(1, problem.n_leaves)]
    return float(np.mean(np.concatenate(costs))) if costs else np.inf
