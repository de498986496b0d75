"""Kill and freeze brokers and members of a group on three brokers, and check what it told.

Three members share six partitions; topics have three replicas, of which two must hold a record. Again and again brokers
or members are killed or frozen, alone or together, while a producer writes. At the end an own consumer reads what was
committed: each event was told exactly once, each message that is none is a dead letter exactly once, versions never
went down, and nobody gave two answers for one (version, revision, point). While it runs, each partition must be read
again within 60 s of the end of a fault, and a member that does not read one of its partitions must not be ready.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import msgspec
import numpy as np
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.connectors.broker import JavaBrokers
from tests.connectors.cluster import CLIENTS, Cluster, until

SESSION_SECONDS = 6.0
MAX_UNREAD_SECONDS = 60.0
"""How long a partition may stay unread after a fault is over."""
REPORTED_AFTER_SECONDS = 20.0
"""How long a partition may be unread before its member must say so."""
SAMPLE_SECONDS = 0.25
PATIENCE = float(os.environ.get("STREAMCLUST_PATIENCE", "600"))
SHARED_POINTS = 60
"""Points that come again and again in all partitions: whoever answers must answer alike."""
BAD_SHARE = 0.01
"""Share of messages that are no events."""


def messages(n, seed):
    """Messages of one partition: clusters that turn slowly, points that all partitions share, and rubbish."""
    rng = np.random.default_rng(seed)
    shared = np.random.default_rng(7).uniform(-12.0, 12.0, size=(SHARED_POINTS, 2)).round(3)
    angle = np.linspace(0.0, 2.0, n)[:, None] + 2.0 * np.pi * rng.integers(5, size=(n, 1)) / 5
    rows = (9.0 * np.hstack([np.cos(angle), np.sin(angle)]) + rng.normal(size=(n, 2))).round(6)
    again = rng.random(n) < 0.2
    rows[again] = shared[rng.integers(SHARED_POINTS, size=int(again.sum()))]
    bad = rng.random(n) < BAD_SHARE
    bad[:50] = False  # the first events are sound
    values = [
        b"rubbish" if b else msgspec.json.encode({"x": x, "y": y})
        for (x, y), b in zip(rows.tolist(), bad, strict=True)
    ]
    return values, rows, bad


class Watch:
    """Samples what members report, and finds partitions that stay unread and members that do not say so."""

    def __init__(self, chaos):
        self.chaos = chaos
        self.progress = dict.fromkeys(range(chaos.n_partitions), (0, time.monotonic()))
        """Offset up to which each partition was learnt, and when that last moved or nothing was left."""
        self.fault_over = time.monotonic()
        self.under_fault = False
        self.worst = 0.0
        """Longest time that a partition stayed unread after a fault."""
        self.violations = []
        self.not_reported, self.ready_at = Counter(), {}
        self.asking = Consumer(
            {"bootstrap.servers": chaos.brokers.address, "group.id": f"watch-{os.getpid()}"}
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        self.asking.close()

    def _run(self):
        while not self._over.wait(SAMPLE_SECONDS):
            self.sample()

    def sample(self):
        """One look at all members."""
        now, fresh = time.monotonic(), []
        for member in list(self.chaos.members):
            try:
                found = member.stats()
            except (AssertionError, ValueError):
                continue  # it was killed just now
            if found and time.time() - found["at"] < 2.0:
                fresh.append(found)
                self.check_readiness(found | {"member": member.process.pid}, now)
        for number in self.progress:
            name = f"{self.chaos.topic}-{number}"
            at = max((one["positions"].get(name, 0) for one in fresh), default=0)
            before, since = self.progress[number]
            if at > before or before >= self.chaos.written[number]:
                self.progress[number] = max(at, before), now
                continue
            beyond = 0.0 if self.under_fault else now - max(since, self.fault_over)
            self.worst = max(self.worst, beyond)
            if beyond > MAX_UNREAD_SECONDS and (not self.violations or now - self.violations[-1][0] > 30):
                stories = [one.story()[-1500:] for one in self.chaos.members]
                self.violations.append((now, f"{name} unread for {beyond:.0f} s: {stories}"))

    def check_readiness(self, stats, now):
        """Note a member that has been ready for long while one of its partitions stood still, with records to read."""
        for name in {**stats["positions"], **stats["waiting"]}:
            key, at, number = (
                (stats["member"], name),
                stats["positions"].get(name, 0),
                int(name.rpartition("-")[2]),
            )
            stands = stats["ready"] and at < self.chaos.written[number]
            if not stands or self.ready_at.get(key, (None, 0.0))[0] != at:
                self.ready_at[key] = (at if stands else None), now
                continue
            seconds = now - self.ready_at[key][1]
            if seconds > REPORTED_AFTER_SECONDS:
                if told := self.readable(number, at):
                    self.not_reported[name] += 1
                    self.chaos.tell(
                        f"{name} stands still for {seconds:.0f} s, and its member is ready: {told}; {stats}"
                    )
                self.ready_at[key] = None, now

    def readable(self, number, at):
        """What the brokers tell of a partition, if that is more than was learnt; empty if they show no more.

        What they have acknowledged may be hidden until enough replicas are back: nobody can read it then.
        """
        try:
            _, end = self.asking.get_watermark_offsets(TopicPartition(self.chaos.topic, number), 3.0)
        except KafkaException as error:
            return f"no answer ({error.args[0].name()})"
        return f"{end - at} records more" if end > at else ""


class Chaos:
    """A group of members on three brokers, and what happens to them."""

    def __init__(self, brokers, cluster, directory, n, n_partitions, n_members, seed, tell):
        self.brokers, self.cluster, self.directory, self.tell = brokers, cluster, Path(directory), tell
        self.draw, self.n_partitions = random.Random(seed), n_partitions
        self.topic, self.out = cluster.topic("in", n_partitions), cluster.topic("assignments", n_partitions)
        self.lives, self.dlq = cluster.topic("lifecycle"), cluster.topic("in.dlq")
        self.parts = [messages(n // n_partitions, seed=seed + number) for number in range(n_partitions)]
        self.written = [0] * n_partitions
        """Number of messages of each partition that the brokers have acknowledged."""
        self.producer = Producer(
            {"bootstrap.servers": brokers.address, "enable.idempotence": True, "message.timeout.ms": 0}
        )
        self.members, self.ways, self.catch_up = [], Counter(), []
        for _ in range(n_members):
            self.join()

    def join(self):
        topics = {"assignments": self.out, "lifecycle": self.lives}
        more = {
            "topics": topics,
            "clusterer": {"warmup": 200, "seed": 7},
            "policy": {"checkpoint_every": 1.0},
        }
        self.members.append(self.cluster.join(self.topic, self.directory, model_every=0.5, **more))

    # ---------------------------------------------------------------- events

    def produce(self, share, shares, steps=20):
        """Write one share of every partition's messages, little by little; wait for the brokers."""
        for step in range(share * steps, (share + 1) * steps):
            for number, (values, _, _) in enumerate(self.parts):
                first, last = (len(values) * at // (shares * steps) for at in (step, step + 1))
                for value in values[first:last]:
                    self.producer.produce(self.topic, value, partition=number, on_delivery=self._note)
            self.producer.poll(0)
            time.sleep(0.2)
        until("the brokers to take all", lambda: self.producer.flush(5.0) == 0, PATIENCE)

    def _note(self, error, message):
        assert error is None, error
        self.written[message.partition()] = message.offset() + 1

    def caught_up(self):
        """Whether all that was written is learnt, and in a model that every member with partitions follows."""
        wanted = {f"{self.topic}-{number}": at for number, at in enumerate(self.written)}
        found = [member.stats() for member in self.members]
        for one in found:
            assert not (stopped := one.get("stopped")), f"set aside: {stopped}"
        held = {name: at for one in found for name, at in one.get("positions", {}).items()}
        learnt = sum(
            at - int(bad[:at].sum()) for at, (_, _, bad) in zip(self.written, self.parts, strict=True)
        )
        holders = [one for one in found if one.get("positions")]
        return (
            held == wanted
            and any(one["leads"] for one in holders)
            and all(one["in_model"] >= learnt for one in holders)
        )

    def until(self, what, condition):
        """Wait; if it never comes, say what every member does."""
        try:
            until(what, condition, PATIENCE)
        except AssertionError as error:
            stories = "\n\n".join(member.story() for member in self.members)
            raise AssertionError(f"{error}\n{stories}") from None

    # ---------------------------------------------------------------- faults

    def victim(self, leading=False):
        """A member, if possible one that is ready, and that leads if asked for."""
        ready = [member for member in self.members if (member.stats() or {}).get("ready")] or self.members
        leaders = [member for member in ready if member.stats().get("leads")]
        return self.draw.choice(leaders if leading and leaders else ready)

    def kill_member(self, leading=False):
        victim = self.victim(leading)
        time.sleep(self.draw.uniform(0.0, 0.6))
        victim.kill()
        self.members.remove(victim)
        time.sleep(self.draw.uniform(0.0, 2.0))
        self.join()

    def kill_leader(self):
        self.kill_member(leading=True)

    def freeze_member(self):
        victim = self.victim()
        victim.freeze()
        time.sleep(SESSION_SECONDS + self.draw.uniform(1.0, 3.0))
        victim.thaw()

    def kill_brokers(self, n=1):
        nodes = self.draw.sample(self.brokers.nodes, n)
        for node in nodes:
            node.kill()
        time.sleep(self.draw.uniform(1.0, 8.0))
        for node in nodes:
            node.launch()
        for node in nodes:
            node.start_up()

    def kill_two_brokers(self):
        self.kill_brokers(2)

    def kill_two_brokers_and_a_member(self):
        """The order in which partitions once stayed unread for minutes."""
        self.kill_brokers(2)
        self.kill_member()

    def kill_broker_and_leader(self):
        other = threading.Thread(target=self.kill_leader)
        other.start()
        self.kill_brokers(1)
        other.join()

    def freeze_broker(self):
        node = self.draw.choice(self.brokers.nodes)
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(self.draw.uniform(4.0, 14.0))
        node.process.send_signal(signal.SIGCONT)

    def roll_brokers(self):
        """Restart one broker after the other, as an upgrade does."""
        for node in self.brokers.nodes:
            node.process.terminate()
            node.process.wait()
            node.start()

    WAYS = (
        kill_two_brokers_and_a_member, kill_brokers, kill_leader, freeze_broker, kill_two_brokers, freeze_member,
        kill_broker_and_leader, roll_brokers, kill_member,
    )  # fmt: skip

    def run(self, faults):
        """All the faults, with a producer beside; raises where one has cost anything. Returns what was seen."""
        self.until("the group to begin", lambda: len(self.held()) == self.n_partitions)
        with Watch(self) as watch:
            for number in range(faults):
                way = self.WAYS[number % len(self.WAYS)]
                producer = threading.Thread(target=self.produce, args=(number, faults + 1), daemon=True)
                producer.start()
                time.sleep(self.draw.uniform(0.0, 1.0))
                watch.under_fault = True
                way(self)
                watch.fault_over, watch.under_fault = time.monotonic(), False
                began = time.monotonic()
                producer.join()
                self.until("the group to catch up", self.caught_up)
                self.ways[way.__name__] += 1
                self.catch_up.append(time.monotonic() - began)
                self.tell(
                    f"{number + 1} of {faults}: {way.__name__}; caught up in {self.catch_up[-1]:.1f} s; "
                    f"unread beyond a fault at most {watch.worst:.1f} s"
                )
            self.produce(faults, faults + 1)
            self.until("the group to end", self.caught_up)
        for member in self.members:
            member.stop()
        return self.check(watch)

    def held(self):
        return {name for member in self.members for name in (member.stats() or {}).get("positions", {})}

    # ---------------------------------------------------------------- what is left

    def committed(self, topic):
        """All committed records of a topic, by a consumer that shares nothing with the service."""
        own = {"bootstrap.servers": self.brokers.address, "group.id": f"checker-{os.getpid()}"}
        consumer = Consumer(own | {"isolation.level": "read_committed", "enable.partition.eof": True})
        try:
            numbers = consumer.list_topics(topic, 30).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
            found, open_ends = [], set(numbers)
            while open_ends:
                for message in consumer.consume(1000, 1.0):
                    if message.error() is not None:
                        open_ends.discard(message.partition())
                    else:
                        found.append(message)
            return found
        finally:
            consumer.close()

    def check(self, watch):
        """Nothing lost, nothing twice, one answer for each name, versions that only go up."""
        told = [msgspec.json.decode(message.value()) for message in self.committed(self.out)]
        expected = {
            f"{self.topic}-{number}-{i}": 1
            for number, (_, _, bad) in enumerate(self.parts)
            for i in np.flatnonzero(~bad).tolist()
        }
        ids = Counter(one["id"] for one in told)
        lost, twice = len(expected.keys() - ids.keys()), sum(n > 1 for n in ids.values())
        letters = Counter(origin(message) for message in self.committed(self.dlq))
        wanted = Counter(
            {
                (number, i): 1
                for number, (_, _, bad) in enumerate(self.parts)
                for i in np.flatnonzero(bad).tolist()
            }
        )
        answers = defaultdict(set)
        for one in told:
            number, offset = map(int, one["id"].split("-")[-2:])
            point = tuple(self.parts[number][1][offset].tolist())
            answers[one["version"], one["revision"], point].add(
                (one["cluster"], one["probability"], one["novelty"])
            )
        disagreements = sum(len(found) > 1 for found in answers.values())
        back = went_back(told)
        lives = [msgspec.json.decode(message.value()) for message in self.committed(self.lives)]
        found = {
            "faults": dict(self.ways),
            "events": len(told),
            "lost": lost,
            "told twice": twice,
            "dead letters lost or doubled": sum((wanted - letters).values()) + sum((letters - wanted).values()),
            "answers compared": len(told) - len(answers),
            "disagreements": disagreements,
            "versions that went back": back,
            "lifecycle events": len(lives),
            "lifecycle events told twice": len(lives) - len({one["id"] for one in lives}),
            "unread beyond a fault, worst, s": round(watch.worst, 1),
            "unread partitions of a ready member": dict(watch.not_reported),
            "catch-up seconds, median and worst": (
                round(float(np.median(self.catch_up)), 1), round(max(self.catch_up), 1)
            ),
        }  # fmt: skip
        assert not watch.violations, watch.violations
        faulty = (
            "lost",
            "told twice",
            "dead letters lost or doubled",
            "disagreements",
            "versions that went back",
        )
        assert not any(found[name] for name in (*faulty, "lifecycle events told twice")), found
        assert not watch.not_reported, found
        return found


def origin(message):
    """Partition and offset of the record that a dead letter holds."""
    headers = dict(message.headers())
    return tuple(int(headers[f"__streamclust.errors.{name}"]) for name in ("partition", "offset"))


def went_back(told):
    """How often the version or revision of a partition's events went back, in the order of their offsets."""
    latest, count = {}, 0
    for one in sorted(told, key=lambda one: int(one["id"].split("-")[-1])):
        number = one["id"].split("-")[-2]
        name = (-1, -1) if one["version"] is None else (one["version"], one["revision"])
        count += name < latest.get(number, (-1, -1))
        latest[number] = name
    return count


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=50, help="for each client")
    parser.add_argument("--events", type=int, default=150_000)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--client", default="both", choices=["both", *CLIENTS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="directory for the logs of members, which stay there")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # with its brokers and members
    failures = []
    for client in CLIENTS if args.client == "both" else [args.client]:
        with tempfile.TemporaryDirectory() as directory:
            brokers = JavaBrokers(Path(directory) / "brokers", fast_start=False).start()
            logs = directory if args.keep is None else args.keep
            Path(logs).mkdir(exist_ok=True)
            try:
                with Cluster(brokers.address, client, replicas=3) as cluster:
                    chaos = Chaos(
                        brokers, cluster, logs, args.events, args.partitions, args.members, args.seed,
                        lambda text, client=client: print(f"{client}: {text}", flush=True),
                    )  # fmt: skip
                    print(f"{client}: {chaos.run(args.faults)}", flush=True)
            except AssertionError as error:
                print(f"{client}: FAILED: {error}", flush=True)
                failures.append(client)
            finally:
                brokers.stop()
    sys.exit(f"failed: {', '.join(failures)}" if failures else 0)


if __name__ == "__main__":
    main()
