"""The service on Kafka, beside a consumer that only decodes and one that feeds River's KMeans, on one broker.

All read the same topic of one partition from its beginning, each in a process of its own, one after the other, and
are timed from their first records to their last, by the clock and by the CPU time of the process, which others on the
machine disturb less. The order changes from repeat to repeat; figures are medians. There are two topics: an event to a
message, and many, where all share what a message costs.

    bare          kafka-python's consumer and msgspec, nothing else
    learn         the service, learning only
    emit          the service, which also sends the assignment of each event in a message of its own
    emit 100      the same, 100 assignments to a message
    exactly-once  as emit, in transactions
    river         the bare consumer, each event learnt by River's KMeans

The service is measured with either client: kafka-python, the default, and confluent-kafka (`/confluent`).
Last, a service is stopped and started again, until it has learnt the first event from where it was.
The broker is Apache Kafka on this machine (see tests/connectors/broker), and shares its cores with whoever is measured.

    python benchmarks/kafka_throughput.py               400,000 events, D = 8, 5 repeats
    python benchmarks/kafka_throughput.py --quick       100,000 events, 3 repeats
    python benchmarks/kafka_throughput.py --fuzz        a million messages of rubbish and events, in memory
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from time import clock_gettime, perf_counter, process_time, pthread_getcpuclockid, thread_time

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from streamclust_connectors.service.stats import Stats  # noqa: E402
from tests.connectors.broker import find_broker  # noqa: E402
from tests.connectors.cluster import Cluster  # noqa: E402
from tests.connectors.fuzz import fuzz  # noqa: E402

CONFLUENT = "/confluent"
"""Ends the name of a service that uses confluent-kafka."""


def with_both_clients(*kinds: str) -> tuple[str, ...]:
    """The bare consumer, services with either client, River."""
    return ("bare", *kinds, *(kind + CONFLUENT for kind in kinds), "river")


ONE = with_both_clients("learn", "emit", "emit 100", "exactly-once")
MANY = with_both_clients("learn", "emit 100")
PER_MESSAGE = 100
ASKED = {"learn": 0.8, "emit": 0.5, "emit 100": 0.5}
"""What the service should keep of the bare consumer's rate."""
TIMES = 5.0
"""How many times River's rate it should reach."""
RESTART = 3.0
"""Seconds in which a service should be at work again."""


class Stopwatch:
    """Time since it was made: by the clock, of the process, of this thread and of the client's own threads."""

    def __init__(self) -> None:
        self.start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float, float]:
        clients = [thread.ident for thread in threading.enumerate() if thread.name.startswith("kafka")]
        theirs = sum(clock_gettime(pthread_getcpuclockid(ident)) for ident in clients if ident is not None)
        return perf_counter(), process_time(), thread_time(), theirs + native_threads()

    def read(self, n: int) -> dict[str, float]:
        """Events a second, and seconds of CPU for each."""
        wall, cpu, loop, client = (now - then for now, then in zip(self._now(), self.start, strict=True))
        return {"rate": n / wall, "cpu": cpu / n, "loop": loop / n, "client": client / n}


def native_threads() -> float:
    """CPU seconds of librdkafka's threads, where the system tells."""
    ticks = 0
    for task in Path("/proc/self/task").glob("*/stat"):
        name, _, fields = task.read_text().partition("(")[2].rpartition(")")
        if name.startswith("rdk:"):
            ticks += sum(map(int, fields.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Split(Stats):
    """Stages by the CPU time of the loop's thread."""

    @contextmanager
    def timed(self, stage: str):  # noqa: ANN201, D102
        start = thread_time()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + thread_time() - start


def bare(address: str, topic: str, n: int, each) -> dict[str, float]:  # noqa: ANN001
    """A consumer that decodes each record and hands its events on."""
    import msgspec
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=address, enable_auto_commit=False, auto_offset_reset="earliest",
        max_poll_records=10_000, max_partition_fetch_bytes=4 << 20,
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0)])
    event = dict[str, float]
    decode = msgspec.json.Decoder(event | list[event]).decode
    seen, watch = 0, None
    while seen < n:
        for records in consumer.poll(timeout_ms=500).values():
            watch = watch or Stopwatch()
            for record in records:
                found = decode(record.value)
                if type(found) is list:
                    for one in found:
                        each(one)
                    seen += len(found)
                else:
                    each(found)
                    seen += 1
    found = watch.read(n)
    consumer.close()
    return found


def create(address: str, topic: str) -> None:
    """Create a topic of one partition."""
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()


