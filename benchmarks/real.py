"""Clusters on data that nobody planted, and on planted sets in random units: ours beside what people use.

Sets: those in --data DIR (NAME.data.gz with NAME.labels.gz, label 0 being noise that is left out of scores;
pendigits.tra and spambase.data of UCI), those that ship with scikit-learn and river, and planted mixtures whose
features are in random units. Ours is told nothing. MiniBatchKMeans is told K; BayesianGaussianMixture gets 30
components; River's clusterers get rows one by one.

    python benchmarks/real.py --data DIR                        points mode, all sets, seed 0
    python benchmarks/real.py --data DIR --seeds 5 --only iris wine
    python benchmarks/real.py --mode stream --peers none        ours alone, streamed
    python benchmarks/real.py --mode stream --peers none --draws 3 --only planted
                                                                planted mixtures alone, each drawn thrice
    python benchmarks/real.py --data DIR --mode both --seeds 5 --results scores.jsonl --markdown docs/benchmarks.md
                                                                can be stopped, and goes on where it was
    python benchmarks/real.py --levels --data DIR               default number of clusters, and told K: see levels.py
    python benchmarks/real.py --refits                          CPU seconds of cold and warm refits of 512 leaves

A line for each set and method: ARI, AMI, K and CPU seconds, means over the seeds with the range of ARI; at the end the
means over tables, planted and other sets, and in how many runs K was within 2% of what was planted. A seed shuffles
the rows and seeds the method.
"""

from __future__ import annotations

import argparse
import gzip
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
from river import cluster, datasets
from sklearn import datasets as bundled
from sklearn.cluster import HDBSCAN, MiniBatchKMeans
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.preprocessing import StandardScaler

from streamclust import StreamClusterer
from streamclust.batch import BayesianKMeans
from streamclust.refit.bkm.fit import refit_bkm
from streamclust.tree import SummaryTree

RIVER_ROWS = 1_000
"""River's clusterers get so many rows at most: one by one they take milliseconds each."""
CHUNK = 1_000
"""Rows handed to a stream at once."""


class Table(NamedTuple):
    """A data set: what kind it is, its rows, a label for each."""

    name: str
    kind: str
    x: np.ndarray
    labels: np.ndarray

    @property
    def scored(self) -> np.ndarray:
        """Rows that count: label -1 is noise."""
        return self.labels >= 0

    @property
    def k(self) -> int:
        """How many clusters the labels have."""
        return len(np.unique(self.labels[self.scored]))

    @property
    def title(self) -> str:
        """Name and size."""
        return f"{self.name}, {len(self.x):,} x {self.x.shape[1]}, K = {self.k}"

    def shortened(self, most: int) -> Table:
        """So many rows at most, drawn at random."""
        if len(self.x) <= most:
            return self
        rows = np.sort(np.random.default_rng(0).choice(len(self.x), most, replace=False))
        return self._replace(x=self.x[rows], labels=self.labels[rows])

    def shuffled(self, seed: int) -> Table:
        """The same rows in another order."""
        order = np.random.default_rng([seed, 17]).permutation(len(self.x))
        return self._replace(x=self.x[order], labels=self.labels[order])


REAL = {"ecoli", "statlog"}
"""Sets of a directory that are real tables; the others are drawn shapes."""


def from_directory(folder: Path) -> Iterator[Table]:
    """Every set of the folder."""
    for path in sorted(folder.glob("*.data.gz")):
        name = path.name.removesuffix(".data.gz")
        with gzip.open(path, "rt") as rows, gzip.open(path.with_name(f"{name}.labels.gz"), "rt") as labels:
            x = np.loadtxt(rows, ndmin=2)
            yield Table(name, "table" if name in REAL else "shapes", x, np.loadtxt(labels).astype(int) - 1)
    for name, file in (("pendigits", "pendigits.tra"), ("spambase", "spambase.data")):
        if (folder / file).exists():
            rows = np.loadtxt(folder / file, delimiter=",")
            yield Table(name, "table", rows[:, :-1], rows[:, -1].astype(int))


