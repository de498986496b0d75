"""FeatureAllocation: the result of BP-means and K-features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust._kernels.types import Bools, Floats
from streamclust.refit.bp_means.allocation import nearest_features

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure


@dataclass(frozen=True, eq=False)
class FeatureAllocation:
    """Which features each row has, the features, and what they cost.

    Z          (rows, K)  whether a row has a feature: any number of them, none included
    A          (K, D)     the features' means; a row is the sum of those it has
    objective  tr (X - ZA)ᵀ(X - ZA) + λ² K [MAD-Bayes eq. 6]
    penalty    λ²
    weights    (rows,)    how many events each row counts for
    """

    Z: Bools
    A: Floats
    objective: float
    penalty: float
    weights: Floats

    @property
    def n_features(self) -> int:
        """K."""
        return len(self.A)

    @property
    def counts(self) -> Floats:
        """The weight of the rows that have each feature."""
        return np.asarray(self.weights @ self.Z)

    @property
    def usual(self) -> Bools:
        """The features that more than half of the weight has: the base, as a rule."""
        return np.asarray(self.counts > 0.5 * self.weights.sum())

    def assign(self, points: Floats) -> Bools:
        """The features of other points: the combination whose sum is nearest."""
        return nearest_features(points, self.A, self.usual)

    def reconstruct(self, Z: Bools | None = None) -> Floats:
        """ZA: the rows as the features have them."""
        return np.asarray((self.Z if Z is None else Z).astype(float) @ self.A)

    def cost(self, points: Floats) -> float:
        """The objective of other points under these features."""
        residual = points - self.reconstruct(self.assign(points))
        return float((residual**2).sum()) + self.penalty * self.n_features

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers: each feature's mean and the weight of the rows that have it."""
        return {
            "n_features": self.n_features,
            "objective": self.objective,
            "penalty": self.penalty,
            "features": [
                {"count": c, "mean": a} for c, a in zip(self.counts.tolist(), self.A.tolist(), strict=True)
            ],
        }

    def plot(self, shape: tuple[int, int] | None = None, **options: Any) -> Figure | SubFigure:
        """Each feature as an image of `shape` (height, width), or as bars: see `streamclust.plots.plot_features`."""
        from streamclust.plots import plot_features

        return plot_features(self.A, self.counts / self.weights.sum(), shape, **options)

    def __repr__(self) -> str:
        return (
            f"FeatureAllocation({self.n_features} features of {self.weights.sum():g} events, "
            f"objective {self.objective:.6g} at penalty {self.penalty:.6g})"
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{k}</td><td>{c:.6g}</td><td>{np.array2string(a, precision=4, threshold=8)}</td></tr>"
            for k, (c, a) in enumerate(zip(self.counts, self.A, strict=True))
        )
        return f"<table><caption>{self!r}</caption><tr><th>feature<th>events<th>mean</tr>{rows}</table>"