def served(address: str, topic: str, n: int, kind: str, group: str) -> dict[str, float]:
    """The service."""
    from streamclust import StreamClusterer
    from streamclust_connectors.kafka import KafkaSink, source_type
    from streamclust_connectors.service import Policy, Service
    from streamclust_connectors.service.outputs import AssignmentForm
    from streamclust_connectors.state_directory import StateDirectory

    warm = StreamClusterer()  # kernels come from the disk before anything is timed
    warm.learn_many(np.random.default_rng(0).normal(size=(30_000, 8)))
    warm.assign_many(np.zeros((10, 8)))
    with tempfile.TemporaryDirectory() as state:
        client = "confluent" if kind.endswith(CONFLUENT) else "kafka-python"
        kind = kind.removesuffix(CONFLUENT)
        source = source_type(client)([topic], group, address)
        topics = {} if kind == "learn" else {"assignments": f"{topic}.{group}"}
        for name in topics.values():  # a transaction cannot wait for the broker to create it
            create(address, name)
        sink = KafkaSink(source, topics, group if kind == "exactly-once" else None)
        policy = Policy(poll=0.2, form=AssignmentForm(100 if kind == "emit 100" else 1))
        service = Service(source, sink, StreamClusterer(), StateDirectory(state), policy=policy)
        service.stats = Split()
        gc.freeze()  # as `streamclust run` does
        poll, watch = source.poll, None

        def timed_poll(seconds: float):  # noqa: ANN202
            """From the first records on, as for the bare consumer."""
            nonlocal watch
            found = poll(seconds)
            if watch is None and any(hasattr(event, "records") for event in found):
                watch = Stopwatch()
            return found

        source.poll = timed_poll  # type: ignore[method-assign]
        while watch is None:
            service.stats.seconds.clear()
            service.run_once()
        service.stats.seconds.pop("poll")
        while service.stats.events < n:
            service.run_once()
        service.checkpoint()
        found = watch.read(n)
        found |= {f"in {stage}": spent / n for stage, spent in service.stats.seconds.items()}
        source.close()
        sink.close()
    return found


def one(kind: str, address: str, topic: str, n: int, group: str) -> dict[str, float]:
    """Measure one of them, in this process."""
    if kind == "bare":
        return bare(address, topic, n, lambda event: None)
    if kind == "river":
        from river import cluster

        return bare(address, topic, n, cluster.KMeans(n_clusters=8, seed=0).learn_one)
    return served(address, topic, n, kind, group)