def from_libraries() -> Iterator[Table]:
    """What ships with scikit-learn and river."""
    for name in ("iris", "wine", "breast_cancer", "digits"):
        x, labels = getattr(bundled, f"load_{name}")(return_X_y=True)
        yield Table(name, "table", x.astype(float), labels)
    for stream in (datasets.ImageSegments(), datasets.Phishing(), datasets.Bananas()):
        rows, labels = zip(*stream, strict=True)
        kinds = {kind: i for i, kind in enumerate(sorted(set(labels), key=str))}
        x = np.array([[float(v) for v in row.values()] for row in rows])
        yield Table(type(stream).__name__.lower(), "table", x, np.array([kinds[kind] for kind in labels]))


def planted(k: int, d: int, n: int, seed: int, separation: float = 4.0) -> Table:
    """K Gaussians of any shape, their nearest centres `separation` mean deviations apart, features in random units."""
    rng = np.random.default_rng([seed, k, d])
    centres = rng.uniform(size=(k, d))
    gaps = np.linalg.norm(centres[:, None] - centres, axis=2) + np.where(np.eye(k, dtype=bool), np.inf, 0.0)
    centres *= separation / np.median(gaps.min(axis=1))
    share = rng.dirichlet(np.full(k, 5.0))
    labels = rng.choice(k, size=n, p=share)
    shapes = rng.normal(size=(k, d, d)) / np.sqrt(d)
    scale = rng.uniform(0.5, 1.5, size=k)
    shapes = 0.6 * shapes + 0.6 * np.eye(d)
    noise = np.einsum("nij,nj->ni", (scale[:, None, None] * shapes)[labels], rng.normal(size=(n, d)))
    # in many dimensions the same distance is told apart more easily: clusters overlap as they do in two
    x = centres[labels] * np.sqrt(max(1.0, d / 8)) + noise
    return Table(f"planted K={k} D={d}", "planted", x * 10 ** rng.uniform(-4, 4, size=d), labels)


def odd(kind: str, k: int, d: int, n: int, seed: int) -> Table:
    """A planted set that is no mixture of Gaussians.

    "tails": clusters are Student's t with four degrees of freedom. In every third column, "skewed": values are
    log-normal; "rounded": to steps of half the deviation within clusters; "zeros": values are 0 instead, in 20 to 80%
    of a cluster's events.
    """
    rng = np.random.default_rng([seed, k, d, len(kind)])
    table = planted(k, d, n, seed)
    x = table.x / table.x.std(axis=0)
    centres = np.stack([x[table.labels == c].mean(axis=0) for c in range(k)])[table.labels]
    within = (x - centres).std(axis=0)
    columns = np.arange(0, d, 3)
    if kind == "tails":
        x = centres + (x - centres) * np.sqrt(4 / rng.chisquare(4, size=(n, 1)))
    elif kind == "skewed":
        x[:, columns] = np.exp(x[:, columns])
    elif kind == "rounded":
        x[:, columns] = np.round(x[:, columns] / within[columns] * 2)
    else:
        x[:, columns] *= (
            rng.uniform(size=(n, len(columns))) > rng.uniform(0.2, 0.8, size=(k, len(columns)))[table.labels]
        )
    return Table(f"{kind} K={k} D={d}", "odd", x, table.labels)


ODD = ("tails", "skewed", "rounded", "zeros")


def tables(folder: Path | None, n_planted: int, draws: int = 1) -> Iterator[Table]:
    """All sets there are; planted mixtures drawn so many times."""
    if folder is not None:
        yield from from_directory(folder)
    yield from from_libraries()
    for kind in ODD:
        for k, d in ((4, 4), (12, 8)):
            yield odd(kind, k, d, n_planted, seed=0)
    for k in (3, 10, 30, 100):
        for d in (2, 8, 16, 32):
            for draw in range(draws):
                table = planted(k, d, n_planted, seed=draw)
                yield table._replace(name=f"{table.name} draw {draw}") if draw else table


