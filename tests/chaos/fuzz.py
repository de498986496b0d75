"""Write rubbish of every kind among good messages, and see that the service tells all of it, and learns none.

Truncated JSON, wrong types, deep nesting, huge numbers, NaN, binary, tombstones, with keys and headers of every kind.
At the end each bad message is in the dead-letter topic once, in order, unchanged, with its reason; the trees are bit
for bit those of the good ones.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from streamclust.checkpoint import Checkpoints
from streamclust_connectors.service.outputs import ERROR_HEADER_PREFIX
from tests.chaos.kill import check_state
from tests.connectors.broker import find_broker
from tests.connectors.cluster import Cluster
from tests.connectors.fuzz import BAD, good

OPTIONS = {"seed": 7}
REASONS = ("topic", "partition", "offset", "stage", "exception", "message", "timestamp", "version")


def stream(seed, number, n):
    """The messages of a partition: value, key, headers and, of the good ones, the row."""
    draw = random.Random(f"{seed} {number}")
    for i in range(n):
        key = draw.choice([None, b"", b"k", draw.randbytes(8)])
        headers = [(draw.choice("abc"), draw.randbytes(3)) for _ in range(draw.choice([0, 0, 1, 2]))]
        kind = draw.random() if i else 0.0  # the first event of all names the features
        if kind < 0.5:
            value, row = good(draw)
            yield value, key, headers, row
        else:
            yield None if kind > 0.98 else draw.choice(BAD)(draw), key, headers, None


def write(address, topic, seed, sizes, tell):
    """Every partition's messages, all partitions side by side."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "enable.idempotence": True})
    left = {number: stream(seed, number, n) for number, n in enumerate(sizes)}
    written = 0
    while left:
        for number, messages in list(left.items()):
            message = next(messages, None)
            if message is None:
                del left[number]
                continue
            value, key, headers, _ = message
            while True:
                try:
                    producer.produce(topic, value, key, partition=number, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.1)
            written += 1
            if written % 100_000 == 0:
                tell(f"{written:,} messages written")
    assert producer.flush(60) == 0


def check_letters(cluster, topic, seed, sizes):
    """Each bad message is there once, unchanged, and says where it came from and why; how many there are."""
    due = [
        iter(
            [(i, *m[:3]) for i, m in enumerate(stream(seed, number, n)) if m[0] is not None and m[3] is None]
        )
        for number, n in enumerate(sizes)
    ]
    name, found = TopicPartition(f"{topic}.dlq", 0), 0
    consumer = KafkaConsumer(**cluster.options, isolation_level="read_committed", enable_auto_commit=False)
    try:
        consumer.assign([name])
        consumer.seek_to_beginning(name)
        (end,) = consumer.end_offsets([name]).values()
        while consumer.position(name) < end:
            for letter in consumer.poll(timeout_ms=500).get(name, ()):
                own, told = letter.headers[: -len(REASONS)], letter.headers[-len(REASONS) :]
                why = {key.removeprefix(ERROR_HEADER_PREFIX): value.decode() for key, value in told}
                offset, *expected = next(due[int(why["partition"])])
                assert [letter.value, letter.key, list(own)] == expected
                assert (tuple(why), why["topic"], why["offset"]) == (REASONS, topic, str(offset))
                assert why["stage"] in ("decode", "learn")
                assert why["exception"]
                assert why["message"]
                found += 1
    finally:
        consumer.close()
    assert all(next(rest, None) is None for rest in due), "some bad messages are in no dead letter"
    return found


def run(cluster, directory, n, n_partitions=3, delivery="exactly-once", seed=0, tell=lambda _: None):
    """Raises AssertionError if anything good is lost, or anything bad not told. Returns what was seen."""
    topic = cluster.topic("in", n_partitions)
    cluster.topic("in.dlq")
    sizes = [n // n_partitions + (number < n % n_partitions) for number in range(n_partitions)]
    state = Path(directory) / "state"
    service = cluster.serve(topic, state, delivery=delivery, clusterer=OPTIONS)
    start = time.monotonic()
    write(cluster.address, topic, seed, sizes, tell)
    ends = {f"{topic}-{number}": size for number, size in enumerate(sizes)}
    service.until("all to be read", lambda stats: stats["positions"] == ends, patience=240 + n / 1000)
    seconds = time.monotonic() - start
    stats = service.stop()
    tell(f"all read after {seconds:.0f} s; checking")
    letters = check_letters(cluster, topic, seed, sizes)
    rows = [
        [m[3] for m in stream(seed, number, size) if m[3] is not None] for number, size in enumerate(sizes)
    ]
    check_state(
        Checkpoints(state / "0").latest(), topic, [(None, part) for part in rows], OPTIONS, ("x", "y")
    )
    seen = {"messages": n, "learnt": sum(map(len, rows)), "dead letters": letters}
    seen["tombstones"] = n - seen["learnt"] - letters
    assert [stats[name] for name in ("messages", "events", "dead_letters", "tombstones")] == [*seen.values()]
    return seen


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--delivery", default="exactly-once", choices=["exactly-once", "at-least-once"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="50,000 messages")
    args = parser.parse_args()
    n = 50_000 if args.quick else args.messages
    with tempfile.TemporaryDirectory() as directory:
        broker = find_broker(Path(directory) / "broker", fast_start=False).start()
        try:
            with Cluster(broker.address) as cluster:
                seen = run(cluster, directory, n, args.partitions, args.delivery, args.seed, print)
        finally:
            broker.stop()
    print(f"every bad message told, none learnt: {seen}")


if __name__ == "__main__":
    main()
