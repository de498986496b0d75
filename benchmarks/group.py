"""A consumer group with its state and one model in Kafka: three processes against one, and what that traffic costs.

The same topic of six partitions is read from its beginning by one process and by three, with their state in Kafka and,
for the cost of that traffic, by one that keeps its state in a directory and by one that writes its state each second.
Throughput is that of the whole group, by the clock, and CPU time that of all its processes, from when all of them learn
to the last event. On a machine of few cores the broker shares them: CPU time tells more than the clock.

The cost of state and model traffic is measured on its own as well, since at an interval of 10 s it is lost in the
noise of a run: the CPU time to export and pack one partition's summary, for the leader to take in all of them, to merge
them for its model and to pack it, and for three processes to follow it; as a share of one core at that interval.
Refits, which one process alone would make too, are apart.

Last, an eighth more events are written, one process and three go on from their state and their model, and their answers
are compared: each with the model of its version, their number of clusters, the adjusted Rand index of what both have
told by a model, and of all events by their last models. And a summary of about 2 MB is taken over.

    python benchmarks/group.py                                      300,000 events, D = 2, K = 12
    python benchmarks/group.py --quick                              60,000 events
    python benchmarks/group.py --only-traffic --partitions 48       what a larger group's states and models cost
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import psutil
from sklearn.metrics import adjusted_rand_score

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from streamclust import StreamClusterer  # noqa: E402
from streamclust.checkpoint import model_in, shard_in  # noqa: E402
from streamclust.engine.model import Model  # noqa: E402
from streamclust_connectors.kafka.group_model import MODEL  # noqa: E402
from streamclust_connectors.kafka.state_log import StateLog  # noqa: E402
from streamclust_connectors.kafka.state_records import Assembler, StoredState, packed, parts  # noqa: E402
from streamclust_connectors.kafka.state_topic import STATE  # noqa: E402
from streamclust_connectors.kafka.topics import model_topic  # noqa: E402
from tests.connectors.broker import find_broker  # noqa: E402
from tests.connectors.cluster import Cluster, Process, events, until  # noqa: E402

PARTITIONS, MEMBERS = 6, 3
INTERVAL = 10.0
"""Seconds between two states, and between two models."""
KINDS: dict[str, tuple[int, float | None]] = {
    "one, directory": (1, None),
    "one, Kafka": (1, INTERVAL),
    "one, Kafka, each second": (1, 1.0),
    "three, Kafka": (3, INTERVAL),
}
"""How many processes, and seconds between two states in Kafka."""


@dataclass
class Run:
    """What a group of so many processes did with the topic."""

    group: str
    out: str
    """Its topic of assignments."""
    members: int
    every: float | None
    rate: float = 0.0
    """Events a second, from when all processes learn to the last event."""
    cpu: float = 0.0
    """CPU seconds of all processes for each million of those events."""
    seconds: float = 0.0
    kilobytes: float = 0.0
    """Sent as states and models."""


def started(cluster: Cluster, topic: str, run: Run, directory: Path) -> list[Process]:
    """Start the processes of a run."""
    told = {
        "topics": {"assignments": run.out},
        "delivery": "exactly-once",
        "static": False,
        "group": run.group,
    }
    told |= {"policy": {"checkpoint_every": run.every or INTERVAL}, "model_every": run.every}
    place = directory / run.group
    place.mkdir(exist_ok=True)
    if run.every is None:
        return [cluster.serve(topic, place / "state", **told) for _ in range(run.members)]
    return [cluster.join(topic, place, **told) for _ in range(run.members)]


def learnt(found: list[Process]) -> int:
    """How many events the processes have learnt, from the topic's beginning."""
    held: dict[str, int] = {}
    for one in found:
        for partition, at in (one.stats() or {}).get("positions", {}).items():
            held[partition] = max(at, held.get(partition, 0))
    return sum(held.values())


def finish(cluster: Cluster, topic: str, run: Run, found: list[Process], n: int) -> None:
    """Wait for a model of all events, and stop."""
    if run.every is not None:
        until("a model of all", lambda: published(cluster, topic, run.group)[1].n_seen == n)
    for one in found:
        one.stop()


