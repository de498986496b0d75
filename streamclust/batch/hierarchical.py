"""Base class of the three hierarchical estimators."""

from __future__ import annotations

from typing import Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from streamclust._kernels.types import Floats, Ints
from streamclust.families import AnyFamily, FamilyLike, Rule
from streamclust.families import family as family_named
from streamclust.hierarchy import Dendrogram, agglomerate_steps
from streamclust.hierarchy.agglomerate import MethodName, Search
from streamclust.moments import Moments
from streamclust.tree.rows import whole_number

PRIOR_NAMES = {"multinomial": "psi0", "bernoulli": "omega0", "poisson": "a0"}
"""Name of the prior parameter of each family that has no B0."""
Prior = Rule | float | Floats | None
"""A rule that informs the prior, or the family's own prior parameter."""


class Hierarchical(ClusterMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base class: builds the tree of the points and cuts it."""

    family: FamilyLike
    n_clusters: int | None
    verbose: bool

    def _grow(
        self,
        X: ArrayLike,
        informed: AnyFamily,
        method: MethodName,
        search: Search = "auto",
        threshold: float | None = None,
        phi0: float | None = None,
        alpha: float = 1.0,
    ) -> Self:
        """Build the tree over checked points and cut it."""
        points = np.asarray(X, dtype=float)
        k = None if self.n_clusters is None else whole_number("n_clusters", self.n_clusters, least=1)
        if k is not None and k > len(points):
            raise ValueError(f"n_clusters must be at most the {len(points)} points, got {k}")
        rows = Moments.rows_of_points(points)
        tree = None
        for progress in agglomerate_steps(informed, rows, method, search, threshold, phi0, alpha):
            if self.verbose:
                print(f"{progress.merges:8d} of {progress.n_merges} merges")
            tree = progress.dendrogram
        assert tree is not None
        self.dendrogram_: Dendrogram = tree
        self.labels_: Ints = tree.cut(k=k)
        return self

    def _checked(self, X: ArrayLike) -> Floats:
        """The points, if the family can have produced them."""
        points = validate_data(self, X, dtype=np.float64)
        family_named(self.family).check(points)
        return cast(Floats, points)

    def _with_prior(self, points: Floats, prior: Prior) -> AnyFamily:
        """The family with the prior asked for: a rule, or the parameter itself; None is the "nearest" rule."""
        kind = family_named(self.family)
        if not isinstance(kind, type):
            if prior is not None:
                raise ValueError("the family given has a prior of its own: leave prior at None")
            return kind
        if prior is None or isinstance(prior, str):
            return kind.informed(points, rule=prior or "nearest")
        return kind.informed(points, rule="nearest", **{PRIOR_NAMES.get(kind.name, "B0"): prior})

    @property
    def n_clusters_(self) -> int:
        """How many clusters the cut has."""
        check_is_fitted(self, "dendrogram_")
        return int(self.labels_.max()) + 1

    @property
    def children_(self) -> Ints:
        """The two nodes of each merge; leaves are 0..n-1."""
        check_is_fitted(self, "dendrogram_")
        return self.dendrogram_.children

    @property
    def distances_(self) -> Floats:
        """The height of each merge: costs made monotone, and none below zero."""
        check_is_fitted(self, "dendrogram_")
        return self.dendrogram_.drawn_height
