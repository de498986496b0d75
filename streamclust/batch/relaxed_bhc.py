"""RelaxedBHC: hierarchies by Bregman information, scikit-learn style."""

from __future__ import annotations

from typing import Self

from numpy.typing import ArrayLike

from streamclust.batch.hierarchical import Hierarchical
from streamclust.families import FamilyLike
from streamclust.hierarchy import threshold_rule
from streamclust.hierarchy.agglomerate import Search, informed
from streamclust.moments import Moments


class RelaxedBHC(Hierarchical):
    """Relaxed Bayesian hierarchical clustering: merge what loses least information [Lee & Choi].

    Parameters
    ----------
    family
        What a cluster is: "gaussian", "diagonal", "spherical" (Ward's tree), "multinomial", "bernoulli",
        "poisson", or a Family.
    search
        "chain", or "lazy" or "conga", which always merge the cheapest pair: slower, and hardly different.
    threshold
        λ: merges that cost more are undone. "auto" takes it from a k-means with 3.5 times `rough_guess` clusters.
    n_clusters
        Cut into this number of clusters instead.
    rough_guess
        About how many clusters there may be, for threshold="auto".
    seed
        Of that k-means.
    verbose
        Print the progress.

    Attributes
    ----------
    labels_, n_clusters_ : the cut
    dendrogram_ : the whole tree
    children_, distances_ : its merges and their heights
    threshold_ : λ, or None where n_clusters was given

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([0.0, 9.0, 18.0], 100)[:, None]
    >>> RelaxedBHC().fit(points).n_clusters_
    3
    """

    def __init__(
        self,
        family: FamilyLike = "gaussian",
        search: Search = "chain",
        threshold: float | str = "auto",
        n_clusters: int | None = None,
        rough_guess: int = 10,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.family = family
        self.search = search
        self.threshold = threshold
        self.n_clusters = n_clusters
        self.rough_guess = rough_guess
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Build the tree of the points and cut it."""
        if isinstance(self.threshold, str) and self.threshold != "auto":
            raise ValueError(f"threshold must be a number or 'auto', got {self.threshold!r}")
        points = self._checked(X)
        family = informed(self.family, points, "rbhc")
        self.threshold_: float | None = None
        if self.n_clusters is None:
            rows = Moments.rows_of_points(points)
            self.threshold_ = (
                threshold_rule(family, rows, self.rough_guess, self.seed)
                if isinstance(self.threshold, str)
                else float(self.threshold)
            )
        return self._grow(points, family, "rbhc", search=self.search, threshold=self.threshold_)
