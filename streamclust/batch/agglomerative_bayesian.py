"""AgglomerativeBayesian: hierarchies by free energy, scikit-learn style."""

from __future__ import annotations

from typing import Self

from numpy.typing import ArrayLike

from streamclust.batch.hierarchical import Hierarchical, Prior
from streamclust.families import FamilyLike
from streamclust.hierarchy.agglomerate import Search


class AgglomerativeBayesian(Hierarchical):
    """Agglomerative Bayesian clustering: merge what lowers the free energy most [Kurihara & Welling].

    Parameters
    ----------
    family
        What a cluster is: "gaussian", "diagonal", "spherical", "multinomial", "bernoulli", "poisson", or a
        Family with a prior of its own.
    search
        "lazy" or "conga": both merge the cheapest pair, the first sooner.
    prior
        B0 of a Gaussian (a number times I, or in full), ψ0, ω0 or a0 of counts; or the rule that finds B0:
        "nearest" (by default: mean squared distance of neighbours over D), "agglomerative" for the paper's (22),
        "bkm" for (21). Trees depend on it.
    n_clusters
        Cut into this number of clusters instead of where the free energy is least.
    phi0
        Of the Dirichlet prior on proportions; by default 2 for Gaussians, 1 for counts.
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
    >>> AgglomerativeBayesian().fit(points).n_clusters_
    3
    """

    def __init__(
        self,
        family: FamilyLike = "gaussian",
        search: Search = "lazy",
        prior: Prior = None,
        n_clusters: int | None = None,
        phi0: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.family = family
        self.search = search
        self.prior = prior
        self.n_clusters = n_clusters
        self.phi0 = phi0
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Build the tree of the points and cut it."""
        points = self._checked(X)
        family = self._with_prior(points, self.prior)
        return self._grow(points, family, "abc", search=self.search, phi0=self.phi0)
