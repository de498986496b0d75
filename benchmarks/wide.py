"""Wide events: planted topics on the sphere, digits, spambase and pendigits, beside MiniBatchKMeans told K.

Every peer sees the same events in the same batches, one after the other. CPU seconds count all threads; BLAS and OpenMP
have one each, since those that wait for work would count, too. Before, both learn a small stream of other topics: what
is loaded and compiled is no part of a rate. Rates are of `learn_many`; what `settle` takes, once at the end, is told
apart.
Memory is how much the resident set grew while one model learnt, apart from the events, in a process of its own.

`--embeddings FILE` streams labelled embeddings (an .npz file with a table and an array of labels) through several
numbers of directions, beside MiniBatchKMeans told K; `--only cost` fits digits and a planted table of 50,000 x 38.

Run it: python benchmarks/wide.py [--events 100000] [--seeds 1] [--only D,K] [--data DIR]
        python benchmarks/wide.py --embeddings FILE [--seeds 5] [--directions auto,16]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from streamclust import StreamClusterer

Table = NDArray[np.float32]
BATCH = 1000
PEER_SEEDS = 20
"""On spambase MiniBatchKMeans has scores from -.03 to .54, by its start alone."""
TAIL_STARTS, TAIL_EVENTS = 10, 10_000
TAIL_SIZES = [(d, k) for d in (57, 100, 300) for k in (2, 5, 10)]
SIZES = [(384, 20), (384, 100), (1536, 20), (1536, 100)]


class Topics:
    """Topics on the sphere, each with variation of low rank about a direction of its own, of unequal shares."""

    def __init__(
        self, d: int, k: int, seed: int, rank: int = 5, spread: float = 0.5, noise: float = 0.3
    ) -> None:
        rng = np.random.default_rng(seed)
        self.centres = rng.normal(size=(k, d)) / np.sqrt(d)
        self.factors = spread * rng.normal(size=(k, rank, d)) / np.sqrt(d * rank)
        self.share, self.noise = rng.dirichlet(np.full(k, 5.0)), noise / np.sqrt(d)
        self.rng = rng

    def draw(self, n: int, share: NDArray[np.float64] | None = None) -> tuple[Table, NDArray[np.int64]]:
        """Events and their topics."""
        of = self.rng.choice(len(self.centres), size=n, p=self.share if share is None else share)
        _, rank, d = self.factors.shape
        x = self.centres[of] + self.noise * self.rng.normal(size=(n, d))
        x += np.einsum("nr,nrd->nd", self.rng.normal(size=(n, rank)), self.factors[of], optimize=True)
        return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), of


def batches(topics: Topics, n: int) -> list[tuple[Table, NDArray[np.int64]]]:
    """All events, in batches."""
    return [topics.draw(BATCH) for _ in range(n // BATCH)]


def planted(d: int, k: int, n: int, seed: int) -> None:
    """Planted topics: quality on the last 10,000 events, and rates."""
    from sklearn.cluster import (
        MiniBatchKMeans,
    )  # not at the top: 130 MB that the model's own process need not hold
    from sklearn.metrics import adjusted_rand_score

    events = batches(Topics(d, k, seed), n)
    test, of = (np.concatenate(parts) for parts in zip(*events[-10:], strict=True))
    with threadpool_limits(1):
        few = batches(Topics(d, 3, seed + 500), 6000)
        learnt(MiniBatchKMeans(3, batch_size=BATCH, random_state=seed, n_init=1).partial_fit, few)
        first = StreamClusterer(scale="unit")
        learnt(first.learn_many, few)
        first.settle()
        peer = MiniBatchKMeans(k, batch_size=BATCH, random_state=seed, n_init=1)
        theirs = learnt(peer.partial_fit, events)
        model = StreamClusterer(scale="unit")
        ours = learnt(model.learn_many, events)
        began = time.process_time()
        model.settle()
        settling = time.process_time() - began
    ari = (
        adjusted_rand_score(of, model.predict_many(test).astype(int)),
        adjusted_rand_score(of, peer.predict(test)),
    )
    print(
        f"D {d:5} K {k:4} seed {seed}: K {model.n_clusters:4}  ARI {ari[0]:.3f}, told K {ari[1]:.3f};  learn_many "
        f"{ours[0]:.2f} s CPU, {n / ours[0]:7,.0f} events/s ({n / 2 / ours[1]:7,.0f} of the second half), "
        f"told K {theirs[0]:.2f} s, {n / theirs[0]:7,.0f}, "
        f"ratio {theirs[0] / ours[0]:.2f} ({theirs[1] / ours[1]:.2f});  settle {settling:.2f} s;  {model.sketch}",
        flush=True,
    )


def learnt(
    learn: Callable[[Table], object], events: list[tuple[Table, NDArray[np.int64]]]
) -> tuple[float, float]:
    """CPU seconds of learning all batches, and of their second half."""
    began = half = time.process_time()
    for i, (x, _) in enumerate(events):
        if i == len(events) // 2:
            half = time.process_time()
        learn(x)
    ended = time.process_time()
    return ended - began, ended - half


def memory(d: int, k: int, n: int) -> None:
    """How much a process grows while it learns, without scikit-learn; events are drawn batch by batch."""
    topics, process = Topics(d, k, 0), psutil.Process()
    StreamClusterer().learn_many(
        np.random.default_rng(0).normal(size=(3000, 8))
    )  # what is loaded and compiled
    topics.draw(BATCH)
    before = process.memory_info().rss
    model = StreamClusterer(scale="unit")
    for _ in range(n // BATCH):
        model.learn_many(topics.draw(BATCH)[0])
    after = process.memory_info().rss
    print(
        f"D {d:5} K {k:4}: {after / 2**20:.0f} MB resident, {(after - before) / 2**20:.0f} MB of them by learning",
        flush=True,
    )


def newcomer(d: int, k: int, seed: int) -> None:
    """A topic of 2% of the events that appears after 50,000 of them."""
    topics = Topics(d, k + 1, seed)
    known = np.append(np.full(k, 1.0 / k), 0.0)
    late = np.append(np.full(k, 0.98 / k), 0.02)
    model = StreamClusterer(scale="unit")
    for _ in range(50):
        model.learn_many(topics.draw(BATCH, known)[0])
    probe = topics.draw(200, np.eye(k + 1)[k])[0]
    seen = set(model.lineage.born_at)
    waited = next(
        (i for i in range(1, 21) if learnt_anew(model, topics.draw(BATCH, late)[0], probe, seen)), None
    )
    told = "was not born within 20,000" if waited is None else f"is born within {waited * BATCH:,}"
    print(f"D {d:5} K {k:4} seed {seed}: a topic of 2% {told} events", flush=True)


def learnt_anew(model: StreamClusterer, events: Table, probe: Table, seen: set[int]) -> bool:
    """Whether the probe's cluster is one that did not exist before, once these events are learnt."""
    model.learn_many(events)
    ids, counts = np.unique(model.predict_many(probe).astype(int), return_counts=True)
    return int(ids[counts.argmax()]) not in seen


