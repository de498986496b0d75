"""Levels: the number of clusters by default, told K, and clusters that are not Gaussian.

    python benchmarks/real.py --levels --data DIR                  all sets, points mode, peers told K in the same run
    python benchmarks/levels.py --data DIR --mode stream --seeds 5 --only digits pendigits statlog
    python benchmarks/levels.py --planted --mode both --seeds 3    planted clusters that are not Gaussian: K against n
    python benchmarks/levels.py --planted --mode stream --seeds 2 --first-seed 11 --figure k-against-n.png

A line for each set: K and ARI of the finest level (`detail="fine"`), of the default, and ARI of ours and of the peers
told K; then the share of a fit's CPU that the path took. A seed shuffles the rows and seeds the method. Planted sets of
more than 100,000 events are drawn with the first seed alone.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
from genieclust import Genie
from real import CHUNK, Table, tables
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from streamclust import StreamClusterer
from streamclust.batch import BayesianKMeans
from streamclust.levels import NO_PAIRS, path_of

# -------------------------------------------------------------------- planted clusters that are not Gaussian


def student(rng: np.random.Generator, n: int, d: int, freedom: int) -> np.ndarray:
    return rng.normal(size=(n, d)) * np.sqrt((freedom - 2) / rng.chisquare(freedom, size=(n, 1)))


def ball(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    x = rng.normal(size=(n, d))
    radius = np.sqrt(d + 2) * rng.uniform(size=(n, 1)) ** (1 / d)
    return x / np.linalg.norm(x, axis=1, keepdims=True) * radius


def crescent(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    x = rng.normal(scale=0.25, size=(n, d))
    angle = rng.uniform(0, np.pi, n)
    x[:, 0] += 1.6 * np.cos(angle)
    x[:, 1] += 1.6 * (np.sin(angle) - 2 / np.pi)
    return x


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "t, 3 df": lambda rng, n, d: student(rng, n, d, 3),
    "t, 5 df": lambda rng, n, d: student(rng, n, d, 5),
    "skewed": lambda rng, n, d: (rng.gamma(2.0, size=(n, d)) - 2) / np.sqrt(2),
    "ball": ball,
    "crescent": crescent,
    "log-normal": lambda rng, n, d: (np.exp(0.6 * rng.normal(size=(n, d))) - 1.197) / 0.79,
    "gaussian": lambda rng, n, d: rng.normal(size=(n, d)),
}
"""Clusters of about unit variance."""


def centres(rng: np.random.Generator, k: int, d: int, separation: float) -> np.ndarray:
    """Centres at random in a cube, none nearer to another than the separation."""
    side = separation * max(1.5 * k ** (1 / d), 2.0)
    found: list[np.ndarray] = []
    while len(found) < k:
        for centre in rng.uniform(0, side, size=(20_000, d)):
            if len(found) < k and all(np.linalg.norm(centre - other) >= separation for other in found):
                found.append(centre)
        side *= 1.1
    return np.array(found)


def planted(kind: str, k: int, n: int, seed: int, d: int = 3, separation: float = 6.0) -> Table:
    """K clusters of one distribution, of unequal sizes, scales and orientations."""
    d = 2 if kind == "crescent" else d
    rng = np.random.default_rng([seed, k, d, list(DISTRIBUTIONS).index(kind)])
    middle = centres(rng, k, d, separation)
    labels = np.sort(rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 5.0))))
    x = np.empty((n, d))
    for c in range(k):
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0] * rng.uniform(0.7, 1.3)
        own = labels == c
        x[own] = DISTRIBUTIONS[kind](rng, int(own.sum()), d) @ turn + middle[c]
    order = rng.permutation(n)
    return Table(f"{kind} K={k} n={n:,}", "planted", x[order], labels[order])


# -------------------------------------------------------------------- methods


class Found(NamedTuple):
    """Labels at three levels, and CPU seconds."""

    fine: np.ndarray
    default: np.ndarray
    told: np.ndarray
    seconds: float
    path_seconds: float


def ours_points(table: Table, seed: int) -> Found:
    start = process_time()
    model = BayesianKMeans(seed=seed).fit(table.x)
    seconds = process_time() - start
    start = process_time()
    joins = getattr(model, "merge_tree_", None)  # mixed tables have none
    path_of(model.partition_, model.path_.owner, NO_PAIRS if joins is None else joins.plateaus)
    path_seconds = process_time() - start
    finest = model.path_.n_finest
    told = model.cut(min(table.k, finest))
    return Found(model.cut(finest), model.labels_, told, seconds - path_seconds, path_seconds)


def ours_stream(table: Table, seed: int) -> Found:
    start = process_time()
    model = StreamClusterer(seed=seed, detail="auto")
    for first in range(0, len(table.x), CHUNK):
        model.learn_many(table.x[first : first + CHUNK])
    model.settle()
    seconds = process_time() - start
    default = np.asarray(model.predict_many(table.x))
    model.detail = "fine"
    fine = np.asarray(model.predict_many(table.x))
    model.n_clusters = table.k
    return Found(fine, default, np.asarray(model.predict_many(table.x)), seconds, 0.0)


OURS = {"points": ours_points, "stream": ours_stream}


def standardised(table: Table) -> np.ndarray:
    return np.asarray(StandardScaler().fit_transform(table.x))


def mixture(table: Table, seed: int) -> np.ndarray:
    return GaussianMixture(table.k, random_state=seed, reg_covar=1e-4).fit_predict(standardised(table))


Peer = Callable[[Table, int], np.ndarray]
PEERS: dict[str, Peer] = {
    "k-means": lambda t, seed: KMeans(t.k, n_init=3, random_state=seed).fit_predict(t.x),
    "k-means, std": lambda t, seed: KMeans(t.k, n_init=3, random_state=seed).fit_predict(standardised(t)),
    "GaussianMixture, std": mixture,
    "Genie": lambda t, seed: Genie(n_clusters=t.k).fit_predict(t.x),
    "Genie, std": lambda t, seed: Genie(n_clusters=t.k).fit_predict(standardised(t)),
}


def ari(table: Table, labels: np.ndarray) -> float:
    counts = table.scored
    return float(adjusted_rand_score(table.labels[counts], labels[counts]))


# -------------------------------------------------------------------- the two benchmarks

ROWS_OF_ALL_SEEDS = 100_000
"""Larger planted sets are drawn with the first seed alone."""


def sentences(folder: Path | None) -> Iterator[Table]:
    """Banking77's embeddings, in the directions of most variance, if they are there."""
    path = None if folder is None else folder / "banking77_minilm.npz"
    if path is not None and path.exists():
        with np.load(path) as file:
            yield Table("banking77", "table", file["X"].astype(float), file["y"].astype(int))


