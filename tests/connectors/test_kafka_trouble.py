"""Trouble that a service on Kafka must survive or name: stale clients, codecs, added partitions, refused logins."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from kafka.errors import KafkaTimeoutError

from streamclust.checkpoint import State
from streamclust_connectors.decode import Decoder, Fields
from streamclust_connectors.interfaces import MissingCodec, Transient, UnfitTopic
from streamclust_connectors.kafka import source_type
from streamclust_connectors.kafka.diagnosis import cause_of_failure
from streamclust_connectors.kafka.state_log import StateLog
from streamclust_connectors.kafka.state_records import packed, parts
from streamclust_connectors.kafka.topics import prepare, state_topic
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.sinks import ListSink
from tests.connectors.broker import GUEST, PASSWORD, USER
from tests.connectors.cluster import PATIENCE, Cluster, events, until
from tests.connectors.members import Member, all_at

pytestmark = pytest.mark.compiled

COMMAND = Path(sys.executable).with_name("streamclust")
N = 300


# ---------------------------------------------------------------- reading states


def write_state(cluster, topic, n):
    """A state with one number in it."""
    for value, key, headers, *_ in parts(cluster.name, "state", packed(State({}, {"n": n})), 10_000):
        cluster.write(topic, [value], key=key, headers=list(headers))


def test_a_state_written_while_the_latest_is_read_is_followed(cluster):
    """The client reads on beyond the end that was asked for; what it reads there must not be lost."""
    topic = cluster.topic("states", **{"cleanup.policy": "compact"})
    write_state(cluster, topic, 1)
    log = StateLog(topic, cluster.name, cluster.options)
    extent, ends = log._extent, []

    def then_written(partition):
        ends.append(extent(partition))
        write_state(cluster, topic, 2)
        return ends[-1]

    log._extent = then_written
    try:
        assert log.newest(0, "state")["state"].state().values["n"] == 1
        found = []
        until("the other", lambda: found.extend(log.follow(0.2)) or found)
        assert [stored.state().values["n"] for _, stored in found] == [2]
    finally:
        log.close()


def test_a_client_that_no_longer_gets_answers_is_replaced(cluster):
    """As after a failover, when kafka-python may keep outdated metadata: its every request times out."""
    topic = cluster.topic("states", **{"cleanup.policy": "compact"})
    write_state(cluster, topic, 1)
    log = StateLog(topic, cluster.name, cluster.options)
    assert log.newest(0, "state")

    def silent(*_, **__):
        raise KafkaTimeoutError("Failed to get offsets by timestamps in 15000 ms")

    log._ends.beginning_offsets = silent
    try:
        with pytest.raises(Transient):
            log.newest(0, "state")
        assert log.newest(0, "state")["state"].state().values["n"] == 1
    finally:
        log.close()


# ---------------------------------------------------------------- codecs


@pytest.mark.parametrize("codec", ["snappy", "lz4", "zstd", "gzip"])
def test_records_of_every_codec_are_read(cluster, codec):
    """By kafka-python, for which the extra brings the codecs; librdkafka has its own."""
    topic = cluster.topic()
    written = produce(cluster, topic, codec)
    found = []
    source = cluster.source(topic)
    service = Service(source, ListSink(), _learner(), policy=Policy(poll=0.2))
    until("all", lambda: service.run_once() or found or service.stats.events == len(written))
    source.close()


def produce(cluster, topic, codec):
    values, _ = events(N)
    producer = Producer({"bootstrap.servers": cluster.address, "compression.type": codec, "linger.ms": 100})
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    return values


def _learner():
    from streamclust import StreamClusterer

    return StreamClusterer()


def test_a_codec_that_is_not_installed_is_named(cluster, monkeypatch):
    """Before, its records were skipped, and nothing but one warning told of it."""
    monkeypatch.setattr("kafka.codec.snappy", None)
    topic = cluster.topic()
    produce(cluster, topic, "snappy")
    service = Service(cluster.source(topic), ListSink(), _learner(), policy=Policy(poll=0.2))
    with pytest.raises(
        MissingCodec, match=r"compressed by snappy, which needs python-snappy; run: pip install"
    ):
        service.run()


# ---------------------------------------------------------------- partitions that are added


def grow(cluster, topic, n):
    cluster.admin.create_partitions({topic: n})
    until("the brokers to know", lambda: partitions(cluster, topic) == n)


def partitions(cluster, topic):
    (found,) = cluster.admin.describe_topics([topic])
    return len(found["partitions"])


@pytest.mark.usefixtures("client")
def test_added_partitions_are_read_without_a_restart(cluster):
    """Also where only later records are wanted of new topics: of an added partition all are new."""
    topic, out = cluster.topic(partitions=2), cluster.topic("assignments", 2)
    written = [events(N, seed=number)[0] for number in range(4)]
    with ExitStack() as every:
        soon = {
            "metadata_max_age_ms"
            if cluster.client == "kafka-python"
            else "topic_metadata_refresh_interval_ms": 500
        }
        member = Member(cluster, topic, "only", client=soon, assignments=out)
        every.callback(member.close)
        for number in range(2):
            cluster.write(topic, written[number], number)
        until("the first model", lambda: all_at([member], N, 2) and member.service.stats.ready)
        grow(cluster, topic, 4)
        with Cluster(cluster.address) as again:  # a producer that knows the added partitions
            for number in (2, 3):
                again.write(topic, written[number], number)
        until("the added ones", lambda: all_at([member], N, 4) and member.service.stats.ready)
        assert partitions(cluster, state_topic(topic)) == 4
        until("a model of all", lambda: member.group.clusterer.n_seen == 4 * N)
    told = Counter(one["id"] for one in cluster.values(out))
    assert told == {f"{topic}-{p}-{i}": 1 for p in range(4) for i in range(N)}


def test_a_topic_of_states_that_may_not_grow_is_said_with_the_cure(secure_broker):
    login = {
        "sasl_mechanism": "PLAIN",
        "sasl_plain_password": PASSWORD,
        "security_protocol": "SASL_PLAINTEXT",
    }
    from kafka.admin import ACLOperation, ResourceType

    from tests.connectors.test_kafka_group_model import grant

    with Cluster(secure_broker["sasl"], sasl_plain_username=USER, **login) as cluster:
        topic = cluster.topic(partitions=2)
        prepare(topic, cluster.options)
        grow(cluster, topic, 3)
        grant(cluster, ResourceType.TOPIC, topic, ACLOperation.READ, ACLOperation.WRITE, prefix=True)
        guest = {"bootstrap_servers": cluster.address, "sasl_plain_username": GUEST} | login
        with pytest.raises(
            UnfitTopic, match=r"has 2 partitions but needs 3.*--alter --topic .* --partitions 3; the"
        ):
            prepare(topic, guest)
        assert prepare(topic, cluster.options) == partitions(cluster, state_topic(topic)) == 3


# ---------------------------------------------------------------- one answer or a dead letter


@pytest.mark.filterwarnings("ignore::streamclust.streaming.RefusedEvents")
def test_an_event_of_a_wrong_time_is_a_dead_letter_and_nothing_else(cluster):
    """And a batch that is learnt again after a failure is counted once."""
    topic, out = cluster.topic(), cluster.topic("assignments")
    values = [msgspec.json.encode({"t": 1000.0 + i, "x": float(i % 7)}) for i in range(N)]
    values[150] = b'{"t": 9e15, "x": 1.0}'
    cluster.write(topic, values)
    from streamclust import StreamClusterer
    from streamclust_connectors.kafka import KafkaSink

    source = cluster.source(topic)
    sink = KafkaSink(source, {"assignments": out}, f"{cluster.name}-0")
    decoder = Decoder(Fields(time="t"))
    service = Service(
        source, sink, StreamClusterer(half_life=100.0), decoder=decoder, policy=Policy(poll=0.2)
    )
    commit, failures = sink.commit, iter([Transient("as if a broker had gone")] * 2)

    def failing(positions):
        if positions and (failure := next(failures, None)) is not None:
            sink.discard_uncommitted()
            raise failure
        commit(positions)

    sink.commit = failing

    def turn():
        try:
            service.run_once()
        except Transient:
            return None
        return service.stats.positions == {(topic, 0): N}

    until("all", turn)
    source.close()
    sink.close()
    told = Counter(one["id"] for one in cluster.values(out))
    assert told == {f"{topic}-0-{i}": 1 for i in range(N) if i != 150}
    (letter,) = cluster.read(f"{topic}.dlq")
    assert letter.value == values[150]
    stats = service.stats
    assert (stats.messages, stats.events, stats.dead_letters, stats.assignments) == (N, N - 1, 1, N - 1)


# ---------------------------------------------------------------- connections that are refused


def run(directory, settings, *arguments):
    """The service, as a user starts it, with nothing else in its environment."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("STREAMCLUST_")}
    named = {f"STREAMCLUST_{name}": str(value) for name, value in settings.items()}
    with (directory / "log").open("w") as log:
        return subprocess.Popen(
            [COMMAND, "run", *arguments, "--state", "state"],
            env=given | named,
            cwd=directory,
            stdout=log,
            stderr=log,
        )