def leaving(d: int, k: int, seed: int) -> None:
    """A stream whose topics are all replaced: after how many events that is told, and how the new ones are seen."""
    from sklearn.metrics import adjusted_rand_score

    model = StreamClusterer(scale="unit")
    one, other = Topics(d, k, seed), Topics(d, k, seed + 1000)
    for _ in range(10):
        model.learn_many(one.draw(BATCH)[0])
    before = model.residual_growth
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        waited = next((i for i in range(1, 21) if model.learn_many(other.draw(BATCH)[0]) or caught), None)  # type: ignore[func-returns-value]
    told = "not told within 20,000" if waited is None else f"told within {waited * BATCH:,}"
    grown = model.residual_growth
    for _ in range(20):
        model.learn_many(other.draw(BATCH)[0])
    test, of = other.draw(5000)
    ari = adjusted_rand_score(of, model.predict_many(test).astype(int))
    print(
        f"D {d:5} K {k:4} seed {seed}: all topics change, {told} events; left out: {before:.2f} of what was at first, "
        f"then {grown:.2f}; 20,000 events later {model.residual_growth:.2f}, ARI {ari:.3f}, K {model.n_clusters}",
        flush=True,
    )


def tables(data: Path | None, seeds: int) -> None:
    """Labelled tables: digits through 24 directions and as they are, others beside MiniBatchKMeans told K."""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.datasets import load_digits
    from sklearn.metrics import adjusted_rand_score
    from sklearn.preprocessing import StandardScaler

    sets = {"digits": (load_digits().data, load_digits().target)}
    for name, file in (("spambase", "spambase.data"), ("pendigits", "pendigits.tra")):
        if data is not None and (data / file).exists():
            table = np.loadtxt(data / file, delimiter=",")
            sets[name] = table[:, :-1], table[:, -1].astype(int)
    for name, (x, of) in sets.items():
        told = len(set(of.tolist()))
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(x))
            rows, labels = x[order], of[order]
            scaled = StandardScaler().fit_transform(rows)
            peers = [
                MiniBatchKMeans(told, random_state=i, n_init=3).fit_predict(scaled) for i in range(PEER_SEEDS)
            ]
            scores = [adjusted_rand_score(labels, peer) for peer in peers]
            line = f"{name:10} seed {seed}: told K, median of {PEER_SEEDS} starts {np.median(scores):.3f}"
            line += f" ({min(scores):.3f} to {max(scores):.3f})"
            for directions in (None, 24) if name == "digits" else (None,):
                model = StreamClusterer(max_directions=directions, drift="ignore")
                model.learn_many(rows)
                model.settle()
                ari = adjusted_rand_score(labels, model.predict_many(rows).astype(int))
                how = "as it is" if directions is None else f"{directions} directions"
                line += f";  {how} {ari:.3f} (K {model.n_clusters})"
            print(line, flush=True)


