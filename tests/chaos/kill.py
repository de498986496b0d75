"""Kill the service with SIGKILL at random moments, again and again, and see that no event is lost or counted twice.

A producer writes events all the while. In some of its lives the service can write no checkpoint, as on a full disk. At
the end the trees' totals equal those of the events, each event's assignment is found (exactly once, with --delivery
exactly-once), and each partition's tree is bit for bit that of a run that nobody disturbed; with one partition, so is
the whole state.
"""

import argparse
import random
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from streamclust import StreamClusterer
from streamclust.checkpoint import Checkpoints, shard_from_state
from streamclust.checkpoint.files import encode
from streamclust.utils.state import State, under
from tests.connectors.broker import find_broker
from tests.connectors.cluster import Cluster, events

OPTIONS = {"warmup": 200, "seed": 7}
LIFE = 2.0
"""Seconds that a service lives after it has begun, at most."""


ROOM = 20_000
"""Bytes of the largest file that may be written where there is no room: a report fits, a checkpoint does not."""


def allow(service, largest=None):
    """Let a service write no file that is larger; any, if not given."""
    _, hard = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
    limits = (hard if largest is None else largest, hard)
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, limits)


def produce(cluster, topic, partitions, share, shares, steps=10):
    """Write one share of every partition's events, little by little."""
    for step in range(share * steps, (share + 1) * steps):
        for number, (values, _) in enumerate(partitions):
            first, last = (len(values) * at // (shares * steps) for at in (step, step + 1))
            cluster.write(topic, values[first:last], number)
        time.sleep(LIFE / steps)


def run(cluster, directory, kills, n, n_partitions=1, delivery="exactly-once", seed=0, tell=lambda _: None):
    """Raises AssertionError where an event was lost, or learnt or told twice. Returns what was seen."""
    draw = random.Random(seed)
    topic, out = cluster.topic("in", n_partitions), cluster.topic("assignments")
    sizes = [n // n_partitions + (number < n % n_partitions) for number in range(n_partitions)]
    partitions = [events(size, seed=seed + number) for number, size in enumerate(sizes)]
    state = Path(directory) / "state"
    settings = {"delivery": delivery, "topics": {"assignments": out}, "clusterer": OPTIONS}
    settings |= {"policy": {"checkpoint_every": 1.0}, "client": {"session_timeout_ms": 30_000}}
    replayed = 0
    for kill in range(kills):
        service = cluster.serve(topic, state, **settings)
        if kill % 3:  # some die before they have begun
            service.until("the service to begin", lambda stats: stats["ready"])
            if draw.random() < 0.5:
                allow(service, ROOM)
        producer = threading.Thread(target=produce, args=(cluster, topic, partitions, kill, kills + 1))
        producer.start()
        time.sleep(draw.uniform(0.0, LIFE))
        seen = service.stats() if service.report.exists() else {}
        replayed += seen.get("replayed", 0)
        service.kill()
        producer.join()
        tell(f"kill {kill + 1} of {kills}: {sum(seen.get('seen', {}).values()):,} events learnt")
    service = cluster.serve(topic, state, **settings)
    allow(service, ROOM)
    produce(cluster, topic, partitions, kills, kills + 1)
    service.until_learnt(n)
    service.until("a checkpoint to fail", lambda stats: stats["checkpoint_failures"])
    allow(service)
    service.until("a checkpoint to succeed", lambda stats: not stats["checkpoint_error"])
    service.until("everything told", lambda stats: sum(stats["positions"].values()) == n)
    stats = service.stop()
    check_state(Checkpoints(state / "0").latest(), topic, partitions)
    repeated = check_outputs(cluster, out, topic, partitions, delivery)
    return {
        "kills": kills,
        "events": n,
        "replayed": replayed + stats["replayed"],
        "repeated outputs": repeated,
    }


def check_state(state, topic, partitions, options=OPTIONS, features=("x0", "x1")):
    """The trees hold just the events, bit for bit as those of a run that nobody disturbed do."""
    alone = StreamClusterer(**options)
    for number, (_, rows) in enumerate(partitions):
        events = [dict(zip(features, row, strict=True)) for row in np.asarray(rows).tolist()]
        alone.learn_many(events, shard=(topic, number))
    undisturbed = alone.to_state()
    ours, theirs = shards(state), shards(undisturbed)
    assert set(ours) == set(theirs) == {(topic, number) for number in range(len(partitions))}
    for name, shard in ours.items():
        rows = np.asarray(partitions[name[1]][1])
        total = shard_from_state(shard).tree.total
        assert shard.values["n_seen"] == total.weight[0] == len(rows)
        assert np.allclose(total.mean[0], rows.mean(axis=0), rtol=1e-9, atol=0)
        assert encode(without_numbers(shard)) == encode(without_numbers(theirs[name])), (
            f"the tree of {name} differs from that of an undisturbed run"
        )
    if len(partitions) == 1:
        state.values["positions"] = {}
        state.values.pop("library")
        assert encode(state) == encode(undisturbed), "the state differs from that of an undisturbed run"


def without_numbers(state):
    """What a shard has learnt, without the numbers of its events among those of all shards, which come as they come."""
    return State({name: value for name, value in state.arrays.items() if name != "watch.at"}, state.values)


def shards(state):
    """What a state holds of each partition."""
    parts = enumerate(state.values["shards"])
    return {tuple(part["key"]): State(under(state.arrays, f"shard{i}."), part) for i, part in parts}


def check_outputs(cluster, out, topic, partitions, delivery):
    """Every event's assignment is there; how many are there more than once."""
    found = Counter(one["id"] for one in cluster.values(out))
    expected = {f"{topic}-{p}-{i}" for p, (values, _) in enumerate(partitions) for i in range(len(values))}
    assert set(found) == expected
    repeated = sum(found.values()) - len(expected)
    assert repeated == 0 or delivery != "exactly-once", f"{repeated} assignments were told twice"
    return repeated


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--delivery", default="exactly-once", choices=["exactly-once", "at-least-once"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="5 kills, 20,000 events")
    args = parser.parse_args()
    if args.quick:
        args.kills, args.events = 5, 20_000
    with tempfile.TemporaryDirectory() as directory:
        broker = find_broker(Path(directory) / "broker", fast_start=False).start()
        try:
            with Cluster(broker.address) as cluster:
                seen = run(
                    cluster,
                    directory,
                    args.kills,
                    args.events,
                    args.partitions,
                    args.delivery,
                    args.seed,
                    print,
                )
        finally:
            broker.stop()
    print(f"no event lost, none counted twice: {seen}")


if __name__ == "__main__":
    main()
