"""A model for each key, on a real broker: its state goes where its partition goes, and nothing is told twice."""

from collections import Counter

import msgspec
import numpy as np
import pytest

from streamclust import StreamClusterer
from tests.connectors.cluster import until

pytestmark = [pytest.mark.compiled, pytest.mark.usefixtures("client")]

N, N_KEYS, N_PARTITIONS = 600, 20, 4
"""Events of each partition in each phase, keys of each partition, partitions."""
OPTIONS = {"seed": 5, "warmup": 20}


class Keyed:
    """Members that share the partitions of a topic whose records have keys."""

    def __init__(self, cluster, directory, phases):
        self.cluster, self.state = cluster, directory / "state"
        self.topic = cluster.topic("in", N_PARTITIONS)
        self.out, self.lives = cluster.topic("assignments", N_PARTITIONS), cluster.topic("lifecycle")
        rng = np.random.default_rng(1)
        self.keys = rng.integers(N_KEYS, size=(N_PARTITIONS, phases * N))
        far = 15.0 * (rng.integers(6, size=self.keys.shape) % (1 + self.keys % 3))
        self.rows = (rng.normal(size=(*self.keys.shape, 2)) + far[..., None]).round(6)

    def serve(self):
        return self.cluster.serve(
            self.topic,
            self.state,
            delivery="exactly-once",
            static=False,
            topics={"assignments": self.out, "lifecycle": self.lives},
            clusterer=OPTIONS,
            per={"max_models": 15, "by_record_key": True},
        )

    def write(self, phase):
        for number in range(N_PARTITIONS):
            for i in range(phase * N, (phase + 1) * N):
                x, y = self.rows[number, i].tolist()
                name = f"{number}:{self.keys[number, i]}".encode()
                self.cluster.producer.send(
                    self.topic, msgspec.json.encode({"x": x, "y": y}), key=name, partition=number
                )
        self.cluster.producer.flush()

    def settled(self, services, phases):
        """Until all events are learnt, and each has as many partitions as any other."""

        def check():
            reports = [service.stats() for service in services]
            seen = sum(sum(report.get("seen", {}).values()) for report in reports)
            held = [len(report.get("positions", ())) for report in reports]
            return seen == N_PARTITIONS * phases * N and held == [N_PARTITIONS // len(services)] * len(
                services
            )

        until(f"{phases} phases of each partition", check)

    def expected(self):
        """Cluster of each event by its key's own clusterer, by the event's id."""
        found, models = {}, {}
        for number in range(N_PARTITIONS):
            for i, (x, y) in enumerate(self.rows[number].tolist()):
                key = f"{number}:{self.keys[number, i]}"
                model = models.setdefault(key, StreamClusterer(**OPTIONS, background=False))
                told = model.assign_many([{"x": x, "y": y}]).cluster[0] if model.n_seen else None
                model.learn_one({"x": x, "y": y})
                found[f"{self.topic}-{number}-{i}"] = (key, told)
        return found, models

    def check(self):
        """Each event was told once, by its key's model, and so was each change of a key's clusters."""
        told = self.cluster.values(self.out)
        expected, models = self.expected()
        assert set(Counter(one["id"] for one in told).values()) == {1}
        assert {one["id"]: one["cluster"] for one in told} == {
            i: cluster for i, (_, cluster) in expected.items()
        }
        lives = self.cluster.values(self.lives)
        assert len({one["id"] for one in lives}) == len(lives)
        kinds = Counter((one["key"], one["kind"]) for one in lives)
        assert kinds == Counter(
            (key, change.kind) for key, model in models.items() for change in model.events
        )


def test_keys_go_where_their_partition_goes(cluster, tmp_path):
    keyed = Keyed(cluster, tmp_path, phases=3)
    first, second = keyed.serve(), keyed.serve()
    keyed.write(0)
    keyed.settled([first, second], 1)
    keyed.write(1)  # some of it is being learnt
    second.kill()
    keyed.settled([first], 2)
    third = keyed.serve()
    third.until("its partitions", lambda stats: len(stats["positions"]) == N_PARTITIONS // 2)
    keyed.write(2)
    keyed.settled([first, third], 3)
    first.stop()
    third.stop()
    keyed.check()


def test_a_member_that_was_frozen_tells_nothing_twice(cluster, tmp_path):
    keyed = Keyed(cluster, tmp_path, phases=2)
    first, second = keyed.serve(), keyed.serve()
    keyed.write(0)
    keyed.settled([first, second], 1)
    keyed.write(1)
    second.freeze()
    first.until("the partitions that it waits for", lambda stats: stats["waiting"])
    second.thaw()
    keyed.settled([first, second], 2)
    first.stop()
    second.stop()
    keyed.check()
