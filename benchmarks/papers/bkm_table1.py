"""Bayesian k-means, table 1: how many clusters are found where there are ten, by us and by the paper's comparators.

G-means, k-means and Gaussian mixtures by BIC and variational mixtures are run on the same sets as ours.
"We multiplied the data within each cluster with a random matrix": centroids are multiplied too.

    python -m benchmarks.papers.bkm_table1 --results FILE        can be stopped, and goes on where it was
    python -m benchmarks.papers.bkm_table1 --only "BKM, learnt prior" --sets 4 --features 32 64
                                                                 some columns and rows; prints them, writes no page
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from benchmarks.papers.page import Page, spread, timed
from streamclust.batch import BayesianKMeans
from streamclust_connectors.synthetic import SyntheticMixture

MOST, PATIENCE = 40, 2
"""Largest K that is tried by BIC; how many K in a row may be worse before the search ends."""
ANDERSON_DARLING = 1.8692
"""Critical value of G-means at α = 0.0001 [Hamerly and Elkan]."""
PAPER = {  # (tau, N, D): K by G-means, k-means+BIC, MoG+BIC, BKM, VBMG, collapsed Gibbs
    (0.1, 100, 2): ("4.50±2.42", "2.00±1.41", "3.80±2.04", "2.00±0.82", "4.30±2.16", "6.32±1.39"),
    (0.1, 100, 32): ("7.40±3.86", "1.00±0.00", "1.70±0.48", "2.50±4.74", "1.00±0.00", "2.60±0.84"),
    (0.1, 100, 64): ("13.10±5.47", "1.00±0.00", "1.00±0.00", "13.30±1.06", "1.30±0.48", "1.70±0.48"),
    (0.1, 1000, 2): ("32.10±12.33", "3.50±1.90", "7.80±1.32", "7.40±1.96", "8.80±0.79", "15.11±1.84"),
    (0.1, 1000, 32): ("39.10±10.07", "1.10±0.32", "5.60±1.65", "7.70±1.16", "9.90±0.32", "7.20±1.14"),
    (0.1, 1000, 64): ("49.40±22.51", "1.00±0.00", "3.60±1.43", "5.70±4.79", "2.90±0.74", "6.50±0.97"),
    (0.1, 5000, 2): ("108.90±15.07", "3.80±1.62", "9.20±2.70", "8.10±4.72", "9.90±0.32", "15.23±2.11"),
    (0.1, 5000, 32): ("130.90±46.17", "2.70±1.49", "3.90±2.64", "10.00±0.00", "9.80±0.42", "7.90±0.57"),
    (0.1, 5000, 64): ("104.30±51.93", "1.30±0.67", "2.10±0.32", "10.00±0.00", "10.00±0.00", "7.20±1.55"),
    (0.5, 100, 2): ("4.80±2.49", "2.50±1.72", "5.20±2.35", "4.10±3.60", "4.40±2.12", "6.73±1.48"),
    (0.5, 100, 32): ("7.40±4.06", "1.00±0.00", "2.00±0.00", "14.80±5.35", "1.00±0.00", "3.07±0.92"),
    (0.5, 100, 64): ("10.60±6.55", "1.00±0.00", "1.00±0.00", "13.80±0.92", "1.40±0.52", "1.70±0.48"),
    (0.5, 1000, 2): ("21.30±4.55", "4.20±1.87", "9.20±1.32", "4.30±3.65", "9.40±0.84", "14.52±2.45"),
    (0.5, 1000, 32): ("25.60±10.31", "1.20±0.42", "9.20±0.63", "9.20±2.10", "9.90±0.31", "7.20±0.79"),
    (0.5, 1000, 64): ("37.90±9.72", "1.60±1.08", "3.80±0.84", "11.40±6.15", "3.80±1.03", "6.10±1.37"),
    (0.5, 5000, 2): ("82.00±14.91", "4.20±1.32", "9.10±2.76", "8.10±3.57", "9.80±0.42", "12.00±1.76"),
    (0.5, 5000, 32): ("74.00±32.40", "2.60±0.97", "8.90±1.45", "9.90±0.32", "10.00±0.00", "7.40±1.26"),
    (0.5, 5000, 64): ("74.30±31.72", "2.50±1.72", "9.60±0.52", "9.70±0.48", "9.80±0.42", "7.20±1.69"),
    (2.0, 100, 2): ("6.80±3.26", "2.10±1.45", "6.50±1.96", "8.30±1.89", "7.20±2.15", "5.96±0.61"),
    (2.0, 100, 32): ("11.90±1.20", "3.30±2.21", "2.40±0.00", "10.70±5.17", "1.00±0.00", "4.75±0.97"),
    (2.0, 100, 64): ("9.90±3.87", "2.20±2.20", "1.00±0.00", "13.80±0.63", "1.00±0.00", "2.96±0.68"),
    (2.0, 1000, 2): ("18.30±5.29", "4.30±1.57", "9.50±1.65", "9.60±1.26", "9.80±0.42", "8.26±1.63"),
    (2.0, 1000, 32): ("13.90±2.08", "6.80±2.94", "7.40±1.90", "9.40±1.26", "9.00±0.94", "7.50±0.53"),
    (2.0, 1000, 64): ("13.50±3.66", "8.60±2.41", "3.00±0.67", "12.60±3.31", "4.00±1.03", "6.40±0.97"),
    (2.0, 5000, 2): ("48.70±14.22", "5.30±2.50", "9.60±1.58", "10.00±0.00", "9.40±1.43", "9.33±1.12"),
    (2.0, 5000, 32): ("15.00±5.79", "9.50±1.84", "7.90±1.10", "10.00±0.00", "10.00±0.00", "7.50±0.85"),
    (2.0, 5000, 64): ("11.60±2.07", "9.90±2.12", "8.40±0.97", "10.00±0.00", "10.00±0.00", "6.60±1.58"),
}
QUICK = ((100, 2), (1000, 2), (1000, 32))


# -------------------------------------------------------------------- the comparators


def g_means(x: np.ndarray, seed: int) -> np.ndarray:
    """G-means: split a cluster while its points, along the line between two halves, are no bell."""
    found, labels, waiting = 1, np.zeros(len(x), dtype=int), [0]
    while waiting:
        rows = np.flatnonzero(labels == waiting.pop())
        if len(rows) < 8:
            continue
        halves = KMeans(2, n_init=1, random_state=seed).fit(x[rows])
        line = halves.cluster_centers_[1] - halves.cluster_centers_[0]
        if not line.any() or is_normal(x[rows] @ line):
            continue
        labels[rows[halves.labels_ == 1]] = found
        waiting += [int(labels[rows[halves.labels_ == 0][0]]), found]
        found += 1
    return labels


def is_normal(values: np.ndarray) -> bool:
    """The Anderson-Darling test with mean and variance unknown."""
    n = len(values)
    z = np.sort((values - values.mean()) / values.std(ddof=1))
    i = np.arange(1, n + 1)
    a2 = -n - np.mean((2 * i - 1) * (norm.logcdf(z) + norm.logsf(z[::-1])))
    return bool(a2 * (1 + 4 / n - 25 / n**2) < ANDERSON_DARLING)


def least(score: Callable[[int], tuple[float, np.ndarray]], n: int) -> np.ndarray:
    """Labels at the K of least score; the search ends when PATIENCE K in a row are no better."""
    best, labels, worse = np.inf, np.zeros(n, dtype=int), 0
    for k in range(1, min(MOST, n // 2) + 1):
        value, found = score(k)
        worse = 0 if value < best else worse + 1
        if value < best:
            best, labels = value, found
        if worse > PATIENCE:
            break
    return labels


def k_means_bic(x: np.ndarray, seed: int) -> np.ndarray:
    """k-means whose K has the least BIC of round clusters of one variance [Pelleg and Moore]."""
    n, d = x.shape

    def score(k: int) -> tuple[float, np.ndarray]:
        model = KMeans(k, n_init=2, random_state=seed).fit(x)
        counts = np.bincount(model.labels_, minlength=k)
        variance = max(model.inertia_ / (d * max(n - k, 1)), 1e-300)
        likelihood = (counts * np.log(np.maximum(counts, 1) / n)).sum()
        likelihood -= n * d / 2 * np.log(2 * np.pi * variance) + d * (n - k) / 2
        return -2 * likelihood + (k - 1 + k * d + 1) * np.log(n), model.labels_

    return least(score, n)


def mixture_bic(x: np.ndarray, seed: int) -> np.ndarray:
    """A Gaussian mixture whose K has the least BIC."""

    def score(k: int) -> tuple[float, np.ndarray]:
        model = GaussianMixture(k, random_state=seed).fit(x)
        return model.bic(x), model.predict(x)

    return least(score, len(x))


def variational(x: np.ndarray, seed: int) -> np.ndarray:
    """scikit-learn's variational mixture, 30 components at most; empty ones do not count."""
    return BayesianGaussianMixture(
        n_components=min(30, len(x) // 2), max_iter=200, random_state=seed
    ).fit_predict(x)


METHODS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "G-means": g_means,
    "k-means+BIC": k_means_bic,
    "MoG+BIC": mixture_bic,
    "BKM, paper's search": lambda x, seed: (
        BayesianKMeans(prior="bkm", search="top-down", seed=seed, detail="fine").fit(x).labels_
    ),
    "BKM, paper's prior": lambda x, seed: (
        BayesianKMeans(prior="bkm", seed=seed, detail="fine").fit(x).labels_
    ),
    "BKM, learnt prior": lambda x, seed: (
        BayesianKMeans(seed=seed, shape="ellipse", detail="fine").fit(x).labels_
    ),
    "default": lambda x, seed: BayesianKMeans(seed=seed).fit(x).labels_,
    "VB mixture": variational,
}
OURS = ("BKM, paper's search", "BKM, paper's prior", "BKM, learnt prior")
PAPERS_COLUMN = {"G-means": 0, "k-means+BIC": 1, "MoG+BIC": 2, OURS[0]: 3, "VB mixture": 4}