def lines(directory):
    """The log's lines, parsed."""
    return [json.loads(line) for line in (directory / "log").read_text().splitlines() if line.startswith("{")]


PASSWORD_LOGIN = {
    "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "SASL_MECHANISM": "PLAIN",
    "SASL_PLAIN_USERNAME": USER,
}
CAUSES = {
    "a wrong password": (
        "sasl",
        PASSWORD_LOGIN | {"SASL_PLAIN_PASSWORD": "guessed"},
        "refuses the login of 'tester'",
    ),
    "no login": ("sasl", {}, "it probably asks for a login"),
    "a certificate nobody vouches for": ("tls", {"SECURITY_PROTOCOL": "SSL"}, "is not trusted (self-signed"),
    "TLS to a plain listener": ("plain", {"SECURITY_PROTOCOL": "SSL"}, "does not speak TLS there"),
    "plain to a TLS listener": ("tls", {}, "speaks TLS there, but security_protocol is PLAINTEXT"),
    "nobody there": (None, {}, "nothing listens at 127.0.0.1:1"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_of_a_refused_connection_is_named(shared_broker, secure_broker, cause):
    listener, settings, sentence = CAUSES[cause]
    options = {name.lower(): value for name, value in settings.items()}
    known = secure_broker | {"plain": shared_broker["address"], None: "127.0.0.1:1"}
    assert sentence in cause_of_failure(options | {"bootstrap_servers": [known[listener]]})


@pytest.mark.parametrize("cause", ["a wrong password", "nobody there"])
def test_a_service_that_cannot_connect_says_why_once_and_stops_at_once(
    secure_broker, client, tmp_path, cause
):
    listener, settings, sentence = CAUSES[cause]
    address = "127.0.0.1:1" if listener is None else secure_broker[listener]
    told = {f"KAFKA__{name}": value for name, value in settings.items()}
    told |= {"KAFKA__BOOTSTRAP_SERVERS": address, "KAFKA__TOPIC": "any", "KAFKA__CLIENT": client}
    process = run(tmp_path, told)
    try:
        until("a sentence", lambda: sentence in (tmp_path / "log").read_text())
        time.sleep(3.0)  # more attempts, which add nothing
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert time.monotonic() - began < 10.0
    finally:
        process.kill()
        process.wait()
    found = lines(tmp_path)
    assert [line["logger"].split(".")[0] for line in found] == ["streamclust_connectors"] * len(found)
    assert sum(sentence in line["message"] for line in found) == 1


def test_no_group_can_be_made_of_what_is_no_broker(client):
    """A poll returns in time whether or not there is a connection."""
    source = source_type(client)(["in"], "g", "127.0.0.1:1")
    began = time.monotonic()
    assert source.poll(0.2) == []
    assert source.connecting
    assert time.monotonic() - began < 5.0
    source.close()


# ---------------------------------------------------------------- brokers that go and come


def test_an_outage_is_two_lines_of_the_log(own_broker, tmp_path):
    """One as it begins, one as it ends; the clients' own lines, dozens for each connection, are left out."""
    with Cluster(own_broker.address) as cluster:
        topic = cluster.topic()
        values, _ = events(N)
        cluster.write(topic, values[:100])
        told = {
            "KAFKA__BOOTSTRAP_SERVERS": own_broker.address,
            "KAFKA__TOPIC": topic,
            "KAFKA__CLIENT": "kafka-python",
        }
        told |= {
            "OUTPUT__DELIVERY": "exactly-once",
            "LOGGING__EVERY_SECONDS": 3600,
            "KAFKA__GROUP_ID": cluster.name,
        }
        process = run(tmp_path, told, "--checkpoint-events", "10")
        try:
            until("its first outputs", lambda: len(cluster.read(f"{topic}.assignments")) == 100)
            own_broker.kill()
            until(
                "the outage to be noticed",
                lambda: any("trying again" in one["message"] for one in lines(tmp_path)),
            )
            time.sleep(8.0)
            own_broker.start()
            cluster.write(topic, values[100:])
            until("the rest", lambda: len(cluster.read(f"{topic}.assignments")) == N)
            until(
                "the end of the outage",
                lambda: any("over after" in one["message"] for one in lines(tmp_path)),
            )
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait()
    found = lines(tmp_path)
    assert {one["logger"].split(".")[0] for one in found} == {"streamclust_connectors"}
    incidents = [one for one in found if "trying again" in one["message"] or "over after" in one["message"]]
    assert len(incidents) <= 6, incidents  # what each of three causes begins and ends with
    assert len(found) <= 14, found


@pytest.mark.usefixtures("client")
def test_assignments_carry_the_input_s_headers_and_timestamp_where_asked(cluster):
    """So traces go on behind the service, and windows by event time find the assignment beside its event."""
    from streamclust_connectors.kafka import KafkaSink
    from streamclust_connectors.service.outputs import AssignmentForm

    topic, out = cluster.topic(), cluster.topic("assignments")
    values, _ = events(20)
    given = [("traceparent", b"00-1-2-01"), ("other", b"x")]
    cluster.write(topic, values[:10], headers=given, timestamp_ms=1_700_000_000_000)
    cluster.write(topic, values[10:], timestamp_ms=1_700_000_001_000)
    source = cluster.source(topic)
    sink = KafkaSink(source, {"assignments": out})
    policy = Policy(poll=0.2, form=AssignmentForm(headers=("traceparent",), timestamps=True))
    service = Service(source, sink, _learner(), policy=policy)
    until("all", lambda: service.run_once() or service.stats.assignments == 20)
    sink.commit({})
    found = cluster.read(out)
    source.close()
    sink.close()
    assert [list(record.headers) for record in found] == [given[:1]] * 10 + [[]] * 10
    assert [record.timestamp for record in found] == [1_700_000_000_000] * 10 + [1_700_000_001_000] * 10
    assert service.stats.latency.cumulative[-2:] == [0, 20]
