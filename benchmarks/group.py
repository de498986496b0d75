"""A consumer group with its state and one model in Kafka: three processes against one, and what that traffic costs.

The same topic of six partitions is read from its beginning by one process and by three, with their state in Kafka and,
for the cost of that traffic, by one that keeps its state in a directory. Throughput is that of the whole group, by the
clock; CPU time is that of all its processes until the last event is told. On a machine of few cores the broker and the
producers of the figures share them: CPU time tells more than the clock.

The cost of state and model traffic is measured on its own as well, since at an interval of 10 s it is lost in the
noise of a run: the CPU time to export, pack and send one partition's summary, and for the leader to read, merge, refit
and publish all of them; as a share of one core at that interval.

Last, the answers of one process and of three are compared (their number of clusters, and the adjusted Rand index of
what both have told by a model, and of all events by their last models), and a summary of about 1 MB is taken over.

    python benchmarks/group.py                                      300,000 events, D = 2, K = 12
    python benchmarks/group.py --quick                              60,000 events
    python benchmarks/group.py --only-traffic --partitions 48       what a larger group's states and models cost
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from time import process_time

import numpy as np
import psutil
from sklearn.metrics import adjusted_rand_score

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from streamclust import StreamClusterer  # noqa: E402
from streamclust.checkpoint import model_in, shard_in  # noqa: E402
from streamclust_connectors.kafka.group_model import MODEL  # noqa: E402
from streamclust_connectors.kafka.parts import Whole, packed, parts  # noqa: E402
from streamclust_connectors.kafka.state_log import StateLog  # noqa: E402
from streamclust_connectors.kafka.state_topic import STATE  # noqa: E402
from streamclust_connectors.kafka.topics import model_topic  # noqa: E402
from tests.connectors.broker import find_broker  # noqa: E402
from tests.connectors.cluster import Cluster, events, until  # noqa: E402

PARTITIONS = 6
INTERVAL = 10.0
"""Seconds between two states, and between two models."""


def measured(
    cluster: Cluster, topic: str, n: int, members: int, directory: Path, kafka: bool
) -> tuple[dict[str, float], dict[str, int | None]]:
    """Read the topic by so many processes: events a second, CPU seconds of all of them, and what they have told."""
    name = f"{members}-{kafka}"
    out = cluster.topic(f"assignments-{name}", PARTITIONS)
    told = {
        "topics": {"assignments": out},
        "policy": {"checkpoint_every": INTERVAL},
        "delivery": "exactly-once",
    }
    told |= {"model_every": INTERVAL, "static": False, "group": f"{cluster.name}-{name}"}
    place = directory / name
    place.mkdir()
    start = time.perf_counter()
    if kafka:
        found = [cluster.join(topic, place, **told) for _ in range(members)]
    else:
        found = [cluster.serve(topic, place / "state", **told) for _ in range(members)]
    until("a beginning", lambda: any((one.stats() or {}).get("messages") for one in found))
    began = time.perf_counter()

    def learnt() -> int:
        held: dict[str, int] = {}
        for one in found:
            for partition, at in (one.stats() or {}).get("positions", {}).items():
                held[partition] = max(at, held.get(partition, 0))
        return sum(held.values())

    until("all to be told", lambda: learnt() == n)
    seconds = time.perf_counter() - began
    cpu = sum(sum(psutil.Process(one.process.pid).cpu_times()[:2]) for one in found)
    for one in found:
        one.stop()
    found_by_id = {one["id"]: one["cluster"] for one in cluster.values(out)} if kafka else {}
    return {"events/s": n / seconds, "CPU s": cpu, "started after s": began - start}, found_by_id


def traffic(d: int, n: int, seed: int, partitions: int) -> tuple[float, float, float, float]:
    """CPU seconds to pack a partition's summary, bytes of it, CPU seconds of the leader, bytes of its model."""
    rows = [events(n, seed=seed + number, d=d)[1] for number in range(partitions)]
    names = [f"x{i}" for i in range(d)]
    members = [StreamClusterer() for _ in range(partitions)]
    leader = StreamClusterer()
    lead = pack = 0.0
    size = model = 0
    for phase in range(4):  # the first compiles, and finds the clusters
        bodies = []
        for number, member in enumerate(members):
            part = np.array_split(rows[number], 4)[phase]
            member.follow(None if leader.model is None else leader.merged_state())
            member.learn_many([dict(zip(names, row, strict=True)) for row in part.tolist()], shard=number)
            start = process_time()
            summary = shard_in(member.to_state(), number)
            assert summary is not None
            bodies.append(packed(summary))
            pack = (process_time() - start) if phase else 0.0
        start = process_time()
        for number, body in enumerate(bodies):
            leader.replace_shard(number, Whole("state", "", body).state())
        leader.catch_up()
        published = packed(leader.merged_state())
        lead = process_time() - start
        size, model = len(bodies[0]), len(published)
    return pack, size, lead, model