def labelled(
    folder: Path | None,
    modes: list[str],
    peers: dict[str, Peer],
    seeds: int,
    only: list[str] | None,
    most_rows: int,
) -> None:
    """Every labelled set: the levels of ours, and everybody told K."""
    heads = [f"{name:>21}" for mode in modes for name in (f"{mode}: fine", "default", "told K")]
    print(f"{'set':<34} {' '.join(heads)}   told K: {', '.join(peers)}")
    told: dict[str, list[float]] = defaultdict(list)
    share: list[float] = []
    for table in [*tables(folder, 5_000), *sentences(folder)]:
        if only and not any(table.name.startswith(start) for start in only):
            continue
        table = table.shortened(most_rows)
        cells = []
        for mode in modes:
            runs = [(t, OURS[mode](t, seed)) for seed in range(seeds) for t in [table.shuffled(seed)]]
            for level in ("fine", "default", "told"):
                of = [(len(np.unique(getattr(f, level))), ari(t, getattr(f, level))) for t, f in runs]
                cells.append(f"{' '.join(f'{k}' for k, _ in of)} / {np.mean([a for _, a in of]):.3f}")
            told[f"ours, {mode}"].append(float(np.mean([ari(t, f.told) for t, f in runs])))
            told[f"ours, {mode}, K not told"].append(float(np.mean([ari(t, f.default) for t, f in runs])))
            share += [f.path_seconds / f.seconds for _, f in runs if f.path_seconds]
        for name, method in peers.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                of_peer = [ari(t, method(t, s)) for s in range(seeds) for t in [table.shuffled(s)]]
            told[name].append(float(np.mean(of_peer)))
            cells.append(f"{np.mean(of_peer):.3f}")
        print(f"{table.title:<34} {' '.join(f'{c:>21}' for c in cells)}", flush=True)
    n_sets = len(next(iter(told.values()), []))
    means = ", ".join(f"{name} {np.mean(of):.3f}" for name, of in told.items())
    print(f"mean ARI of {n_sets} sets, told K: {means}")
    if share:
        print(f"the path took {np.median(share):.1%} of a fit's CPU (median), {np.max(share):.1%} at most")


