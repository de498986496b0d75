"""Tables of numbers and categories: ours, which finds K, beside peers that are told it.

Planted tables: K clusters, some numbers, some categorical columns that tell clusters apart and some that do not. Peers
in the same run, on the same rows: k-prototypes (kmodes), MiniBatchKMeans and BayesianGaussianMixture on standardised
numbers and one-hot columns.

    python benchmarks/mixed.py --quick
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from kmodes.kprototypes import KPrototypes
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture

from streamclust import StreamClusterer
from streamclust.batch import BayesianKMeans


class Planted(NamedTuple):
    """What a planted table is like."""

    n_clusters: int
    n_numbers: int
    informative: tuple[int, ...]
    """Number of values of each categorical column that depends on the cluster."""
    independent: tuple[int, ...]
    """Number of values of each that does not."""
    distance: float = 5.0
    """Deviation of the centres, in deviations within clusters."""
    skewed: float = 0.0
    """Numbers are exponentials of normal values of this deviation within clusters; 0: they are normal."""


TABLES = {
    "blobs": Planted(3, 2, (), ()),
    "blobs, 1 coin": Planted(3, 2, (), (2,)),
    "blobs, 3 coins": Planted(3, 2, (), (2,) * 3),
    "blobs, 10 coins": Planted(3, 2, (), (2,) * 10),
    "K 3, 2 numbers, 3 + 3 categories": Planted(3, 2, (4, 8, 20), (4, 8, 20), 2.0),
    "K 8, 2 numbers, 4 categories": Planted(8, 2, (3, 6, 12, 50), ()),
    "K 8, 10 numbers, 5 + 5 categories": Planted(8, 10, (5,) * 5, (10,) * 5, 1.5),
    "K 3, 2 numbers that tell nothing, 6 categories": Planted(3, 2, (5,) * 6, (), 0.0),
    "K 3, 2 skewed numbers": Planted(3, 2, (), (), 5.0, 0.7),
    "K 3, 2 skewed numbers, 2 + 2 categories": Planted(3, 2, (4, 8), (4, 8), 3.0, 0.7),
    "K 8, 4 skewed numbers, 3 coins": Planted(8, 4, (), (2,) * 3, 4.0, 0.7),
}


def table(planted: Planted, n: int, seed: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Numbers, codes of each categorical column, and the true cluster of each row."""
    rng = np.random.default_rng(seed)
    k = planted.n_clusters
    truth = rng.integers(k, size=n)
    centres = rng.normal(size=(k, planted.n_numbers)) * planted.distance
    numbers = centres[truth] + rng.normal(size=(n, planted.n_numbers))
    if planted.skewed:
        numbers = np.exp(planted.skewed * numbers)
    codes = []
    for values in planted.informative:
        share = rng.dirichlet(np.full(values, 0.3), size=k)
        codes.append(drawn(share[truth], rng))
    codes += [rng.choice(v, p=rng.dirichlet(np.ones(v)), size=n) for v in planted.independent]
    return numbers, codes, truth