# -------------------------------------------------------------------- methods

Method = Callable[[Table, int], np.ndarray]


def ours_points(table: Table, seed: int) -> np.ndarray:
    return BayesianKMeans(seed=seed).fit(table.x).labels_


def ours_stream(table: Table, seed: int) -> np.ndarray:
    model = StreamClusterer(seed=seed)
    for start in range(0, len(table.x), CHUNK):
        model.learn_many(table.x[start : start + CHUNK])
    model.settle()
    return np.asarray(model.predict_many(table.x))


def k_means(table: Table, seed: int) -> np.ndarray:
    return MiniBatchKMeans(table.k, random_state=seed, n_init=3).fit_predict(table.x)


def k_means_standardised(table: Table, seed: int) -> np.ndarray:
    return k_means(table._replace(x=StandardScaler().fit_transform(table.x)), seed)


def bayesian_mixture(table: Table, seed: int) -> np.ndarray:
    x = StandardScaler().fit_transform(table.x)
    model = BayesianGaussianMixture(n_components=min(30, len(x)), random_state=seed, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit_predict(x)


def hdbscan(table: Table, seed: int) -> np.ndarray:
    x = StandardScaler().fit_transform(table.x)
    return HDBSCAN(min_cluster_size=max(5, len(x) // 200), copy=True).fit_predict(x)


def river_k_means(table: Table, seed: int) -> np.ndarray:
    return _river(cluster.KMeans(n_clusters=table.k, seed=seed), table)


def river_dbstream(table: Table, seed: int) -> np.ndarray:
    return _river(cluster.DBSTREAM(clustering_threshold=1.5, cleanup_interval=2), table)


def _river(model: object, table: Table) -> np.ndarray:
    """Standardised rows, one by one; rows beyond RIVER_ROWS are left out of the score (-1)."""
    x = StandardScaler().fit_transform(table.x)[:RIVER_ROWS]
    rows = [dict(enumerate(row)) for row in x.tolist()]
    for row in rows:
        model.learn_one(row)  # type: ignore[attr-defined]
    labels = np.full(len(table.x), -2)
    labels[: len(rows)] = [model.predict_one(row) for row in rows]  # type: ignore[attr-defined]
    return labels


PEERS: dict[str, Method] = {
    "k-means told K": k_means,
    "k-means told K, std": k_means_standardised,
    "BayesianGMM(30), std": bayesian_mixture,
    "HDBSCAN, std": hdbscan,
    "river KMeans told K": river_k_means,
    "river DBSTREAM": river_dbstream,
}


class Score(NamedTuple):
    """How one method did on one set under one seed."""

    ari: float
    ami: float
    k: int
    seconds: float


def score(method: Method, table: Table, seed: int) -> Score:
    shuffled = table.shuffled(seed)
    start = process_time()
    found = method(shuffled, seed)
    seconds = process_time() - start
    counts = shuffled.scored & (found != -2)
    truth, found = shuffled.labels[counts], found[counts]
    ami = adjusted_mutual_info_score(truth, found)
    return Score(adjusted_rand_score(truth, found), ami, len(np.unique(found)), seconds)


# -------------------------------------------------------------------- results


class Results:
    """Scores by set, method and seed; kept in a file of JSON lines, if one is given, so that a run can go on."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.scores: dict[tuple[str, str, int], Score] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                of, method, seed, *values = json.loads(line)
                self.scores[of, method, seed] = Score(*values)

    def of(self, table: Table, name: str, seeds: int) -> list[Score]:
        """The scores of a method on a set under seeds 0, 1, ...: those known, and the others as measured now."""
        found = []
        for seed in range(seeds):
            key = table.title, name, seed
            if key not in self.scores:
                self.scores[key] = score(METHODS[name], table, seed)
                if self.path is not None:
                    with self.path.open("a") as file:
                        file.write(json.dumps([*key, *map(float, self.scores[key])]) + "\n")
            found.append(self.scores[key])
        return found


class Row(NamedTuple):
    """A line of the table: one method on one set, or its mean over the sets of a kind."""

    name: str
    kind: str
    method: str
    k: int
    """How many clusters there are; 0 in a mean."""
    scores: list[Score]

    def cells(self) -> list[str]:
        """ARI, its range, AMI, K, CPU seconds."""
        ari, ami, k, seconds = np.array(self.scores).T
        spread = f"{ari.min():.3f} to {ari.max():.3f}" if len(ari) > 1 else ""
        return [f"{ari.mean():.3f}", spread, f"{ami.mean():.3f}", f"{k.mean():.1f}", f"{seconds.mean():.2f}"]


def means(rows: list[Row], methods: list[str]) -> list[Row]:
    """The mean of each method over the sets of each kind: first over a set's seeds, then over the sets."""
    found = []
    for kind in dict.fromkeys(row.kind for row in rows):
        for method in methods:
            of = [Score(*np.mean(r.scores, axis=0)) for r in rows if (r.kind, r.method) == (kind, method)]
            if of:
                found.append(Row(f"mean of {len(of)} {KINDS[kind]}", kind, method, 0, of))
    return found


def planted_found(rows: list[Row], methods: list[str]) -> Iterator[str]:
    """A sentence for each method: in how many runs on planted mixtures it found K within 2%."""
    for method in methods:
        off = [
            abs(s.k - r.k) / r.k for r in rows if (r.kind, r.method) == ("planted", method) for s in r.scores
        ]
        if off:
            within = sum(share <= 0.02 for share in off)
            yield f"{method}: K within 2% of what was planted in {within} of {len(off)} runs"


def markdown(rows: list[Row], mean: list[Row], found: list[str], told: str) -> str:
    """The page of the docs."""
    head = "| {} | method | ARI | range | AMI | K | CPU s |\n|---|---|---|---|---|---|---|\n"
    lines = [PAGE.format(told=told, river_rows=RIVER_ROWS), head.format("sets")]
    lines += [f"| {r.name} | {r.method} | " + " | ".join(r.cells()) + " |\n" for r in mean]
    lines += [f"\n{sentence}.\n" for sentence in found]
    lines += ["\n## Every set\n\n", head.format("set")]
    lines += [f"| {r.name} | {r.method} | " + " | ".join(r.cells()) + " |\n" for r in rows]
    return "".join(lines)


KINDS = {
    "table": "real tables",
    "shapes": "drawn sets",
    "odd": "planted sets with tails, skew, ties or zeros",
    "planted": "planted sets",
}
PAGE = """# Benchmarks: real tables, drawn shapes, planted mixtures

Written by `{told}`; do not edit. Sets that this command does not name were not measured.

Ours is told nothing and has its default settings: "points" is `BayesianKMeans`, "stream" a `StreamClusterer` that gets
the rows in order, then `settle()`. k-means (`MiniBatchKMeans`) and River's KMeans are told K. "std": features are
standardised first, as they are for River's clusterers; ours and plain k-means get raw units. Nothing is tuned to a set:
HDBSCAN's `min_cluster_size` is 5 or 1/200 of the rows, DBSTREAM's radius 1.5 throughout; other settings may suit a set
better. River's clusterers learn, and are scored on, the first {river_rows:,} rows alone.

A seed shuffles the rows and seeds the method; k-means has as many seeds as ours, slower peers have `--peer-seeds`. A
range is over the seeds of a set (none is given for one seed) and, in the means, over sets. Scores kept from earlier
runs (`--results`) may be among these. CPU seconds, of learning and labelling, are those of one thread on a busy
machine: they tell orders of magnitude.
Labels of real tables are classes, which need not be clusters: no method finds all of them.

## Means

"""

METHODS: dict[str, Method] = {"ours, points": ours_points, "ours, stream": ours_stream} | PEERS


def refits(rows: int) -> None:
    """CPU seconds of refits of 512 leaves over planted sets, three draws each: least and most of five times."""
    for k, d in ((10, 8), (100, 2), (10, 32)):
        for draw in range(3):
            table = planted(k, d, rows, draw)
            tree = SummaryTree(d, max_leaves=512)
            tree.insert(table.x / table.x.std(axis=0))
            found = refit_bkm("gaussian", tree)  # once unmeasured: kernels come from the disk
            line = f"K = {k:<4} D = {d:<3} found {found.n_clusters:<4}"
            calls = {
                "cold": (None, "auto"),
                "cold, as in a stream": (None, "quick"),
                "warm": (found, "quick"),
            }
            for name, (start, search) in calls.items():
                took = []
                for seed in range(5):
                    began = process_time()
                    refit_bkm("gaussian", tree, start, seed, search=search)
                    took.append(process_time() - began)
                line += f"   {name} {min(took):.3f} to {max(took):.3f} s"
            print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument(
        "--mode", choices=("points", "stream", "both", "none"), default="points", help="how ours is run"
    )
    parser.add_argument("--peers", choices=("all", "none"), default="all")
    parser.add_argument(
        "--seeds", type=int, default=1, help="seeds 0, 1, ... of ours and of k-means (default: 1)"
    )
    parser.add_argument("--peer-seeds", type=int, default=1, help="seeds of the slower others (default: 1)")
    parser.add_argument("--only", nargs="*", help="sets whose names begin so")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of planted sets (default: 20,000)")
    parser.add_argument(
        "--draws", type=int, default=1, help="times each planted mixture is drawn (default: 1)"
    )
    parser.add_argument("--most-rows", type=int, default=100_000, help="rows of any set, at most")
    parser.add_argument(
        "--results", type=Path, help="keep scores in this file, and begin with those it holds"
    )
    parser.add_argument("--markdown", type=Path, help="write the tables to this file, too")
    parser.add_argument("--refits", action="store_true", help="measure the time of refits alone")
    parser.add_argument("--levels", action="store_true", help="levels: see levels.py")
    a = parser.parse_args()
    if a.levels:
        import levels

        mode = a.mode if a.mode != "none" else "points"
        told = [
            *(["--data", str(a.data)] if a.data else []),
            "--mode",
            mode,
            "--peers",
            a.peers,
            "--seeds",
            str(a.seeds),
        ]
        return levels.main([*told, *(["--only", *a.only] if a.only else [])])
    if a.refits:
        return refits(a.rows)
    methods = [f"ours, {mode}" for mode in ("points", "stream") if a.mode in (mode, "both")]
    methods += PEERS if a.peers == "all" else []
    results, rows = Results(a.results), []
    print(f"{'set':<36} {'method':<22} {'ARI':>6} {'range':>15} {'AMI':>6} {'K':>7} {'CPU s':>8}")
    for table in tables(a.data, a.rows, a.draws):
        if a.only and not any(table.name.startswith(start) for start in a.only):
            continue
        table = table.shortened(a.most_rows)
        for method in methods:
            slow = method in PEERS and not method.startswith("k-means")
            of = results.of(table, method, a.peer_seeds if slow else a.seeds)
            rows.append(Row(table.title, table.kind, method, table.k, of))
            show(rows[-1])
    mean = means(rows, methods)
    for row in mean:
        show(row)
    found = list(planted_found(rows, methods))
    print("\n".join(found))
    if a.markdown:
        told = f"python benchmarks/real.py --mode {a.mode} --peers {a.peers} --seeds {a.seeds} "
        told += f"--peer-seeds {a.peer_seeds} --rows {a.rows} --most-rows {a.most_rows} --draws {a.draws}"
        told += " --data DIR" if a.data else ""
        told += f" --only {' '.join(map(repr, a.only))}" if a.only else ""
        a.markdown.write_text(markdown(rows, mean, found, told))
    return None


def show(row: Row) -> None:
    ari, spread, ami, k, seconds = row.cells()
    print(f"{row.name:<36} {row.method:<22} {ari:>6} {spread:>15} {ami:>6} {k:>7} {seconds:>8}", flush=True)


if __name__ == "__main__":
    main()
