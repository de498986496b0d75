"""The service on Kafka, beside a consumer that only decodes and one that feeds River's KMeans, on one broker.

All read the same topic of one partition from its beginning, each in a process of its own, one after the other, and
are timed from their first record to their last. "emit" sends assignments 100 to a message, "emit singly" each in
one of its own, "exactly-once" 100 to a message in transactions. The order changes from repeat to repeat; rates are
medians. The broker is Apache Kafka on this machine (see tests/connectors/broker), and shares its cores with whoever
is measured.

    python benchmarks/kafka_throughput.py               400,000 events, D = 8, 5 repeats
    python benchmarks/kafka_throughput.py --quick       100,000 events, 3 repeats
    python benchmarks/kafka_throughput.py --fuzz        a million messages of rubbish and events, in memory
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.connectors.broker import find_broker  # noqa: E402
from tests.connectors.cluster import Cluster  # noqa: E402
from tests.connectors.fuzz import fuzz  # noqa: E402

KINDS = ("bare", "learn", "emit", "emit singly", "exactly-once", "river")
BUNDLE = 100
SHARE = {"learn": 0.8, "emit": 0.5}
"""What the service should keep of the bare consumer's rate."""


def bare(address: str, topic: str, n: int, each) -> dict[str, float]:  # noqa: ANN001
    """A consumer that decodes each record and hands it on."""
    import msgspec
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=address, enable_auto_commit=False, auto_offset_reset="earliest",
        max_poll_records=10_000, max_partition_fetch_bytes=4 << 20,
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0)])
    decode = msgspec.json.Decoder(dict[str, float]).decode
    seen, start, cpu = 0, 0.0, 0.0
    while seen < n:
        for records in consumer.poll(timeout_ms=500).values():
            if not seen:
                start, cpu = perf_counter(), process_time()
            for record in records:
                each(decode(record.value))
            seen += len(records)
    found = {"rate": n / (perf_counter() - start), "cpu": (process_time() - cpu) / n}
    consumer.close()
    return found


def served(address: str, topic: str, n: int, kind: str, group: str) -> dict[str, float]:
    """The service: learning only, or also emitting each event's assignment."""
    from streamclust import StreamClusterer
    from streamclust_connectors.kafka import KafkaSink, KafkaSource
    from streamclust_connectors.service import Policy, Service
    from streamclust_connectors.shared_state import SharedState

    warm = StreamClusterer()  # kernels come from the disk before anything is timed
    warm.learn_many(np.random.default_rng(0).normal(size=(30_000, 8)))
    warm.assign_many(np.zeros((10, 8)))
    with tempfile.TemporaryDirectory() as state:
        source = KafkaSource([topic], group, address)
        topics = {} if kind == "learn" else {"assignments": f"{topic}.{group}"}
        sink = KafkaSink(source, topics, group if kind == "exactly-once" else None)
        clusterer = StreamClusterer()
        policy = Policy(poll=0.2, assignments_per_message=1 if kind == "emit singly" else BUNDLE)
        service = Service(source, sink, clusterer, SharedState(state), policy=policy)
        start = cpu = waited = idle = 0.0
        while service.stats.events < n:
            before = service.stats.events
            moment, used = perf_counter(), process_time()
            service.turn()
            if not before and service.stats.events:
                # The bare consumer is timed from when its first records have come: so is this.
                idle = service.stats.seconds["poll"]
                start, cpu = moment + idle - waited, used
            waited = service.stats.seconds.get("poll", 0.0)
        service.checkpoint()
        seconds = perf_counter() - start
        found = {"rate": n / seconds, "cpu": (process_time() - cpu) / n}
        service.stats.seconds["poll"] -= idle
        found |= {f"in {stage}": spent / n for stage, spent in service.stats.seconds.items()}
        source.close()
        sink.close()
    return found


def one(kind: str, address: str, topic: str, n: int, group: str) -> dict[str, float]:
    if kind == "bare":
        return bare(address, topic, n, lambda event: None)
    if kind == "river":
        from river import cluster

        return bare(address, topic, n, cluster.KMeans(n_clusters=8, seed=0).learn_one)
    return served(address, topic, n, kind, group)


def measure(kind: str, address: str, topic: str, n: int, group: str) -> dict[str, float]:
    """Run one consumer in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps([kind, address, topic, n, group])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{kind} failed:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(n: int, d: int, repeats: int) -> None:
    import msgspec

    from streamclust_connectors.synthetic import Mixture

    with tempfile.TemporaryDirectory() as directory:
        broker = find_broker(Path(directory) / "broker", fast_start=False).start()
        try:
            with Cluster(broker.address) as cluster:
                topic = cluster.topic()
                names = [f"x{i}" for i in range(d)]
                rows = Mixture(d, n_clusters=8, tau=3.0, seed=1).sample(n)[0].round(6).tolist()
                print(f"writing {n:,} events of {d} features", flush=True)
                cluster.write(
                    topic, [msgspec.json.encode(dict(zip(names, row, strict=True))) for row in rows]
                )
                found = defaultdict(list)
                for repeat in range(repeats):
                    order = KINDS[repeat % len(KINDS) :] + KINDS[: repeat % len(KINDS)]
                    for kind in order:
                        size = n // 8 if kind == "river" else n
                        got = measure(kind, broker.address, topic, size, f"{kind}-{repeat}".replace(" ", "-"))
                        found[kind].append(got)
                        print(f"  repeat {repeat + 1}: {kind:<14}{got['rate']:>12,.0f} events/s", flush=True)
        finally:
            broker.stop()
    report(found)


def report(found: dict[str, list[dict[str, float]]]) -> None:
    rates = {kind: [got["rate"] for got in runs] for kind, runs in found.items()}
    base, river = np.median(rates["bare"]), np.median(rates["river"])
    print(f"\n{'':<14}{'events/s':>12}{'range':>22}{'of bare':>10}{'x River':>10}{'CPU µs/event':>14}")
    for kind in KINDS:
        rate = np.median(rates[kind])
        cpu = 1e6 * np.median([got["cpu"] for got in found[kind]])
        span = f"{min(rates[kind]):,.0f} - {max(rates[kind]):,.0f}"
        print(f"{kind:<14}{rate:>12,.0f}{span:>22}{rate / base:>10.0%}{rate / river:>10.1f}{cpu:>14.1f}")
    print("\nwhere the loop spends its time, µs/event")
    for kind in KINDS[1:-1]:
        stages = {name for got in found[kind] for name in got if name.startswith("in ")}
        parts = {
            name: 1e6 * np.median([got.get(name, 0.0) for got in found[kind]]) for name in sorted(stages)
        }
        print(f"{kind:<14}" + ", ".join(f"{name[3:]} {spent:.2f}" for name, spent in parts.items()))
    for kind, share in SHARE.items():
        got = np.median(rates[kind]) / base
        print(f"{kind}: {got:.0%} of the bare rate, {share:.0%} asked for: {'yes' if got >= share else 'NO'}")
    times = np.median(rates["learn"]) / river
    print(f"learn: {times:.1f} times River's rate, 5 asked for: {'yes' if times >= 5 else 'NO'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--fuzz", action="store_true", help="a million messages, most of them rubbish")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(*json.loads(args.one))))
    elif args.fuzz:
        start = perf_counter()
        seen = fuzz(20_000 if args.quick else 1_000_000, seed=1, tell=print)
        print(
            f"{seen} in {perf_counter() - start:.0f} s: no crash, every bad message told, totals those of the good"
        )
    elif args.quick:
        compare(100_000, args.features, 3)
    else:
        compare(args.events, args.features, args.repeats)


if __name__ == "__main__":
    main()