def drawn(share: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One value for each row, by its shares."""
    return (share.cumsum(axis=1) < rng.random((len(share), 1))).sum(axis=1).clip(max=share.shape[1] - 1)


def one_hot(numbers: np.ndarray, codes: list[np.ndarray]) -> np.ndarray:
    """Standardised numbers beside a column of 0 and 1 for each value."""
    return np.hstack([numbers / numbers.std(axis=0), *(np.eye(int(c.max()) + 1)[c] for c in codes)])


def ours(numbers: np.ndarray, codes: list[np.ndarray], k: int, seed: int) -> np.ndarray:
    """Labels by BayesianKMeans, K found."""
    columns = {f"x{i}": x for i, x in enumerate(numbers.T)}
    columns |= {f"c{i}": [f"v{value}" for value in c] for i, c in enumerate(codes)}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return BayesianKMeans(seed=seed).fit(rows).labels_


def streamed(numbers: np.ndarray, codes: list[np.ndarray], k: int, seed: int) -> np.ndarray:
    """Labels by StreamClusterer, one event at a time, K found."""
    columns = {f"x{i}": x.tolist() for i, x in enumerate(numbers.T)}
    columns |= {f"c{i}": [f"v{value}" for value in c] for i, c in enumerate(codes)}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    model = StreamClusterer(seed=seed)
    for row in rows:
        model.learn_one(row)
    model.settle()
    return model.predict_many(rows).astype(int)


def prototypes(numbers: np.ndarray, codes: list[np.ndarray], k: int, seed: int) -> np.ndarray | None:
    """Labels by k-prototypes told K; None without categories, which it cannot do."""
    if not codes:
        return None
    rows = np.column_stack([numbers / numbers.std(axis=0), *codes]).astype(object)
    model = KPrototypes(k, n_init=3, random_state=seed)
    return model.fit_predict(rows, categorical=list(range(numbers.shape[1], rows.shape[1])))


def means(numbers: np.ndarray, codes: list[np.ndarray], k: int, seed: int) -> np.ndarray:
    """Labels by k-means on one-hot columns, told K."""
    return MiniBatchKMeans(k, n_init=3, random_state=seed).fit_predict(one_hot(numbers, codes))


def mixture(numbers: np.ndarray, codes: list[np.ndarray], k: int, seed: int) -> np.ndarray:
    """Labels by a variational Gaussian mixture on one-hot columns, told K."""
    return BayesianGaussianMixture(n_components=k, random_state=seed).fit_predict(one_hot(numbers, codes))


METHODS: dict[str, Callable[..., np.ndarray | None]] = {
    "ours": ours,
    "ours, streamed": streamed,
    "k-prototypes": prototypes,
    "MiniBatchKMeans": means,
    "BayesianGMM": mixture,
}


OURS = ("ours", "ours, streamed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="two seeds of 1,000 rows instead of five of 3,000"
    )
    parser.add_argument("--rows", type=int, help="rows of each table")
    parser.add_argument("--seeds", type=int, help="tables of each kind")
    parser.add_argument("--only", default="", help="part of the names of kinds")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    n = options.rows or (1_000 if options.quick else 3_000)
    seeds = range(options.seeds or (2 if options.quick else 5))
    right, ahead, cells = dict.fromkeys(OURS, 0), dict.fromkeys(OURS, 0), 0
    print(
        f"{n} rows, {len(seeds)} seeds; ARI from least to most, CPU seconds; ours finds K, the others are told it"
    )
    for name, planted in TABLES.items():
        if options.only not in name:
            continue
        scores: dict[str, list[float]] = {method: [] for method in METHODS}
        cpu = dict.fromkeys(METHODS, 0.0)
        found: dict[str, list[int]] = {method: [] for method in OURS}
        for seed in seeds:
            numbers, codes, truth = table(planted, n, seed)
            for method, labels_of in METHODS.items():
                start = time.process_time()
                labels = labels_of(numbers, codes, planted.n_clusters, seed)
                cpu[method] += time.process_time() - start
                if labels is not None:
                    scores[method].append(float(adjusted_rand_score(truth, labels)))
                    if method in OURS:
                        found[method].append(len(np.unique(labels)))
        peers = [np.mean(values) for method, values in scores.items() if method not in OURS and values]
        for method in OURS:
            right[method] += sum(k == planted.n_clusters for k in found[method])
            ahead[method] += np.mean(scores[method]) >= max(peers) - 1e-3
        cells += 1
        parts = [
            f"{method} {min(values):.3f}-{max(values):.3f} ({cpu[method]:.1f} s)"
            for method, values in scores.items()
            if values
        ]
        print(f"{name:48s} K {found} for {planted.n_clusters}: " + "; ".join(parts), flush=True)
    for method in OURS:
        print(
            f"{method}: K right in {right[method]} of {cells * len(seeds)}; mean ARI no lower than any peer told K in "
            f"{ahead[method]} of {cells}"
        )


if __name__ == "__main__":
    main()