def measured(cluster: Cluster, topic: str, n: int, members: int, directory: Path, every: float | None) -> Run:
    """Read the topic by so many processes; states and models go out at this interval, or to a directory."""
    name = f"{members}-{every or 'directory'}"
    run = Run(f"{cluster.name}-{name}", cluster.topic(f"out-{name}", PARTITIONS), members, every)
    found = started(cluster, topic, run, directory)

    def cpu() -> float:
        return sum(sum(psutil.Process(one.process.pid).cpu_times()[:2]) for one in found)

    until("all to learn", lambda: all((one.stats() or {}).get("messages") for one in found))
    began, before, already = time.perf_counter(), cpu(), learnt(found)
    until("all to be told", lambda: learnt(found) == n)
    run.seconds, used = time.perf_counter() - began, cpu() - before
    run.kilobytes = sum((one.stats() or {}).get("bytes", 0) for one in found) / 1000
    finish(cluster, topic, run, found, n)
    events = n - already
    run.rate, run.cpu = events / run.seconds, 1e6 * used / events
    return run


@dataclass
class Traffic:
    """CPU seconds and bytes of one interval of a group."""

    pack: float
    """To export and pack one partition's summary."""
    size: int
    read: float
    """For the leader to read and take in all summaries, and to merge and pack its model."""
    follow: float
    """For one process to read and follow a model."""
    refit: float
    """For the leader to merge and refit."""
    model: int


def traffic(d: int, n: int, seed: int, partitions: int) -> Traffic:
    """What one interval costs, the last of four; the first compiles, and finds the clusters."""
    rows = [events(n, seed=seed + number, d=d)[1] for number in range(partitions)]
    names = [f"x{i}" for i in range(d)]
    members = [StreamClusterer() for _ in range(partitions)]
    leader = StreamClusterer()
    for phase in range(4):
        bodies, pack = [], 0.0
        for number, member in enumerate(members):
            part = np.array_split(rows[number], 4)[phase]
            member.sharing.follow(None if leader.model is None else leader.sharing.merged_state())
            member.learn_many([dict(zip(names, row, strict=True)) for row in part.tolist()], shard=number)
            start = process_time()
            summary = shard_in(member.to_state(), number)
            assert summary is not None
            bodies.append(packed(summary))
            pack += (process_time() - start) / partitions
        start = process_time()
        for number, body in enumerate(bodies):
            leader.shards.replace(number, StoredState("state", "", body).state())
        read = process_time() - start
        leader.sharing.catch_up()
        refit = process_time() - start - read
        model = packed(leader.sharing.merged_state())
        read = process_time() - start - refit
        start = process_time()
        members[0].sharing.follow(StoredState("model", "", model).state())
        follow = process_time() - start
    return Traffic(pack, len(bodies[0]), read, follow, refit, len(model))


def compare(cluster: Cluster, topic: str, runs: list[Run], rows: list[np.ndarray]) -> None:
    """Print how far the answers of one process and of three agree, and whether each has counted and told all once."""
    last, told = [], []
    for run in runs:
        models, clusterer = published(cluster, topic, run.group)
        answers = cluster.values(run.out)
        labels = {version: [model.predict(part) for part in rows] for version, model in models.items()}
        wrong = compared = 0
        for one in answers:
            number, offset = map(int, one["id"].split("-")[-2:])
            version = one["version"]
            compared += version is not None
            wrong += version is not None and one["cluster"] != labels[version][number][offset]
        told.append({one["id"]: one["cluster"] for one in answers})
        last.append(clusterer)
        every = np.concatenate(rows)
        exact = clusterer.tree.total.weight[0] == len(every) == clusterer.n_seen
        near = np.allclose(clusterer.tree.total.mean[0], every.mean(axis=0), rtol=1e-9)
        print(
            f"{run.group.partition('-')[2]}: {len(answers):,} assignments of {len(told[-1]):,} events, {len(models)} "
            f"models, {wrong} of {compared:,} assignments by a model are not that model's; "
            f"{clusterer.n_clusters} clusters; totals {'exact' if exact and near else 'WRONG'}",
            flush=True,
        )
    both = [i for i in told[0] if told[0][i] is not None and told[1][i] is not None]
    early = adjusted_rand_score(*([run[i] for i in both] for run in told))
    agreed = adjusted_rand_score(*(model.predict_many(every).astype(int) for model in last))
    print(
        f"ARI between the runs: {early:.4f} of {len(both):,} events told by a model in both, {agreed:.4f} of all by "
        "the last models",
        flush=True,
    )