def embeddings(file: Path, directions: list[int | None], seeds: int) -> None:
    """Real embeddings streamed in several orders, K not told."""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

    arrays = [np.load(file)[name] for name in np.load(file).files]
    table = next(array for array in arrays if array.ndim == 2).astype(np.float32)
    given = next(array for array in arrays if array.shape == (len(table),))
    labels = np.unique(given, return_inverse=True)[1]
    told = int(labels.max()) + 1

    def line(how: str, found: NDArray[np.int64], of: NDArray[np.int64], took: float) -> None:
        scores = adjusted_rand_score(of, found), adjusted_mutual_info_score(of, found)
        k = len(np.unique(found))
        print(f"  {how:24} K {k:4}  ARI {scores[0]:.3f}  AMI {scores[1]:.3f}  {took:6.1f} s CPU", flush=True)

    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(table))
        rows, of = table[order], labels[order]
        print(f"{file.stem} {rows.shape[0]:,} x {rows.shape[1]}, {told} labels, order {seed}", flush=True)
        with threadpool_limits(1):
            began = time.process_time()
            peer = MiniBatchKMeans(told, batch_size=16_384, n_init=3, random_state=seed).fit(rows)
            line("MiniBatchKMeans told K", peer.labels_, of, time.process_time() - began)
            for most in directions:
                model = StreamClusterer(scale="unit", max_directions=most)
                began = time.process_time()
                for start in range(0, len(rows), BATCH):
                    model.learn_many(rows[start : start + BATCH])
                model.settle()
                took = time.process_time() - began
                line(
                    f"{model.sketch.n_directions} directions", model.predict_many(rows).astype(int), of, took
                )


def atoms(seed: int, n: int = 50_000, k: int = 10) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """A planted table: 30 normal columns, four that are 0 for a share of each cluster, and four constants."""
    rng = np.random.default_rng(seed)
    of = rng.integers(k, size=n)
    normal = (1.5 * rng.normal(size=(k, 30)))[of] + rng.normal(size=(n, 30))
    rate = rng.uniform(0.2, 0.8, size=(k, 4))[of]
    zeros = np.where(rng.random((n, 4)) < rate, 0.0, rng.normal(size=(n, 4)) + 1.0)
    return np.hstack([normal, zeros, np.full((n, 4), [0.0, 1.0, 3.5, -2.0])]), of


def cost(seeds: int) -> None:
    """CPU seconds of fits of wide tables, all rows at once."""
    from sklearn.datasets import load_digits
    from sklearn.metrics import adjusted_rand_score

    from streamclust.batch import BayesianKMeans

    x, of = load_digits(return_X_y=True)
    BayesianKMeans().fit(x[:300])  # what is loaded and compiled
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(x))
        for name, rows, labels in (("digits", x[order], of[order]), ("atoms and constants", *atoms(seed))):
            with threadpool_limits(1):
                began = time.process_time()
                model = BayesianKMeans().fit(rows)
                took = time.process_time() - began
            ari = adjusted_rand_score(labels, model.labels_)
            shape = f"{rows.shape[0]:,} x {rows.shape[1]}"
            print(
                f"{name:20} {shape:12} seed {seed}: K {model.n_clusters_:3}  ARI {ari:.3f}  {took:.2f} s CPU",
                flush=True,
            )


