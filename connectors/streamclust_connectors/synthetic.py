"""Synthetic events: Gaussian clusters at a chosen separation, documents of a few topics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Mixture:
    """A mixture of Gaussian clusters of random shapes, whose closest two are `tau` average deviations apart.

    The generator of the Bayesian k-means paper [section 11.1]: centroids uniform in a cube; deviations of .5 to
    1.5, scaled so that the closest pair of centroids lies at tau · (sum of their deviations) / 2; each cluster
    multiplied by a random matrix of Frobenius norm √D. With `moved`, the matrix multiplies the centroid too,
    as the paper's words have it: clusters then lie where their matrices throw them, mostly farther than tau apart.

    >>> mixture = Mixture(n_features=2, n_clusters=3, tau=3.0, seed=7)
    >>> events, labels = mixture.sample(1000)
    >>> events.shape, sorted(set(labels.tolist()))
    ((1000, 2), [0, 1, 2])
    """

    def __init__(
        self, n_features: int, n_clusters: int = 10, tau: float = 2.0, seed: int = 0, moved: bool = False
    ) -> None:
        self._rng = rng = np.random.default_rng(seed)
        self.centroids: Floats = rng.uniform(size=(n_clusters, n_features))
        deviations = rng.uniform(0.5, 1.5, size=n_clusters)
        gaps = np.linalg.norm(self.centroids[:, None] - self.centroids, axis=-1)
        needed = tau * (deviations[:, None] + deviations) / 2
        pairs = np.triu_indices(n_clusters, 1)
        if n_clusters > 1:
            deviations *= (gaps[pairs] / needed[pairs]).min()
        shapes = rng.normal(size=(n_clusters, n_features, n_features))
        shapes *= np.sqrt(n_features) / np.linalg.norm(shapes, axis=(1, 2), keepdims=True)
        self.roots: Floats = shapes * deviations[:, None, None]
        if moved:
            self.centroids = np.einsum("kij,kj->ki", shapes, self.centroids)

    def sample(self, n: int) -> tuple[Floats, Ints]:
        """Events (n, D), and the cluster that each came from."""
        labels = self._rng.integers(len(self.centroids), size=n)
        noise = self._rng.normal(size=(n, self.centroids.shape[1]))
        return self.centroids[labels] + np.einsum("nij,nj->ni", self.roots[labels], noise), labels

    def batches(self, n: int, size: int) -> Iterator[Floats]:
        """n events in batches of at most `size`."""
        for start in range(0, n, size):
            yield self.sample(min(size, n - start))[0]


def topics(n: int, d: int, k: int, length: int, seed: int) -> tuple[Floats, Ints]:
    """Documents of `length` words from k multinomials, each drawn from a Dirichlet(1), and their topics."""
    rng = np.random.default_rng(seed)
    probability = rng.dirichlet(np.ones(d), size=k)
    labels = rng.integers(k, size=n)
    points = np.empty((n, d))
    for c in range(k):
        members = labels == c
        points[members] = rng.multinomial(length, probability[c], size=int(members.sum()))
    return points, labels
