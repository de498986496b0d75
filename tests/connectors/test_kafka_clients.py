"""Both clients bring the same records, and send the same outputs to the same partitions."""

import msgspec
import numpy as np
import pytest
from kafka import KafkaProducer

from streamclust import StreamClusterer
from streamclust_connectors.cli.service_factory import GROUP_MAX_POLL_INTERVAL_MS, kafka_source
from streamclust_connectors.interfaces import Assigned, Batch, Output
from streamclust_connectors.kafka import KafkaSink
from streamclust_connectors.kafka.confluent.options import RENAMED
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.settings import ConfigError, Settings
from streamclust_connectors.settings.sections import PASSED
from tests.connectors.cluster import CLIENTS, Cluster, events, until


@pytest.fixture
def cluster(broker_address):
    """Topics of its own on the shared broker; the client is told by the tests."""
    with Cluster(broker_address) as cluster:
        yield cluster


def written(cluster, topic):
    """Write messages of all kinds: compressed or not, without keys, values or headers, and in transactions."""
    for number, compression in enumerate((None, "gzip")):
        with KafkaProducer(bootstrap_servers=cluster.address, compression_type=compression) as producer:
            for i in range(40):
                key, value = b"%d" % (i % 7) if i % 2 else None, None if i % 10 == 9 else b"%d" % i
                headers = [("h", b"%d" % i), ("empty", b"")] if i % 3 == 0 else []
                producer.send(topic, value, key, headers, number, timestamp_ms=1_600_000_000_000 + i)
    with KafkaProducer(bootstrap_servers=cluster.address, transactional_id=topic) as producer:
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for i in range(5):
                producer.send(topic, b"transaction %d" % i, partition=0)
            producer.flush()
            end()


def read(source, ends):
    """All records of a topic, and the lag when they are read."""
    found = {number: [] for number in ends}
    try:

        def done():
            for event in source.poll(0.2):
                match event:
                    case Assigned(partitions):
                        for partition in partitions:
                            source.seek(partition, 0)
                    case Batch((_, number), records):
                        found[number] += [
                            (r.offset, r.value, r.key, list(r.headers), r.timestamp) for r in records
                        ]
            lag = source.lag()
            return len(lag) == len(ends) and not any(lag.values()) and all(found.values())

        until("all records", done)
    finally:
        source.close()
    return found


def test_records_are_the_same(cluster):
    topic = cluster.topic(partitions=2)
    written(cluster, topic)
    found = {}
    for cluster.client in CLIENTS:
        found[cluster.client] = read(cluster.source(topic, f"{topic}.{cluster.client}"), (0, 1))
    ours, theirs = found.values()
    assert ours == theirs
    assert [value for _, value, *_ in ours[0][40:]] == 2 * [b"transaction %d" % i for i in range(5)]
    assert [len(rows) for rows in ours.values()] == [50, 40]


def test_topics_are_described_alike(cluster):
    """A service can go on with the other client: the topic has the same id."""
    topic = cluster.topic(partitions=3)
    found = []
    for cluster.client in CLIENTS:
        source = cluster.source(topic, f"{topic}.{cluster.client}")
        found.append(source.extent((topic, 1)))
        source.close()
    assert found[0] == found[1]
    assert (found[0].first, found[0].end, found[0].n_partitions) == (0, 0, 3)


def test_keys_go_to_the_same_partitions(cluster):
    topic, outputs = cluster.topic(), [Output(b"v", b"key %d" % i) for i in range(50)]
    placed = []
    for cluster.client in CLIENTS:
        out = cluster.topic(f"lifecycle.{cluster.client}", partitions=5)
        source = cluster.source(topic, f"{topic}.{cluster.client}")
        sink = KafkaSink(source, {"lifecycle": out})
        sink.emit("lifecycle", outputs)
        sink.commit({})
        sink.close()
        source.close()
        placed.append({record.key: record.partition for record in cluster.read(out)})
    assert placed[0] == placed[1]
    assert len(placed[0]) == 50


def serve(cluster, topic, out, n, delivery):
    """Learn a topic, here; the assignments, and the sums of what was learnt."""
    source = cluster.source(topic, out)
    sink = KafkaSink(source, {"assignments": out}, out if delivery == "exactly-once" else None)
    service = Service(source, sink, StreamClusterer(seed=1), policy=Policy(poll=0.2))
    try:
        until("all events", lambda: service.run_once() or service.stats.events >= n)
        service.checkpoint()
        totals = {name: service.clusterer.shards.tree(name).total for name in service.clusterer.shards}
    finally:
        source.close()
        sink.close()
    return {(r.partition, r.key, msgspec.json.decode(r.value)["id"]) for r in cluster.read(out)}, totals


@pytest.mark.compiled
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_services_do_the_same(cluster, delivery):
    topic = cluster.topic(partitions=2)
    values, _ = events(1200)
    for i, value in enumerate(values):
        cluster.producer.send(topic, value, key=b"%d" % (i % 7) if i % 2 else None, partition=i // 600)
    cluster.producer.flush()
    found = []
    for cluster.client in CLIENTS:
        out = cluster.topic(f"assignments.{cluster.client}", partitions=3)
        found.append(serve(cluster, topic, out, len(values), delivery))
    (ours, totals), (theirs, others) = found
    assert ours == theirs
    assert {(p, told) for p, _, told in ours} == {(p, f"{topic}-{p}-{i}") for p in (0, 1) for i in range(600)}
    for name, total in totals.items():
        assert total.weight[0] == others[name].weight[0] == 600
        assert np.array_equal(total.mean, others[name].mean)


# ---------------------------------------------------------------- options of librdkafka


def settings(**kafka):
    return Settings(kafka={"client": "confluent", "topic": "in", **kafka})


def test_settings_become_properties():
    given = settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="me",
        sasl_plain_password="secret",
        ssl_check_hostname=False,
        group_instance_id="one",
        session_timeout_ms=7000,
        options={"socket_timeout_ms": 5000, "statistics.interval.ms": 0},
    )
    found = kafka_source(given).options
    assert {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "me",
        "ssl.endpoint.identification.algorithm": "none",
        "group.instance.id": "one",
        "session.timeout.ms": 7000,
        "socket.timeout.ms": 5000,
        "statistics.interval.ms": 0,
    }.items() <= found.items()


def test_every_setting_that_is_passed_has_a_property():
    assert set(PASSED) == set(RENAMED)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bootstrap_timeout_ms": 1}, "bootstrap.timeout.ms"),
        ({"socket_timeout_ms": "soon"}, "socket.timeout.ms"),
    ],
)
def test_an_option_that_librdkafka_does_not_take_is_told(options, said):
    with pytest.raises(ConfigError, match=f"kafka: .*{said}"):
        kafka_source(settings(options=options))


@pytest.mark.parametrize("library", ["kafka-python", "confluent"])
def test_rebalances_of_a_group_with_its_state_in_kafka_wait_less_long(library):
    """A member that is gone without a word holds up all others for so long; who knows better may say so."""
    name = {"kafka-python": "max_poll_interval_ms", "confluent": "max.poll.interval.ms"}[library]

    def found(state="kafka", **kafka):
        given = Settings(state=state, kafka={"client": library, "topic": "in", **kafka})
        return kafka_source(given).options.get(name)

    assert found() == GROUP_MAX_POLL_INTERVAL_MS
    assert found(session_timeout_ms=200_000) == 200_000
    assert found(options={name: 90_000}) == 90_000
    assert found(state="directory") is None
