"""MeansPartition: the result of DP-means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust._kernels.refit.dp_means import assign_rows
from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class MeansPartition:
    """Who owns each row, the clusters, and what they cost.

    labels     (rows,)  the cluster of each point or leaf
    clusters   one row of Moments per cluster, the heaviest first, with scalar scatter
    objective  Σ ‖x - mean‖² + λ² (K - 1) [MAD-Bayes eq. 3], the scatter within rows included
    penalty    λ²
    """

    labels: Ints
    clusters: Moments
    objective: float
    penalty: float

    @property
    def n_clusters(self) -> int:
        """K."""
        return len(self.clusters)

    @property
    def means(self) -> Floats:
        """The mean of each cluster."""
        return self.clusters.mean

    def assign(self, points: Floats) -> Ints:
        """The cluster of the nearest mean, for each point."""
        return nearest_means(points, self.means)[0]

    def cost(self, points: Floats, weight: Floats | None = None) -> float:
        """The objective of other points under these means."""
        distance = nearest_means(points, self.means)[1]
        total = distance.sum() if weight is None else distance @ weight
        return float(total) + self.penalty * (self.n_clusters - 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers: each cluster's weight and mean."""
        rows = zip(self.clusters.weight.tolist(), self.means.tolist(), strict=True)
        return {
            "n_clusters": self.n_clusters,
            "objective": self.objective,
            "penalty": self.penalty,
            "clusters": [{"weight": w, "mean": m} for w, m in rows],
        }

    def plot(self, **options: Any) -> Axes:
        """The clusters over two features, as circles of their mean spread: see `streamclust.plots.plot_clusters`."""
        from streamclust.plots import plot_clusters

        return plot_clusters(self.clusters, **options)

    def __repr__(self) -> str:
        return (
            f"MeansPartition({self.n_clusters} clusters of {self.clusters.weight.sum():g} events, "
            f"objective {self.objective:.6g} at penalty {self.penalty:.6g})"
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{k}</td><td>{w:.6g}</td><td>{np.array2string(m, precision=4, threshold=8)}</td></tr>"
            for k, (w, m) in enumerate(zip(self.clusters.weight, self.means, strict=True))
        )
        return f"<table><caption>{self!r}</caption><tr><th>cluster<th>weight<th>mean</tr>{rows}</table>"


def nearest_means(points: Floats, means: Floats) -> tuple[Ints, Floats]:
    """The nearest mean of each point, the first among equals, and its squared distance."""
    labels, distance = np.zeros(len(points), dtype=np.int64), np.empty(len(points))
    columns = np.ascontiguousarray(np.asarray(points, dtype=float).T)
    assign_rows(columns, np.ones(len(points)), np.ascontiguousarray(means), labels, distance)
    return labels, distance
