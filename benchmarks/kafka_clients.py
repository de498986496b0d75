"""What either client for Kafka costs: CPU time of a process that reads a topic, and that also sends a message for each.

Nothing is decoded or learnt. Each is measured in a process of its own, in turn.

    python benchmarks/kafka_clients.py              200,000 messages, 3 repeats
    python benchmarks/kafka_clients.py --quick      50,000 messages, 1 repeat
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.connectors.broker import find_broker
from tests.connectors.cluster import CLIENTS, Cluster

KINDS = ("read", "read and send", "in transactions")
VALUE = b'{"x0":-1.234567,"x1":2.345678,"x2":3.456789,"x3":-4.567891,"x4":5.678912,"x5":6.789123}'
ANSWER = b'{"id":"events-0-123456","cluster":3,"probability":0.99,"novelty":0.12,"version":3,"key":null}'


def one(client: str, kind: str, address: str, topic: str, n: int, group: str) -> float:
    """CPU seconds for each message, from when the first may be fetched."""
    from streamclust_connectors.interfaces import Assigned, Batch, Output
    from streamclust_connectors.kafka import KafkaSink, source_type

    source = source_type(client)([topic], group, address)
    sink = KafkaSink(source, {"assignments": f"{topic}.out"}, group if kind == KINDS[2] else None)
    start, seen = None, 0
    while seen < n:
        for event in source.poll(0.2):
            if isinstance(event, Assigned):
                for partition in event.partitions:
                    source.seek(partition, 0)
                start = process_time()  # nothing was fetched before
            elif isinstance(event, Batch):
                seen += len(event.records)
                if kind != KINDS[0]:
                    outputs = [Output(ANSWER, record.key, (), event.partition) for record in event.records]
                    sink.emit("assignments", outputs)
                    assert sink.full in (True, False)  # as the service asks, at each turn
                if kind == KINDS[2]:
                    sink.commit({event.partition: event.records[-1].offset + 1})
    sink.commit({(topic, 0): n})
    assert start is not None
    return (process_time() - start) / n


def measure(*told: object) -> float:
    """Measure one of them, in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return float(done.stdout.splitlines()[-1])


def compare(n: int, repeats: int) -> None:
    """Write a topic, measure, report."""
    with tempfile.TemporaryDirectory() as directory:
        broker = find_broker(Path(directory) / "broker", fast_start=False).start()
        try:
            with Cluster(broker.address) as cluster:
                topic = cluster.topic()
                cluster.topic("in.out")
                cluster.write(topic, [VALUE] * n, key=b"k")
                for kind in KINDS:
                    for client in CLIENTS:
                        found = [
                            1e6 * measure(client, kind, broker.address, topic, n, f"{topic}{client}{kind}{i}")
                            for i in range(repeats)
                        ]
                        print(
                            f"{kind:<16}{client:<14}{min(found):6.1f} - {max(found):.1f} µs of CPU a message, "
                            f"load {os.getloadavg()[0]:.1f}",
                            flush=True,
                        )
        finally:
            broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(one(*json.loads(args.one)), flush=True)
        os._exit(0)
    compare(50_000, 1) if args.quick else compare(200_000, 3)


if __name__ == "__main__":
    main()