def compared(rows: list[tuple[float, int, int]], found: dict[Any, list[tuple[int, float, float]]]) -> str:
    """Sentences: where the ARI under the learnt prior is below that under the paper's, and how K compares."""
    mean = {key: np.mean(values, axis=0) for key, values in found.items()}
    below = [
        f"τ = {tau}, N = {n:,}, D = {d} ({mean[(tau, n, d), OURS[2]][1]:.3f} for {mean[(tau, n, d), OURS[1]][1]:.3f})"
        for tau, n, d in rows
        if mean[(tau, n, d), OURS[2]][1] < mean[(tau, n, d), OURS[1]][1] - 0.0005
    ]
    text = f"The learnt prior has a lower ARI than the paper's in {len(below)} of {len(rows)} rows"
    text += f": {'; '.join(below)}. " if below else ". "
    near = {
        name: sum(
            abs(mean[row, name][0] - 10) <= abs(float(PAPER[row][3].split("±")[0]) - 10) for row in rows
        )
        for name in OURS
    }
    each = "; ".join(f"{name[5:]}: {count}" for name, count in near.items())
    return (
        text + f"Rows (of {len(rows)}) in which the mean K is at least as near to 10 as in the paper: {each}."
    )


class Known:
    """Fits made so far, kept in a file of JSON lines if one is given, so that a run can go on."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.fits: dict[tuple[Any, ...], tuple[int, float, float]] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            *key, k, ari, seconds = json.loads(line)
            self.fits[tuple(key)] = k, ari, seconds

    def fit(
        self, row: tuple[float, int, int], seed: int, name: str, x: np.ndarray, truth: np.ndarray
    ) -> tuple[int, float, float]:
        """K, ARI and CPU seconds of one method on one set."""
        key = (*row, seed, name)
        if key not in self.fits:
            labels, seconds = timed(lambda: METHODS[name](x, seed))
            self.fits[key] = len(np.unique(labels)), float(adjusted_rand_score(truth, labels)), seconds
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps([*key, *self.fits[key]]) + "\n")
        return self.fits[key]


def main() -> None:
    arguments = argparse.ArgumentParser(add_help=False)
    arguments.add_argument(
        "--results", type=Path, help="keep each fit in this file, and begin with those it holds"
    )
    arguments.add_argument("--only", nargs="*", choices=METHODS, help="fit these methods, and write no page")
    arguments.add_argument("--sets", type=int, default=10, help="sets of each row (default: 10)")
    arguments.add_argument(
        "--features", type=int, nargs="*", default=[2, 32, 64], help="rows of these D (default: all)"
    )
    given, sys.argv[1:] = arguments.parse_known_args()
    page = Page("Bayesian k-means, table 1: how many clusters")
    known = Known(given.results)
    sets = 2 if page.quick else given.sets
    rows = [row for row in PAPER if (not page.quick or row[1:] in QUICK) and row[2] in given.features]
    found: dict[tuple[tuple[float, int, int], str], list[tuple[int, float, float]]] = {}
    for row in rows:
        tau, n, d = row
        for seed in range(sets):
            x, truth = SyntheticMixture(d, n_clusters=10, tau=tau, seed=seed, moved=True).sample(n)
            for name in given.only or METHODS:
                fit = known.fit(row, seed, name, x, truth)
                found.setdefault((row, name), []).append(fit)
        print(row, flush=True)
    if given.only:
        for row in rows:
            means = [np.mean(found[row, name], axis=0) for name in given.only]
            cells = [
                f"{name}: K {k:.1f} ARI {ari:.3f} in {s:.2f} s"
                for name, (k, ari, s) in zip(given.only, means, strict=True)
            ]
            print(row, *cells, sep="   ")
        return
    page.say(
        f"Ten clusters are planted; K as found, mean ± deviation over {sets} sets of the paper's recipe, "
        "the paper's own (ten sets) in brackets. BKM is Bayesian k-means: by the paper's search from one cluster down "
        'under its prior (21) (`search="top-down", prior="bkm"`); by this library\'s search under the same prior '
        '(`prior="bkm"`); and under the prior that is learnt. These show every cluster that the free energy tells '
        'apart (`detail="fine"`); "default" shows the level that stands out, which goes by means of clusters, not by '
        "covariances, and joins ellipses that are pieces of one shape. "
        '"VB mixture" is scikit-learn\'s variational mixture, which begins with 30 components and neither splits nor '
        "merges: in 32 and 64 dimensions none ever empties, so that its K says nothing there. The paper's VBMG has the "
        "splits and merges of BKM. MoG+BIC and k-means+BIC here try one K after another; the paper's split and merge."
    )
    page.table(
        ["τ", "N", "D", *METHODS, "paper's Gibbs"],
        [
            [*row]
            + [
                spread([k for k, _, _ in found[row, name]], 1)
                + (f" ({PAPER[row][PAPERS_COLUMN[name]]})" if name in PAPERS_COLUMN else "")
                for name in METHODS
            ]
            + [f"({PAPER[row][5]})"]
            for row in rows
        ],
    )
    page.say(compared(rows, found))
    page.say("Adjusted Rand index, which the paper does not give, and mean CPU seconds of a fit:")
    page.table(
        ["τ", "N", "D", *METHODS],
        [
            [*row]
            + [
                f"{np.mean([a for _, a, _ in found[row, name]]):.3f} in "
                f"{np.mean([s for *_, s in found[row, name]]):.2f} s"
                for name in METHODS
            ]
            for row in rows
        ],
    )
    page.write()


if __name__ == "__main__":
    main()
