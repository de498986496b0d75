"""Exactly-once outputs of members that the group has dropped: what another has told they must not tell again."""

from collections import Counter
from contextlib import ExitStack, suppress

import pytest
from kafka import KafkaProducer
from kafka.admin import MemberToRemove

from streamclust import StreamClusterer
from streamclust_connectors.interfaces import Assigned, Fenced, Output, Revoked, Transient
from streamclust_connectors.kafka import KafkaSink
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.state_directory import StateDirectory
from tests.connectors.cluster import events, until

pytestmark = [pytest.mark.compiled, pytest.mark.usefixtures("client")]

N = 300
"""Events in each of two phases."""


class Member:
    """A service in this process, turned by hand."""

    def __init__(self, cluster, topic, out, state, heartbeat_ms):
        self.store = StateDirectory(state)
        self.source = cluster.source(topic, session_timeout_ms=30_000, heartbeat_interval_ms=heartbeat_ms)
        self.sink = KafkaSink(self.source, {"assignments": out}, f"{cluster.name}-{self.store.slot}")
        policy = Policy(poll=0.2, checkpoint_every=0.1, backoff=0.01)
        self.service = Service(self.source, self.sink, StreamClusterer(), self.store, policy=policy)

    def run_once(self):
        """Turn once, whether or not that fails for now."""
        with suppress(Transient):
            self.service.run_once()

    def turn_until(self, position):
        until(f"{position} events", lambda: self.run_once() or set(self.positions) == {position})

    @property
    def positions(self):
        return self.service.stats.positions.values()

    def close(self):
        with ExitStack() as every:  # each of them, even if another fails: a client left behind would block
            for part in (self.store, self.sink, self.source):
                every.callback(part.close)


@pytest.fixture
def topics(cluster):
    topic, out = cluster.topic(), cluster.topic("assignments")
    cluster.write(topic, events(2 * N)[0][:N])
    return topic, out


@pytest.fixture
def members(cluster, topics, tmp_path, request):
    heartbeat_ms = getattr(request, "param", 200)
    found = [Member(cluster, *topics, tmp_path / "state", heartbeat_ms) for _ in range(2)]
    with ExitStack() as every:
        for member in found:
            every.callback(member.close)
        yield found


def drop(cluster, member):
    """Make the group go on without a member; returns when its coordinator does."""
    gone = MemberToRemove(member_id=member_id(member))
    cluster.admin.remove_group_members(cluster.name, [gone])


def member_id(member):
    """What the client says; empty if it knows that it is in no group."""
    consumer = member.source.consumer
    return consumer.memberid() if hasattr(consumer, "memberid") else consumer.group_metadata().member_id


def check(cluster, topic, out):
    """Each event was told once, and the group's offset is where it should be."""
    found = Counter(one["id"] for one in cluster.values(out))
    assert found == {f"{topic}-0-{i}": 1 for i in range(2 * N)}
    assert cluster.committed(topic) == {0: 2 * N}


def test_a_member_that_was_dropped_while_at_work_commits_nothing(cluster, topics, members):
    """Its client hears of it between a poll and the commit of what that poll brought."""
    (topic, out), (first, second) = topics, members
    first.turn_until(N)
    cluster.write(topic, events(2 * N)[0][N:])
    commit = first.sink.commit

    def late(positions):
        if positions == {(topic, 0): 2 * N}:
            first.sink.commit = commit
            drop(cluster, first)
            until("the heartbeat to fail", lambda: not member_id(first))
            second.turn_until(2 * N)
        commit(positions)

    first.sink.commit = late
    until("the other to take over", lambda: first.run_once() or second.positions)
    until(
        "all to be told",
        lambda: first.run_once() or second.run_once() or [*first.positions, *second.positions] == [2 * N],
    )
    check(cluster, topic, out)


def test_a_transaction_that_took_too_long_is_no_rival(cluster, topics, members):
    """The broker fences its producer, as here another client does; one fenced again at once has a rival."""
    (topic, out), (first, _) = topics, members
    first.turn_until(N)
    cluster.write(topic, events(2 * N)[0][N:])
    commit, fences = first.sink.commit, iter(range(1))

    def late(positions):
        if positions == {(topic, 0): 2 * N} and next(fences, None) is not None:
            fence(cluster, first)
        commit(positions)

    first.sink.commit = late
    first.turn_until(2 * N)
    check(cluster, topic, out)
    fences = iter(range(1))
    first.sink.emit("assignments", [Output(b"{}", origin=(topic, 0))])
    with pytest.raises(Fenced, match="another process"):
        late({(topic, 0): 2 * N})


def fence(cluster, member):
    """Take a member's transactional id away."""
    rival = KafkaProducer(
        bootstrap_servers=cluster.address, transactional_id=f"{cluster.name}-{member.store.slot}"
    )
    rival.init_transactions()
    rival.close()


@pytest.mark.parametrize("members", [20_000], ids=["rare heartbeats"], indirect=True)
def test_a_partition_regained_by_a_new_member_is_sought_again(cluster, topics, members):
    """The client hears that the group has dropped it as it joins again, and keeps the partition without a word."""
    (topic, out), (first, second) = topics, members
    first.turn_until(N)
    cluster.write(topic, events(2 * N)[0][N:])
    drop(cluster, first)
    second.turn_until(2 * N)
    second.source.close()
    if cluster.client == "kafka-python":  # librdkafka waits for its next heartbeat
        first.source.consumer._coordinator.request_rejoin()  # as new metadata would
    until("all to be told", lambda: first.run_once() or set(first.positions) == {2 * N})
    check(cluster, topic, out)


def test_a_fenced_producer_says_so(cluster):
    """librdkafka's binding raises a SystemError where a fatal error meets the reports of messages not delivered."""
    topics, id = [cluster.topic("known"), cluster.topic("new")], f"{cluster.name}.id"
    source = cluster.source(topics[0])
    sender = source.sender(id, {})
    sender.begin()
    sender.send(topics[0], [Output(b"x")], 0)
    sender.flush()
    source.sender(id, {}).close(1.0)

    def send_more():
        for topic in 50 * topics:
            sender.send(topic, [Output(b"x")], 0)
        sender.flush()

    with pytest.raises((Fenced, Transient)):
        send_more()
    sender.close(1.0)


@pytest.mark.parametrize("client", ["confluent"])
def test_a_static_member_whose_place_is_taken_joins_again_but_not_for_ever(cluster, topics):
    """A spent consumer of librdkafka never recovers: without another one the service would wait for good.

    Its place is taken by its own second attempt to join, as a restarting broker sees it, or by a rival.
    """
    topic, _ = topics
    options = {"group_instance_id": "one", "session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
    with ExitStack() as every:
        first, second = (cluster.source(topic, **options) for _ in range(2))
        every.callback(first.close)
        every.callback(second.close)
        assigned, revoked = Assigned([(topic, 0)]), Revoked([(topic, 0)])
        until("the first to join", lambda: assigned in first.poll(0.2))
        until("the second to take its place", lambda: assigned in second.poll(0.2))
        until("the first to hear of it", lambda: raised(Transient, first.poll, 0.2))
        told = []
        until("the first to join again", lambda: told.extend(first.poll(0.2)) or assigned in told)
        assert told == [revoked, assigned]
        until("the second to hear of it", lambda: raised(Transient, second.poll, 0.2))
        until("the second to take its place", lambda: assigned in second.poll(0.2))
        until("the first to give up", lambda: raised(Fenced, first.poll, 0.2))


def raised(kind, function, *given):
    """Whether a call raises this."""
    try:
        function(*given)
    except kind:
        return True
    return False