def published(cluster: Cluster, topic: str, group: str) -> tuple[dict[int, Model], StreamClusterer]:
    """Every model that a group has published, by version, and its clusterer as it was last."""
    assembler, found, latest = Assembler(group, "models"), {}, StreamClusterer().to_state()
    for record in cluster.read(model_topic(topic)):
        whole = assembler.add(record)
        if whole is not None and whole.name == MODEL:
            latest = whole.state()
            model = model_in(latest)
            found[model.version] = model
    return found, StreamClusterer.from_state(latest)


def takeover(cluster: Cluster, d: int = 12, generations: int = 20) -> None:
    """Print how long a new owner takes to read and adopt the latest of many generations of a summary."""
    topic, learner = cluster.topic("takeover"), StreamClusterer()
    learner.learn_many(events(20_000, d=d)[1], shard=0)
    body = packed(learner.shards.export(0))
    for _ in range(generations):
        for value, key, headers, _ in parts("g", STATE, body, 900_000):
            cluster.producer.send(topic, value, key, list(headers), 0)
    cluster.producer.flush()
    times = []
    for _ in range(5):
        log, owner = StateLog(topic, "g", cluster.options), StreamClusterer()
        start = time.perf_counter()
        owner.shards.adopt(0, log.newest(0, STATE)[STATE].state())
        times.append(time.perf_counter() - start)
        assert owner.shards.n_seen == learner.shards.n_seen
        log.close()
    print(
        f"a new owner takes over {len(body) / 1e6:.2f} MB (D = {d}) in {min(times):.2f} to {max(times):.2f} s, "
        "connecting included"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--quick", action="store_true", help="60,000 events")
    parser.add_argument(
        "--only-traffic", action="store_true", help="no broker: the cost of states and models alone"
    )
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="of which traffic is measured")
    parser.add_argument("--clusters", type=int, default=12)
    parser.add_argument(
        "--features", type=int, nargs="*", default=[2, 8, 20], help="of which traffic is measured"
    )
    args = parser.parse_args()
    n, k, of = 60_000 if args.quick else args.events, args.clusters, args.partitions
    for d in args.features:
        costs = [traffic(d, 20_000, seed, of) for seed in range(3)]
        shares = sorted(
            100 * (of * cost.pack + cost.read + MEMBERS * cost.follow) / INTERVAL for cost in costs
        )
        refits = sorted(100 * cost.refit / INTERVAL for cost in costs)
        one = costs[0]
        print(
            f"D = {d:2}, {of} partitions: a summary of {one.size / 1000:5.0f} kB in {1000 * one.pack:5.1f} ms; the "
            f"leader reads and writes for {1000 * one.read:6.1f} ms, its model of {one.model / 1000:5.0f} kB, which "
            f"is followed in {1000 * one.follow:5.1f} ms; at {INTERVAL:g} s states and models take {shares[1]:.1f}% "
            f"of a core ({shares[0]:.1f} to {shares[2]:.1f}), refits {refits[0]:.1f} to {refits[2]:.1f}%",
            flush=True,
        )
    if args.only_traffic:
        return
    with tempfile.TemporaryDirectory() as directory:
        broker = find_broker(Path(directory) / "broker", fast_start=False).start()
        try:
            with Cluster(broker.address, "confluent") as cluster:
                topic = cluster.topic("in", PARTITIONS)
                for number in range(PARTITIONS):
                    cluster.write(topic, events(n // PARTITIONS, seed=number, k=k)[0], number)
                runs = []
                for kind, (members, every) in KINDS.items():
                    run = measured(cluster, topic, n, members, Path(directory), every)
                    runs.append(run)
                    print(
                        f"{kind:26}{run.rate:10,.0f} events/s by the clock, {run.cpu:5.1f} CPU s a million, "
                        f"{run.seconds:5.1f} s, {run.kilobytes:8,.0f} kB of states and models",
                        flush=True,
                    )
                rows = [events(n // PARTITIONS, seed=number, k=k)[1] for number in range(PARTITIONS)]
                for number in range(PARTITIONS):
                    values, more = events(n // 8 // PARTITIONS, seed=100 + number, k=k)
                    cluster.write(topic, values, number)
                    rows[number] = np.concatenate([rows[number], more])
                for run in (runs[1], runs[-1]):
                    found = started(cluster, topic, run, Path(directory))
                    until("all to be told", lambda f=found: learnt(f) == sum(map(len, rows)))
                    finish(cluster, topic, run, found, sum(map(len, rows)))
                compare(cluster, topic, [runs[1], runs[-1]], rows)
                takeover(cluster)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
