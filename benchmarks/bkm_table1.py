"""The Bayesian k-means paper's table 1: how many clusters are found where there are ten.

"We multiplied the data within each cluster with a random matrix": centroids are multiplied too. With --centred they
stay, and at tau = .1 the ten clusters of two dimensions are one blob that no method could take apart.

The paper's columns (its Bayesian k-means, BKM, and variational mixtures, VBMG) stand beside ours, run now on data
of the same recipe: mean and deviation of K over the sets, the ARI, how often the free energy ends at or below that of
ME iterations started at the true partition, and the time of a fit.

    python benchmarks/bkm_table1.py             all 27 rows, 10 sets each
    python benchmarks/bkm_table1.py --quick     the rows with N = 1,000 and D = 2, 3 sets each
    python benchmarks/bkm_table1.py --search top-down
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
from sklearn.metrics import adjusted_rand_score

from streamclust.batch import BayesianKMeans
from streamclust.moments import Moments
from streamclust.refit.labelling import Labelling
from streamclust.refit.problem import Problem
from streamclust_connectors.synthetic import Mixture

PAPER = {  # (tau, N, D): the paper's K by BKM and by VBMG
    (0.1, 100, 2): ("2.00±0.82", "4.30±2.16"),
    (0.1, 100, 32): ("2.50±4.74", "1.00±0.00"),
    (0.1, 100, 64): ("13.30±1.06", "1.30±0.48"),
    (0.1, 1000, 2): ("7.40±1.96", "8.80±0.79"),
    (0.1, 1000, 32): ("7.70±1.16", "9.90±0.32"),
    (0.1, 1000, 64): ("5.70±4.79", "2.90±0.74"),
    (0.1, 5000, 2): ("8.10±4.72", "9.90±0.32"),
    (0.1, 5000, 32): ("10.00±0.00", "9.80±0.42"),
    (0.1, 5000, 64): ("10.00±0.00", "10.00±0.00"),
    (0.5, 100, 2): ("4.10±3.60", "4.40±2.12"),
    (0.5, 100, 32): ("14.80±5.35", "1.00±0.00"),
    (0.5, 100, 64): ("13.80±0.92", "1.40±0.52"),
    (0.5, 1000, 2): ("4.30±3.65", "9.40±0.84"),
    (0.5, 1000, 32): ("9.20±2.10", "9.90±0.31"),
    (0.5, 1000, 64): ("11.40±6.15", "3.80±1.03"),
    (0.5, 5000, 2): ("8.10±3.57", "9.80±0.42"),
    (0.5, 5000, 32): ("9.90±0.32", "10.00±0.00"),
    (0.5, 5000, 64): ("9.70±0.48", "9.80±0.42"),
    (2.0, 100, 2): ("8.30±1.89", "7.20±2.15"),
    (2.0, 100, 32): ("10.70±5.17", "1.00±0.00"),
    (2.0, 100, 64): ("13.80±0.63", "1.00±0.00"),
    (2.0, 1000, 2): ("9.60±1.26", "9.80±0.42"),
    (2.0, 1000, 32): ("9.40±1.26", "9.00±0.94"),
    (2.0, 1000, 64): ("12.60±3.31", "4.00±1.03"),
    (2.0, 5000, 2): ("10.00±0.00", "9.40±1.43"),
    (2.0, 5000, 32): ("10.00±0.00", "10.00±0.00"),
    (2.0, 5000, 64): ("10.00±0.00", "10.00±0.00"),
}


def run_set(
    tau: float, n: int, d: int, seed: int, search: str, moved: bool
) -> tuple[int, float, bool, float]:
    """One data set: K, ARI, whether F is at or below the truth's, seconds."""
    points, truth = Mixture(d, n_clusters=10, tau=tau, seed=seed, moved=moved).sample(n)
    start = perf_counter()
    model = BayesianKMeans(search=search, seed=seed).fit(points)
    seconds = perf_counter() - start
    found = model.partition_
    problem = Problem(found.family, found.mixture, Moments.rows_of_points(points))
    reference = Labelling(problem, truth).converge().free_energy
    ari = adjusted_rand_score(truth, model.labels_)
    return model.n_clusters_, ari, found.free_energy <= reference + 1e-6 * abs(reference), seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="N = 1,000 and D = 2, 3 sets")
    parser.add_argument("--sets", type=int, default=10, help="data sets per row (default: 10)")
    parser.add_argument("--search", default="auto", help="auto or top-down")
    parser.add_argument(
        "--centred", action="store_true", help="matrices turn clusters about their own centroids"
    )
    arguments = parser.parse_args()
    rows = [row for row in PAPER if not arguments.quick or row[1:] == (1000, 2)]
    sets = 3 if arguments.quick else arguments.sets
    print(
        "tau     N   D   paper BKM   paper VBMG   ours         |K-10|: ours, paper   ARI     F <= truth's   seconds"
    )
    for row in rows:
        results = [run_set(*row, seed, arguments.search, not arguments.centred) for seed in range(sets)]
        k, ari, below, seconds = (np.array(column, dtype=float) for column in zip(*results, strict=True))
        paper = abs(float(PAPER[row][0].split("±")[0]) - 10)
        print(
            f"{row[0]:<4} {row[1]:>5} {row[2]:>3}   {PAPER[row][0]:<11} {PAPER[row][1]:<12} "
            f"{k.mean():5.2f}±{k.std(ddof=1):4.2f}   {abs(k.mean() - 10):5.2f}, {paper:5.2f}          "
            f"{ari.mean():.3f}   {below.mean():>5.0%}          {seconds.mean():.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
