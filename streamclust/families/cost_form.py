"""Labelling costs in the two forms that loops over points understand: quadratic and linear in the point.

Every family's labelling cost [BKM eqs. 20, 40, 46], mixing term included, is one or the other. A family gives
it by `family.cost_form(posterior, mixing)`.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.families.linalg import cholesky
from streamclust.moments import Moments

MIN_PRUNED_CLUSTERS, MIN_PRUNED_FEATURES = 32, 32
"""Clusters and features from which on points are not priced by every cluster: with 64 features and 249 clusters of
sentence embeddings that takes a third of the time; with 20 clusters, or 16 features, it saves none."""
N_DIRECTIONS = 12
"""Directions that bounds of distances are computed in. 8 and 16 take about as long."""


class Quadratic(NamedTuple):
    """offset + ‖root (x - centre)‖² for each cluster: the Gaussian families.

    >>> form = Quadratic(np.array([[0.0], [4.0]]), np.array([[[1.0]], [[1.0]]]), np.zeros(2))
    >>> form.cost(np.array([[1.0], [3.0]]))
    array([[1., 9.],
           [9., 1.]])
    """

    centre: Floats
    """(K, D)."""
    root: Floats
    """(K, D, D), lower triangular."""
    offset: Floats
    """(K,); infinite for a cluster that may own nothing."""

    def cost(self, rows: Floats | Moments) -> Floats:
        """Cost of each point, or summed over the points of each row of Moments: (rows, K)."""
        moments = rows if isinstance(rows, Moments) else Moments.rows_of_points(rows)
        total = np.empty((len(moments), len(self.offset)))
        for k in range(len(self.offset)):
            whitened = (moments.mean - self.centre[k]) @ self.root[k].T
            total[:, k] = np.einsum("ri,ri->r", whitened, whitened)
        total *= moments.weight[:, None]
        return _with_offset(total + self._within(moments), self.offset, moments.weight)

    def directions(self) -> Floats:
        """(some, D): directions in which the clusters lie apart, by which kernels find those that may own a point.

        Those of the largest scatter of the centres, where the mean precision of some of the clusters is the unit
        matrix. None where there are few clusters or features: pricing all clusters is then as fast.
        """
        k, d = self.centre.shape
        none = np.zeros((0, d))
        if k < MIN_PRUNED_CLUSTERS or d < MIN_PRUNED_FEATURES:
            return none
        some = self.root[:: k // MIN_PRUNED_CLUSTERS]
        with np.errstate(over="ignore", invalid="ignore"):
            precision = np.einsum("kij,kil->jl", some, some, optimize=True) / len(some)
            centre = self.centre - self.centre.mean(axis=0)
            if not (np.isfinite(precision).all() and np.trace(precision) > 0.0):
                return none
            factor = cholesky(precision)
            whitened = centre @ factor
            scatter = whitened.T @ whitened
        if not np.isfinite(scatter).all():
            return none
        return np.ascontiguousarray((factor @ np.linalg.eigh(scatter)[1][:, -N_DIRECTIONS:]).T)

    def _within(self, moments: Moments) -> float | Floats:
        """tr(rootᵀ root S): what the scatter inside each row adds."""
        if moments.kind == "none":
            return 0.0
        if moments.kind == "full":
            precision = np.einsum("kij,kil->kjl", self.root, self.root)
            return cast(Floats, np.einsum("rij,kij->rk", moments.scatter, precision))
        squares = np.einsum("kii->ki", self.root) ** 2
        if np.any(np.tril(self.root, -1)) or (moments.kind == "scalar" and np.ptp(squares, axis=1).any()):
            raise ValueError(
                f"a {moments.kind} scatter does not hold what these clusters' covariances need; "
                "let the tree keep the family's own kind of scatter"
            )
        if moments.kind == "scalar":
            return cast(Floats, moments.scatter[:, None] * squares[:, 0])
        return cast(Floats, moments.scatter @ squares.T)


class Linear(NamedTuple):
    """offset + slope · x for each cluster: the families of counts.

    >>> Linear(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.0, 0.5])).cost(np.array([[2.0, 1.0]]))
    array([[2. , 1.5]])
    """

    slope: Floats
    """(K, D)."""
    offset: Floats
    """(K,); infinite for a cluster that may own nothing."""

    def cost(self, rows: Floats | Moments) -> Floats:
        """Cost of each point, or summed over the points of each row of Moments: (rows, K)."""
        moments = rows if isinstance(rows, Moments) else Moments.rows_of_points(rows)
        total = moments.weight[:, None] * (moments.mean @ self.slope.T)
        return _with_offset(total, self.offset, moments.weight)


CostForm = Quadratic | Linear


def _with_offset(total: Floats, offset: Floats, weight: Floats) -> Floats:
    """Total + n · offset; an infinite offset does not touch rows of weight 0."""
    n = weight[:, None]
    return total + np.multiply(n, offset, out=np.zeros_like(total), where=n > 0)


def diagonal_roots(scale: Floats) -> Floats:
    """Roots (K, D, D) of Σ_d scale_d (x_d - m_d)²."""
    roots = np.zeros((*scale.shape, scale.shape[1]))
    np.einsum("kii->ki", roots)[:] = np.sqrt(scale)
    return roots
