"""Kill, freeze and restart members of a group that has its state and its model in Kafka, and count what they told.

Three processes share six partitions while a producer writes. Again and again one of them, at random, is killed with
SIGKILL, or frozen for longer than its session, or it is the leader that is killed as it publishes; once the broker is
restarted. There are no state directories. At the end each event's assignment was told exactly once, by the model of
the version that is told with it; versions never went down; each lifecycle event was told once; each partition's tree
is bit for bit that of a run that nobody disturbed.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from streamclust import StreamClusterer
from streamclust.checkpoint import State, encode, model_in
from streamclust_connectors.kafka.group_model import MODEL
from streamclust_connectors.kafka.state_log import StateLog
from streamclust_connectors.kafka.state_records import Assembler
from streamclust_connectors.kafka.state_topic import STATE
from streamclust_connectors.kafka.topics import model_topic, state_topic
from tests.chaos.kill import without_numbers
from tests.connectors.broker import find_broker
from tests.connectors.cluster import Cluster, events, until

OPTIONS = {"warmup": 200, "seed": 7}
SESSION_SECONDS = 6.0
PATIENCE = float(os.environ.get("STREAMCLUST_PATIENCE", "600"))
"""Seconds for a group to catch up, on a machine loaded many times over."""
WAYS = ("kill", "kill the leader", "freeze")


class Chaos:
    """A group of members, and what happens to them."""

    def __init__(self, cluster, directory, n, n_partitions, n_members, seed, tell, broker=None):
        self.cluster, self.directory, self.n_members, self.tell = cluster, Path(directory), n_members, tell
        self.draw, self.broker = random.Random(seed), broker
        self.topic, self.out = cluster.topic("in", n_partitions), cluster.topic("assignments", n_partitions)
        self.lives = cluster.topic("lifecycle")
        self.parts = [events(n // n_partitions, seed=seed + number) for number in range(n_partitions)]
        self.written = [0] * n_partitions
        self.members = []
        self.ways, self.catch_up = Counter(), []
        for _ in range(n_members):
            self.join()

    def join(self):
        """Start a member."""
        topics = {"assignments": self.out, "lifecycle": self.lives}
        policy = {"checkpoint_every": 1.0}
        self.members.append(
            self.cluster.join(
                self.topic, self.directory, topics=topics, clusterer=OPTIONS, policy=policy, model_every=0.5
            )
        )

    def held(self):
        """Positions of the partitions that the members hold; of two that claim one, the later."""
        found = {}
        for member in self.members:
            for name, at in (member.stats() or {}).get("positions", {}).items():
                found[name] = max(at, found.get(name, 0))
        return found

    def produce(self, share, shares, steps=10):
        """Write one share of every partition's events, little by little."""
        for step in range(share * steps, (share + 1) * steps):
            for number, (values, _) in enumerate(self.parts):
                first, last = (len(values) * at // (shares * steps) for at in (step, step + 1))
                self.cluster.write(self.topic, values[first:last], number)
                self.written[number] = last
            time.sleep(0.1)

    def caught_up(self):
        """Whether all that was written is learnt, and in a model that every member with partitions follows."""
        wanted = {f"{self.topic}-{number}": at for number, at in enumerate(self.written)}
        found = [member.stats() for member in self.members]
        for one in found:
            assert not (stopped := one.get("stopped")), f"set aside: {stopped}"
        holders = [one for one in found if one.get("positions")]
        modelled = all(one["in_model"] >= sum(self.written) for one in holders)
        return self.held() == wanted and any(one["leads"] for one in holders) and modelled

    def all_ready(self):
        """Whether every member has partitions and a model."""
        return all((member.stats() or {}).get("ready") for member in self.members)

    def until(self, what, condition):
        """Wait; if it never comes, say what every member does."""
        try:
            until(what, condition, PATIENCE)
        except AssertionError as error:
            stories = "\n\n".join(member.story() for member in self.members)
            raise AssertionError(f"{error}\n{stories}") from None

    def strike(self, way):
        """Kill or freeze a member, and let it come back."""
        ready = [member for member in self.members if (member.stats() or {}).get("ready")] or self.members
        leading = [member for member in ready if member.stats().get("leads")]
        victim = self.draw.choice(leading if way == "kill the leader" and leading else ready)
        if way == "kill the leader":  # which publishes twice a second
            time.sleep(self.draw.uniform(0.0, 0.6))
        if way == "freeze":
            victim.freeze()
            time.sleep(SESSION_SECONDS + self.draw.uniform(1.0, 3.0))
            victim.thaw()
            return
        victim.kill()
        self.members.remove(victim)
        time.sleep(self.draw.uniform(0.0, 3.0))
        self.join()

    def run(self, strikes):
        """All the strikes, with a producer beside; raises where one has cost anything. Returns what was seen."""
        self.until("the group to begin", lambda: len(self.held()) == len(self.parts))
        for number in range(strikes):
            way = WAYS[number] if number < len(WAYS) else self.draw.choice(WAYS)
            producer = threading.Thread(target=self.produce, args=(number, strikes + 1))
            producer.start()
            time.sleep(self.draw.uniform(0.0, 1.0))
            if self.broker is not None and number == strikes // 2:
                way = "restart the broker"
                self.broker.kill()
                self.broker.start()
            else:
                self.strike(way)
            began = time.monotonic()
            producer.join()
            self.until("the group to catch up", self.caught_up)
            self.ways[way] += 1
            self.catch_up.append(time.monotonic() - began)
            self.tell(f"{number + 1} of {strikes}: {way}; caught up in {self.catch_up[-1]:.1f} s")
        self.produce(strikes, strikes + 1)
        self.until("the group to end", self.caught_up)
        self.until("every member to follow a model", self.all_ready)
        for member in self.members:
            member.stop()
        return self.check()

    # ---------------------------------------------------------------- what is left

    def check(self):
        """Nothing lost, nothing twice, versions that only go up, one life for each id."""
        told = self.cluster.values(self.out)
        n = [len(values) for values, _ in self.parts]
        expected = {f"{self.topic}-{p}-{i}": 1 for p, size in enumerate(n) for i in range(size)}
        assert Counter(one["id"] for one in told) == expected, "assignments were lost, or told twice"
        models, versions = self.published()
        assert versions == sorted(versions), "a version went down"
        verified = self.check_assignments(told, models)
        changes = self.cluster.values(self.lives)
        assert len({one["id"] for one in changes}) == len(changes), "a lifecycle event was told twice"
        born = Counter(i for one in changes if one["kind"] in ("born", "split") for i, _ in new_of(one))
        assert max(born.values()) == 1, "an id was born twice"
        self.check_trees()
        return {
            "strikes": dict(self.ways),
            "events": len(told),
            "models": len(versions),
            "latest version": versions[-1],
            "verified assignments": verified,
            "lifecycle events": len(changes),
            "catch-up seconds, median": round(float(np.median(self.catch_up)), 1),
            "catch-up seconds, worst": round(max(self.catch_up), 1),
        }

    def published(self):
        """Every model in the topic by version and revision, and their versions in the order of the log."""
        assembler, models, versions = Assembler(self.cluster.name, "models"), {}, []
        for record in self.cluster.read(model_topic(self.topic)):
            whole = assembler.add(record)
            if whole is not None and whole.name == MODEL:
                state = whole.state()
                model = model_in(state)
                versions.append(model.version)
                models[model.version, state.values["sequence"]] = model
        return models, versions

    def check_assignments(self, told, models):
        """Every assignment is that of the model of its version; how many could be compared."""
        labels = {}
        compared = 0
        for one in told:
            if one["version"] is None:
                assert one["cluster"] is None
                continue
            number, offset = map(int, one["id"].split("-")[-2:])
            name = one["version"], one["revision"]
            key = name, number
            if name not in models:  # compacted away
                continue
            if key not in labels:
                labels[key] = models[name].predict(np.asarray(self.parts[number][1]))
            assert one["cluster"] == labels[key][offset], f"{one} is not what model {name} says"
            compared += 1
        return compared

    def check_trees(self):
        """The trees in the state topic are bit for bit those of one undisturbed process."""
        log = StateLog(state_topic(self.topic), self.cluster.name, self.cluster.options)
        try:
            for number, (_, rows) in enumerate(self.parts):
                ours = log.newest(number, STATE)[STATE].state()
                alone = StreamClusterer(**OPTIONS)
                alone.sharing.follow(None)
                name, rows = (self.topic, number), np.asarray(rows)
                alone.learn_many([{"x0": x, "x1": y} for x, y in rows.tolist()], shard=name)
                theirs = alone.shards.export(name)
                assert ours.values["n_seen"] == len(rows)
                assert encode(learnt(ours)) == encode(learnt(theirs)), (
                    f"the tree of partition {number} differs from that of an undisturbed run"
                )
        finally:
            log.close()


def learnt(state):
    """The arrays of a shard, without the numbers that its events had in the process that learnt them."""
    return State(without_numbers(state).arrays, {})


def new_of(change):
    """The ids that a lifecycle event has issued, with their weights."""
    old = {i for i, _ in change["parents"]}
    return [pair for pair in change["children"] if pair[0] not in old]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--client", default="kafka-python", choices=["kafka-python", "confluent"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="5 strikes, 30,000 events")
    args = parser.parse_args()
    if args.quick:
        args.kills, args.events = 5, 30_000
    with tempfile.TemporaryDirectory() as directory:
        broker = find_broker(Path(directory) / "broker", fast_start=False).start()
        try:
            with Cluster(broker.address, args.client) as cluster:
                restarted = broker if hasattr(broker, "kill") else None
                chaos = Chaos(
                    cluster, directory, args.events, args.partitions, args.members, args.seed,
                    lambda text: print(text, flush=True), restarted,
                )  # fmt: skip
                print(f"nothing lost, nothing twice: {chaos.run(args.kills)}")
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
