"""Several services in one consumer group: partitions move between them, with what was learnt of them."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import TopicPartition

from streamclust.checkpoint import shard_from_state
from streamclust_connectors.kafka.source import MembershipAssignor
from streamclust_connectors.state_directory import StateDirectory
from tests.connectors.cluster import events, until

pytestmark = pytest.mark.compiled

N = 1500
"""Events of each partition, in each phase."""


class Group:
    """Services in a group, and the partitions they share; what they do is written and checked phase by phase."""

    def __init__(self, cluster, directory, delivery, partitions, phases, **settings):
        self.cluster, self.state, self.delivery = cluster, directory / "state", delivery
        self.topic, self.out = cluster.topic(partitions=partitions), cluster.topic("assignments")
        self.parts = [events(phases * N, seed=number) for number in range(partitions)]
        self.settings = {
            "delivery": delivery,
            "topics": {"assignments": self.out},
            "static": False,
        } | settings

    def serve(self):
        return self.cluster.serve(self.topic, self.state, **self.settings)

    def write(self, phase):
        for number, (values, _) in enumerate(self.parts):
            self.cluster.write(self.topic, values[phase * N : (phase + 1) * N], number)

    def settled(self, services, expected, phases):
        """Until each has its share, no two the same, all events are learnt, and nothing is left to read."""

        def check():
            reports = [service.stats() for service in services]
            held = [set(report.get("positions", ())) for report in reports]
            seen = sum(sum(report.get("seen", {}).values()) for report in reports)
            lag = {name: behind for report in reports for name, behind in report.get("lag", {}).items()}
            whole = len(self.parts) == sum(map(len, held)) == len(set().union(*held)) == len(lag)
            return (
                sorted(map(len, held)) == expected
                and whole
                and seen == len(self.parts) * phases * N
                and not any(lag.values())
            )

        until(f"{expected} partitions and {phases} phases of each", check)

    def check(self):
        """Every event was learnt once, told once or, at least, once; the group's offsets are where the trees are."""
        other = StateDirectory(self.state, slot=9)  # it sees what those left that have gone
        for number, (_, rows) in enumerate(self.parts):
            place, summary = other.find((self.topic, number))
            total = shard_from_state(summary).tree.total
            assert place.offset == total.weight[0] == len(rows)
            assert np.allclose(total.mean[0], rows.mean(axis=0), rtol=1e-9)
        other.close()
        assert self.cluster.committed(self.topic) == {i: len(rows) for i, (_, rows) in enumerate(self.parts)}
        found = Counter(one["id"] for one in self.cluster.values(self.out))
        assert set(found) == {
            f"{self.topic}-{p}-{i}" for p, (values, _) in enumerate(self.parts) for i in range(len(values))
        }
        assert self.delivery == "at-least-once" or set(found.values()) == {1}


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_services_join_and_leave(cluster, tmp_path, delivery):
    group = Group(cluster, tmp_path, delivery, partitions=4, phases=3)
    first, second = group.serve(), group.serve()
    group.write(0)
    group.settled([first, second], [2, 2], 1)
    third = group.serve()
    third.until("a partition", lambda stats: stats["positions"])
    group.write(1)
    group.settled([first, second, third], [1, 1, 2], 2)
    second.stop()  # leaves in good order
    third.kill()  # is missed after its session's time
    group.write(2)
    group.settled([first], [4], 3)
    first.stop()
    group.check()


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_service_that_was_away_for_too_long_joins_again(cluster, tmp_path, delivery):
    """The group goes on without it; when it wakes up it must not tell or keep what others have done meanwhile."""
    client = {"session_timeout_ms": 4000, "heartbeat_interval_ms": 500}
    group = Group(cluster, tmp_path, delivery, partitions=2, phases=3, client=client)
    first, second = group.serve(), group.serve()
    group.write(0)
    group.settled([first, second], [1, 1], 1)
    group.write(1)  # some of it is being learnt as it falls asleep
    first.freeze()
    second.until("both partitions", lambda stats: sorted(stats["seen"].values()) == [2 * N, 2 * N])
    first.thaw()
    group.settled([first, second], [1, 1], 2)
    group.write(2)
    group.settled([first, second], [1, 1], 3)
    first.stop()
    second.stop()
    group.check()


def test_a_member_that_was_dropped_claims_nothing():
    """kafka-python's own assignor would: partitions that nobody has would wait for it to let them go, for ever."""
    topic = SimpleNamespace(topics=lambda: {"in"}, partitions_for_topic=lambda name: set(range(6)))

    def told(owned, is_member):
        assignor = MembershipAssignor(lambda: is_member)
        assignor.member_assignment = [TopicPartition("in", number) for number in owned]
        return assignor.metadata(["in"])

    members = {"steady": told([0, 1], True), "dropped": told([2, 3, 4, 5], False), "new": told([], False)}
    joined = [SimpleNamespace(member_id=name, metadata=metadata) for name, metadata in members.items()]
    found = CooperativeStickyAssignor().assign(topic, joined)
    assert {0, 1} <= {number for _, number in found["steady"].partitions()}, "who has these lets nothing go"
    assert sorted(number for one in found.values() for _, number in one.partitions()) == list(range(6))