def measure(kind: str, address: str, topic: str, n: int, group: str) -> dict[str, float]:
    """Measure one of them, in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps([kind, address, topic, n, group])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{kind} failed:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(n: int, d: int, repeats: int) -> None:
    """Write the topics, measure, report."""
    import msgspec

    from streamclust_connectors.synthetic import SyntheticMixture

    with tempfile.TemporaryDirectory() as directory:
        broker = find_broker(Path(directory) / "broker", fast_start=False).start()
        try:
            with Cluster(broker.address) as cluster:
                names = [f"x{i}" for i in range(d)]
                rows = SyntheticMixture(d, n_clusters=8, tau=3.0, seed=1).sample(n)[0].round(6).tolist()
                events = [dict(zip(names, row, strict=True)) for row in rows]
                print(f"writing {n:,} events of {d} features, twice", flush=True)
                single, many = cluster.topic("single"), cluster.topic("many")
                cluster.write(single, map(msgspec.json.encode, events))
                parts = (events[i : i + PER_MESSAGE] for i in range(0, n, PER_MESSAGE))
                cluster.write(many, map(msgspec.json.encode, parts))
                for topic, kinds, asked, what in (
                    (single, ONE, ASKED, "one event to a message"),
                    (many, MANY, {}, f"{PER_MESSAGE} events to a message"),
                ):
                    print(f"\n{what}", flush=True)
                    report(kinds, contest(kinds, broker.address, topic, n, repeats), asked)
                restarts(broker.address, single, Path(directory) / "state", repeats)
        finally:
            broker.stop()


def contest(
    kinds: tuple[str, ...], address: str, topic: str, n: int, repeats: int
) -> dict[str, list[dict[str, float]]]:
    """Measure all, in turn, several times."""
    found = defaultdict(list)
    for repeat in range(repeats):
        first = repeat % len(kinds)
        for kind in kinds[first:] + kinds[:first]:
            size = n // 8 if kind == "river" else n
            got = measure(
                kind,
                address,
                topic,
                size,
                f"{kind}-{repeat}-{len(kinds)}".translate(str.maketrans(" /", "--")),
            )
            found[kind].append(got)
            print(
                f"  repeat {repeat + 1}: {kind:<24}{got['rate']:>10,.0f} events/s, {1e6 * got['cpu']:.1f} µs of CPU"
                f" each, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    return found


def report(kinds: tuple[str, ...], found: dict[str, list[dict[str, float]]], asked: dict[str, float]) -> None:
    """Rates, CPU time, what was asked for."""
    rate = {kind: np.median([got["rate"] for got in found[kind]]) for kind in kinds}
    cpu = {kind: np.median([got["cpu"] for got in found[kind]]) for kind in kinds}
    print(f"\n{'':<24}{'':>10}{'by the clock':^34}   {'by CPU time':^42}")
    print(
        f"{'':<24}{'events/s':>10}{'range':>18}{'of bare':>8}{'x River':>8}   "
        f"{'µs/event':>8}{'range':>14}{'of bare':>10}{'x River':>10}"
    )
    for kind in kinds:
        rates, spent = ([got[name] for got in found[kind]] for name in ("rate", "cpu"))
        print(
            f"{kind:<24}{rate[kind]:>10,.0f}{f'{min(rates):,.0f} - {max(rates):,.0f}':>18}"
            f"{rate[kind] / rate['bare']:>8.0%}{rate[kind] / rate['river']:>8.1f}   "
            f"{1e6 * cpu[kind]:>8.1f}{f'{1e6 * min(spent):.1f} - {1e6 * max(spent):.1f}':>14}"
            f"{cpu['bare'] / cpu[kind]:>10.0%}{cpu['river'] / cpu[kind]:>10.1f}"
        )
    print(
        "\nCPU time by stage, µs/event; client: its calls from the loop and its threads; refit: threads of ours"
    )
    for kind in kinds:
        if kind in ("bare", "river"):
            continue
        middle = {
            name: 1e6 * np.median([got.get(name, 0.0) for got in found[kind]])
            for name in sorted({name for got in found[kind] for name in got})
        }
        stages = {"client": middle.pop("in poll", 0.0) + middle["client"]}
        stages |= {name[3:]: spent for name, spent in middle.items() if name.startswith("in ")}
        stages["refit"] = middle["cpu"] - middle["loop"] - middle["client"]
        print(f"{kind:<24}" + ", ".join(f"{name} {spent:.2f}" for name, spent in stages.items()))
    for kind, share in [(kind + end, share) for end in ("", CONFLUENT) for kind, share in asked.items()]:
        wall, time = rate[kind] / rate["bare"], cpu["bare"] / cpu[kind]
        verdict = "yes" if wall >= share else "NO"
        print(f"{kind}: {wall:.0%} of the bare rate ({time:.0%} by CPU), {share:.0%} asked for: {verdict}")
    for kind in kinds:
        if kind + CONFLUENT in kinds:
            print(
                f"{kind}: kafka-python takes {cpu[kind] / cpu[kind + CONFLUENT]:.1f} times confluent's CPU time"
            )
    times, by_cpu = rate["learn"] / rate["river"], cpu["river"] / cpu["learn"]
    verdict = "yes" if times >= TIMES else "NO"
    print(f"learn: {times:.1f} times River's rate ({by_cpu:.1f} by CPU), {TIMES:.0f} asked for: {verdict}")


def restarts(address: str, topic: str, state: Path, repeats: int) -> None:
    """From the start of the command to the first event learnt, after a checkpoint was found."""
    command = [
        str(Path(sys.executable).with_name("streamclust")), "run", "--topic", topic, "--bootstrap-servers", address,
        "--group", "restarted", "--output", "-", "--state", str(state), "--log-level", "error",
        "--set", "kafka.group_instance_id=one", "--set", "kafka.max_poll_records=2000",
    ]  # fmt: skip
    print("\nrestart from a checkpoint to the first event learnt", flush=True)
    found = []
    for repeat in range(repeats + 1):
        start, spent = perf_counter(), children()
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        process.stdout.readline()  # an event's assignment comes out when it is learnt
        seconds = perf_counter() - start
        process.terminate()
        process.stdout.read()
        process.wait()
        if repeat:  # the first one had no checkpoint
            found.append(seconds)
            print(
                f"  {seconds:.2f} s; {children() - spent:.2f} s of CPU until stopped, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    verdict = "yes" if np.median(found) < RESTART else "NO"
    print(
        f"restart: {np.median(found):.2f} s ({min(found):.2f} - {max(found):.2f}), {RESTART:.0f} asked for: {verdict}"
    )


def children() -> float:
    """CPU seconds of the processes started here that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