class Tails:
    """Tables as of words in mails: most entries are 0, the others log-normal, in units that differ by column.

    About half of the columns matter to one cluster alone: there its entries are 0 less often, and larger. In all
    others, and for all other clusters, entries are alike.
    """

    def __init__(self, d: int, k: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        own = np.where(rng.random(d) < 0.5, rng.integers(k, size=d), -1)
        mine = own == np.arange(k)[:, None]
        usual, raised = rng.beta(1.0, 6.0, size=d), rng.uniform(0.4, 0.9, size=d)
        self.rate = np.where(mine, np.maximum(usual, raised), usual)
        self.level = rng.normal(size=d) + np.where(mine, rng.uniform(0.5, 1.5, size=d), 0.0)
        self.spread = rng.uniform(0.7, 1.3, size=d)
        self.share = rng.dirichlet(np.full(k, 5.0))
        self.rng = rng

    def draw(self, n: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Events and their clusters."""
        of = self.rng.choice(len(self.share), size=n, p=self.share)
        shape = n, len(self.spread)
        value = np.exp(self.level[of] + self.spread * self.rng.normal(size=shape))
        return np.where(self.rng.random(shape) < self.rate[of], value, 0.0), of

    def best(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """The likeliest cluster of each event, by whoever knows all that was planted."""
        log = np.log(np.where(x > 0, x, 1.0))
        cost = np.zeros((len(x), len(self.share)))
        for j, (rate, level) in enumerate(zip(self.rate, self.level, strict=True)):
            there = np.log(rate) - ((log - level) / self.spread) ** 2 / 2
            cost[:, j] = np.where(x > 0, there, np.log1p(-rate)).sum(axis=1) + np.log(self.share[j])
        return np.asarray(cost.argmax(axis=1))


def tails(d: int, k: int, n: int, seed: int) -> None:
    """Heavy-tailed columns that are mostly 0, beside k-means told K, standardised, as they are and by logarithm."""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.metrics import adjusted_rand_score
    from sklearn.preprocessing import StandardScaler

    planted = Tails(d, k, seed)
    x, of = planted.draw(n)
    line = f"tails D {d:4} K {k:3} seed {seed}:"
    for directions in (None, 16) if d <= 64 else (None,):  # up to 64 features nothing is reduced unless asked
        began = time.process_time()
        model = StreamClusterer(max_directions=directions)
        for i in range(0, n, BATCH):
            model.learn_many(x[i : i + BATCH])
        model.settle()
        ours = time.process_time() - began
        ari = adjusted_rand_score(of, model.predict_many(x).astype(int))
        how = "" if directions is None else f"{directions} directions "
        line += f" {how}K {model.n_clusters:3} ARI {ari:.3f} ({ours:.1f} s CPU)"
    for how, y in (("standardised", x), ("log1p", np.log1p(x))):
        scaled = StandardScaler().fit_transform(y)
        found = [MiniBatchKMeans(k, random_state=i, n_init=1).fit_predict(scaled) for i in range(TAIL_STARTS)]
        scores = [adjusted_rand_score(of, each) for each in found]
        line += f";  told K, {how} {np.median(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})"
    print(f"{line};  knowing all {adjusted_rand_score(of, planted.best(x)):.3f}", flush=True)


def main() -> None:
    """Parse the arguments and run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--only",
        help="one size, as 384,20; 'tables' for the labelled tables, 'tails' for planted ones, 'cost' for CPU",
    )
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help="a directory with spambase.data and pendigits.tra")
    parser.add_argument(
        "--embeddings", type=Path, help="an .npz file with a table of embeddings and their labels"
    )
    parser.add_argument("--directions", default="auto,16", help="numbers of directions for --embeddings")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.embeddings:
        embeddings(
            arguments.embeddings,
            [None if most == "auto" else int(most) for most in arguments.directions.split(",")],
            arguments.seeds,
        )
        return
    if arguments.only == "cost":
        cost(arguments.seeds)
        return
    if arguments.memory:
        d, k = map(int, arguments.memory.split(","))
        memory(d, k, arguments.events)
        return
    sizes = [] if arguments.only in ("tables", "tails") else SIZES
    if arguments.only and sizes:
        sizes = [tuple(map(int, arguments.only.split(",")))]  # type: ignore[misc]  # two numbers
    for d, k in sizes:
        for seed in range(arguments.seeds):
            planted(d, k, arguments.events, seed)
            newcomer(d, k, seed)
            leaving(d, k, seed)
        subprocess.run(
            [sys.executable, __file__, "--memory", f"{d},{k}", "--events", str(arguments.events)], check=True
        )
    if arguments.only in (None, "tables"):
        tables(arguments.data, arguments.seeds)
    if arguments.only in (None, "tails"):
        for d, k in TAIL_SIZES:
            for seed in range(arguments.seeds):
                tails(d, k, min(arguments.events, TAIL_EVENTS), seed)


if __name__ == "__main__":
    main()
