"""DP-means beside the published algorithm, scikit-learn's KMeans told K, and pdc-dp-means; and on leaves beside points.

First, planted sets of several kinds: our default, collapsed, DP-means as published (compiled here, a plain loop) at the
same λ², and KMeans told the planted K, in the same run; CPU seconds.

The peer needs scikit-learn 1.2 and numpy 1.26, so the script makes it a virtual environment of its own and runs it in a
subprocess on the same arrays. Its wheel prints complaints about buffers on every pass; they are dropped. Both
sides run on one thread. λ² comes from the true number of clusters by farthest-first traversal. The objective is
computed here, from the labels of each side, by the same formula: Σ ‖x - mean of its cluster‖² + λ² (K - 1).

    python benchmarks/dp_means.py                   all sets, five seeds of the peer
    python benchmarks/dp_means.py --quick           small sets
    python benchmarks/dp_means.py --planted         the planted sets alone
    python benchmarks/dp_means.py --peer-env DIR    where the peer's environment is kept
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from numba import njit
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from streamclust.moments import Moments
from streamclust.refit.dp_means.fit import fit_points, fit_tree
from streamclust.refit.penalties import penalty_for_clusters
from streamclust.tree import SummaryTree
from streamclust_connectors.synthetic import SyntheticMixture

PACKAGES = ("numpy==1.26.4", "scikit-learn==1.2.2", "scipy==1.11.4", "pdc-dp-means==0.0.8")
PEER = """
import sys, time
import numpy as np
from pdc_dp_means import DPMeans
from threadpoolctl import threadpool_limits
data = np.load(sys.argv[1])
x, delta = data["x"], float(data["penalty"])
out = {}
with threadpool_limits(1):
    DPMeans(n_clusters=1, delta=delta, n_init=1, random_state=0).fit(x[:2000])
    for n_clusters, n_init in ((1, 1), (8, 1), (8, 10)):
        labels, seconds = [], []
        for seed in range(int(sys.argv[3])):
            model = DPMeans(n_clusters=min(n_clusters, len(x)), delta=delta, n_init=n_init, random_state=seed)
            start = time.perf_counter()
            model.fit(x)
            seconds.append(time.perf_counter() - start)
            labels.append(model.labels_)
        out[f"labels_{n_clusters}_{n_init}"] = np.array(labels)
        out[f"seconds_{n_clusters}_{n_init}"] = np.array(seconds)
np.savez(sys.argv[2], **out)
"""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def peer_python(directory: Path) -> Path | None:
    """The interpreter of the peer's environment, made if need be; None where it cannot be installed."""
    python = directory / ("Scripts" if os.name == "nt" else "bin") / "python"
    ready = directory / "ready"
    if ready.exists():
        return python
    print(f"making an environment for pdc-dp-means in {directory} ...", flush=True)
    venv.create(directory, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"pdc-dp-means could not be installed; only our side runs. pip said:\n{done.stderr.strip()}")
        return None
    ready.touch()
    return python


def run_peer(python: Path, x: np.ndarray, penalty: float, seeds: int) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        given, found, script = (Path(folder) / name for name in ("in.npz", "out.npz", "run_peer.py"))
        np.savez(given, x=x, penalty=penalty)
        script.write_text(PEER)
        command = [str(python), str(script), str(given), str(found), str(seeds)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL, env=os.environ | ONE_THREAD)
        return dict(np.load(found))


def cost(x: np.ndarray, labels: np.ndarray, penalty: float) -> float:
    _, labels = np.unique(labels, return_inverse=True)
    clusters = Moments.rows_of_points(x).to_groups(labels.astype(np.int64), kind="scalar")
    return float(clusters.scatter.sum()) + penalty * (len(clusters) - 1)


def timed(call, repeats: int = 3):  # noqa: ANN001, ANN201
    seconds = []
    for _ in range(repeats):
        start = perf_counter()
        result = call()
        seconds.append(perf_counter() - start)
    return result, float(np.median(seconds))


def data_sets(quick: bool, seed: int):  # noqa: ANN201
    """Name, points, true labels."""
    rng = np.random.default_rng(seed)
    n = 20_000 if quick else 100_000
    grid = rng.integers(0, 3, size=(n, 2))
    yield "grid of 9, D = 2", rng.normal(size=(n, 2)) + 10.0 * grid, 3 * grid[:, 0] + grid[:, 1]
    for d, tau in ((2, 2.0), (8, 2.0), (16, 4.0)):
        yield (
            f"mixture of 10, D = {d}, tau = {tau:g}",
            *SyntheticMixture(d, 10, tau, seed=d + 100 * seed).sample(n),
        )
    if not quick:
        yield "mixture of 30, D = 8, tau = 4", *SyntheticMixture(8, 30, 4.0, seed=1 + 100 * seed).sample(n)
        shares = rng.dirichlet(np.full(20, 0.5))
        owner = rng.choice(20, size=n, p=shares)
        heavy = 12.0 * rng.normal(size=(20, 4))[owner] + rng.standard_t(5, size=(n, 4))
        yield "heavy tails, 20 uneven, D = 4", heavy, owner


