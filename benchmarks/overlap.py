"""Overlapping clusters: Gaussian mixtures by chunky EM and by scikit-learn's GaussianMixture with BIC, side by side.

Each set has clusters in pairs: the two of a pair are 2 to 3 standard deviations apart, pairs are far from each other.
Both are told nothing; GaussianMixture tries K = 1, 2, ... and keeps the K of least BIC, ending when two K in a row are
no better. ARI is of hard labels: clusters that overlap so much cannot be told apart row by row, so the labels of the
generating mixture are a third column, the most that can be had. CPU seconds are those of one thread.

    python benchmarks/overlap.py                    40 sets
    python benchmarks/overlap.py --sets 8 --rows 2000
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from time import process_time
from typing import NamedTuple

import numpy as np
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from streamclust.batch import BayesianKMeans, ChunkyGaussianMixture

MAX_COMPONENTS, PATIENCE = 40, 2
LAYOUTS = (
    (4, 2, 2.5),
    (4, 2, 3.0),
    (6, 2, 2.5),
    (8, 2, 3.0),
    (4, 5, 2.5),
    (6, 5, 3.0),
    (4, 8, 2.5),
    (4, 8, 3.0),
)
"""Clusters, features, and standard deviations between the two of a pair."""


class Overlap(NamedTuple):
    """Rows, the cluster of each, and the labels that the generating mixture would give."""

    name: str
    k: int
    x: np.ndarray
    labels: np.ndarray
    best: np.ndarray


def pairs(k: int, d: int, apart: float, rows: int, seed: int) -> Overlap:
    """K clusters in pairs; each pair has a direction, and clusters have covariances of their own."""
    rng = np.random.default_rng([seed, k, d, int(10 * apart)])
    middles = rng.uniform(-1, 1, size=(k // 2, d))
    gaps = np.linalg.norm(middles[:, None] - middles, axis=2) + np.where(
        np.eye(k // 2, dtype=bool), np.inf, 0.0
    )
    middles *= 12.0 / gaps.min()
    along = rng.normal(size=(k // 2, d))
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    centres = np.repeat(middles, 2, axis=0)
    centres[0::2] += along * apart / 2
    centres[1::2] -= along * apart / 2
    shapes = np.eye(d) + 0.3 * rng.normal(size=(k, d, d)) / np.sqrt(d)
    share = rng.dirichlet(np.full(k, 10.0))
    labels = rng.choice(k, size=rows, p=share)
    x = centres[labels] + np.einsum("nij,nj->ni", shapes[labels], rng.normal(size=(rows, d)))
    covariances = shapes @ shapes.transpose(0, 2, 1)
    log = [multivariate_normal(m, c).logpdf(x) for m, c in zip(centres, covariances, strict=True)]
    best = (np.log(share)[:, None] + np.array(log)).argmax(axis=0)
    return Overlap(f"K = {k}, D = {d}, {apart} apart", k, x, labels, best)


def gaussian_mixture(x: np.ndarray, seed: int) -> np.ndarray:
    """scikit-learn's mixture, with the K of least BIC."""
    lowest, labels, waited = np.inf, np.zeros(len(x), dtype=int), 0
    for k in range(1, MAX_COMPONENTS + 1):
        model = GaussianMixture(k, random_state=seed).fit(x)
        bic = model.bic(x)
        waited = 0 if bic < lowest else waited + 1
        if bic < lowest:
            lowest, labels = bic, model.predict(x)
        if waited == PATIENCE:
            break
    return labels


METHODS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "chunky EM": lambda x, seed: ChunkyGaussianMixture(seed=seed).fit(x).labels_,
    "GaussianMixture + BIC": gaussian_mixture,
    "Bayesian k-means": lambda x, seed: BayesianKMeans(seed=seed, shape="ellipse").fit(x).labels_,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=40, help="planted sets (default: 40)")
    parser.add_argument("--rows", type=int, default=4_000, help="rows of each (default: 4,000)")
    parser.add_argument("--only", nargs="*", choices=METHODS, default=list(METHODS), help="methods to run")
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, list[tuple[int, int, float, float, float]]] = {name: [] for name in a.only}
    for i in range(a.sets):
        k, d, apart = LAYOUTS[i % len(LAYOUTS)]
        seed = i // len(LAYOUTS)
        planted = pairs(k, d, apart, a.rows, seed)
        most = adjusted_rand_score(planted.labels, planted.best)
        line = f"{planted.name} seed {seed}: most ARI {most:.3f}"
        for name in a.only:
            began = process_time()
            labels = METHODS[name](planted.x, seed)
            seconds = process_time() - began
            n, ari = len(np.unique(labels)), adjusted_rand_score(planted.labels, labels)
            found[name].append((n, k, ari, most, seconds))
            line += f"   {name} K = {n} {ari:.3f} in {seconds:.2f} s"
        print(line, flush=True)
    print(
        "\n| method | K right | K too few | K too many | mean ARI | the generating mixture's | CPU s a fit |\n"
        + "|---" * 7
        + "|"
    )
    for name, rows in found.items():
        n, k, ari, most, seconds = np.array(rows).T
        print(
            f"| {name} | {(n == k).sum()} of {len(n)} | {(n < k).sum()} | {(n > k).sum()} | {ari.mean():.3f} "
            f"| {most.mean():.3f} | {seconds.mean():.2f} |"
        )


if __name__ == "__main__":
    main()
