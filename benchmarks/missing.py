"""Missing values: K, ARI and CPU seconds of planted streams whose events lack features, beside peers told K.

Each stream has five clusters, 8 to 12 of their deviations apart, with random covariances (rates 4 to 40 for counts).
Which values are missing is drawn beforehand: each with the same probability ("random 20%"), values of the first feature
only ("one 50%"), the first or the second feature of each event, so that no event has both ("apart"), or the third
feature of two of the clusters, always ("source"). Events without any value are left out.

ARI is that of `predict` for complete events of the same clusters that were not learnt, and for events that lack
features likewise. Peers learn the whole table at once: missing values filled in by column means, by the nearest
neighbours (KNNImputer of 2,000 rows) or by regressions (IterativeImputer), then scikit-learn's GaussianMixture told K.

Run it: python benchmarks/missing.py [--events 30000] [--seeds 3] [--only 'random 20%,D = 6'] [--family gaussian]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from streamclust import StreamClusterer

Table = NDArray[np.float64]
K = 5
N_TEST = 3000
BATCH = 1000
KNN_ROWS = 2000
"""Rows that KNNImputer chooses neighbours from: of all 30,000 it takes minutes."""
PATTERNS = ("none", "random 1%", "random 5%", "random 20%", "random 50%", "one 50%", "apart", "source")
SIZES = (2, 6, 12)


class Score(NamedTuple):
    """Clusters found, ARI of complete and of incomplete events, CPU seconds of learning."""

    n_clusters: int
    complete: float
    incomplete: float
    seconds: float


def centres(d: int, rng: np.random.Generator) -> Table:
    """Centres of which each is 8 to 12 from its nearest."""
    found: list[Table] = [np.zeros(d)]
    while len(found) < K:
        step = rng.normal(size=d)
        new = found[rng.integers(len(found))] + step / np.linalg.norm(step) * rng.uniform(8, 12)
        if min(float(np.linalg.norm(new - old)) for old in found) >= 8:
            found.append(new)
    return np.array(found)


def planted(d: int, n: int, family: str, seed: int) -> tuple[Table, NDArray[np.int64]]:
    """Complete events and their clusters."""
    rng = np.random.default_rng(seed)
    of = rng.choice(K, size=n, p=rng.dirichlet(np.full(K, 8.0)))
    if family == "poisson":
        return rng.poisson(rng.uniform(4, 40, size=(K, d))[of]).astype(float), of
    roots = np.zeros((K, d, d))
    for k in range(K):
        root = rng.normal(size=(d, d)) if family == "gaussian" else np.diag(rng.uniform(0.5, 1.5, size=d))
        root = np.eye(d) if family == "spherical" else root
        roots[k] = root / np.sqrt(np.trace(root @ root.T) / d)  # an average variance of 1
    return centres(d, rng)[of] + np.einsum("nij,nj->ni", roots[of], rng.normal(size=(n, d))), of


def with_gaps(x: Table, of: NDArray[np.int64], pattern: str, seed: int) -> Table:
    """The events with NaN for what is missing."""
    rng = np.random.default_rng([seed, 1])
    gone = np.zeros(x.shape, dtype=bool)
    if pattern.startswith("random"):
        gone = rng.random(x.shape) < float(pattern.split()[1].rstrip("%")) / 100
    elif pattern.startswith("one"):
        gone[:, 0] = rng.random(len(x)) < 0.5
    elif pattern == "apart":
        gone[np.arange(len(x)), rng.integers(2, size=len(x))] = True
    elif pattern == "source":
        gone[:, -1] = of < 2
    return np.where(gone, np.nan, x)


def ari(of: NDArray[np.int64], found: NDArray[np.int64]) -> float:
    """The adjusted Rand index."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(of, found))


