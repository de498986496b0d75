"""Our clusterer against River's and scikit-learn's on the same streams, in one run: rate, CPU, ARI, NMI, K, memory.

Three kinds of streams: tau-mixtures (default 500,000 rows), drifting streams (judged per window, each window before
it is learnt), real data (scikit-learn's digits, river's ImageSegments and Phishing, --data DIR's pendigits).

River's clusterers are told K where they ask for it, and get the first rows of a long stream only (--river-rows): at
their rate the whole would take hours. Their ARI is that of the rows they were given, as is ours beside it.
"""

from __future__ import annotations

import argparse
import itertools
import pickle
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
from river import cluster, datasets
from sklearn.cluster import Birch, MiniBatchKMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.preprocessing import StandardScaler

from streamclust import StreamClusterer
from streamclust_connectors.synthetic import Drift, SyntheticMixture

CHUNK = 10_000
WINDOW = 5_000
WHOLE = 20_000
"""BayesianGaussianMixture is fitted on so many rows at most."""


class Score(NamedTuple):
    """What a clusterer did to a stream."""

    learning: float
    predicting: float
    ari: float
    nmi: float
    k: int
    megabytes: float
    """Of the model, pickled."""
    cpu: float = 0.0
    """CPU seconds of learning, those of refits in the background among them."""


def scored(
    model: object, labels: np.ndarray, found: np.ndarray, learning: float, predicting: float, k: int
) -> Score:
    n = len(labels)
    return Score(
        n / learning, n / predicting, adjusted_rand_score(labels, found),
        normalized_mutual_info_score(labels, found), k, len(pickle.dumps(model)) / 1e6,
    )  # fmt: skip


# -------------------------------------------------------------------- one clusterer, one stationary stream


def ours(rows: np.ndarray, labels: np.ndarray, half_life: float | None = None) -> Score:
    model = StreamClusterer(half_life=half_life)
    start, cpu = perf_counter(), process_time()
    for part in parts(rows):
        model.learn_many(part)
    model.settle()
    learnt, cpu = perf_counter(), process_time() - cpu
    found = model.predict_many(rows)
    return scored(model, labels, found, learnt - start, perf_counter() - learnt, model.n_clusters)._replace(
        cpu=cpu
    )


def ours_one_by_one(rows: np.ndarray, labels: np.ndarray) -> Score:
    return river(StreamClusterer(), rows, labels)


def partial_fit(model: Any, rows: np.ndarray, labels: np.ndarray) -> Score:  # noqa: ANN401
    start, cpu = perf_counter(), process_time()
    for part in parts(rows):
        model.partial_fit(part)
    learnt, cpu = perf_counter(), process_time() - cpu
    found = model.predict(rows)
    return scored(
        model, labels, found, learnt - start, perf_counter() - learnt, len(set(found.tolist()))
    )._replace(cpu=cpu)


def gaussian_mixture(rows: np.ndarray, labels: np.ndarray) -> Score:
    """On some of the rows; its rate counts those."""
    some = np.linspace(0, len(rows) - 1, min(WHOLE, len(rows))).astype(int)
    model = BayesianGaussianMixture(n_components=min(30, len(some)), max_iter=200, random_state=0)
    start, cpu = perf_counter(), process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows[some])
    learnt, cpu = perf_counter(), process_time() - cpu
    found = model.predict(rows)
    done = perf_counter()
    score = scored(model, labels, found, learnt - start, done - learnt, len(set(found.tolist())))
    return score._replace(learning=len(some) / (learnt - start), cpu=cpu)


def river(model: Any, rows: np.ndarray, labels: np.ndarray) -> Score:  # noqa: ANN401
    events = [dict(enumerate(row)) for row in rows.tolist()]
    start, cpu = perf_counter(), process_time()
    for event in events:
        model.learn_one(event)
    learnt, cpu = perf_counter(), process_time() - cpu
    found = np.array([model.predict_one(event) for event in events])
    predicted = perf_counter()
    return scored(
        model, labels, found, learnt - start, predicted - learnt, len(set(found.tolist()))
    )._replace(cpu=cpu)


def river_models(k: int) -> dict[str, Callable[[], Any]]:
    return {
        "KMeans": lambda: cluster.KMeans(n_clusters=k, seed=0),
        "STREAMKMeans": lambda: cluster.STREAMKMeans(n_clusters=k, chunk_size=100, seed=0),
        "CluStream": lambda: cluster.CluStream(n_macro_clusters=k, max_micro_clusters=10 * k, seed=0),
        "DenStream": lambda: cluster.DenStream(decaying_factor=0.001, epsilon=0.5),
        "DBSTREAM": lambda: cluster.DBSTREAM(clustering_threshold=1.0),
    }


