"""Brokers that die, forget who we are, answer with errors; records that are gone."""

import time
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest
from confluent_kafka import Producer
from kafka.structs import MemberState, TopicPartition

from streamclust import StreamClusterer
from streamclust.checkpoint import Checkpoints
from streamclust_connectors.interfaces import DataLoss, Output, Transient
from streamclust_connectors.kafka import sender as sender_module
from streamclust_connectors.kafka import source_type
from streamclust_connectors.kafka.sender import KafkaSender
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.state_directory import StateDirectory
from tests.connectors.cluster import Cluster, events, until
from tests.connectors.members import Member, all_at
from tests.connectors.mock_cluster import (
    COORDINATOR_LOADING,
    FETCH,
    HEARTBEAT,
    ILLEGAL_GENERATION,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    NOT_COORDINATOR,
    NOT_LEADER,
    OFFSET_COMMIT,
    REBALANCE_IN_PROGRESS,
    SYNC_GROUP,
    TIMED_OUT,
    UNKNOWN_MEMBER,
    MockCluster,
)

pytestmark = pytest.mark.compiled


def test_a_broker_is_killed_and_comes_back(own_broker, client, tmp_path):
    with Cluster(own_broker.address, client) as cluster:
        topic, out = cluster.topic(), cluster.topic("assignments")
        values, _ = events(4000)
        cluster.write(topic, values[:2000])
        service = cluster.serve(
            topic, tmp_path / "state", topics={"assignments": out}, delivery="exactly-once"
        )
        service.until_learnt(2000)
        own_broker.kill()
        own_broker.start()
        cluster.write(topic, values[2000:])
        service.until_learnt(4000)
        service.until("all is told", lambda stats: stats["positions"] == {f"{topic}-0": 4000})
        service.stop()
        assert sorted(one["id"] for one in cluster.values(out)) == sorted(
            f"{topic}-0-{i}" for i in range(4000)
        )
        state = Checkpoints(tmp_path / "state" / "0").latest()
        assert StreamClusterer.from_state(state).n_seen == 4000


def test_a_group_outlives_its_broker(own_broker):
    """State, model and outputs are in the same broker: nothing is lost, and nothing is told twice."""
    with Cluster(own_broker.address) as cluster, ExitStack() as every:
        topic, out = cluster.topic(partitions=2), cluster.topic("assignments", 2)
        written = [events(800, seed=number)[0] for number in range(2)]
        for number, values in enumerate(written):
            cluster.write(topic, values[:400], number)
        member = Member(cluster, topic, "only", assignments=out)
        every.callback(member.close)
        until("the first model", lambda: all_at([member], 400, 2) and member.service.stats.ready)
        version = member.group.version
        own_broker.kill()
        own_broker.start()
        for number, values in enumerate(written):
            cluster.write(topic, values[400:], number)
        until("all to be told", lambda: all_at([member], 800, 2))
        until("the model to hold all", lambda: member.group.clusterer.n_seen == 1600)
        assert member.group.version >= version
        assert Counter(one["id"] for one in cluster.values(out)) == {
            f"{topic}-{p}-{i}": 1 for p in range(2) for i in range(800)
        }


def serve(cluster, topic, store, group, **policy):
    source = cluster.source(topic, group)
    service = Service(source, ListSink(), StreamClusterer(), store, policy=Policy(poll=0.2, **policy))
    turns = iter(range(200))
    poll = source.poll

    def polled(seconds):
        if next(turns, None) is None or (service.stats.lag and not any(service.stats.lag.values())):
            service.stop()
        return poll(seconds)

    source.poll = polled
    service.run()
    return service


@pytest.mark.usefixtures("client")
def test_deleted_records_are_missed(cluster, tmp_path):
    topic = cluster.topic()
    cluster.write(topic, events(100)[0])
    store = StateDirectory(tmp_path)
    assert serve(cluster, topic, store, cluster.name).stats.events == 100
    cluster.write(topic, events(200)[0])
    cluster.admin.delete_records({TopicPartition(topic, 0): 150})
    with pytest.raises(DataLoss, match="records 100 to 149"):
        serve(cluster, topic, store, cluster.name)
    service = serve(cluster, topic, store, cluster.name, on_data_loss="continue")
    assert service.stats.positions == {(topic, 0): 300}
    assert service.clusterer.n_seen == 250


