"""Synthetic events: Gaussian clusters at a chosen separation, clusters that drift, documents of a few topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class SyntheticMixture:
    """A mixture of Gaussian clusters of random shapes, whose closest two are `tau` average deviations apart.

    The generator of the Bayesian k-means paper [section 11.1]: centroids uniform in a cube; deviations of .5 to
    1.5, scaled so that the closest pair of centroids lies at tau · (sum of their deviations) / 2; each cluster
    multiplied by a random matrix of Frobenius norm √D. With `moved`, the matrix multiplies the centroid too, as the
    text of the paper says; most clusters are then farther than tau apart.

    >>> mixture = SyntheticMixture(n_features=2, n_clusters=3, tau=3.0, seed=7)
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
        """Events (n, D), and the cluster of each."""
        labels = self._rng.integers(len(self.centroids), size=n)
        noise = self._rng.normal(size=(n, self.centroids.shape[1]))
        return self.centroids[labels] + np.einsum("nij,nj->ni", self.roots[labels], noise), labels

    def batches(self, n: int, size: int) -> Iterator[Floats]:
        """n events in batches of at most `size`."""
        for start in range(0, n, size):
            yield self.sample(min(size, n - start))[0]


class Track(NamedTuple):
    """A cluster of a drifting stream and its path. Times are fractions of the stream."""

    first: float
    last: float
    origin: Floats
    """Centroid extrapolated to the beginning of the stream."""
    path: Floats
    """Displacement over the whole stream."""
    root: Floats
    apart: Floats
    """Further displacement during a tenth of the stream after `first`: away from the cluster it split from."""


class Drift:
    """A stream of Gaussian clusters that move, appear, vanish and split.

    Standard deviations are about 1, and centroids start at least `gap` apart. Each cluster moves by `distance` over
    `n_events`, if possible in a direction that keeps it three quarters of the gap away from the others. After a third
    of the stream `births` clusters appear; after half of it `splits` clusters split in two, which move six deviations
    apart within a tenth of the stream; after two thirds `deaths` clusters vanish.

    >>> stream = Drift(n_features=2, n_events=1000, seed=1)
    >>> sum(len(events) for events, labels in stream.batches(300))
    1000
    """

    def __init__(
        self,
        n_features: int,
        n_clusters: int = 8,
        n_events: int = 300_000,
        distance: float = 8.0,
        births: int = 2,
        deaths: int = 2,
        splits: int = 1,
        gap: float = 8.0,
        seed: int = 0,
    ) -> None:
        if n_clusters < splits + deaths:
            raise ValueError(
                f"n_clusters must be at least splits + deaths ({splits} + {deaths}), got {n_clusters}"
            )
        self.n_events = n_events
        self._rng = rng = np.random.default_rng(seed)
        places = _apart(rng, n_clusters + births, n_features, gap)
        still = np.zeros(n_features)
        self.tracks: list[Track] = []
        for k, place in enumerate(places):
            first = 1 / 3 if k >= n_clusters else 0.0
            last = 2 / 3 if splits <= k < splits + deaths else 1.0
            path = self._free_path(place, distance, gap)
            shape = rng.normal(size=(n_features, n_features))
            shape = 0.7 * np.eye(n_features) + 0.7 * shape / np.linalg.norm(shape) * np.sqrt(n_features)
            if k >= splits:
                self.tracks += [Track(first, last, place, path, shape, still)]
                continue
            aside = 3.0 * _direction(rng, n_features)
            self.tracks += [Track(0.0, 0.5, place, path, shape, still)]
            self.tracks += [Track(0.5, 1.0, place, path, shape / 1.4, sign * aside) for sign in (1.0, -1.0)]

    def _free_path(self, place: Floats, distance: float, gap: float) -> Floats:
        """The one of a hundred random paths that stays farthest from the other tracks."""
        moments = np.linspace(0.0, 1.0, 11)[:, None]
        best, freest = np.zeros_like(place), -1.0
        for _ in range(100):
            path = distance * _direction(self._rng, len(place))
            own = place + moments * path
            room = [np.linalg.norm(own - (t.origin + moments * t.path), axis=1).min() for t in self.tracks]
            if min(room, default=np.inf) > freest:
                best, freest = path, float(min(room, default=np.inf))
            if freest >= 0.75 * gap:
                break
        return best

    def batches(self, size: int) -> Iterator[tuple[Floats, Ints]]:
        """Batches of at most `size` events, with the track number of each event."""
        for start in range(0, self.n_events, size):
            moments = np.arange(start, min(start + size, self.n_events)) / self.n_events
            alive = np.array([(t.first <= moments) & (moments < t.last) for t in self.tracks])
            labels = np.argmax(self._rng.random(alive.shape) * alive, axis=0)
            noise = self._rng.normal(size=(len(moments), len(self.tracks[0].origin)))
            events = np.empty_like(noise)
            for k, track in enumerate(self.tracks):
                own = labels == k
                gone = np.minimum((moments[own] - track.first) / 0.1, 1.0)[:, None]
                place = track.origin + moments[own, None] * track.path + gone * track.apart
                events[own] = place + noise[own] @ track.root.T
            yield events, labels


def _direction(rng: np.random.Generator, n_features: int) -> Floats:
    """A random unit vector."""
    step = rng.normal(size=n_features)
    return np.asarray(step / np.linalg.norm(step))


def _apart(rng: np.random.Generator, n: int, n_features: int, gap: float) -> Floats:
    """n random points in a cube, no two closer than `gap`; the cube grows until they fit."""
    side = gap * n ** (1 / n_features)
    places: list[Floats] = []
    while len(places) < n:
        place = rng.uniform(-side / 2, side / 2, size=n_features)
        if all(np.linalg.norm(place - other) >= gap for other in places):
            places.append(place)
        else:
            side *= 1.01
    return np.array(places)


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
