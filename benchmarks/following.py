"""How well the clusters follow a stream between refits, without a setting, and what that costs in CPU seconds.

    python benchmarks/following.py                    all of it
    python benchmarks/following.py --only demo        one part: pace, demo, quiet, lag, turns, start

River's DBSTREAM, the best of three radii, learns the same drifting streams one by one in the same run (`pace`).
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import numpy as np
from river import cluster
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust_connectors.cli.demo_stream import DemoStream
from streamclust_connectors.synthetic import Drift, SyntheticMixture

RADII = (1.0, 2.0, 3.0)
PLANTED = Counter(born=1, split=1, merged=1, died=1)


def windows(model: Any, stream: Drift, many: bool) -> tuple[list[float], float]:  # noqa: ANN401
    """ARI of each window, predicted before it is learnt, and the CPU seconds of all."""
    scores, spent = [], 0.0
    for i, (rows, labels) in enumerate(stream.batches(min(5000, stream.n_events // 20))):
        events = [] if many else [dict(enumerate(row)) for row in rows.tolist()]
        start = process_time()
        if i > 1:
            found = model.predict_many(rows) if many else [model.predict_one(event) for event in events]
        if many:
            model.learn_many(rows)
        for event in events:
            model.learn_one(event)
        spent += process_time() - start
        if i > 1:
            scores.append(adjusted_rand_score(labels, found))
    return scores, spent


def spread_of(values: list[float]) -> str:
    """Mean and range."""
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def pace(seeds: range, most: int, river_most: int) -> None:
    """Drift that passes in a few thousand events, or in many."""
    print(
        "\nDrift of 8 deviations in the course of the stream: mean ARI over windows predicted before they are learnt"
    )
    right = streams = 0
    for n, d, splits in itertools.product((7500, 30_000, 300_000), (2, 8), (0, 1)):
        if n > most:
            continue
        means, cpu, found = [], [], []
        for seed in seeds:
            model = StreamClusterer()
            scores, spent = windows(model, Drift(d, n_events=n, splits=splits, seed=seed), many=True)
            means.append(float(np.mean(scores)))
            cpu.append(spent)
            found.append(model.n_clusters)
        right, streams = right + found.count(8 + splits), streams + len(found)
        theirs, river_cpu = [], []
        for seed in seeds if n <= river_most else range(0):
            each = [
                windows(
                    cluster.DBSTREAM(clustering_threshold=radius, fading_factor=0.001),
                    Drift(d, n_events=n, splits=splits, seed=seed), many=False,
                )
                for radius in RADII
            ]  # fmt: skip
            best = max(each, key=lambda pair: float(np.mean(pair[0])))
            theirs.append(float(np.mean(best[0])))
            river_cpu.append(best[1])
        peer = (
            f"DBSTREAM {np.mean(theirs):.3f} ({min(theirs):.3f} to {max(theirs):.3f}), {np.mean(river_cpu):.2f} s"
            if theirs
            else ""
        )
        print(
            f"  {n:>7,} events, D = {d}, {splits} splits: {spread_of(means)}, "
            f"{np.mean(cpu):.2f} CPU s, K at the end {found} of {8 + splits}; {peer}", flush=True,
        )  # fmt: skip
    print(f"  K right at the end of {right} of {streams} streams")


def demo(seeds: range) -> None:
    """What the demo's stream is said to have done, against what was planted."""
    print("\nThe demo's stream: lifecycle events after event 1,000, planted: one of each kind")
    exact, spent = 0, []
    for seed in seeds:
        model, start = StreamClusterer(), process_time()
        for rows, _ in DemoStream(240_000, seed=seed).batches(5000):
            model.learn_many(rows)
        spent.append(process_time() - start)
        told = [change for change in model.lineage if change.at > 1000]
        exact += Counter(change.kind for change in told) == PLANTED
        print(
            f"  seed {seed}: {', '.join(f'{c.kind} {c.at}' for c in told)}; K = {model.n_clusters}",
            flush=True,
        )
    print(f"  exact in {exact} of {len(seeds)}; {np.mean(spent):.2f} CPU s each")


def quiet(seeds: range, n: int) -> None:
    """Lifecycle events of stationary streams after the tenth refit, or after 40,000 events: there should be none."""
    print(
        f"\nStationary streams, {n:,} events: lifecycle events after the tenth refit or, of fewer, event 40,000"
    )
    still, spent = 0, []
    cases = list(itertools.product((2, 8, 16), seeds))
    for d, seed in cases:
        model, start, tenth = StreamClusterer(), process_time(), 0
        mixture = SyntheticMixture(d, 10, 2.0, seed=seed)
        while model.n_seen < n:
            rows = mixture.sample(1000)[0]
            model.learn_many(rows)
            if not tenth and (model.to_state().values["n_refits"] > 10 or model.n_seen >= 40_000):
                tenth = model.n_seen
        spent.append(process_time() - start)
        late = [change for change in model.lineage if change.at > tenth]
        still += not late
        if late:
            print(f"  D = {d}, seed {seed}: {late}", flush=True)
    print(f"  none in {still} of {len(cases)}; {np.mean(spent):.2f} CPU s each")


