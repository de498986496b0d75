"""Streams whose events depend on each other: clusters found, false changes, effective number of events and CPU time.

    python benchmarks/dependent.py                              all tables on made streams
    python benchmarks/dependent.py --quick                      less than a minute of CPU instead of three
    python benchmarks/dependent.py --only wander --seeds 5      one table, on more streams
    python benchmarks/dependent.py --only shifts --shift-events 4000000
    python benchmarks/dependent.py --only wander --refit dp-means
    python benchmarks/dependent.py --only occupancy --data DIR --picture river.png

`occupancy` reads occupancy.csv.gz from DIR: the sensors of a room, a row a minute in their own order [UCI, Occupancy
Detection]. Every stream is predicted in parts of 1,000 events before they are learnt. "Late" is after the first 10
correlation times of each source, and between a sixth and a half of the stream. The twin of a stream has as many
independent events of the same clusters. River's clusterers, and ours beside them, get the first events one by one, and
are judged by the second half of those; DBSTREAM and DenStream by the best of three radii on each stream.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
from river import cluster
from scipy.signal import lfilter
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer

PART_EVENTS = 1_000
"""Events predicted, then learnt, at a time."""
MIN_GAP = 8.0
"""Deviations between the centres of two clusters, at least."""
TYPICAL_GAP = 12.0
"""Deviations between them, typically."""
TIMES = (3, 10, 30, 100, 300, 1000)
"""Correlation times tried, in events of a source."""
RADII = (1.0, 2.0, 3.0)
"""Radii of DBSTREAM and DenStream, the best of which counts."""
DENSTREAM_START = 250
"""Events that DenStream begins with: with its default of 1,000 it would tell nothing of short streams."""
MIN_DESCRIBED_EVENTS = 200
"""Events that an id is given between two lifecycle events from which it is described."""
OURS: dict[str, Any] = {"background": False}
"""Settings of our clusterer."""
FEATURES = ("Temperature", "Humidity", "Light", "CO2")


class Stream(NamedTuple):
    """A stream of known labels."""

    rows: np.ndarray
    labels: np.ndarray
    late: int
    """Number of events before those that K, lifecycle events and ARI are judged by."""
    worth: float = 1.0
    """Independent events that one event is worth; NaN if that is unknown."""


class Outcome(NamedTuple):
    """Result of a clusterer on a stream."""

    k: int
    k_least: int
    k_most: int
    changes: Counter[str]
    """Lifecycle events by kind; `changes`, ARI and the range of K are those of late events."""
    ari: float
    worth: tuple[float, float]
    """Least and most that an event was taken to be worth at the ends of late parts: it may differ along the stream."""
    micros: float
    """CPU microseconds to learn an event."""
    told: np.ndarray
    """Id told of each event before it was learnt; -1 for those of the first part."""


# -------------------------------------------------------------------- streams


@cache
def centres(k: int, d: int, seed: int) -> np.ndarray:
    """Centres of k clusters of unit deviation, drawn until no two are closer than MIN_GAP."""
    rng = np.random.default_rng([seed, k, d])
    found = np.zeros((k, d))
    for i, tries in itertools.product(range(1, k), range(1000)):
        scale = TYPICAL_GAP / np.sqrt(2 * d) * (1 + tries / 50) * max(1.0, np.sqrt(k / 5) if d < 4 else 1.0)
        if i and not found[i].any():
            place = rng.normal(size=d) * scale
            if np.linalg.norm(found[:i] - place, axis=1).min() >= MIN_GAP:
                found[i] = place
    return found


def wandering(rng: np.random.Generator, n: int, d: int, time: float) -> np.ndarray:
    """An AR(1) process of unit variance whose correlation falls to 1/e in `time` steps; 0: independent events."""
    rho = np.exp(-1.0 / time) if time else 0.0
    noise = rng.normal(size=(n, d)) * np.sqrt(1.0 - rho**2)
    if n:
        noise[0] /= np.sqrt(1.0 - rho**2)
    return np.asarray(lfilter([1.0], [1.0, -rho], noise, axis=0))


def wander(seed: int, n: int, k: int, d: int, time: float) -> Stream:
    """Sources picked at random, each of which wanders within its cluster."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    rows = centres(k, d, seed)[labels]
    for source in range(k):
        own = labels == source
        rows[own] += wandering(rng, int(own.sum()), d, time)
    rho = np.exp(-1.0 / time) if time else 0.0
    return Stream(rows, labels, min(max(int(10 * time * k), n // 6), n // 2), (1 - rho) / (1 + rho))


def repeats(seed: int, n: int, times: int) -> Stream:
    """Each event several times in a row, of five clusters."""
    rows, labels, late, _ = wander(seed, -(-n // times), 5, 2, 0)
    return Stream(np.repeat(rows, times, axis=0)[:n], np.repeat(labels, times)[:n], late * times, 1.0 / times)


def catalogue(seed: int, n: int, distinct: int = 1000) -> Stream:
    """A few distinct events of five clusters, drawn over and over."""
    rows, labels, *_ = wander(seed, distinct, 5, 2, 0)
    drawn = np.random.default_rng(seed).integers(distinct, size=n)
    return Stream(rows[drawn], labels[drawn], n // 2, min(1.0, distinct / n))


def runs(seed: int, n: int, length: int) -> Stream:
    """Independent events of five clusters, a run of one of them at a time, of random length."""
    rng = np.random.default_rng(seed)
    lengths = 1 + rng.exponential(length, size=10 + 3 * n // length).astype(int)
    labels = np.repeat(rng.integers(5, size=len(lengths)), lengths)[:n]
    rows = centres(5, 2, seed)[labels] + rng.normal(size=(len(labels), 2))
    return Stream(rows, labels, min(max(50 * length, n // 6), n // 2))


def shifts(seed: int, half: int, cycles: int) -> Stream:
    """Three clusters by day, two others by night, of `half` events each."""
    rng = np.random.default_rng(seed)
    n = 2 * half * cycles
    night = np.arange(n) // half % 2 == 1
    labels = np.where(night, 3 + rng.integers(2, size=n), rng.integers(3, size=n))
    return Stream(centres(5, 2, seed)[labels] + rng.normal(size=(n, 2)), labels, min(4 * half, n // 2))


# -------------------------------------------------------------------- clusterers


def learn(stream: Stream) -> tuple[Outcome, StreamClusterer]:
    """Our outcome, each part predicted before it is learnt."""
    model, spent, counts, worths = StreamClusterer(**OURS), 0.0, [], []
    found = np.full(len(stream.rows), -1)
    for first in range(0, len(stream.rows), PART_EVENTS):
        part = stream.rows[first : first + PART_EVENTS]
        if first:
            found[first : first + PART_EVENTS] = model.predict_many(part)
        start = process_time()
        model.learn_many(part)
        spent += process_time() - start
        counts.append(model.n_clusters)
        worths.append(model.effective_events / model.n_seen)
    first = min(stream.late // PART_EVENTS, len(counts) - 1)
    late, worth = counts[first:], worths[first:]
    changes = Counter(change.kind for change in model.events if change.at > stream.late)
    outcome = Outcome(
        counts[-1], min(late), max(late), Counter(dict(changes)),
        adjusted_rand_score(stream.labels[stream.late :], found[stream.late :]),
        (min(worth), max(worth)), 1e6 * spent / len(stream.rows), found,
    )  # fmt: skip
    return outcome, model


def peers(k: int) -> dict[str, list[Callable[[], Any]]]:
    """Clusterers that learn one by one, each with its settings: ours, told nothing, and River's."""
    return {
        "ours": [lambda: StreamClusterer(**OURS)],
        "DBSTREAM": [lambda r=r: cluster.DBSTREAM(clustering_threshold=r) for r in RADII],
        "DenStream": [
            lambda r=r: cluster.DenStream(decaying_factor=0.001, epsilon=r, n_samples_init=DENSTREAM_START)
            for r in RADII
        ],
        "KMeans told K": [lambda: cluster.KMeans(n_clusters=k, seed=0)],
    }


def one_by_one(model: Any, stream: Stream, n: int) -> tuple[float, int, float]:  # noqa: ANN401
    """ARI of the second half of n events, distinct ids told there, and CPU microseconds to learn an event."""
    events = [dict(enumerate(row)) for row in stream.rows[:n].tolist()]
    found, spent = [], 0.0
    for i, event in enumerate(events):
        if i >= n // 2:
            found.append(model.predict_one(event))
        start = process_time()
        model.learn_one(event)
        spent += process_time() - start
    return adjusted_rand_score(stream.labels[n // 2 : n], found), len(set(found)), 1e6 * spent / n


def best(makers: list[Callable[[], Any]], stream: Stream, n: int) -> tuple[float, int, float]:
    """Result of the setting of the highest ARI; of equals, the fastest."""
    return max((one_by_one(make(), stream, n) for make in makers), key=lambda found: (found[0], -found[2]))


# -------------------------------------------------------------------- tables


def span(values: list[float], digits: int = 0) -> str:
    """Range of values, or the one that all are."""
    low, high = (f"{value:,.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


@cache
def twin_micros(k: int, d: int, n: int, seeds: range) -> list[float]:
    """CPU microseconds for an event of streams of independent events."""
    return [learn(wander(seed, n, k, d, 0))[0].micros for seed in seeds]


def show(title: str, streams: list[Stream], twins: list[float], river_events: int) -> None:
    """Learn streams of one kind, print the ranges of ours, then those of River's clusterers."""
    found = [learn(stream)[0] for stream in streams]
    changes = [float(sum(outcome.changes.values())) for outcome in found]
    worth, true = streams[0].worth, [float(len(np.unique(stream.labels))) for stream in streams]
    print(
        f"  {title}: K {span([o.k for o in found])} of {span(true)} ({span([v for o in found for v in o[1:3]])} late), "
        f"{span(changes)} late changes, ARI {span([o.ari for o in found], 3)}, "
        f"an event worth {span([v for o in found for v in o.worth], 4)} (truth {worth:.4f}), "
        f"{span([o.micros for o in found], 1)} µs (independent {span(twins, 1)})",
        flush=True,
    )
    if not river_events:
        return
    told = []
    for name, makers in peers(int(max(true))).items():
        each = [best(makers, stream, river_events) for stream in streams]
        ari, ids, micros = (list(column) for column in zip(*each, strict=True))
        told.append(f"{name} ARI {span(ari, 3)}, {span(ids)} ids, {span(micros)} µs")
    print(f"    first {river_events:,}: {'; '.join(told)}", flush=True)


def wander_table(seeds: range, n: int, quick: bool, grid: bool, river_events: int) -> None:
    print(f"\nSources that wander within their clusters, {n:,} events")
    for k, d in itertools.product((1, 5, 20), (2, 8, 16)):
        for time in TIMES:
            usual = time in (10, 300) and d != 8 if quick else time in (10, 100, 1000)
            if not (grid or usual or (k, d) == (5, 2)):
                continue
            some = river_events if (k, d) == (5, 2) and time in (10, 100, 1000) else 0
            streams = [wander(seed, n, k, d, time) for seed in seeds]
            show(f"K = {k}, D = {d}, over {time:,}", streams, twin_micros(k, d, n, seeds), some)


def repeats_table(seeds: range, n: int, river_events: int) -> None:
    print(f"\nRepeated events, K = 5, D = 2, {n:,} events")
    twins = twin_micros(5, 2, n, seeds)
    for times in (2, 5, 20):
        some = river_events if times > 2 else 0
        show(f"{times} times in a row", [repeats(seed, n, times) for seed in seeds], twins, some)
    show("1,000 distinct, over and over", [catalogue(seed, n) for seed in seeds], twins, river_events)


def runs_table(seeds: range, n: int, river_events: int) -> None:
    print(f"\nRuns of one source, up to five of them, D = 2, {n:,} events")
    for length in (10, 100, 1000, 10_000):
        some = river_events if length == 100 else 0
        streams = [runs(seed, n, length) for seed in seeds]
        show(f"{length:,} events on average", streams, twin_micros(5, 2, n, seeds), some)


def shifts_table(seeds: range, most: int, cycles: int = 10) -> None:
    print(f"\nThree clusters by day, two by night, {cycles} cycles")
    for half in (2000, 6000, 20_000, 60_000, 200_000):
        if 2 * half * cycles > most:
            continue
        ids, late, cpu, kinds = [], [], [], Counter[str]()
        for seed in seeds:
            outcome, model = learn(shifts(seed, half, cycles))
            ids.append(float(len({number for change in model.events for number in change.children})))
            late.append(outcome.ari)
            cpu.append(outcome.micros)
            kinds += Counter(change.kind for change in model.events)
        print(
            f"  {half:,} events by day and by night: {span(ids)} ids, late ARI {span(late, 3)}, "
            f"{span(cpu, 1)} µs; of {len(seeds)} streams "
            + ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items())),
            flush=True,
        )


def births_table(seeds: range, n: int) -> None:
    print(
        "\nA cluster that appears 12 deviations away after some 20,000 events, K = 5, D = 2: events until it has an id"
    )
    for share, time in itertools.product((1.0, 0.02), (0, 30)):
        waits, missed = [], 0
        for seed in seeds:
            waited = wait_for_birth(seed, share, time)
            if waited is None:
                missed += 1
            else:
                waits.append(float(waited))
        kind = f"sources wander over {time}" if time else "independent events"
        told = span(waits) if waits else "none"
        print(
            f"  {share:.0%} of the stream, {kind}: {told}; not within 20,000: {missed} of {len(seeds)}",
            flush=True,
        )
    print(f"One cluster of heavy tails, D = 2, {n:,} independent events")
    draw: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
        "t, 2 degrees of freedom": lambda rng: rng.standard_t(2, size=(n, 2)),
        "t, 5 degrees of freedom": lambda rng: rng.standard_t(5, size=(n, 2)),
        "log-normal": lambda rng: rng.lognormal(size=(n, 2)),
        "exponential": lambda rng: rng.exponential(size=(n, 2)),
    }
    for name, make in draw.items():
        streams = [
            Stream(make(np.random.default_rng(seed)), np.zeros(n, dtype=int), n // 2) for seed in seeds
        ]
        found = [learn(stream) for stream in streams]
        born = [float(sum(change.kind == "born" for change in model.events) - 1) for _, model in found]
        late = [float(sum(outcome.changes.values())) for outcome, _ in found]
        worth = span([v for o, _ in found for v in o.worth], 4)
        print(
            f"  {name}: K {span([o.k for o, _ in found])}, {span(born)} births after the first, "
            f"{span(late)} late changes, an event worth {worth}", flush=True,
        )  # fmt: skip


def wait_for_birth(seed: int, share: float, time: float) -> int | None:
    """Events from the first of a new cluster until its events are given an id of their own; None if they are not.

    It appears at a random moment, so that looks, which come at round counts of events, are not met at the same phase.
    """
    rng = np.random.default_rng(seed)
    before = 20_000 + int(rng.integers(4096))
    old = wander(seed, before + 20_000, 5, 2, time)
    new = np.zeros(len(old.rows), dtype=bool)
    new[before:] = rng.random(20_000) < share
    place = centres(5, 2, seed).mean(axis=0)
    while np.linalg.norm(centres(5, 2, seed) - place, axis=1).min() < TYPICAL_GAP:
        place = place + np.array([1.0, 0.0])
    rows = old.rows.copy()
    rows[new] = place + wandering(rng, int(new.sum()), 2, time)
    model = StreamClusterer(**OURS)
    model.learn_many(rows[:before])
    known = {cluster.id for cluster in model.clusters}
    for first in range(before, len(rows), 50):
        model.learn_many(rows[first : first + 50])
        if model.predict_one(dict(enumerate(place))) not in known:
            return first + 50 - before
    return None


def occupancy_rows(folder: Path) -> tuple[list[datetime], np.ndarray, np.ndarray]:
    """Times, sensors and whether somebody was in the room."""
    with gzip.open(folder / "occupancy.csv.gz", "rt") as lines:
        rows = list(csv.DictReader(lines))
    values = np.array([[float(row[name]) for name in FEATURES] for row in rows])
    return (
        [datetime.fromisoformat(row["date"]) for row in rows], values,
        np.array([int(row["Occupancy"]) for row in rows]),
    )  # fmt: skip


def occupancy_table(folder: Path, picture: Path | None, river_events: int) -> None:
    times, rows, occupied = occupancy_rows(folder)
    print(f"\nA room's sensors in their own order, {len(rows):,} events, D = {rows.shape[1]}")
    stream = Stream(rows, occupied, len(rows) // 10, np.nan)
    outcome, model = learn(stream)
    mixed = np.random.default_rng(0).permutation(len(rows))
    twin, other = learn(Stream(rows[mixed], occupied[mixed], stream.late))
    for name, found, told in (("as it came", outcome, model), ("shuffled", twin, other)):
        kinds = Counter(change.kind for change in told.events)
        print(
            f"  {name}: {1000 * kinds.total() / len(rows):.2f} lifecycle events per 1,000 "
            f"({', '.join(f'{kind} {number}' for kind, number in sorted(kinds.items()))}), "
            f"K {found.k} ({found.k_least} to {found.k_most} late), an event worth {span(list(found.worth), 4)}, "
            f"{found.micros:.1f} µs, ARI with occupancy {found.ari:.3f}",
            flush=True,
        )
    for name, makers in peers(2).items() if river_events else ():
        scaled = stream._replace(rows=(rows - rows[:100].mean(axis=0)) / rows.std(axis=0))
        ari, ids, micros = best(makers, scaled, river_events)
        print(f"    first {river_events:,}: {name} ARI {ari:.3f}, {ids} ids, {micros:.0f} µs", flush=True)
    for line in described(model, outcome.told, times, rows, occupied):
        print(f"  {line}")
    if picture is not None:
        draw_days(model, times, picture)


def described(
    model: StreamClusterer, told: np.ndarray, times: list[datetime], rows: np.ndarray, occupied: np.ndarray
) -> Iterator[str]:
    """A line for each id between two lifecycle events, of the events that were given it then, if they are enough.

    Ids are those told at the time: a cluster whose id changes its meaning shows.
    """
    ends = [*sorted({change.at for change in model.events}), len(rows)]
    for first, last in itertools.pairwise(ends):
        for number, of in Counter(told[first:last].tolist()).most_common():
            own = first + np.flatnonzero(told[first:last] == number)
            if of < MIN_DESCRIBED_EVENTS or number < 0:
                continue
            means = ", ".join(
                f"{name} {value:.1f}" for name, value in zip(FEATURES, rows[own].mean(axis=0), strict=True)
            )
            yield (
                f"{times[first]:%d %b %H:%M} to {times[last - 1]:%d %b %H:%M}, cluster {number}: "
                f"{of:,} minutes, {means}, occupied {occupied[own].mean():.0%}"
            )


def draw_days(model: StreamClusterer, times: list[datetime], picture: Path) -> None:
    """The river plot with midnights on its axis."""
    ax = model.lineage.plot()
    days = [i for i in range(1, len(times)) if times[i].date() != times[i - 1].date()]
    ax.set_xticks(days, [times[i].strftime("%d %b") for i in days], rotation=60)
    ax.set_xlabel("midnights")
    assert ax.figure is not None
    ax.figure.set_size_inches(12, 5)
    ax.figure.savefig(picture, dpi=100, bbox_inches="tight")
    print(f"  drawn: {picture}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["wander", "repeats", "runs", "shifts", "births", "occupancy"]
    parser.add_argument("--only", nargs="*", choices=names)
    parser.add_argument("--quick", action="store_true", help="one seed, fewer and shorter streams")
    parser.add_argument(
        "--grid", action="store_true", help="wander: every correlation time for every K and D"
    )
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--seeds", type=int, help="streams of each kind (default: 3; quick: 1)")
    parser.add_argument("--events", type=int, help="events of a stream (default: 40,000; quick: 20,000)")
    parser.add_argument(
        "--shift-events", type=int, help="the longest stream of shifts (default: 400,000; quick: 40,000)"
    )
    parser.add_argument("--river-events", type=int, help="events for River's (default: 6,000; quick: 3,000)")
    parser.add_argument("--refit", choices=("bkm", "chunky-em", "dp-means"), default="bkm")
    parser.add_argument("--data", type=Path, help="folder of occupancy.csv.gz")
    parser.add_argument("--picture", type=Path, help="file for the river plot of occupancy")
    a = parser.parse_args()

    def or_else(given: int | None, full: int, quick: int) -> int:
        return given if given is not None else quick if a.quick else full

    OURS["refit"] = a.refit
    seeds = range(a.first, a.first + or_else(a.seeds, 3, 1))
    n, river = or_else(a.events, 40_000, 20_000), or_else(a.river_events, 6000, 3000)
    tables: dict[str, Callable[[], None]] = {
        "wander": lambda: wander_table(seeds, n, a.quick, a.grid, river),
        "repeats": lambda: repeats_table(seeds, n, river),
        "runs": lambda: runs_table(seeds, n, river),
        "shifts": lambda: shifts_table(seeds, or_else(a.shift_events, 400_000, 40_000)),
        "births": lambda: births_table(seeds, n),
    }
    if a.data is not None:
        tables["occupancy"] = lambda: occupancy_table(a.data, a.picture, river)
    elif a.only and "occupancy" in a.only:
        parser.error("occupancy needs --data DIR")
    warnings.simplefilter("ignore")
    StreamClusterer().learn_many(wander(0, 20_000, 5, 2, 0).rows)  # compiled
    for name, table in tables.items():
        if not a.only or name in a.only:
            start = process_time(), perf_counter()
            table()
            cpu, wall = process_time() - start[0], perf_counter() - start[1]
            print(f"  this table: {cpu:.1f} CPU s, {wall:.1f} s by the clock", flush=True)


if __name__ == "__main__":
    main()
