"""How long single events take: the distribution of learn_one and predict_one, with and without background refits.

The last column is CPU time of the whole process per event, which a busy machine changes least. Then the rates over the
first 4,000 events, when refits come often, by the clock and by CPU, beside River's; each the best of several rounds, in
which everyone takes a turn.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from time import perf_counter, perf_counter_ns, process_time
from typing import NamedTuple

import numpy as np
from river import base, cluster
from sklearn.preprocessing import StandardScaler

from streamclust import StreamClusterer
from streamclust_connectors.synthetic import SyntheticMixture

QUANTILES = (50.0, 99.0, 99.9, 100.0)
FIRST_EVENTS = 4_000


class Timed(NamedTuple):
    """Microseconds of each call, and CPU seconds of all: those of refits in the background among them."""

    spent: np.ndarray
    cpu: float


def timed(call: object, events: list[dict[int, float]]) -> Timed:
    """Call with each event."""
    spent = np.empty(len(events))
    before = process_time()
    for i, event in enumerate(events):
        start = perf_counter_ns()
        call(event)  # type: ignore[operator]
        spent[i] = (perf_counter_ns() - start) / 1e3
    return Timed(spent, process_time() - before)


def show(name: str, timed: Timed) -> None:
    spent, p = timed.spent, np.percentile(timed.spent, QUANTILES)
    cpu = timed.cpu / len(spent) * 1e6
    print(
        f"  {name:<44} {spent.mean():8.2f} {p[0]:8.2f} {p[1]:8.1f} {p[2]:9.1f} {p[3]:10.0f} {cpu:8.2f}",
        flush=True,
    )


def first_rates(d: int, seeds: tuple[int, ...], rounds: int) -> None:
    """Events per second over the first 4,000, of us and of River's quickest, on several streams."""
    contenders: dict[str, Callable[[], StreamClusterer | base.Clusterer]] = {
        "streamclust": StreamClusterer,
        "river DenStream, scaled": lambda: cluster.DenStream(decaying_factor=0.001, epsilon=0.5),
        "river KMeans(10), scaled": lambda: cluster.KMeans(n_clusters=10, seed=0),
    }
    print(f"\nD = {d}, the first {FIRST_EVENTS:,} events one by one, events/s on streams {seeds}")
    best: dict[str, list[np.ndarray]] = {name: [] for name in contenders}
    for seed in seeds:
        rows = SyntheticMixture(d, 10, 2.0, seed=seed).sample(FIRST_EVENTS)[0]
        tables = {True: rows, False: StandardScaler().fit_transform(rows)}
        events = {ours: [dict(enumerate(row)) for row in x.tolist()] for ours, x in tables.items()}
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, make in contenders.items():
                model, start = make(), (perf_counter(), process_time())
                for event in events[name == "streamclust"]:
                    model.learn_one(event)
                spent[name].append((perf_counter() - start[0], process_time() - start[1]))
        for name, times in spent.items():
            best[name].append(FIRST_EVENTS / np.min(times, axis=0))
    for name, rates in best.items():
        wall, cpu = (" ".join(f"{rate:>9,.0f}" for rate in column) for column in np.transpose(rates))
        print(f"  {name:<28} wall {wall}   CPU {cpu}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--events", type=int, default=300_000, help="events of each stream (default: 300,000)"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of them")
    a = parser.parse_args()
    n = a.events // 10 if a.quick else a.events
    warm = StreamClusterer()
    warm.learn_many(SyntheticMixture(2, 10, 2.0, seed=1).sample(30_000)[0])
    for d in (2, 8, 16):
        rows = SyntheticMixture(d, 10, 2.0, seed=3).sample(n)[0]
        events = [dict(enumerate(row)) for row in rows.tolist()]
        print(f"\nD = {d}, {n:,} events, microseconds")
        print(f"  {'':<44} {'mean':>8} {'p50':>8} {'p99':>8} {'p99.9':>9} {'max':>10} {'CPU':>8}")
        gc.disable()
        for background in (True, False):
            model = StreamClusterer(background=background)
            where = "in the background" if background else "in the way"
            show(f"learn_one, refits {where}", timed(model.learn_one, events))
        show("predict_one", timed(model.predict_one, events[:50_000]))
        peer = cluster.KMeans(n_clusters=10, seed=0)
        learnt, asked = timed(peer.learn_one, events[:20_000]), timed(peer.predict_one, events[:20_000])
        gc.enable()
        show("river KMeans(10) learn_one", learnt)
        show("river KMeans(10) predict_one", asked)
    for d in (2, 8):
        first_rates(d, seeds=(3, 4, 5), rounds=3 if a.quick else 9)


if __name__ == "__main__":
    main()
