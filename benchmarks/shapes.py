"""Clusters of any shape: ours joined from components ("any") and the components themselves ("ellipse"), and HDBSCAN.

Sets: those in --data DIR (NAME.data.gz with NAME.labels.gz, label 0 being noise that is left out of scores), the
shapes that scikit-learn compares clusterers by, planted mixtures, which must stay as they are, and sets with a tenth of
uniform noise. Ours is told nothing but its shape; HDBSCAN gets standardised features and max(5, n / 200) as its
smallest cluster.

    python -m benchmarks.shapes --data DIR                      all points, in five orders
    python -m benchmarks.shapes --data DIR --mode leaves        from a summary of 512 leaves
    python -m benchmarks.shapes --data DIR --mode stream        streamed
    python -m benchmarks.shapes --drift 1000000                 a stream of moons that drift: ARI by windows, rates
    python -m benchmarks.shapes --speed                         milliseconds that joining K components takes

A line for each set: mean ARI of each method over the seeds, its least, and K; at the end means over all sets, over
those of each kind and over those of the folder, and CPU seconds of each method.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import numpy as np
from sklearn import datasets
from sklearn.metrics import adjusted_rand_score

from benchmarks.real import CHUNK, Table, from_directory, hdbscan, planted
from streamclust import StreamClusterer
from streamclust.batch import BayesianKMeans, ChunkyGaussianMixture
from streamclust.moments import Moments
from streamclust.parameters import ShapeName
from streamclust.shapes import merge_tree

LARGE = 20_000
"""Rows; of larger sets so many are drawn."""


def toys(n: int = 2_000) -> Iterator[Table]:
    """The sets of scikit-learn's comparison of clusterers, and more noise in two of them."""
    blobs, varied = datasets.make_blobs(n, random_state=8), [1.0, 2.5, 0.5]
    yield Table("moons", "shapes", *datasets.make_moons(n, noise=0.07, random_state=1))
    yield Table("noisy moons", "shapes", *datasets.make_moons(n, noise=0.12, random_state=1))
    yield Table("circles", "shapes", *datasets.make_circles(n, factor=0.5, noise=0.05, random_state=1))
    yield Table("noisy circles", "shapes", *datasets.make_circles(n, factor=0.4, noise=0.09, random_state=1))
    yield Table("blobs", "ellipses", *blobs)
    x, labels = datasets.make_blobs(n, random_state=170)
    yield Table("anisotropic", "ellipses", x @ [[0.6, -0.6], [-0.4, 0.8]], labels)
    yield Table("varied", "ellipses", *datasets.make_blobs(n, cluster_std=varied, random_state=170))
    yield Table(
        "no structure", "shapes", np.random.default_rng(5).uniform(size=(n, 2)), np.zeros(n, dtype=int)
    )


def with_noise(table: Table, share: float = 0.1) -> Table:
    """A share of uniform noise over the range of the rows, which is not scored."""
    rng = np.random.default_rng(11)
    n = int(share * len(table.x) / (1 - share))
    noise = rng.uniform(table.x.min(axis=0), table.x.max(axis=0), size=(n, table.x.shape[1]))
    x, labels = np.concatenate([table.x, noise]), np.append(table.labels, np.full(n, -1))
    return Table(f"{table.name} + noise", "noisy", x, labels)


ELLIPSES = {"a3", "birch2", "d31", "s4"}
"""Sets of a directory whose clusters are ellipses."""


