"""How fast events become a summary tree, in one run with scikit-learn's MiniBatchKMeans and a plain sum.

The rates are medians over rounds in which everyone takes a turn, so that a noisy machine is noisy for all.
`X.sum(axis=0)` is the physical reference: nothing that reads every event can be faster than memory.

    python benchmarks/ingest.py            all of it, some minutes
    python benchmarks/ingest.py --quick    rates only, on fewer events
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np
import psutil
from sklearn.cluster import MiniBatchKMeans

from streamclust.moments import Moments
from streamclust.tree import SummaryTree
from streamclust_connectors.synthetic import SyntheticMixture

BATCH = 4096
MAX_LEAVES = 512


def rates(n_features: int, n_events: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Events per second, and per CPU second, of each contender on the same events; trees and centres are warm."""
    events, _ = SyntheticMixture(n_features, seed=n_features).sample(n_events)
    trees = {
        split: SummaryTree(n_features, max_leaves=MAX_LEAVES, split=split)
        for split in ("principal", "widest")
    }
    for tree in trees.values():
        tree.insert(events)
    peer = MiniBatchKMeans(n_clusters=10, n_init=1, random_state=0).partial_fit(events[:BATCH])
    contenders: dict[str, Callable[[np.ndarray], object]] = {
        "tree, principal": trees["principal"].insert,
        "tree, widest": trees["widest"].insert,
        "MiniBatchKMeans": peer.partial_fit,
        "X.sum(axis=0)": lambda batch: batch.sum(axis=0),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, learn in contenders.items():
            start = perf_counter(), process_time()
            for i in range(0, n_events, BATCH):
                learn(events[i : i + BATCH])
            seconds[name].append((perf_counter() - start[0], process_time() - start[1]))
    medians = {name: np.median(times, axis=0) for name, times in seconds.items()}
    return {name: (n_events / float(wall), n_events / float(cpu)) for name, (wall, cpu) in medians.items()}


def print_rates(n_events: int, rounds: int) -> None:
    print(
        f"\nmillion events/s, batches of {BATCH}, {MAX_LEAVES} leaves, full scatter; MiniBatchKMeans told K = 10"
    )
    print("  D  principal   widest  MiniBatchKMeans      sum   ratio to MiniBatchKMeans (target 1.5)")
    for n_features in (2, 8, 16, 32):
        wall, cpu = zip(*rates(n_features, n_events, rounds).values(), strict=True)
        for by, measured in (("wall", wall), ("CPU", cpu)):
            ours, wide, peer, plain = (rate / 1e6 for rate in measured)
            print(
                f"{n_features:>3} {ours:>10.2f} {wide:>8.2f} {peer:>16.2f} {plain:>8.1f}   "
                f"{ours / peer:.2f} principal, {wide / peer:.2f} widest, by {by}"
            )


def print_growth() -> None:
    """Resident memory, and the rate, as the stream grows a hundredfold."""
    mixture = SyntheticMixture(8, seed=1)
    tree = SummaryTree(8, max_leaves=MAX_LEAVES)
    resident = psutil.Process().memory_info
    marks = {100_000: 0, 1_000_000: 0, 10_000_000: 0}
    print("\nmemory and rate along one stream, D = 8")
    seconds = 0.0
    for batch in mixture.batches(max(marks), 20_000):
        start = perf_counter()
        tree.insert(batch)
        seconds += perf_counter() - start
        if tree.n_events in marks:
            marks[tree.n_events] = resident().rss
            megabytes, rate = resident().rss / 2**20, tree.n_events / seconds / 1e6
            print(f"{tree.n_events:>12,} events  {megabytes:8.1f} MB resident  {rate:.2f} M/s")
    grown = (marks[10_000_000] - marks[100_000]) / 2**20
    print(f"grown by {grown:.2f} MB from 100 thousand to 10 million events (target: less than 5)")


def print_exactness() -> None:
    """Totals after ten million events in 16 trees that collapse, forget and are merged, against a plain sum."""
    print("\ntotals after 10 million events in 16 trees, merged (target: 1e-9)")
    for half_life in (None, 1e6):
        for offset in (0.0, 1e8):
            mixture = SyntheticMixture(4, seed=2)
            trees = [SummaryTree(4, max_leaves=128, half_life=half_life, seed=k) for k in range(16)]
            truth = Moments.empty(1, 4)
            size, clock = 50_000, 0
            for i, batch in enumerate(mixture.batches(10_000_000, size)):
                batch += offset
                times = None if half_life is None else np.arange(clock, clock + size, dtype=float)
                trees[i % 16].insert(batch, time=times)
                clock += size
                moved = batch - offset  # exact: what the tree has to match
                if times is None:
                    truth += Moments.of_points(moved)
                else:
                    weight = np.exp2((times - times[-1]) / half_life)
                    truth = truth.scale(2.0 ** (-size / half_life)) + Moments.of_points(moved, weight)
            merged = trees[0]
            for other in trees[1:]:
                merged.merge(other)
            got = merged.total.shift(np.full(4, -offset))
            spread = np.sqrt(np.trace(truth.scatter[0]) / truth.weight[0])
            print(
                f"  half-life {half_life or 'none':>9}, {offset:>11,.0f} from the origin:"
                f"  weight {abs(got.weight[0] / truth.weight[0] - 1):.1e}"
                f"  mean {np.abs(got.mean - truth.mean).max() / (spread + offset):.1e}"
                f"  scatter {np.abs(got.scatter - truth.scatter).max() / np.abs(truth.scatter).max():.1e}"
            )


COLD = """
from time import perf_counter, process_time
start = perf_counter()
import streamclust
imported = perf_counter() - start
import numpy as np
from streamclust.tree import SummaryTree
start = perf_counter()
SummaryTree(n_features=8).insert(np.random.default_rng(0).normal(size=({rows}, 8)))
print(f"import {{imported:.2f}} s, first insert of {rows:,} rows {{perf_counter() - start:.2f}} s")
"""


def print_cold_start() -> None:
    """A new process, without and then with numba's cache."""
    print("\ncold start (targets: import 1 s; first insert 30 s without the cache, 2 s with it)")
    for rows in (1, 10_000):
        with tempfile.TemporaryDirectory() as cache:
            for state in ("no cache  ", "warm cache"):
                done = subprocess.run(
                    [sys.executable, "-c", COLD.format(rows=rows)],
                    env=os.environ | {"NUMBA_CACHE_DIR": cache},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                print(f"  {state}  {done.stdout.strip()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="rates only, on fewer events")
    quick = parser.parse_args().quick
    if not quick:
        print_growth()  # first, while nothing else has used memory
    print_rates(n_events=200_000 if quick else 500_000, rounds=3 if quick else 7)
    if not quick:
        print_exactness()
        print_cold_start()


if __name__ == "__main__":
    main()
