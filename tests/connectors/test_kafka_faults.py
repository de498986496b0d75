"""Brokers that die, ask for passwords, answer with errors; records that are gone."""

import numpy as np
import pytest
from confluent_kafka import Producer
from kafka.structs import TopicPartition

from streamclust import StreamClusterer
from streamclust.checkpoint import Checkpoints
from streamclust_connectors.kafka import KafkaSource
from streamclust_connectors.ports import DataLoss, Transient
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.shared_state import SharedState
from streamclust_connectors.sinks import ListSink
from tests.connectors.broker import PASSWORD, USER
from tests.connectors.cluster import Cluster, events, until
from tests.connectors.mock_cluster import (
    FETCH,
    NOT_LEADER,
    OFFSET_COMMIT,
    TIMED_OUT,
    MockCluster,
)

pytestmark = pytest.mark.compiled


def test_a_broker_is_killed_and_comes_back(own_broker, tmp_path):
    with Cluster(own_broker.address) as cluster:
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


def test_a_password_is_asked_for(own_broker, tmp_path):
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    with Cluster(own_broker.sasl, **login) as cluster:
        topic, out = cluster.topic(), cluster.topic("assignments")
        cluster.write(topic, [*events(300)[0], b"oops"])
        service = cluster.serve(
            topic, tmp_path / "state", topics={"assignments": out}, delivery="exactly-once"
        )
        service.until_learnt(300)
        service.until("the dead letter", lambda stats: stats["positions"] == {f"{topic}-0": 301})
        service.stop()
        assert len(cluster.values(out)) == 300
        assert len(cluster.read(f"{topic}.dlq")) == 1


def serve(cluster, topic, store, group, **policy):
    source = KafkaSource([topic], group, cluster.address)
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


def test_deleted_records_are_missed(cluster, tmp_path):
    topic = cluster.topic()
    cluster.write(topic, events(100)[0])
    store = SharedState(tmp_path)
    assert serve(cluster, topic, store, cluster.name).stats.events == 100
    cluster.write(topic, events(200)[0])
    cluster.admin.delete_records({TopicPartition(topic, 0): 150})
    with pytest.raises(DataLoss, match="records 100 to 149"):
        serve(cluster, topic, store, cluster.name)
    service = serve(cluster, topic, store, cluster.name, on_data_loss="continue")
    assert service.stats.positions == {(topic, 0): 300}
    assert service.clusterer.n_seen == 250


def test_a_topic_that_was_created_anew_is_noticed(cluster, tmp_path):
    topic = cluster.topic()
    cluster.write(topic, events(100)[0])
    store = SharedState(tmp_path)
    serve(cluster, topic, store, cluster.name)
    cluster.recreate(topic)
    cluster.write(topic, events(150)[0])
    with pytest.raises(DataLoss, match="created anew"):
        serve(cluster, topic, store, cluster.name)


# ---------------------------------------------------------------- librdkafka's mock cluster


@pytest.fixture
def mock():
    cluster = MockCluster()
    yield cluster
    cluster.close()


def test_errors_and_a_broker_that_goes_and_comes(mock):
    """Every record is learnt once, whatever the broker answers."""
    mock.topic("in")
    producer = Producer({"bootstrap.servers": mock.address})
    values, rows = events(900)

    def write(part):
        for value in part:
            producer.produce("in", value, partition=0)
        producer.flush(10)

    source = KafkaSource(["in"], "g", mock.address, api_version=(2, 3), session_timeout_ms=6000)
    source._describe = lambda topic: {"topic_id": None, "partitions": [0]}  # the mock knows no topic ids
    service = Service(source, ListSink(), StreamClusterer(), policy=Policy(poll=0.2, checkpoint_every=0.5))
    write(values[:300])
    turn_until(service, 300)
    mock.err(FETCH, NOT_LEADER, TIMED_OUT, NOT_LEADER)
    mock.err(OFFSET_COMMIT, TIMED_OUT)
    write(values[300:600])
    turn_until(service, 600)
    mock.down()
    turn(service, 5)
    mock.up()
    write(values[600:])
    turn_until(service, 900)
    source.close()
    assert service.stats.positions == {("in", 0): 900}
    assert np.allclose(service.clusterer._engine.shards.merged_tree().total.mean[0], rows.mean(axis=0))


def turn(service, times):
    for _ in range(times):
        try:
            service.turn()
        except Transient as failure:
            service._back_off(failure)


def turn_until(service, n):
    until(f"{n} events", lambda: turn(service, 1) or service.clusterer.n_seen >= n)
    assert service.clusterer.n_seen == n


def test_no_broker_at_all_is_a_failure_that_may_pass():
    source = KafkaSource(["in"], "g", "127.0.0.1:1", bootstrap_timeout_ms=300)
    with pytest.raises(Transient):
        source.poll(0.1)
