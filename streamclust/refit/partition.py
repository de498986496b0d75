"""Partition: the hard result of a refit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.families import AnyFamily, FlatGaussian, Infinite, Mixture
from streamclust.moments import Moments
from streamclust.utils.late import logsumexp

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHUNK_NUMBERS = 8_000_000
"""Numbers in a chunk of labelling costs: bounds memory."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Labels of the rows, the clusters, and their free energy.

    labels       (rows,)  the cluster of each leaf of the tree or, where points were given, of each point
    clusters     one row of Moments per cluster; their weights total the weight of the data
    free_energy  of the rows K was decided on, without the family's `log_base`
    n_effective  how many events those rows count as: their weight or, for a sample, its Kish size. The prior
                 follows the data, so free energies of different refits do not compare.
    radius       (D,)  of DP-means: λ along each feature, in its own units; None for other refits
    event_evidence  what an event counts for, if its coordinates depend on each other; else 1
    """

    family: AnyFamily
    mixture: Mixture
    labels: Ints
    clusters: Moments
    free_energy: float
    n_effective: float
    radius: Floats | None = None
    event_evidence: float = 1.0

    @property
    def n_clusters(self) -> int:
        """K."""
        return len(self.clusters)

    @cached_property
    def posterior(self) -> object:
        """The family's posterior of each cluster, for the family's own methods to read; its densities are finite."""
        if isinstance(self.family, FlatGaussian):
            return self.family.proper_posterior(self.clusters)
        return self.family.posterior(self.clusters)

    @cached_property
    def log_mixing(self) -> Floats:
        """Log expected proportion of each cluster; under an infinite mixture a new cluster has the rest."""
        weight, phi0 = self.clusters.weight, self.mixture.phi0
        if isinstance(self.mixture, Infinite):
            return np.asarray(np.log(weight / (weight.sum() + phi0)))
        return np.asarray(np.log((weight + phi0) / (weight.sum() + phi0 * len(weight))))

    def labelling_cost(self, rows: Floats | Moments) -> Floats:
        """(20), (24) or (34), rows x clusters, mixing term included."""
        return self.mixture.labelling_cost(self.family, self.clusters, rows, self.posterior)

    def assign(self, rows: Floats | Moments) -> Ints:
        """The cheapest cluster of each point, or of each row of Moments as a whole."""
        size = max(1, CHUNK_NUMBERS // self.n_clusters)
        parts = [
            self.labelling_cost(rows[start : start + size]).argmin(axis=1)
            for start in range(0, len(rows), size)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def log_joint(self, points: Floats) -> Floats:
        """log p(x, cluster | data): posterior predictives with mixing, points x clusters."""
        return np.asarray(self.family.predictive(self.posterior, points) + self.log_mixing)

    def probability(self, points: Floats) -> Floats:
        """p(cluster | x, data) over the clusters there are."""
        joint = self.log_joint(points)
        return np.asarray(np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))

    def log_predictive(self, points: Floats) -> Floats:
        """log p(x | data) of each point: low for a novelty."""
        joint = self.log_joint(points)
        if isinstance(self.mixture, Infinite):
            nothing = Moments.empty(1, self.clusters.n_features, self.clusters.kind)
            share = np.log(self.mixture.phi0 / (self.clusters.weight.sum() + self.mixture.phi0))
            prior = self.family.predictive(self.family.posterior(nothing), points)
            joint = np.concatenate([joint, prior + share], axis=1)
        return np.asarray(logsumexp(joint, axis=1))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers: each cluster's weight, mean and, where kept, covariance."""
        rows = [
            {"weight": float(w), "mean": m.tolist()}
            for w, m in zip(self.clusters.weight, self.clusters.mean, strict=True)
        ]
        if self.clusters.kind != "none":
            for row, covariance in zip(rows, self.clusters.covariance, strict=True):
                row["covariance"] = covariance.tolist()
        return {
            "family": self.family.name,
            "mixture": self.mixture.name,
            "n_clusters": self.n_clusters,
            "free_energy": self.free_energy,
            "clusters": rows,
        }

    def plot(self, **options: Any) -> Axes:
        """The clusters over two features: see `streamclust.plots.plot_clusters`."""
        from streamclust.plots import plot_clusters

        return plot_clusters(self.clusters, **options)

    def __repr__(self) -> str:
        return (
            f"Partition({self.n_clusters} {self.family.name} clusters of {self.clusters.weight.sum():g} events, "
            f"free energy {self.free_energy:.6g})"
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{k}</td><td>{w:.6g}</td><td>{np.array2string(m, precision=4, threshold=8)}</td></tr>"
            for k, (w, m) in enumerate(zip(self.clusters.weight, self.clusters.mean, strict=True))
        )
        return f"<table><caption>{self!r}</caption><tr><th>cluster<th>weight<th>mean</tr>{rows}</table>"
