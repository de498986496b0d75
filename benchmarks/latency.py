"""How long single events take: the distribution of learn_one and predict_one, with and without background refits.

The last column is CPU time of the whole process per event, which a busy machine does not change.
"""

from __future__ import annotations

import argparse
import gc
from time import perf_counter_ns, process_time
from typing import NamedTuple

import numpy as np
from river import cluster

from streamclust import StreamClusterer
from streamclust_connectors.synthetic import SyntheticMixture

QUANTILES = (50.0, 99.0, 99.9, 100.0)


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


if __name__ == "__main__":
    main()
