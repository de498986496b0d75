"""A public collection of labelled sets, by its own protocol: ours, streamed, beside the published label vectors.

The collection is clustering-data-v1 of M. Gagolewski's Framework for Benchmarking Clustering Algorithms [SoftwareX 20,
2022], the label vectors of other methods are clustering-results-v1. Both are public repositories: clone them.

    python benchmarks/gagolewski.py --data clustering-data-v1 --results clustering-results-v1
    python benchmarks/gagolewski.py --data DIR --only fcps wut      some batteries alone
    python benchmarks/gagolewski.py --data DIR --seeds 3            three orders of the rows

Protocol: features as they are; every point is clustered; points with the reference label 0 are noise and left out of
the score; where a set has several reference labellings, the best score counts. Other methods are told the number of
clusters of each reference labelling. Ours is run twice: "found" is told nothing; "told K" cuts the hierarchy of the
same model. A set counts for a mean if it has at most 10,000 rows (73 sets) and a method has a result for it.

Each line is a set: its size, then the adjusted Rand index of each method. Means come last: over all sets that every
method has, and over all that a method has.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer

MAX_ROWS = 10_000
CHUNK = 1_000
"""Rows handed to the stream at once."""
METHODS = ("Genie_G0.3", "sklearn_gm", "sklearn_kmeans", "fastcluster_ward", "FCPS_HDBSCAN_4")
"""Published methods that are shown by default."""
FOUND, TOLD = "ours, K found", "ours, told K"


class LabelledSet(NamedTuple):
    """A set of the collection: its rows and its reference labellings."""

    battery: str
    name: str
    x: np.ndarray
    references: list[np.ndarray]
    """Labels from 1; 0 is noise."""


def sets(folder: Path, batteries: list[str] | None = None) -> Iterator[LabelledSet]:
    """Every set of at most MAX_ROWS rows: BATTERY/NAME.data.gz with BATTERY/NAME.labels0.gz and so on."""
    for path in sorted(folder.glob("*/*.data.gz")):
        battery, name = path.parent.name, path.name.removesuffix(".data.gz")
        if batteries and battery not in batteries:
            continue
        labels = sorted(path.parent.glob(f"{name}.labels[0-9]*.gz"))
        references = [numbers(file).astype(int).ravel() for file in labels]
        if not references or len(references[0]) > MAX_ROWS:
            continue
        yield LabelledSet(battery, name, numbers(path), references)


def numbers(path: Path) -> np.ndarray:
    """The numbers of a compressed text file, as rows."""
    with gzip.open(path, "rt") as lines:
        return np.loadtxt(lines, ndmin=2)


def n_clusters(reference: np.ndarray) -> int:
    """Number of clusters of a reference labelling."""
    return int(reference.max())


def score(reference: np.ndarray, labels: np.ndarray) -> float:
    """Adjusted Rand index over the points that are not noise."""
    kept = reference > 0
    return float(adjusted_rand_score(reference[kept], labels[kept]))


def published(folder: Path, found: LabelledSet, methods: tuple[str, ...]) -> dict[str, float]:
    """Best score of each published method that has a result for a reference labelling's number of clusters."""
    best: dict[str, float] = {}
    for reference in found.references:
        pattern = f"*/{found.battery}/{found.name}.result{n_clusters(reference)}.gz"
        for path in sorted((folder / "original").glob(pattern)):
            with gzip.open(path, "rt", newline="") as lines:
                rows = list(csv.reader(lines))
            names = rows[0]
            columns = np.array(rows[1:], dtype=float).astype(int)
            for name in set(names) & set(methods):
                value = score(reference, columns[:, names.index(name)])
                best[name] = max(value, best.get(name, -1.0))
    return best


def ours(found: LabelledSet, seed: int) -> tuple[dict[str, float], int]:
    """Best scores of a stream of the shuffled rows, with K found and told, and the K found."""
    order = np.random.default_rng(seed).permutation(len(found.x))
    model = StreamClusterer(seed=seed)
    for start in range(0, len(order), CHUNK):
        model.learn_many(found.x[order[start : start + CHUNK]])
    model.settle()
    labels = np.asarray(model.predict_many(found.x))
    told = [
        score(reference, cut(model, found.x, labels, n_clusters(reference))) for reference in found.references
    ]
    free = [score(reference, labels) for reference in found.references]
    return {FOUND: max(free), TOLD: max(told)}, model.n_clusters


def cut(model: StreamClusterer, x: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """The rows' labels where the model's hierarchy is cut into k clusters.

    With fewer than the model has, clusters are joined; with more, a row belongs to the nearest leaf of its cluster.
    """
    tree = model.snapshot()
    if k == model.n_clusters or k > tree.n_leaves:
        return labels
    leaves = tree.moments.mean[: tree.n_leaves]
    group = tree.cut(k)
    owner = tree.cut(model.n_clusters)
    names = tree.ids[tree.cut_nodes(model.n_clusters)]
    result = np.empty(len(x), dtype=int)
    for cluster in np.unique(labels):
        rows = np.flatnonzero(labels == cluster)
        own = np.flatnonzero(names[owner] == cluster)
        own = own if len(own) else np.arange(len(leaves))
        gaps = ((x[rows, None] - leaves[own]) ** 2).sum(axis=2) if k > model.n_clusters else None
        result[rows] = group[own[0]] if gaps is None else group[own[gaps.argmin(axis=1)]]
    return result


def main() -> None:
    """Print a line for each set, and the means."""
    parser = argparse.ArgumentParser(description="Labelled sets by the protocol of their collection.")
    parser.add_argument("--data", type=Path, required=True, help="a clone of clustering-data-v1")
    parser.add_argument("--results", type=Path, help="a clone of clustering-results-v1")
    parser.add_argument("--only", nargs="+", help="batteries")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="published methods to show")
    parser.add_argument("--seeds", type=int, default=1, help="orders of the rows; scores are means over them")
    given = parser.parse_args()
    table: list[dict[str, float]] = []
    for found in sets(given.data, given.only):
        runs = [ours(found, seed) for seed in range(given.seeds)]
        row = {name: float(np.mean([scores[name] for scores, _ in runs])) for name in (FOUND, TOLD)}
        if given.results is not None:
            row |= published(given.results, found, tuple(given.methods))
        table.append(row)
        size = f"{len(found.x):,} x {found.x.shape[1]}"
        ks = "/".join(str(n_clusters(reference)) for reference in found.references)
        k = f"{np.mean([k for _, k in runs]):g}"
        scores = ", ".join(f"{name} {value:.3f}" for name, value in row.items())
        print(f"{found.battery}/{found.name} ({size}, K {ks}, found {k}): {scores}", flush=True)
    if not table:
        raise SystemExit(
            f"no set of at most {MAX_ROWS:,} rows in {given.data}: expected BATTERY/NAME.data.gz"
        )
    names = [FOUND, TOLD, *sorted({name for row in table for name in row} - {FOUND, TOLD})]
    common = [row for row in table if all(name in row for name in names)]
    print(f"{len(table)} sets")
    for name in names:
        own = [row[name] for row in table if name in row]
        shared = f"{np.mean([row[name] for row in common]):.3f}" if common else "-"
        print(
            f"mean ARI, {name}: {np.mean(own):.3f} over {len(own)} sets; {shared} over the {len(common)} of all methods"
        )


if __name__ == "__main__":
    main()