def compare(cluster: Cluster, topic: str, told: list[dict[str, int | None]], rows: list[np.ndarray]) -> None:
    """Print how far the answers of one process and of three agree."""
    models = []
    for members in (1, 3):
        log = StateLog(model_topic(topic), f"{cluster.name}-{members}-True", cluster.options)
        models.append(model_in(log.newest(0, MODEL)[MODEL].state()))
        log.close()
    both = [i for i in told[0] if told[0][i] is not None and told[1][i] is not None]
    early = adjusted_rand_score(*([run[i] for i in both] for run in told))
    every = np.concatenate(rows)
    last = adjusted_rand_score(*(model.predict(every) for model in models))
    print(
        f"clusters: {len(models[0].names)} and {len(models[1].names)}; ARI of {len(both):,} events told by a model in "
        f"both runs {early:.4f}, of all {len(every):,} by the last models {last:.4f}",
        flush=True,
    )


def takeover(cluster: Cluster, d: int = 12, generations: int = 20) -> None:
    """Print how long a new owner takes to read and adopt the latest of many generations of a summary."""
    topic, learner = cluster.topic("takeover"), StreamClusterer()
    learner.learn_many(events(20_000, d=d)[1], shard=0)
    body = packed(learner.export_shard(0))
    for _ in range(generations):
        for value, key, headers, _ in parts("g", STATE, body, 900_000):
            cluster.producer.send(topic, value, key, list(headers), 0)
    cluster.producer.flush()
    times = []
    for _ in range(5):
        log, owner = StateLog(topic, "g", cluster.options), StreamClusterer()
        start = time.perf_counter()
        owner.adopt(0, log.newest(0, STATE)[STATE].state())
        times.append(time.perf_counter() - start)
        assert owner.n_seen == learner.n_seen
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
        pack, size, lead, model = np.median(costs, axis=0)
        shares = [100 * (of * cost[0] + cost[2]) / INTERVAL for cost in costs]
        print(
            f"D = {d:2}: a summary of {size / 1000:5.0f} kB in {1000 * pack:5.1f} ms; the leader's turn of "
            f"{of} in {1000 * lead:6.1f} ms, its model of {model / 1000:5.0f} kB; together "
            f"{np.median(shares):.1f}% of a core at {INTERVAL:g} s ({min(shares):.1f} to {max(shares):.1f})",
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
                answers: list[dict[str, int | None]] = []
                kinds = {"one, directory": (1, False), "one, Kafka": (1, True), "three, Kafka": (3, True)}
                for kind, (members, kafka) in kinds.items():
                    found, labels = measured(cluster, topic, n, members, Path(directory), kafka)
                    answers.append(labels)
                    told = "".join(f"{name} {value:12,.1f}   " for name, value in found.items())
                    print(f"{kind:16}{told}", flush=True)
                rows = [events(n // PARTITIONS, seed=number, k=k)[1] for number in range(PARTITIONS)]
                compare(cluster, topic, answers[1:], rows)
                takeover(cluster)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