def parts(rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), CHUNK):
        yield rows[start : start + CHUNK]


# -------------------------------------------------------------------- tables


def show(name: str, score: Score) -> None:
    print(
        f"  {name:<34} {score.learning:>12,.0f} {score.predicting:>12,.0f}  "
        f"{score.ari:6.3f} {score.nmi:6.3f} {score.k:4d} {score.megabytes:7.2f} {score.cpu:7.2f}",
        flush=True,
    )


def head(title: str) -> None:
    rates = f"{'learns /s':>12} {'predicts /s':>12}"
    print(f"\n{title}\n  {'':<34} {rates}  {'ARI':>6} {'NMI':>6} {'K':>4} {'MB':>7} {'CPU s':>7}")


def stationary(title: str, rows: np.ndarray, labels: np.ndarray, river_rows: int, repeats: int) -> None:
    """Everyone on one stream; the fast ones by turns, medians of several rounds."""
    k = len(set(labels.tolist()))
    head(f"{title}: {len(rows):,} rows, D = {rows.shape[1]}, K = {k}")
    ours(rows[: 2 * CHUNK], labels[: 2 * CHUNK])  # compiled
    rounds = [
        (
            ours(rows, labels),
            partial_fit(MiniBatchKMeans(k, random_state=0, n_init=1), rows, labels),
        )
        for _ in range(repeats)
    ]
    us, them = (median([pair[i] for pair in rounds]) for i in range(2))
    show("streamclust learn_many", us)
    show(f"MiniBatchKMeans, told {k}", them)
    ratios = [a.learning / b.learning for a, b in rounds]
    print(
        f"  learning, ours / MiniBatchKMeans: {np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}); "
        f"by CPU {np.median([b.cpu / a.cpu for a, b in rounds]):.2f}"
    )
    birch = Birch(n_clusters=k, threshold=0.5 * float(rows.std()))
    some = slice(0, min(len(rows), 50_000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        show(f"Birch, told {k}, {some.stop:,} rows", partial_fit(birch, rows[some], labels[some]))
    mixture = gaussian_mixture(rows, labels)
    show(f"BayesianGaussianMixture(30), {min(len(rows), WHOLE):,}", mixture)
    print(f"  ARI, ours less BayesianGaussianMixture's: {us.ari - mixture.ari:+.3f}")
    some = slice(0, min(len(rows), river_rows))
    rows, labels = rows[some], labels[some]
    scale = StandardScaler().fit_transform(rows)
    single = ours_one_by_one(rows, labels)
    show(f"streamclust learn_one, {len(rows):,} rows", single)
    for name, make in river_models(k).items():
        peer = river(make(), scale, labels)
        show(f"river {name}, scaled", peer)
        print(
            f"    ours / {name}: learn_one {single.learning / peer.learning:.1f}, "
            f"predict_one {single.predicting / peer.predicting:.1f}, ARI {single.ari - peer.ari:+.3f}"
        )


def median(scores: list[Score]) -> Score:
    rates = {
        name: float(np.median([getattr(s, name) for s in scores]))
        for name in ("learning", "predicting", "cpu")
    }
    return scores[-1]._replace(**rates)


def drifting(d: int, events: int, seeds: int, splits: int, river_events: int) -> None:
    """Mean ARI over windows, each predicted before it is learnt, of us and of River's best of several settings."""
    print(
        f"\nDrifting, D = {d}, {events:,} events, {splits} splits: ARI per window of {WINDOW:,}, {seeds} seeds"
    )
    means, start = [], process_time()
    for seed in range(1, seeds + 1):
        windows = prequential(
            StreamClusterer(), Drift(d, n_events=events, splits=splits, seed=seed), many=True
        )
        means.append(np.mean(windows))
        print(f"  streamclust, seed {seed}: {means[-1]:.3f}, worst window {min(windows):.3f}", flush=True)
    print(
        f"  streamclust, mean of seeds: {np.mean(means):.3f}, {(process_time() - start) / seeds:.2f} CPU s each"
    )
    for name, settings in river_settings().items():
        start = process_time()
        best = max(
            np.mean(prequential(make(), Drift(d, n_events=river_events, splits=splits, seed=1), many=False))
            for make in settings
        )
        cpu = (process_time() - start) / len(settings)
        print(
            f"  river {name}, best of {len(settings)} settings, {river_events:,} events: {best:.3f}, "
            f"{cpu:.2f} CPU s each",
            flush=True,
        )
    same = np.mean(
        prequential(StreamClusterer(), Drift(d, n_events=river_events, splits=splits, seed=1), many=True)
    )
    print(f"  streamclust on those {river_events:,} events: {same:.3f}")


def prequential(model: Any, stream: Drift, many: bool) -> list[float]:  # noqa: ANN401
    windows = []
    for i, (rows, labels) in enumerate(stream.batches(min(WINDOW, stream.n_events // 20))):
        events = [] if many else [dict(enumerate(row)) for row in rows.tolist()]
        if i > 1:
            found = (
                model.predict_many(rows) if many else np.array([model.predict_one(event) for event in events])
            )
            windows.append(adjusted_rand_score(labels, found))
        if many:
            model.learn_many(rows)
        for event in events:
            model.learn_one(event)
    return windows


def river_settings() -> dict[str, list[Callable[[], Any]]]:
    """Several settings of each of River's clusterers: the best of them counts."""
    return {
        "KMeans": [
            lambda k=k, h=h: cluster.KMeans(n_clusters=k, halflife=h, seed=0)
            for k, h in itertools.product((8, 10, 12), (0.1, 0.5))
        ],
        "STREAMKMeans": [
            lambda k=k, c=c: cluster.STREAMKMeans(n_clusters=k, chunk_size=c, seed=0)
            for k, c in itertools.product((8, 10), (100, 500))
        ],
        "CluStream": [
            lambda k=k, h=h: cluster.CluStream(
                n_macro_clusters=k, max_micro_clusters=100, time_window=h, seed=0
            )
            for k, h in itertools.product((8, 10), (1000, 5000))
        ],
        "DenStream": [
            lambda e=e: cluster.DenStream(decaying_factor=0.001, epsilon=e) for e in (0.5, 1.0, 2.0)
        ],
        "DBSTREAM": [
            lambda r=r: cluster.DBSTREAM(clustering_threshold=r, fading_factor=0.001) for r in (1.0, 2.0, 3.0)
        ],
    }


def rare(d: int, seeds: int, n: int = 300_000) -> tuple[int, int]:
    """How many clusters of .1% of the mass are found, among 10 ordinary ones: their own id, mostly pure."""
    found = planted = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        ordinary = SyntheticMixture(d, 15, 2.0, seed=seed)
        share = np.r_[np.full(10, (1 - 5e-3) / 10), np.full(5, 1e-3)]
        labels = rng.choice(15, size=n, p=share / share.sum())
        noise = rng.normal(size=(n, d))
        rows = ordinary.centroids[labels] + np.einsum("nij,nj->ni", ordinary.roots[labels], noise)
        model = StreamClusterer()
        for part in parts(rows):
            model.learn_many(part)
        model.settle()
        ids = model.predict_many(rows)
        for c in range(10, 15):
            values, counts = np.unique(ids[labels == c], return_counts=True)
            own = values[counts.argmax()]
            planted += 1
            found += bool(counts.max() > 0.5 * (labels == c).sum() and (labels[ids == own] == c).mean() > 0.5)
    return found, planted


def rates(rows: int, repeats: int) -> None:
    """CPU seconds of `learn_many` and of MiniBatchKMeans told K, by turns, in large and in small batches."""
    print(
        f"\nCPU seconds to learn {rows:,} rows of ten clusters, median of {repeats}: ours, MiniBatchKMeans told K"
    )
    for d in (2, 8, 16, 32):
        x, labels = SyntheticMixture(d, 10, 2.0, seed=3).sample(rows)
        StreamClusterer().learn_many(x[:30_000])  # compiled
        for size in (CHUNK, 1000):
            spent: dict[str, list[float]] = {"ours": [], "its": []}
            for _ in range(repeats):
                model, peer = StreamClusterer(), MiniBatchKMeans(10, random_state=0)
                for name, learn in (("ours", model.learn_many), ("its", peer.partial_fit)):
                    start = process_time()
                    for i in range(0, rows, size):
                        learn(x[i : i + size])
                    spent[name].append(process_time() - start)
            ours, its = (float(np.median(times)) for times in spent.values())
            last = slice(max(0, rows - 100_000), rows)
            ari = [
                adjusted_rand_score(labels[last], found)
                for found in (model.predict_many(x[last]), peer.predict(x[last]))
            ]
            print(
                f"  D = {d}, batches of {size:,}: {ours:.2f} and {its:.2f} s ({its / ours:.2f} of its rate), "
                f"ARI {ari[0]:.3f} and {ari[1]:.3f}, K = {model.n_clusters}", flush=True,
            )  # fmt: skip


def long(events: int, d: int = 8) -> None:
    """Time per event and memory as a stream goes on."""
    print(f"\nA stream of {events:,} events, D = {d}")
    mixture, model = SyntheticMixture(d, 10, 2.0, seed=3), StreamClusterer()
    model.learn_many(mixture.sample(30_000)[0])
    model = StreamClusterer()
    done, spent, mark = 0, 0.0, 100_000
    while done < events:
        rows = mixture.sample(CHUNK)[0]
        start = perf_counter()
        model.learn_many(rows)
        spent += perf_counter() - start
        done += CHUNK
        if done >= mark:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            size = len(pickle.dumps(model)) / 1e6
            print(f"  {done:>12,} events: {spent / done * 1e6:6.3f} µs each so far, {peak:.1f} MB resident at most, "
                  f"{size:.2f} MB of model", flush=True)  # fmt: skip
            mark *= 10


def real(data: Path | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    digits = load_digits()
    yield "digits, scaled", StandardScaler().fit_transform(digits.data + 1e-3 * np.arange(64)), digits.target
    for name, stream in (("ImageSegments", datasets.ImageSegments()), ("Phishing", datasets.Phishing())):
        pairs = list(stream)
        rows = np.array([[float(v) for v in x.values()] for x, _ in pairs])
        yield (
            f"{name}, scaled",
            StandardScaler().fit_transform(rows),
            np.unique([y for _, y in pairs], return_inverse=True)[1],
        )
    if data is not None:
        table = np.loadtxt(data / "pendigits.tra", delimiter=",")
        yield "pendigits", table[:, :-1], table[:, -1].astype(int)


def main() -> None:
    sys.setrecursionlimit(20_000)  # scikit-learn's Birch is a chain of leaves, which pickle follows
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a directory with pendigits.tra")
    parser.add_argument("--rows", type=int, default=500_000, help="rows of each mixture (default: 500,000)")
    parser.add_argument(
        "--river-rows", type=int, default=10_000, help="rows for River's clusterers (default: 10,000)"
    )
    parser.add_argument("--events", type=int, default=300_000, help="events of each drifting stream")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of the fast ones (default: 5)")
    parser.add_argument("--seeds", type=int, default=5, help="drifting streams of each kind (default: 5)")
    parser.add_argument(
        "--only", choices=["mixtures", "rates", "drift", "rare", "real", "long"], help="one part alone"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    a = parser.parse_args()
    if a.quick:
        a.rows, a.river_rows, a.events, a.repeats, a.seeds = 50_000, 2000, 60_000, 1, 1
    if a.only in (None, "mixtures"):
        for k, d in itertools.product((10, 20), (2, 8, 16)):
            rows, labels = SyntheticMixture(d, k, 2.0, seed=3).sample(a.rows)
            stationary(f"tau = 2 mixture, K = {k}", rows, labels, a.river_rows, a.repeats)
    if a.only in (None, "rates"):
        rates(a.rows, a.repeats)
    if a.only in (None, "drift"):
        for d, splits in itertools.product((2, 8), (0, 1)):
            drifting(d, a.events, a.seeds, splits, 3 * a.river_rows)
    if a.only in (None, "rare"):
        print("\nRare clusters, .1% of the mass each, five among ten ordinary ones")
        for d in (2, 8, 16):
            start = process_time(), perf_counter()
            found, planted = rare(d, a.seeds)
            cpu, wall = process_time() - start[0], perf_counter() - start[1]
            print(
                f"  D = {d}: {found} of {planted} found ({found / planted:.0%}), "
                f"{cpu / a.seeds:.1f} CPU s and {wall / a.seeds:.1f} s by the clock each",
                flush=True,
            )
    if a.only in (None, "real"):
        for name, rows, labels in real(a.data):
            stationary(name, rows, labels, a.river_rows, a.repeats)
    if a.only in (None, "long"):
        long(10_000_000 if not a.quick else 1_000_000)


if __name__ == "__main__":
    main()
