"""Mixture: the soft result of a refit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.families import FAMILIES
from streamclust.families.gaussian import GaussianParameters
from streamclust.moments import Moments
from streamclust.refit.chunky_em.covariance import Covariance, form_of
from streamclust.utils.late import logsumexp

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHUNK_NUMBERS = 2_000_000
"""Numbers in a chunk of points to score: bounds memory."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of Gaussians, the heaviest component first.

    covariance    "full", "diagonal" or "spherical"
    weights       (K,)  each component's share of the data
    means         (K, D)
    covariances   (K, D, D), (K, D) or (K,)
    labels        (rows,)  the component of largest responsibility for each leaf of the tree or, where points were
                  given, for each point
    total         the weight of all data
    free_energy   F, the lower bound of the data's log-likelihood (3.13), over the rows fitted last: the boxes of
                  a tree or, where points were given, the points. It rises.
    notes         what was done that was not asked for: components left out, or never inserted
    least         (1, ...)  the covariance that no component is below; None in mixtures of older checkpoints
    """

    covariance: Covariance
    weights: Floats
    means: Floats
    covariances: Floats
    labels: Ints
    total: float
    free_energy: float
    notes: tuple[str, ...] = ()
    least: Floats | None = None

    @property
    def n_clusters(self) -> int:
        """K."""
        return len(self.weights)

    @cached_property
    def clusters(self) -> Moments:
        """The components as clusters: one row each, their weights total the data's."""
        weight = self.weights * self.total
        factor = weight * self.means.shape[1] if self.covariance == "spherical" else weight
        scatter = self.covariances * factor.reshape(-1, *[1] * (self.covariances.ndim - 1))
        return Moments(weight, self.means, scatter, form_of(self.covariance).scatter)

    def having(self, clusters: Moments) -> Mixture:
        """The mixture with components of other moments, each as wide as it must be; leaves are not labelled."""
        total, covariance = float(clusters.weight.sum()), clusters.covariance
        if self.least is not None:
            covariance = form_of(self.covariance).at_least(covariance, self.least)
        return replace(
            self, weights=clusters.weight / total, means=clusters.mean, covariances=covariance,
            labels=np.zeros(0, dtype=np.int64), total=total,
        )  # fmt: skip

    # ---------------------------------------------------------------- asking

    def log_joint(self, rows: Floats | Moments) -> Floats:
        """log p(x, component) of points or, for rows of Moments, its mean over their points; rows x components."""
        family = FAMILIES[form_of(self.covariance).family]
        density = family.log_density(GaussianParameters(self.means, self.covariances), rows)
        with np.errstate(divide="ignore"):  # components whose events have decayed
            return np.asarray(density + np.log(self.weights))

    def assign(self, rows: Floats | Moments) -> Ints:
        """The component of largest responsibility for each point, or for each row of Moments as a whole."""
        parts = [self.log_joint(part).argmax(axis=1) for part in self._chunks(rows)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def probability(self, rows: Floats | Moments) -> Floats:
        """Responsibilities: p(component | x) for points, what a box's points share [chunky EM eq. 3.14] for Moments."""
        parts = []
        for part in self._chunks(rows):
            joint = self.log_joint(part)
            parts.append(np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))
        return np.concatenate(parts) if parts else np.zeros((0, self.n_clusters))

    def log_density(self, points: Floats) -> Floats:
        """log p(x) of each point (2.1); for rows of Moments F_b / |b| (3.13), which bounds it from below."""
        parts = [logsumexp(self.log_joint(part), axis=1) for part in self._chunks(points)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def log_predictive(self, points: Floats) -> Floats:
        """log p(x) of each point: low for a novelty."""
        return self.log_density(points)

    def sample(self, n: int, rng: np.random.Generator | int | None = None) -> tuple[Floats, Ints]:
        """n points drawn from the mixture, in random order, and the component of each."""
        rng = np.random.default_rng(rng)
        labels = rng.choice(self.n_clusters, size=n, p=self.weights / self.weights.sum())
        noise = rng.normal(size=(n, self.means.shape[1]))
        if self.covariance == "full":
            values, vectors = np.linalg.eigh(self.covariances)
            roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
            for k in range(self.n_clusters):
                noise[labels == k] = noise[labels == k] @ roots[k].T
        else:
            noise *= np.sqrt(self.covariances.reshape(self.n_clusters, -1))[labels]
        return self.means[labels] + noise, labels

    def _chunks(self, rows: Floats | Moments) -> Iterator[Floats | Moments]:
        width = rows.n_features if isinstance(rows, Moments) else rows.shape[1]
        size = max(1, CHUNK_NUMBERS // max(self.n_clusters, width))
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    # ---------------------------------------------------------------- for people

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers: each component's weight, mean and covariance."""
        rows = zip(self.clusters.weight, self.means, self.covariances, strict=True)
        return {
            "family": form_of(self.covariance).family,
            "mixture": "gaussian mixture",
            "n_clusters": self.n_clusters,
            "free_energy": self.free_energy,
            "clusters": [
                {"weight": float(w), "mean": m.tolist(), "covariance": c.tolist()} for w, m, c in rows
            ],
        }

    def __repr__(self) -> str:
        return (
            f"Mixture({self.n_clusters} {self.covariance} components of {self.total:g} events, "
            f"free energy {self.free_energy:.6g})"
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{k}</td><td>{w:.4g}</td><td>{np.array2string(m, precision=4, threshold=8)}</td></tr>"
            for k, (w, m) in enumerate(zip(self.weights, self.means, strict=True))
        )
        return f"<table><caption>{self!r}</caption><tr><th>component<th>weight<th>mean</tr>{rows}</table>"

    def plot(self, **options: Any) -> Axes:
        """The components over two features: see `streamclust.plots.plot_clusters`."""
        from streamclust.plots import plot_clusters

        return plot_clusters(self.clusters, **options)