def ours(x: Table, tests: list[Table], of: NDArray[np.int64], **options: object) -> Score:
    """A stream, learnt in batches, then settled."""
    model = StreamClusterer(background=False, **options)
    start = time.process_time()
    for first in range(0, len(x), BATCH):
        model.learn_many(x[first : first + BATCH])
    model.settle()
    seconds = time.process_time() - start
    scores = [ari(of, np.asarray(model.predict_many(test))) for test in tests]
    return Score(model.n_clusters, scores[0], scores[1], seconds)


def peer(fill: str, x: Table, tests: list[Table], of: NDArray[np.int64], seed: int) -> Score:
    """Missing values filled in, then a Gaussian mixture told K."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
    from sklearn.mixture import GaussianMixture

    start = time.process_time()
    if fill == "mean":
        imputer = SimpleImputer().fit(x)
    elif fill == "neighbours":
        imputer = KNNImputer().fit(x[:KNN_ROWS])
    else:
        imputer = IterativeImputer(random_state=seed, sample_posterior=True).fit(x)
    mixture = GaussianMixture(K, n_init=3, random_state=seed).fit(imputer.transform(x))
    seconds = time.process_time() - start
    scores = [ari(of, mixture.predict(imputer.transform(test))) for test in tests]
    return Score(K, scores[0], scores[1], seconds)


def show(name: str, runs: list[Score]) -> None:
    """One line: each seed's K, the least and mean ARI, mean CPU seconds."""
    found = ", ".join(str(run.n_clusters) for run in runs)
    parts = [
        f"{np.min([getattr(run, what) for run in runs]):.3f} / {np.mean([getattr(run, what) for run in runs]):.3f}"
        for what in ("complete", "incomplete")
    ]
    seconds = np.mean([run.seconds for run in runs])
    print(
        f"{name:42} K {found:16} ARI complete {parts[0]}  incomplete {parts[1]}  {seconds:6.2f} s", flush=True
    )


def main() -> None:
    """Run the streams that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--only", default="", help="parts of the names of streams, separated by commas: all must be in"
    )
    parser.add_argument(
        "--family", default="gaussian", choices=("gaussian", "diagonal", "spherical", "poisson")
    )
    parser.add_argument("--refit", default="bkm")
    parser.add_argument("--mixture", default="finite")
    parser.add_argument(
        "--peers", default="mean,neighbours,regressions", help='separated by commas, or "none"'
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    peers = [] if args.peers == "none" else args.peers.split(",")
    options = {"family": args.family, "refit": args.refit, "mixture": args.mixture}
    if args.family == "poisson":
        options["missing"] = "impute"
    ours(planted(2, 3000, args.family, 99)[0], [np.zeros((2, 2))] * 2, np.zeros(2, dtype=np.int64), **options)
    for d in SIZES:
        for pattern in PATTERNS:
            name = f"{pattern}, D = {d}, {args.family}"
            if not all(part in name for part in args.only.split(",")):
                continue
            runs: dict[str, list[Score]] = {}
            for seed in range(args.seeds):
                x, of = planted(d, args.events + N_TEST, args.family, seed)
                y = with_gaps(x, of, pattern, seed)
                tests, test_of = [x[args.events :], y[args.events :]], of[args.events :]
                some = ~np.isnan(tests[1]).all(axis=1)
                tests, test_of = [test[some] for test in tests], test_of[some]
                train = y[: args.events]
                train = train[~np.isnan(train).all(axis=1)]
                if pattern != "source":
                    train[0] = x[0]
                scores: dict[str, Callable[[], Score]] = {
                    "ours": lambda: ours(train, tests, test_of, seed=seed, **options)  # noqa: B023
                }
                for fill in peers:
                    scores[f"{fill}, told K"] = lambda: peer(fill, train, tests, test_of, seed)  # noqa: B023
                with threadpool_limits(1):
                    for who, run in scores.items():
                        fill = who.split(",")[0]
                        runs.setdefault(who, []).append(run())
            for who, found in runs.items():
                show(f"{name}: {who}", found)


if __name__ == "__main__":
    main()
