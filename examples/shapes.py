"""Shapes: the sets by which scikit-learn compares clusterers, streamed here and given to others beside.

Circles, moons, blobs of different spread, slanted blobs, round blobs, no structure at all. k-means and the Gaussian
mixture are told how many clusters there are, HDBSCAN how small one may be, DBSTREAM the best of four radii; our column
is told nothing and sees each event once. What one sees: every method's clusters in colours, their adjusted Rand index
against the truth, and in our column what the clusters are made of: an ellipse for each component, and the outline of
each cluster.

Run it: python examples/shapes.py [--events N] [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from river import cluster
from sklearn import datasets
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from streamclust import StreamClusterer
from streamclust.plots import plot_clusters

OURS = "streamclust"


class Scene(NamedTuple):
    """A set: standardised events, their true clusters, and how many there are."""

    name: str
    x: np.ndarray
    truth: np.ndarray
    k: int


def scenes(n: int) -> Iterator[Scene]:
    """The six sets, in a random order of events."""
    slanted, of = datasets.make_blobs(n, random_state=170)
    found = {
        "circles": datasets.make_circles(n, factor=0.5, noise=0.05, random_state=30),
        "moons": datasets.make_moons(n, noise=0.05, random_state=30),
        "varied": datasets.make_blobs(n, cluster_std=[1.0, 2.5, 0.5], random_state=170),
        "anisotropic": (slanted @ [[0.6, -0.6], [-0.4, 0.8]], of),
        "blobs": datasets.make_blobs(n, random_state=30),
        "no structure": (np.random.default_rng(30).uniform(size=(n, 2)), np.zeros(n, dtype=int)),
    }
    for name, (x, truth) in found.items():
        order = np.random.default_rng(0).permutation(n)
        yield Scene(name, StandardScaler().fit_transform(x[order]), truth[order], len(np.unique(truth)))


def k_means(scene: Scene) -> np.ndarray:
    """Told K; where that is 1, 2."""
    return KMeans(max(scene.k, 2), n_init=3, random_state=0).fit_predict(scene.x)


def mixture(scene: Scene) -> np.ndarray:
    """Told K; where that is 1, 2."""
    return GaussianMixture(max(scene.k, 2), random_state=0).fit_predict(scene.x)


def hdbscan(scene: Scene) -> np.ndarray:
    """Told that a cluster has at least a hundredth of the events."""
    return HDBSCAN(min_cluster_size=max(5, len(scene.x) // 100), copy=True).fit_predict(scene.x)


def dbstream(scene: Scene) -> np.ndarray:
    """Given the radius, of four, that suits the truth best."""
    rows = [dict(enumerate(row)) for row in scene.x.tolist()]
    found = []
    for radius in (0.1, 0.2, 0.4, 0.8):
        model = cluster.DBSTREAM(clustering_threshold=radius, cleanup_interval=2, minimum_weight=1)
        for row in rows:
            model.learn_one(row)
        found.append(np.array([model.predict_one(row) for row in rows]))
    return max(found, key=lambda labels: adjusted_rand_score(scene.truth, labels))


PEERS: dict[str, Callable[[Scene], np.ndarray]] = {
    "k-means, told K": k_means,
    "Gaussian mixture, told K": mixture,
    "HDBSCAN": hdbscan,
    "DBSTREAM": dbstream,
}


def main() -> None:
    """Parse the arguments, cluster every set by every method, draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=2_000, help="events of each set (default: 2,000)")
    parser.add_argument("--quick", action="store_true", help="fewer events")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    arguments = parser.parse_args()
    n = 500 if arguments.quick else arguments.events
    arguments.output.mkdir(parents=True, exist_ok=True)

    every = list(scenes(n))
    columns = [*PEERS, OURS]
    figure, axes = pyplot.subplots(
        len(every), len(columns), figsize=(2.6 * len(columns), 2.5 * len(every)), layout="constrained"
    )
    for row, scene in zip(axes, every, strict=True):
        scores = {}
        for ax, name in zip(row, columns, strict=True):
            labels = ours(scene, ax) if name == OURS else PEERS[name](scene)
            scores[name] = adjusted_rand_score(scene.truth, labels)
            if name != OURS:
                ax.scatter(*scene.x.T, s=3, c=np.where(labels < 0, "0.8", colours(labels)), linewidths=0)
            ax.set(xticks=[], yticks=[], xlabel="", ylabel=scene.name if name == columns[0] else "")
            ax.set_title(f"{name}\n" * (scene is every[0]) + f"ARI {scores[name]:.2f}", fontsize=9)
        print(f"{scene.name:<14}" + ", ".join(f"{name} {score:.2f}" for name, score in scores.items()))
    picture = arguments.output / "shapes.png"
    figure.savefig(picture, dpi=110)
    print(f"picture       {picture}")


def ours(scene: Scene, ax: Axes) -> np.ndarray:
    """Stream the events, draw the clusters found; the id of each event's."""
    model = StreamClusterer(shape="any")
    model.learn_many(scene.x)
    model.settle()
    labels = np.asarray(model.predict_many(scene.x))
    view = model.view()
    plot_clusters(view.components, ax=ax, ids=view.component_ids.tolist(), events=scene.x, labels=labels)
    return labels


def colours(labels: np.ndarray) -> np.ndarray:
    """A colour for each label; they repeat."""
    return np.array([f"C{label % 10}" for label in labels])


if __name__ == "__main__":
    main()