@pytest.mark.usefixtures("client")
def test_a_topic_that_was_created_anew_is_noticed(cluster, tmp_path):
    topic = cluster.topic()
    cluster.write(topic, events(100)[0])
    store = StateDirectory(tmp_path)
    serve(cluster, topic, store, cluster.name)
    cluster.recreate(topic)
    cluster.write(topic, events(150)[0])
    with pytest.raises(DataLoss, match="deleted and recreated"):
        serve(cluster, topic, store, cluster.name)


# ---------------------------------------------------------------- librdkafka's mock cluster


@pytest.fixture
def mock():
    cluster = MockCluster()
    yield cluster
    cluster.close()


class Served:
    """A service that reads the mock cluster's one partition, and what is written there."""

    def __init__(self, mock, client, n, **options):
        mock.topic("in")
        self.producer = Producer({"bootstrap.servers": mock.address})
        self.values, self.rows = events(n)
        if client == "kafka-python":
            options["api_version"] = (2, 3)
        self.source = source_type(client)(["in"], "g", mock.address, **options)
        # the mock knows no topic ids
        self.source._inquiries.describe = lambda topic: {"topic_id": None, "partitions": [0]}
        policy = Policy(poll=0.2, checkpoint_every=0.5)
        self.service = Service(self.source, ListSink(), StreamClusterer(), policy=policy)

    def write(self, first, last):
        for value in self.values[first:last]:
            self.producer.produce("in", value, partition=0)
        self.producer.flush(10)

    def count_assignments(self):
        """A list that gets whatever is assigned from now on."""
        found, add = [], self.service.partitions.add

        def taken(partitions):
            found.extend(partitions)
            add(partitions)

        self.service.partitions.add = taken
        return found

    def check(self):
        """Every record is learnt once, whatever the broker answered."""
        self.source.close()
        assert self.service.stats.positions == {("in", 0): len(self.rows)}
        total = self.service.clusterer.tree.total
        assert total.weight[0] == len(self.rows)
        assert np.allclose(total.mean[0], self.rows.mean(axis=0))


def test_errors_and_a_broker_that_goes_and_comes(mock, client):
    served = Served(mock, client, 900, session_timeout_ms=6000)
    served.write(0, 300)
    turn_until(served.service, 300)
    mock.err(FETCH, NOT_LEADER, TIMED_OUT, NOT_LEADER)
    mock.err(OFFSET_COMMIT, TIMED_OUT)
    served.write(300, 600)
    turn_until(served.service, 600)
    mock.down()
    turn(served.service, 5)
    mock.up()
    served.write(600, 900)
    turn_until(served.service, 900)
    served.check()


@pytest.mark.parametrize(
    "faults",
    [
        {HEARTBEAT: [UNKNOWN_MEMBER]},
        {HEARTBEAT: [ILLEGAL_GENERATION], SYNC_GROUP: [NOT_COORDINATOR, REBALANCE_IN_PROGRESS]},
        {OFFSET_COMMIT: [ILLEGAL_GENERATION], JOIN_GROUP: [UNKNOWN_MEMBER, NOT_COORDINATOR]},
        {OFFSET_COMMIT: [UNKNOWN_MEMBER], SYNC_GROUP: [ILLEGAL_GENERATION, UNKNOWN_MEMBER]},
    ],
    ids=[
        "unknown to the heartbeat",
        "of an old generation",
        "of an old generation to commits",
        "unknown to commits",
    ],
)
def test_a_member_that_the_group_has_forgotten_joins_again(mock, client, faults):
    served = Served(mock, client, 600, session_timeout_ms=1500, heartbeat_interval_ms=300)
    served.write(0, 300)
    turn_until(served.service, 300)
    assigned = served.count_assignments()
    for request, errors in faults.items():
        mock.err(request, *errors)
    until("another assignment", lambda: turn(served.service, 1) or assigned)
    served.write(300, 600)
    turn_until(served.service, 600)
    served.check()