def lag(seeds: range, n: int = 60_000) -> None:
    """How far the means that predictions use are behind those of clusters that move, in deviations."""
    print(
        f"\nClusters that move 8 deviations in {n:,} events: how far the mean in use is behind, in deviations"
    )
    for d in (2, 8):
        worst, typical = [], []
        for seed in seeds:
            stream = Drift(d, n_events=n, births=0, deaths=0, splits=0, seed=seed)
            model, done, gaps = StreamClusterer(), 0, []
            for rows, _ in stream.batches(500):
                model.learn_many(rows)
                done += len(rows)
                if done < n // 5:
                    continue
                means = model.model.clusters.mean
                for track in stream.tracks:
                    gap = np.linalg.norm(means - track.origin - done / n * track.path, axis=1)
                    gaps.append(float(gap.min() / np.sqrt((track.root**2).sum() / d)))
            worst.append(max(gaps))
            typical.append(float(np.mean(gaps)))
        print(
            f"  D = {d}: on average {spread_of(typical)}, at worst {spread_of(worst)}",
            flush=True,
        )


def turns(n: int = 40_000) -> None:
    """Sources that report in turns: every period-th event comes from the same one."""
    wrong = []
    for period in (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64):
        rng = np.random.default_rng(period)
        k = min(period, 16)
        centres = 12.0 * np.stack([np.arange(k) % 4, np.arange(k) // 4], axis=1)
        rows = centres[np.arange(n) % period % k] + rng.normal(size=(n, 2))
        model = StreamClusterer()
        model.learn_many(rows)
        if model.n_clusters != k:
            wrong.append((period, model.n_clusters))
    print(f"\nSources in turns, periods of 2 to 64: wrong K in {len(wrong)} of 13 {wrong or ''}")


def begin(seeds: range, rounds: int = 5) -> None:
    """The first 4,000 events, one by one: of each stream the best of several rounds in which everyone takes a turn."""
    print(
        "\nThe first 4,000 events by learn_one, refits included: thousand events/s, least to most of streams"
    )
    makers: dict[str, Callable[[], Any]] = {
        "streamclust": StreamClusterer,
        "streamclust, refits in the way": lambda: StreamClusterer(background=False),
        "river KMeans(10)": lambda: cluster.KMeans(n_clusters=10, seed=0),
        "river DenStream": lambda: cluster.DenStream(decaying_factor=0.001, epsilon=0.5),
    }
    for d in (2, 8):
        rates: dict[str, list[np.ndarray]] = {name: [] for name in makers}
        for seed in seeds:
            rows = SyntheticMixture(d, 10, 2.0, seed=seed).sample(4000)[0]
            events = [dict(enumerate(row)) for row in rows.tolist()]
            spent: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
            for _ in range(rounds):
                for name, make in makers.items():
                    model, cpu, clock = make(), process_time(), perf_counter()
                    for event in events:
                        model.learn_one(event)
                    spent[name].append((process_time() - cpu, perf_counter() - clock))
            for name, times in spent.items():
                rates[name].append(4.0 / np.min(times, axis=0))
        for name, each in rates.items():
            (cpu_low, low), (cpu_high, high) = np.min(each, axis=0), np.max(each, axis=0)
            print(
                f"  D = {d}, {name}: {cpu_low:.0f} to {cpu_high:.0f} by CPU, {low:.0f} to {high:.0f} by the clock",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=["pace", "demo", "quiet", "lag", "turns", "start"])
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--seeds", type=int, default=12, help="streams of each kind (default: 12)")
    parser.add_argument("--events", type=int, default=300_000, help="events of the longest streams")
    parser.add_argument("--river-events", type=int, default=30_000, help="the longest stream for DBSTREAM")
    a = parser.parse_args()
    seeds = range(a.first, a.first + a.seeds)
    some = range(a.first, a.first + max(1, a.seeds // 3))
    StreamClusterer().learn_many(SyntheticMixture(2, 10, 2.0, seed=1).sample(30_000)[0])  # compiled
    parts: dict[str, Callable[[], None]] = {
        "pace": lambda: pace(some, a.events, a.river_events),
        "demo": lambda: demo(seeds),
        "quiet": lambda: quiet(some, min(a.events, 100_000)),
        "lag": lambda: lag(some),
        "turns": turns,
        "start": lambda: begin(some),
    }
    for name, part in parts.items():
        if not a.only or name in a.only:
            start = process_time(), perf_counter()
            part()
            cpu, wall = process_time() - start[0], perf_counter() - start[1]
            print(f"  this table: {cpu:.1f} CPU s, {wall:.1f} s by the clock", flush=True)


if __name__ == "__main__":
    main()