def sets(folder: Path | None) -> Iterator[Table]:
    """All sets there are, large ones thinned."""
    for table in from_directory(folder) if folder is not None else ():
        kind = "ellipses" if table.name in ELLIPSES else table.kind
        yield table.shortened(LARGE)._replace(kind=kind)
    yield from toys()
    for table in toys():
        if table.name in ("moons", "circles"):
            yield with_noise(table)
    yield with_noise(planted(10, 2, LARGE // 4, seed=1))
    for k in (10, 30, 100):
        for d in (2, 8):
            yield planted(k, d, LARGE, seed=0)._replace(kind="ellipses")


Method = Callable[[Table, int], dict[str, np.ndarray]]


def bayesian_k_means(leaves: int | None) -> Method:
    """Both shapes from one fit."""

    def labels(table: Table, seed: int) -> dict[str, np.ndarray]:
        model = BayesianKMeans(seed=seed, max_leaves=leaves, shape="any").fit(table.x)
        return {"ellipse": model.partition_.assign(table.x), "any": model.labels_}

    return labels


def stream(table: Table, seed: int) -> dict[str, np.ndarray]:
    """Both shapes from one stream."""
    model = StreamClusterer(seed=seed, shape="any")
    for start in range(0, len(table.x), CHUNK):
        model.learn_many(table.x[start : start + CHUNK])
    model.settle()
    assert model.model is not None
    return {"ellipse": model.model.nearest(table.x).component, "any": np.asarray(model.predict_many(table.x))}


def chunky_em(leaves: int | None) -> Method:
    """Both shapes from one fit."""

    def labels(table: Table, seed: int) -> dict[str, np.ndarray]:
        model = ChunkyGaussianMixture(seed=seed, max_leaves=leaves, shape="any").fit(table.x)
        return {"EM ellipse": model.mixture_.assign(table.x), "EM any": model.labels_}

    return labels


def peer(table: Table, seed: int) -> dict[str, np.ndarray]:
    return {"HDBSCAN": hdbscan(table, seed)}


def drift(n: int, path: float, half_life: float | None) -> None:
    """A stream of moons that drift along `path` times their width: ARI by tenths, of labels given before learning."""
    x, truth = datasets.make_moons(n, noise=0.07, random_state=0)
    order = np.random.default_rng(0).permutation(n)
    x, truth = x[order] + np.linspace(0.0, 3.0 * path, n)[:, None] * [1.0, 0.3], truth[order]
    rate = {}
    for shape in SHAPES:
        model = StreamClusterer(shape=shape, half_life=half_life, background=False)
        labels, learning = np.empty(n, dtype=np.int64), 0.0
        model.learn_many(x[:CHUNK])
        for first in range(CHUNK, n, CHUNK):
            rows = slice(first, first + CHUNK)
            labels[rows] = model.predict_many(x[rows])
            start = process_time()
            model.learn_many(x[rows])
            learning += process_time() - start
        rate[shape] = (n - CHUNK) / learning
        windows = [slice(max(CHUNK, n * i // 10), n * (i + 1) // 10) for i in range(10)]
        ari = [adjusted_rand_score(truth[rows], labels[rows]) for rows in windows]
        print(f"{shape:<8} {rate[shape]:>9,.0f} events/CPU s, {len(model.lineage)} lifecycle events, ARI by tenths: "
              + " ".join(f"{a:.3f}" for a in ari), flush=True)  # fmt: skip
    print(f"rate of any / ellipse: {rate['any'] / rate['ellipse']:.3f}")


SHAPES: tuple[ShapeName, ...] = ("any", "ellipse")


def speed() -> None:
    """CPU milliseconds of joining, from a sample of 8,192 events."""
    for k in (10, 30, 100):
        table = planted(k, 8, 8_192, seed=0)
        components = Moments.rows_of_points(table.x).to_groups(table.labels, kind="full")
        took = []
        for _ in range(8):
            start = process_time()
            tree = merge_tree(components, table.x)
            tree.clusters()
            took.append(process_time() - start)
        print(f"K = {k:<4} D = 8  {len(tree.edges.pairs):>4} edges  {1e3 * min(took):6.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--mode", choices=("points", "leaves", "stream"), default="points")
    parser.add_argument("--em", action="store_true", help="chunky EM too")
    parser.add_argument("--no-peer", action="store_true", help="without HDBSCAN")
    parser.add_argument(
        "--seeds", type=int, default=5, help="seeds 0, 1, ..., each another order (default: 5)"
    )
    parser.add_argument("--only", nargs="*", help="sets whose names begin so")
    parser.add_argument("--speed", action="store_true", help="measure the time of joining alone")
    parser.add_argument("--drift", type=int, metavar="N", help="a stream of N events that drift instead")
    parser.add_argument("--path", type=float, default=1.0, help="widths that they drift by (default: 1)")
    parser.add_argument("--half-life", type=float, help="of the stream that drifts")
    arguments = parser.parse_args()
    if arguments.speed:
        return speed()
    if arguments.drift:
        return drift(arguments.drift, arguments.path, arguments.half_life)
    stored = {table.name for table in from_directory(arguments.data)} if arguments.data else set()
    leaves = 512 if arguments.mode == "leaves" else None
    methods = [
        stream if arguments.mode == "stream" else bayesian_k_means(leaves),
        *([chunky_em(leaves)] if arguments.em else []),
    ]
    methods += [] if arguments.no_peer else [peer]
    means: dict[tuple[str, str], list[float]] = {}
    seconds = np.zeros(len(methods))
    for table in sets(arguments.data):
        if arguments.only and not any(table.name.startswith(start) for start in arguments.only):
            continue
        scores: dict[str, list[tuple[float, int]]] = {}
        for i, method in enumerate(methods):
            for seed in range(1 if method is peer else arguments.seeds):
                shuffled = table.shuffled(seed)
                start = process_time()
                found = method(shuffled, seed)
                seconds[i] += process_time() - start
                for name, labels in found.items():
                    ari = adjusted_rand_score(
                        table.shuffled(seed).labels[shuffled.scored], labels[shuffled.scored]
                    )
                    scores.setdefault(name, []).append((ari, len(np.unique(labels))))
        parts = [f"{name} {np.mean([a for a, _ in s]):.3f} (least {min(s)[0]:.3f}, K {np.mean([k for _, k in s]):.1f})"
                 for name, s in scores.items()]  # fmt: skip
        print(f"{table.name:<18} K = {table.k:<4} {'   '.join(parts)}", flush=True)
        for name, s in scores.items():
            for kind in (table.kind, "all", *(["of folder"] if table.name in stored else [])):
                means.setdefault((kind, name), []).append(float(np.mean([a for a, _ in s])))
    for (kind, name), values in sorted(means.items()):
        print(f"mean over {len(values):>2} {kind:<9} {name:<11} {np.mean(values):.3f}")
    names = ["ours", *(["chunky EM"] if arguments.em else []), *([] if arguments.no_peer else ["HDBSCAN"])]
    print("CPU seconds:", ", ".join(f"{name} {s:.1f}" for name, s in zip(names, seconds, strict=True)))
    return None


if __name__ == "__main__":
    main()