def test_a_rebalance_longer_than_a_poll_is_not_forgotten(mock):
    """The client forgets one that new metadata bring about: it would never send a heartbeat again."""
    served = Served(mock, "kafka-python", 600, session_timeout_ms=1500, heartbeat_interval_ms=300)
    served.write(0, 300)
    turn_until(served.service, 300)
    generation = served.source.consumer.group_metadata().generation_id
    served.source.consumer._coordinator._assignment_snapshot = {}  # as if there were new partitions
    turn(served.service, 1)
    time.sleep(1.5)  # the answer comes while the loop is busy
    until("the group", lambda: turn(served.service, 1) or joined_after(served.source, generation))
    served.write(300, 600)
    turn_until(served.service, 600)
    served.check()


def joined_after(source, generation):
    found = source.consumer.group_metadata()
    return found.state == MemberState.STABLE and found.generation_id > generation


def turn(service, times):
    for _ in range(times):
        try:
            service.run_once()
        except Transient as failure:
            service._back_off(failure)


def turn_until(service, n):
    until(f"{n} events", lambda: turn(service, 1) or service.clusterer.n_seen >= n)
    assert service.clusterer.n_seen == n


def test_no_broker_at_all_is_a_failure_that_may_pass(client, monkeypatch):
    monkeypatch.setattr("streamclust_connectors.kafka.confluent.source.TOPIC_TIMEOUT_SECONDS", 0.3)
    options = {"bootstrap_timeout_ms": 300} if client == "kafka-python" else {}
    source = source_type(client)(["in"], "g", "127.0.0.1:1", **options)
    with pytest.raises(Transient, match=r"nothing listens at 127\.0\.0\.1:1"):
        until("the failure", lambda: source.poll(0.1) or not source.connecting)
    source.close()


def test_a_client_that_has_failed_is_closed_for_good(mock):
    """kafka-python's own `close` leaves it behind with what it cannot send: it would fence the client after it."""
    mock.topic("in")
    sender = KafkaSender(None, {"bootstrap_servers": mock.address, "api_version": (2, 3)})
    sender.send("in", [Output(b"1")], 0)
    sender.flush()
    mock.down()
    sender.send("in", [Output(b"2")], 0)
    sender.close(1.0)
    until("its thread to end", lambda: not sender.producer._sender.is_alive())


def test_a_client_that_gets_no_transactional_id_is_closed_for_good(mock, monkeypatch):
    made, kind = [], sender_module.KafkaProducer

    def make(**options):
        made.append(kind(**options))
        return made[-1]

    make.DEFAULT_CONFIG = kind.DEFAULT_CONFIG
    monkeypatch.setattr(sender_module, "KafkaProducer", make)
    mock.err(INIT_PRODUCER_ID, *[COORDINATOR_LOADING] * 100)
    with pytest.raises(Transient):
        KafkaSender("id", {"bootstrap_servers": mock.address, "api_version": (2, 3), "max_block_ms": 300})
    (left,) = made
    until("its thread to end", lambda: not left._sender.is_alive())


def test_heartbeats_that_have_failed_begin_again(mock):
    """kafka-python starts them anew only as it joins: the group would go on without the member, and it never know."""
    served = Served(mock, "kafka-python", 600, session_timeout_ms=1500, heartbeat_interval_ms=300)
    served.write(0, 300)
    turn_until(served.service, 300)
    generation = served.source.consumer.group_metadata().generation_id
    coordinator = served.source.consumer._coordinator
    send = coordinator._send_heartbeat_request

    async def failing():
        coordinator._send_heartbeat_request = send
        raise ValueError("a bug of the client")

    coordinator._send_heartbeat_request = failing
    until("the failure", lambda: coordinator._heartbeat_loop_future.is_done)
    until("the group", lambda: turn(served.service, 1) or joined_after(served.source, generation))
    assert not coordinator._heartbeat_loop_future.is_done
    served.write(300, 600)
    turn_until(served.service, 600)
    served.check()
