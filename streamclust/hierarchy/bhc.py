"""Bayesian hierarchical clustering: is this one cluster, or two subtrees? [relaxed BHC, background]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamclust._kernels.hierarchy import costs as kernels
from streamclust._kernels.types import Floats
from streamclust.hierarchy.problem import MergeProblem


@dataclass(frozen=True)
class Bayesian:
    """BHC: a merge costs the log odds of two subtrees against one cluster, -log[αΓ(n)p(X)] - E_a - E_b.

    E of a node is then -log of both hypotheses' potentials together. Merging more likely than not is a
    negative cost.
    """

    name: ClassVar[str] = "bhc"
    code: ClassVar[int] = kernels.BHC
    greedy: ClassVar[bool] = True
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not (self.alpha > 0 and np.isfinite(self.alpha)):
            raise ValueError(f"alpha must be positive, got {self.alpha}")

    @property
    def mixing(self) -> float:
        """α."""
        return self.alpha

    def n_clusters(self, problem: MergeProblem, cost: Floats, height: Floats) -> int:
        """Stop before the first merge whose posterior is below ½."""
        return len(cost) + 1 - int(np.searchsorted(height, 0.0, side="right"))