def report(
    name: str, method: str, truth: np.ndarray, labels: np.ndarray, value: float, seconds: float
) -> None:
    k, ari = len(np.unique(labels)), adjusted_rand_score(truth, labels)
    print(f"{name:<32} {method:<34} {k:>4}  {value:>11.6g}  {ari:.4f}  {seconds:>8.3f}", flush=True)


def against_peer(python: Path | None, quick: bool, seeds: int, data_seed: int) -> None:
    print(f"\n{'set':<32} {'method':<34} {'K':>4}  {'objective':>11}  ARI      seconds")
    for name, x, truth in data_sets(quick, data_seed):
        penalty = penalty_for_clusters(Moments.rows_of_points(x), len(np.unique(truth)))
        for method, options in (
            ("DP-means (one start)", {}),
            ("collapsed DP-means", {"collapsed": True}),
            ("DP-means, 20 starts", {"restarts": 20}),
        ):
            found, seconds = timed(lambda o=options, x=x, p=penalty: fit_points(x, p, **o))
            value = cost(x, found.labels, penalty)
            report(name, method, truth, found.labels, value, seconds)
            ours = value, seconds
        if python is None:
            continue
        theirs = run_peer(python, x, penalty, seeds)
        for n_clusters, n_init in ((1, 1), (8, 1), (8, 10)):
            labels = theirs[f"labels_{n_clusters}_{n_init}"]
            seconds = float(np.median(theirs[f"seconds_{n_clusters}_{n_init}"]))
            costs = np.array([cost(x, found, penalty) for found in labels])
            best = int(costs.argmin())
            method = f"pdc-dp-means({n_clusters}), n_init = {n_init}"
            report(name, method, truth, labels[best], costs[best], seconds)
            print(
                f"{'':<32} the best of {seeds} seeds, {costs.min():.6g} to {costs.max():.6g}; our 20 starts / theirs: "
                f"objective {ours[0] / costs.min():.4f}, time {ours[1] / seconds:.2f}",
                flush=True,
            )


def blobs(d: int, n: int, seed: int) -> np.ndarray:
    """Ten round clusters far apart: λ from a rough K covers each of them, outliers included."""
    rng = np.random.default_rng(seed)
    return 15.0 * rng.normal(size=(10, d))[rng.integers(10, size=n)] + rng.normal(size=(n, d))


def on_leaves(n: int, seeds: int, outliers: bool) -> None:
    """λ as a radius, from a rough K; and with splits, λ² at the scale of the objective: the spread of a cluster."""
    print(
        f"\n1,024 leaves of {n:,} points beside the points; objectives are of all points under the means found"
    )
    print(
        "set            λ²            D seed   K leaves / points   objective   seconds: leaves, points   ratio"
    )
    for kind, d in (("blobs", 2), ("blobs", 8), ("tau = 4", 2), ("tau = 4", 8)):
        for seed in range(seeds):
            x = blobs(d, n, seed) if kind == "blobs" else SyntheticMixture(d, 10, 4.0, seed=seed).sample(n)[0]
            tree = SummaryTree(d, scatter="scalar", max_leaves=1024)
            tree.insert(x)
            rough = penalty_for_clusters(tree.leaves(), 10)
            spread = fit_tree(tree, rough, restarts=1).clusters.scatter.max()
            for scale, penalty, splits in (("radius", rough, False), ("with splits", float(spread), True)):
                if kind != "blobs" and d > 2 and not splits and not outliers:
                    continue
                fit_tree(tree, penalty, splits=splits)
                leaves, short = timed(lambda t=tree, p=penalty, s=splits: fit_tree(t, p, splits=s), 5)
                points, long = timed(lambda x=x, p=penalty, s=splits: fit_points(x, p, splits=s), 1)
                print(
                    f"{kind:<14} {scale:<12} {d:>2} {seed:>4}   {leaves.n_clusters:>8} / {points.n_clusters:<6}   "
                    f"{leaves.cost(x) / points.objective:>9.4f}   {short:>14.4f}, {long:<7.3f} {long / short:>6.0f}x",
                    flush=True,
                )


@njit(cache=True)
def published(x: np.ndarray, penalty: float) -> np.ndarray:
    """DP-means as published: points in their order, means after each pass, until nothing changes."""
    n, d = x.shape
    mean = np.empty((n + 1, d))
    for j in range(d):
        mean[0, j] = x[:, j].mean()
    k, labels, changed = 1, np.zeros(n, dtype=np.int64), True
    while changed:
        changed = False
        for r in range(n):
            least, nearest = np.inf, 0
            for c in range(k):
                squared = 0.0
                for j in range(d):
                    squared += (x[r, j] - mean[c, j]) ** 2
                if squared < least:
                    least, nearest = squared, c
            if least > penalty:
                nearest = k
                mean[k] = x[r]
                k += 1
            changed = changed or labels[r] != nearest
            labels[r] = nearest
        count, total = np.zeros(k), np.zeros((k, d))
        for r in range(n):
            count[labels[r]] += 1
            total[labels[r]] += x[r]
        place, used = np.zeros(k, dtype=np.int64), 0
        for c in range(k):
            if count[c] > 0:
                mean[used] = total[c] / count[c]
                place[c] = used
                used += 1
        for r in range(n):
            labels[r] = place[labels[r]]
        k = used
    return labels


