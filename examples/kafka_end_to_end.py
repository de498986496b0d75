"""Kafka end to end: events into a topic, the service beside it, and what it finds out of three topics.

Needs a broker, and pip install 'streamclust[kafka,service]'. The script makes a topic of two partitions, writes a
drifting stream to it with a few messages that are no events, runs `streamclust run` until everything is
learnt, stops it in order, and reads what it wrote: an assignment for each event, the lives of the clusters,
and the messages that were refused, with the reason. What one sees is that the sums are right, and the river
of clusters from the service's own checkpoint.

Run it: python examples/kafka_end_to_end.py --bootstrap-servers localhost:9092 [--events N] [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from streamclust import StreamClusterer
from streamclust_connectors.synthetic import Drift

COMMAND = Path(sys.executable).with_name("streamclust")
RUBBISH = [b"not json", b'{"x": "east", "y": "north"}', b"{}"]
PATIENCE = 300.0
"""Seconds to wait for the service; its first start compiles."""


def main() -> None:
    """Parse the arguments, produce, serve, consume, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--bootstrap-servers", default="localhost:9092", help="the broker (default: localhost:9092)"
    )
    parser.add_argument("--events", type=int, default=100_000, help="how many events (default: 100,000)")
    parser.add_argument("--quick", action="store_true", help="a short stream")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    arguments = parser.parse_args()
    n, servers = 20_000 if arguments.quick else arguments.events, arguments.bootstrap_servers

    topic = f"example-{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic(topic, 2, 1)])
    produce(servers, topic, n)
    print(f"wrote    {n:,} events and {len(RUBBISH)} other messages to {topic}, of two partitions")

    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        command = [COMMAND, "run", "--topic", topic, "--bootstrap-servers", servers, "--state", state]
        command += ["--set", "output.delivery=exactly-once", "--set", "checkpoint.every_seconds=1"]
        print(
            "$ "
            + " ".join(map(str, command)).replace(str(COMMAND), "streamclust").replace(str(state), "state")
        )
        model = serve(command, state, n)

    told = [json.loads(value) for value in consume(servers, f"{topic}.assignments")]
    changes = [json.loads(value) for value in consume(servers, f"{topic}.lifecycle")]
    refused = consume(servers, f"{topic}.dlq")
    print(f"learnt   {model.n_seen:,} events: {model.n_clusters} clusters")
    print(
        f"told     {len(told):,} assignments of {len({one['id'] for one in told}):,} events, {len(changes)} changes"
    )
    print(f"refused  {len(refused)} messages, which are in {topic}.dlq")
    for change in changes[-3:]:
        print(f"  {change['kind']} at event {change['at']:,}: {change['parents']} -> {change['children']}")
    admin.delete_topics([topic, f"{topic}.assignments", f"{topic}.lifecycle", f"{topic}.dlq"])
    admin.close()

    arguments.output.mkdir(parents=True, exist_ok=True)
    picture = arguments.output / "kafka_end_to_end.png"
    model.lineage.plot().figure.savefig(picture, dpi=150)
    print(f"picture  {picture}")


def produce(servers: str, topic: str, n: int) -> None:
    """Write a drifting stream, and some messages that no one can learn from."""
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=20)
    for rows, _ in Drift(n_features=2, n_events=n, seed=1).batches(5000):
        for i, (x, y) in enumerate(rows.tolist()):
            producer.send(topic, json.dumps({"x": x, "y": y}).encode(), partition=i % 2)
    for value in RUBBISH:
        producer.send(topic, value)
    producer.flush()
    producer.close()


def serve(command: list[str | Path], state: Path, n: int) -> StreamClusterer:
    """Run the service until its checkpoint holds n events, and ask it to stop; what it has learnt."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and (learnt(state) is None or learnt(state).n_seen < n):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the service has not come to the end in {PATIENCE:g} seconds")
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    if process.returncode:
        raise RuntimeError(f"the service failed: {errors.decode()[-2000:]}")
    return learnt(state)


def learnt(state: Path) -> StreamClusterer | None:
    """What the latest checkpoint holds."""
    path = max((state / "0").glob("*.checkpoint"), default=None)
    return None if path is None else StreamClusterer.load(path)


def consume(servers: str, topic: str) -> list[bytes]:
    """Every message that is committed in a topic now."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False
    )
    try:
        partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends, values = consumer.end_offsets(partitions) if partitions else {}, []
        while any(consumer.position(p) < end for p, end in ends.items()):
            values += [record.value for batch in consumer.poll(500).values() for record in batch]
        return values
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
