"""Several services in one consumer group: partitions move between them, with what was learnt of them."""

from collections import Counter

import numpy as np
import pytest

from streamclust.checkpoint import shard_from_state
from streamclust_connectors.shared_state import SharedState
from tests.connectors.cluster import events, until

pytestmark = pytest.mark.compiled

N = 1500
"""Events of each partition, in each of three phases."""


def shares(services):
    """How many partitions each service has, and the sum of what they have learnt."""
    reports = [service.stats() for service in services]
    held = [set(report.get("positions", ())) for report in reports]
    return [len(names) for names in held], held


def test_services_join_and_leave(cluster, tmp_path):
    topic, out = cluster.topic(partitions=4), cluster.topic("assignments")
    parts = [events(3 * N, seed=number) for number in range(4)]
    options = {"delivery": "exactly-once", "topics": {"assignments": out}, "static": False}

    def write(phase):
        for number, (values, _) in enumerate(parts):
            cluster.write(topic, values[phase * N : (phase + 1) * N], number)

    def settled(services, expected, learnt):
        def check():
            counts, held = shares(services)
            seen = sum(sum(service.stats().get("seen", {}).values()) for service in services)
            apart = sum(counts) == 4 == len(set().union(*held))
            return sorted(counts) == expected and apart and seen == 4 * learnt

        until(f"{expected} partitions and {learnt} events of each", check)

    first, second = (cluster.serve(topic, tmp_path / "state", **options) for _ in range(2))
    write(0)
    settled([first, second], [2, 2], N)
    third = cluster.serve(topic, tmp_path / "state", **options)
    third.until("a partition", lambda stats: stats["positions"])
    write(1)
    settled([first, second, third], [1, 1, 2], 2 * N)
    second.stop()  # leaves in good order
    third.kill()  # is missed after its session's time
    write(2)
    settled([first], [4], 3 * N)
    first.stop()

    other = SharedState(tmp_path / "state", place=9)  # it sees what those left that have gone
    for number, (_, rows) in enumerate(parts):
        place, summary = other.find((topic, number))
        total = shard_from_state(summary).tree.total
        assert place.offset == total.weight[0] == 3 * N
        assert np.allclose(total.mean[0], rows.mean(axis=0), rtol=1e-9)
    found = Counter(one["id"] for one in cluster.values(out))
    assert set(found) == {f"{topic}-{p}-{i}" for p in range(4) for i in range(3 * N)}
    assert set(found.values()) == {1}
