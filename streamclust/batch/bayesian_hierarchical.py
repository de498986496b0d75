"""BayesianHierarchical: BHC, scikit-learn style."""

from __future__ import annotations

from typing import Self

from numpy.typing import ArrayLike

from streamclust.batch.hierarchical import Hierarchical, Prior
from streamclust.families import FamilyLike


class BayesianHierarchical(Hierarchical):
    """Bayesian hierarchical clustering: merge where one cluster explains more than two subtrees [Heller & Ghahramani].

    Parameters
    ----------
    family
        What a cluster is: "gaussian", "diagonal", "spherical", "multinomial", "bernoulli", "poisson", or a
        Family with a prior of its own.
    alpha
        Of the Dirichlet process: the greater, the more clusters.
    prior
        As for AgglomerativeBayesian.
    n_clusters
        Cut into this number of clusters instead of where merging becomes less likely than not.
    verbose
        Print the progress.

    Attributes
    ----------
    labels_, n_clusters_ : the cut
    dendrogram_ : the whole tree
    children_, distances_ : its merges and their heights

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([0.0, 9.0, 18.0], 100)[:, None]
    >>> BayesianHierarchical().fit(points).n_clusters_
    3
    """

    def __init__(
        self,
        family: FamilyLike = "gaussian",
        alpha: float = 1.0,
        prior: Prior = None,
        n_clusters: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.family = family
        self.alpha = alpha
        self.prior = prior
        self.n_clusters = n_clusters
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Build the tree of the points and cut it."""
        points = self._checked(X)
        return self._grow(points, self._with_prior(points, self.prior), "bhc", alpha=self.alpha)