def planted_sets(kind: str, count: int):  # noqa: ANN201
    """Points, planted labels: N = 500 in random order, unless the kind says otherwise."""
    for i in range(count):
        rng = np.random.default_rng([i, sum(kind.encode())])
        k, d, n = int(rng.integers(3, 21)), int(rng.integers(2, 11)), 500
        share, scale = np.full(k, 1 / k), 8.0
        if kind == "close":
            k, d, scale = int(rng.integers(3, 13)), int(rng.integers(2, 6)), 4.0
            share = np.full(k, 1 / k)
        elif kind == "uneven":
            share = rng.dirichlet(np.ones(k))
        elif kind == "N = 2,000":
            n = 2000
        truth = np.sort(rng.choice(k, size=n, p=share))
        if kind != "sorted":
            rng.shuffle(truth)
        yield scale * rng.normal(size=(k, d))[truth] + rng.normal(size=(n, d)), truth


def against_published(count: int) -> None:
    """Objectives against the published algorithm's, exact K, ARI and CPU seconds, over planted sets."""
    print(
        f"\n{count} planted sets of each kind; λ² from the planted K; better, equal, worse: than as published"
    )
    print(
        f"{'kind':<10} {'method':<24} {'better':>6} {'equal':>6} {'worse':>6}  {'median ratio':>12}"
        "  exact K  ARI      CPU s"
    )
    methods = {
        "DP-means (default)": lambda x, penalty, k: fit_points(x, penalty).labels,
        "collapsed DP-means": lambda x, penalty, k: fit_points(x, penalty, collapsed=True).labels,
        "DP-means as published": lambda x, penalty, k: published(x, penalty),
        "KMeans told K": lambda x, penalty, k: KMeans(k, random_state=0).fit(x).labels_,
        "KMeans told K, n_init=10": lambda x, penalty, k: KMeans(k, n_init=10, random_state=0).fit(x).labels_,
    }
    for kind in ("random", "sorted", "uneven", "close", "N = 2,000"):
        figures: dict[str, list[tuple[float, ...]]] = {name: [] for name in methods}
        for x, truth in planted_sets(kind, count):
            k = len(np.unique(truth))
            penalty = penalty_for_clusters(Moments.rows_of_points(x), k)
            reference = cost(x, published(x, penalty), penalty)
            for name, method in methods.items():
                start = process_time()
                labels = method(x, penalty, k)
                seconds = process_time() - start
                ratio, exact = cost(x, labels, penalty) / reference, len(np.unique(labels)) == k
                figures[name] += [(ratio, exact, adjusted_rand_score(truth, labels), seconds)]
        for name, rows in figures.items():
            ratio, exact, ari, seconds = np.array(rows).T
            better, worse = int((ratio < 1 - 1e-9).sum()), int((ratio > 1 + 1e-9).sum())
            print(
                f"{kind:<10} {name:<24} {better:>6} {count - better - worse:>6} {worse:>6}  {np.median(ratio):>12.4f}  "
                f"{int(exact.sum()):>7}  {ari.mean():.4f} {seconds.sum():>7.3f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sets, one seed of the peer")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the peer, and of trees (default: 5)")
    cache = (
        Path(tempfile.gettempdir())
        / f"streamclust-peer-pdc-py{sys.version_info.major}{sys.version_info.minor}"
    )
    parser.add_argument("--peer-env", type=Path, default=cache, help="directory of the peer's environment")
    parser.add_argument(
        "--outliers",
        action="store_true",
        help="also λ as a radius where points lie outside it: they open a cluster each, leaves do not (minutes)",
    )
    parser.add_argument("--no-peer", action="store_true", help="only our side")
    parser.add_argument("--data-seed", type=int, default=0, help="another draw of the sets (default: 0)")
    parser.add_argument("--planted", action="store_true", help="only the planted sets")
    arguments = parser.parse_args()
    seeds = 1 if arguments.quick else arguments.seeds
    python = None if arguments.no_peer or arguments.planted else peer_python(arguments.peer_env)
    fit_points(
        np.random.default_rng(0).normal(size=(500, 2)), 4.0, collapsed=True, splits=True
    )  # kernels, from disk
    against_published(20 if arguments.quick else 60)
    if arguments.planted:
        return
    on_leaves(50_000 if arguments.quick else 500_000, seeds, arguments.outliers)
    against_peer(python, arguments.quick, seeds, arguments.data_seed)


if __name__ == "__main__":
    main()