def not_gaussian(modes: list[str], seeds: range, sizes: list[int], figure: Path | None) -> None:
    """K against n, of planted clusters that are not Gaussian."""
    found: dict[tuple[str, str, int, int], list[int]] = defaultdict(list)
    right = same = fits = total = 0
    for mode in modes:
        for kind in DISTRIBUTIONS:
            for k in (5, 20):
                for seed in seeds:
                    numbers = []
                    for n in sizes:
                        if n > ROWS_OF_ALL_SEEDS and seed != seeds[0]:
                            continue
                        table = planted(kind, k, n, seed)
                        run = OURS[mode](table, seed)
                        numbers.append(len(np.unique(run.default)))
                        found[mode, kind, k, n].append(numbers[-1])
                        found[f"{mode}, fine", kind, k, n].append(len(np.unique(run.fine)))
                    right += sum(number == k for number in numbers)
                    same += len(set(numbers)) == 1
                    fits += len(numbers)
                    total += 1
                cells = [
                    f"{n:,}: {found[mode, kind, k, n]} (fine {found[f'{mode}, fine', kind, k, n]})"
                    for n in sizes
                ]
                print(f"{mode}, {kind:<11} K = {k:<3} {'   '.join(cells)}", flush=True)
    print(f"K right in {right} of {fits}; the same at every n in {same} of {total}")
    if figure is not None:
        draw(found, modes, sizes, figure)


def draw(
    found: dict[tuple[str, str, int, int], list[int]], modes: list[str], sizes: list[int], path: Path
) -> None:
    """K against n: the default, and the finest level beside it."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), sharex=True, layout="constrained")
    for axis, k in zip(axes, (5, 20), strict=True):
        axis.axhline(k, color="0.85", linewidth=5, zorder=0)
        for number, kind in enumerate(DISTRIBUTIONS):
            for mode, style in ((modes[0], "-"), (f"{modes[0]}, fine", ":")):
                means = [np.mean(found[mode, kind, k, n]) for n in sizes]
                label = kind if style == "-" else None
                axis.plot(sizes, means, style, marker=".", color=f"C{number}", label=label)
        axis.set(xscale="log", yscale="log", xlabel="events", title=f"{k} planted")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
    axes[0].set_ylabel("clusters")
    axes[1].legend(fontsize=7, loc="upper left")
    figure.suptitle(
        "Number of clusters: by default (lines), at the finest level (dotted), planted (grey)", fontsize=10
    )
    figure.savefig(path, dpi=90, bbox_inches="tight")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--mode", choices=("points", "stream", "both"), default="points")
    parser.add_argument("--peers", choices=("all", "none"), default="all")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds (default: 1)")
    parser.add_argument("--first-seed", type=int, default=0, help="of planted sets (default: 0)")
    parser.add_argument("--only", nargs="*", help="sets whose names begin so")
    parser.add_argument("--most-rows", type=int, default=10_000, help="rows of any set, at most")
    parser.add_argument("--planted", action="store_true", help="planted clusters that are not Gaussian alone")
    parser.add_argument("--sizes", type=int, nargs="*", default=[3_000, 30_000, 300_000])
    parser.add_argument("--figure", type=Path, help="draw K against n into this file")
    a = parser.parse_args(arguments)
    modes = ["points", "stream"] if a.mode == "both" else [a.mode]
    if a.planted:
        not_gaussian(modes, range(a.first_seed, a.first_seed + a.seeds), a.sizes, a.figure)
    else:
        peers = PEERS if a.peers == "all" else {}
        labelled(a.data, modes, peers, a.seeds, a.only, a.most_rows)


if __name__ == "__main__":
    main()
