"""A consumer group with one model and its state in Kafka, on a real broker; members are threads of the test."""

import json
import zlib
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)
from kafka.errors import KafkaError
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata
from prometheus_client import generate_latest

from streamclust.checkpoint import CheckpointError, State, encode
from streamclust_connectors.decode import Decoder
from streamclust_connectors.http.backend import Backend
from streamclust_connectors.http.metrics import registry
from streamclust_connectors.interfaces import Message, Output, Transient, UnfitTopic
from streamclust_connectors.kafka.state_records import Assembler, StoredState, packed, parts
from streamclust_connectors.kafka.topics import model_topic, prepare, state_topic
from streamclust_connectors.kafka.transactions import abandoned_transactional_ids, end_abandoned
from tests.connectors.broker import GUEST, PASSWORD, USER
from tests.connectors.cluster import Cluster, events, until
from tests.connectors.members import Member, all_at, published

pytestmark = pytest.mark.compiled

N = 400
"""Events of each partition, in each of three phases."""


POISON = b"[poison]"


class Poisoned(Decoder):
    """Fails at one record as nothing should: neither a dead letter nor a failure that passes."""

    def decode(self, records, names=()):
        if any(record.value == POISON for record in records):
            raise ZeroDivisionError("a bug")
        return super().decode(records, names)


@pytest.fixture
def join(cluster):
    """Members of a group; all are closed at the end."""
    with ExitStack() as every:

        def member(*arguments, **more):
            found = Member(cluster, *arguments, **more)
            every.callback(found.close)
            return found

        yield member


@pytest.mark.usefixtures("client")
def test_members_share_one_model_and_take_over_from_the_dead(cluster, join):
    topic, out, lives = (
        cluster.topic(partitions=3),
        cluster.topic("assignments", 3),
        cluster.topic("lifecycle"),
    )
    written = [events(3 * N, seed=number) for number in range(3)]

    def write(phase):
        for number, (values, _) in enumerate(written):
            cluster.write(topic, values[phase * N : (phase + 1) * N], number)

    write(0)
    topics = {"assignments": out, "lifecycle": lives}
    first = join(topic, "first", **topics)
    until("the first model", lambda: all_at([first], N, 3) and first.service.stats.ready)
    assert first.group.leads
    second = join(topic, "second", **topics)
    both = [first, second]
    until("partitions to be shared", lambda: all_at(both, N, 3) and len(second.positions) in (1, 2))
    write(1)
    until("both to learn", lambda: all_at(both, 2 * N, 3))
    until("both to know of each other", lambda: len(second.group.active_members()) == 2)
    until("who leads to be told", lambda: sum(status.leads for status in second.group.active_members()) == 1)
    leader, other = both if first.group.leads else both[::-1]
    leader.close()  # without a last checkpoint: what it has learnt since is learnt again by the other
    write(2)
    until("the other to take over", lambda: all_at([other], 3 * N, 3) and other.group.leads)
    until("its model to hold all", lambda: other.group.clusterer.n_seen == 9 * N)
    until("its status to tell all", lambda: sum_of(other.group.active_members()) == 9 * N)
    check(cluster, topic, out, lives, written, other)


@pytest.mark.usefixtures("client")
def test_members_share_a_model_with_categories(cluster, join):
    topic, out = cluster.topic(partitions=2), cluster.topic("assignments", 2)
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=(2, N))
    for number, kinds in enumerate(truth.tolist()):
        rows = [{"x": float(rng.normal(9.0 * (k == 2))), "channel": f"c{k}", "floor": f"f{k}"} for k in kinds]
        cluster.write(topic, [json.dumps(row).encode() for row in rows], number)
    both = [join(topic, name, assignments=out) for name in ("first", "second")]
    until("both to learn", lambda: all_at(both, N, 2))
    leader = until("a leader", lambda: next((member for member in both if member.group.leads), None))
    until(
        "its model to hold all",
        lambda: (found := leader.group.clusterer) is not None and found.n_seen == 2 * N,
    )
    assert {name: set(found) for name, found in leader.group.clusterer.categories.items()} == {
        "channel": {"c0", "c1", "c2"},
        "floor": {"f0", "f1", "f2"},
    }
    model = leader.group.clusterer
    one_each = [{"x": 9.0 * (k == 2), "channel": f"c{k}", "floor": f"f{k}"} for k in range(3)]
    assert len(set(model.predict_many(one_each).tolist())) == 3
    assert len(cluster.values(out)) == 2 * N


def sum_of(members):
    """How many events the leader has told of, when it was alone."""
    return sum(sum(one.positions.values()) for one in members if one.leads)


def check(cluster, topic, out, lives, written, member):
    """Each event is told once, by the model of the version that is told; totals are exact; lives are told once."""
    told = cluster.values(out)
    assert Counter(one["id"] for one in told) == {
        f"{topic}-{p}-{i}": 1 for p in range(3) for i in range(3 * N)
    }
    models, versions = published(cluster, topic)
    assert versions == sorted(versions)
    rows = np.concatenate([rows for _, rows in written])
    at = [int(p) * 3 * N + int(i) for p, i in (one["id"].split("-")[-2:] for one in told)]
    by_name = {name: model.predict(rows) for name, model in models.items()}
    assert all(
        one["cluster"]
        == (None if one["version"] is None else by_name[one["version"], one["revision"]][place])
        for one, place in zip(told, at, strict=True)
    )
    assert {(one["version"], one["revision"]) for one in told} <= {(None, None), *models}
    shown = member.service.displayed_clusterer
    assert shown.n_clusters == 3
    assert shown.tree.total.weight[0] == len(rows)
    np.testing.assert_allclose(shown.tree.total.mean[0], rows.mean(axis=0), rtol=1e-9)
    told_to_users = Backend(member.service).status()
    assert (told_to_users["events"], told_to_users["n_clusters"], told_to_users["features"]) == (
        9 * N,
        3,
        ["x0", "x1"],
    )
    (leading,) = [one for one in told_to_users["group"]["members"] if one["leads"]]
    assert leading["positions"] == {f"{topic}-{number}": 3 * N for number in range(3)}
    assert leading["model_version"] == told_to_users["group"]["model_version"] == versions[-1]
    metrics = generate_latest(registry(Backend(member.service))).decode()
    assert "streamclust_group_leader 1.0" in metrics
    assert "streamclust_model_staleness_seconds" in metrics
    assert Backend(member.service).take_snapshot("rbhc").events == 9 * N
    changes = cluster.values(lives)
    assert len({one["id"] for one in changes}) == len(changes)
    assert [change.to_dict() for change in shown.events] == [
        {name: value for name, value in one.items() if name != "id"} for one in changes
    ]


@pytest.mark.usefixtures("client")
def test_a_member_that_ends_in_good_order_leaves_nothing_to_learn_again(cluster, join):
    """Its last state goes out as it ends, however long the interval; whoever stands by goes on from there."""
    topic, out = cluster.topic(), cluster.topic("assignments")
    values = events(3 * N)[0]
    cluster.write(topic, values[:N])
    first = join(topic, "first", every=1000.0, assignments=out)
    until("the first model", lambda: all_at([first], N, 1) and first.service.stats.ready)
    second = join(topic, "second", every=1000.0, assignments=out)
    until("the second to stand by", lambda: second.source._consumer is not None)
    cluster.write(topic, values[N : 2 * N])
    until("all to be told", lambda: all_at([first], 2 * N, 1) or all_at([second], 2 * N, 1))
    leaving, staying = (first, second) if first.positions else (second, first)
    leaving.leave()
    cluster.write(topic, values[2 * N :])
    until("the other to go on", lambda: all_at([staying], 3 * N, 1))
    assert staying.service.stats.replayed == 0
    assert Counter(one["id"] for one in cluster.values(out)) == {f"{topic}-0-{i}": 1 for i in range(3 * N)}


@pytest.fixture
def at_work(cluster):
    """Producers with an open transaction, which the broker would end after ten minutes."""
    with ExitStack() as every:

        def producer(id, topic, offset=None):
            found = KafkaProducer(
                bootstrap_servers=cluster.address, transactional_id=id, transaction_timeout_ms=600_000
            )
            every.callback(lambda: (found._sender.force_close(), found.close(timeout=0)))
            found.init_transactions()
            found.begin_transaction()
            found.send(topic, b"?", key=b"another/state/0", partition=0).get(timeout=60)
            if offset is not None:
                at = {TopicPartition(offset[0], 0): OffsetAndMetadata(offset[1], "", -1)}
                member = ConsumerGroupMetadata(cluster.name, -1, "", None)
                found.send_offsets_to_transaction(at, member)
            return found

        yield producer


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("where", ["state", "model", "offsets"])
def test_a_transaction_that_a_dead_member_left_open_is_ended(cluster, join, at_work, where):
    """It holds up whoever takes over; a broker ends it after its time-out, here ten minutes."""
    topic = cluster.topic()
    prepare(topic, cluster.options)
    cluster.write(topic, events(N)[0])
    dead = f"{cluster.name}.dead"
    if where == "offsets":
        at_work(dead, cluster.topic("assignments"), (topic, 7))
    else:
        at_work(dead, {"state": state_topic, "model": model_topic}[where](topic))
    member = join(topic, "next")
    until("its successor to lead", lambda: all_at([member], N, 1) and member.service.stats.ready)


def test_only_abandoned_transactions_of_the_group_are_ended(cluster, at_work):
    topic = cluster.topic()
    prepare(topic, cluster.options)
    state = state_topic(topic)
    foreign = at_work(f"{cluster.name}2.alive", state)
    elsewhere = at_work(f"{cluster.name}.elsewhere", cluster.topic("other"))
    dead = at_work(f"{cluster.name}.dead", state)
    mine = at_work(f"{cluster.name}.mine", state)
    held_up = [f"{cluster.name}.dead", f"{cluster.name}.mine"]
    until(
        "both to be old enough",
        lambda: abandoned_transactional_ids(cluster.admin, cluster.name, state, 0) == held_up,
    )
    end_abandoned(cluster.name, state, 0, cluster.options, own=f"{cluster.name}.mine")
    mine.commit_transaction()
    assert abandoned_transactional_ids(cluster.admin, cluster.name, state, 0) == []
    with pytest.raises(KafkaError):
        dead.commit_transaction()
    foreign.commit_transaction()
    elsewhere.commit_transaction()


def test_a_member_with_a_name_comes_back_without_a_rebalance(cluster, join):
    """Static membership: within its session, which nobody waits for, it has its partitions again; the others go on."""
    topic = cluster.topic(partitions=2)
    values = [events(2 * N, seed=number)[0] for number in range(2)]
    for number in range(2):
        cluster.write(topic, values[number][:N], number)
    first, second = (join(topic, name, static=True, session=600.0) for name in ("first", "second"))
    until("each to have one", lambda: len(first.positions) == 1 and all_at([first, second], N, 2))
    generation, held = second.source.consumer.group_metadata().generation_id, set(first.positions)
    first.close()
    for number in range(2):
        cluster.write(topic, values[number][N:], number)
    again = join(topic, "first", static=True, session=600.0)
    until("it to come back", lambda: all_at([again, second], 2 * N, 2))
    assert set(again.positions) == held
    assert second.source.consumer.group_metadata().generation_id == generation


def test_parts_and_a_partition_that_cannot_be_read(cluster, join):
    """A small message limit makes more parts; a state of a newer format stops its own partition alone."""
    topic = cluster.topic(partitions=2)
    cluster.topic("in.streamclust.state", 2, **{"cleanup.policy": "compact", "max.message.bytes": "15000"})
    for number in range(2):
        cluster.write(topic, events(N, seed=number)[0], number)
    member = join(topic, "only", largest=28_000)
    until("all to be learnt", lambda: all_at([member], N, 2) and member.service.stats.ready)
    assert member.sink.max_message_bytes < 15_000
    records = cluster.read(state_topic(topic))
    assert any(record.key.endswith(b"/1") for record in records)
    member.close()
    newer = [("streamclust.format", b"99"), ("streamclust.version", b"9.9")]
    cluster.write(state_topic(topic), [b"?"], 1, key=f"{cluster.name}/state/0".encode(), headers=newer)
    for number in range(2):
        cluster.write(topic, events(N, seed=number)[0], number)
    later = join(topic, "later", largest=7000)
    until("the sound partition to go on", lambda: later.positions == {(topic, 0): 2 * N})
    assert later.service.clusterer.shards.n_seen == {(topic, 0): 2 * N}
    until("the other to be stopped", lambda: later.service.stats.stopped)
    (reason,) = later.service.stats.stopped.values()
    assert "format 99, written by streamclust 9.9" in reason
    assert "Run the version that wrote it" in reason
    until("a model without its news", lambda: later.positions and later.group.clusterer.n_seen == 3 * N)


@pytest.mark.usefixtures("client")
def test_a_poison_record_stops_its_partition_alone_until_it_is_mended(cluster, join):
    """The others go on, models come; whoever can read the record goes on from before it, and tells each event once."""
    topic, out = cluster.topic(partitions=2), cluster.topic("assignments", 2)
    values = [events(2 * N, seed=number)[0] for number in range(2)]
    for number in range(2):
        cluster.write(topic, values[number][:N], number)
    cluster.write(topic, [POISON], 1)
    first = join(topic, "first", decoder=Poisoned(), assignments=out)
    until("the poison to be met", lambda: first.service.stats.stopped and first.positions)
    assert first.service.stats.stopped == {(topic, 1): "ZeroDivisionError: a bug"}
    for number in range(2):
        cluster.write(topic, values[number][N:], number)
    until("the other partition to go on", lambda: first.positions == {(topic, 0): 2 * N})
    until("a model of it", lambda: first.group.n_seen >= 2 * N)
    first.leave()
    second = join(topic, "second", assignments=out)
    until("all to be learnt", lambda: second.positions == {(topic, 0): 2 * N, (topic, 1): 2 * N + 1})
    told = Counter(one["id"] for one in cluster.values(out))
    places = [i for i in range(2 * N + 1) if i != N]
    assert told == {f"{topic}-0-{i}": 1 for i in range(2 * N)} | {f"{topic}-1-{i}": 1 for i in places}


def test_topics_must_be_as_they_must(cluster):
    options = {"bootstrap_servers": cluster.address}
    with pytest.raises(Transient, match="there is no topic"):
        prepare(f"{cluster.name}.nothing", options)
    topic = cluster.topic(partitions=3)
    assert prepare(topic, options) == 3
    assert prepare(topic, options) == 3  # which finds them
    found = {one["name"]: len(one["partitions"]) for one in cluster.admin.describe_topics()}
    assert (found[state_topic(topic)], found[model_topic(topic)]) == (3, 1)
    other = cluster.topic("other")
    cluster.topic("other.streamclust.state")
    with pytest.raises(UnfitTopic, match=r"cleanup.policy=delete.*kafka-configs.sh"):
        prepare(other, options)
    third = cluster.topic("third", 2)
    cluster.topic("third.streamclust.state", 1, **{"cleanup.policy": "compact"})
    assert prepare(third, options) == 2  # which grows the topic of states
    (grown,) = cluster.admin.describe_topics([state_topic(third)])
    assert len(grown["partitions"]) == 2


def as_user(name):
    """Options to log in at a broker's listener for passwords."""
    known = {"sasl_mechanism": "PLAIN", "sasl_plain_username": name, "sasl_plain_password": PASSWORD}
    return known | {"security_protocol": "SASL_PLAINTEXT"}


def grant(cluster, kind, name, *operations, prefix=False):
    """Let the guest do something."""
    how = ACLResourcePatternType.PREFIXED if prefix else ACLResourcePatternType.LITERAL
    pattern = ResourcePattern(kind, name, how)
    cluster.admin.create_acls(
        [ACL(f"User:{GUEST}", "*", one, ACLPermissionType.ALLOW, pattern) for one in operations]
    )


def test_rights_are_asked_for_by_name_and_those_told_of_are_enough(secure_broker, client):
    """On a broker that asks for them: what is missing is said, nothing is created, and then all that is needed."""
    read, write = ACLOperation.READ, ACLOperation.WRITE
    with Cluster(secure_broker["sasl"], client, **as_user(USER)) as cluster, ExitStack() as every:
        topic = cluster.topic(partitions=2)
        guest = {"bootstrap_servers": cluster.address} | as_user(GUEST)

        def refused():
            with pytest.raises(UnfitTopic) as found:
                prepare(topic, guest)
            assert not {state_topic(topic), model_topic(topic)} & set(cluster.admin.list_topics())
            return str(found.value)

        assert f"not authorised to read topic {topic} (TOPIC_AUTHORIZATION_FAILED)" in refused()
        grant(cluster, ResourceType.TOPIC, topic, read)
        told = refused()
        assert f"not authorised to use topic {state_topic(topic)}" in told
        assert (
            f"kafka-topics.sh --create --topic {state_topic(topic)} --partitions 2 --config cleanup" in told
        )
        grant(cluster, ResourceType.TOPIC, f"{topic}.streamclust.", read, write, prefix=True)
        assert (
            "not authorised to create it (TOPIC_AUTHORIZATION_FAILED). To create it: kafka-topics.sh"
            in refused()
        )
        assert prepare(topic, cluster.options) == prepare(topic, guest) == 2
        grant(cluster, ResourceType.GROUP, cluster.name, read)
        grant(cluster, ResourceType.TRANSACTIONAL_ID, cluster.name, write, prefix=True)
        for number in range(2):
            cluster.write(topic, events(N, seed=number)[0], number)
        member = Member(cluster, topic, "guest", login=as_user(GUEST))
        every.callback(member.close)
        until("all to be learnt", lambda: all_at([member], N, 2) and member.service.stats.ready)


# ---------------------------------------------------------------- parts


def assembled(outputs, group="g", lenient=False):
    assembler = Assembler(group, "topic", lenient)
    records = [Message(i, value, key, headers) for i, (value, key, headers, *_) in enumerate(outputs)]
    return [whole for record in records if (whole := assembler.add(record)) is not None]


def test_a_state_comes_back_from_its_parts():
    state = State({"x": np.random.default_rng(0).normal(size=1000)}, {"place": [1, None, 2]})
    messages = parts("g", "state", packed(state), 1000)
    assert len(messages) > 3
    assert max(message.size for message in messages) <= 1000
    (whole,) = assembled(messages)
    assert np.array_equal(whole.state().arrays["x"], state.arrays["x"])
    assert assembled(messages, group="another") == []
    assert assembled(messages[:-1]) == []
    with pytest.raises(CheckpointError, match="cannot be read"):
        StoredState("state", "1", b"rubbish").state()


def test_states_of_the_first_format_are_read():
    """They were compressed as a whole: a group that is upgraded goes on from what it has."""
    state = State({"x": np.arange(1000.0)}, {"place": [1, None, 2]})
    messages = parts("g", "state", zlib.compress(encode(state)), 1000)
    older = [
        message._replace(headers=[("streamclust.format", b"1"), *message.headers[1:]]) for message in messages
    ]
    (whole,) = assembled(older)
    assert np.array_equal(whole.state().arrays["x"], state.arrays["x"])


def test_a_state_of_another_format_is_left_out_where_others_count():
    newer = Output(b"?", b"g/state/0", [("streamclust.format", b"99")])
    sound = parts("g", "state", b"s" * 1500, 1000)
    with pytest.raises(CheckpointError, match="format 99"):
        assembled([*sound, newer])
    (whole,) = assembled([newer, *sound, newer], lenient=True)
    assert whole.body == b"s" * 1500


def test_records_of_others_are_no_parts():
    """Keys that `parts` does not write are somebody else's; a record without its headers is refused with the cure."""
    sound = parts("g", "state", b"s" * 1500, 1000)
    keys = [
        b"g/state/backup",
        "g/state/²".encode(),
        "g/state/٣".encode(),
        b"g/state/01",
        b"g/state/" + b"9" * 5000,
    ]
    others = [Output(b"?", key, [("streamclust.format", b"2")]) for key in [*keys, None, b"", b"\xff/0"]]
    (whole,) = assembled([*others, sound[0], *others, *sound[1:]])
    assert whole.body == b"s" * 1500
    kinds = [("streamclust.format", b"2"), ("streamclust.generation", b"a"), ("streamclust.parts", b"1")]
    for bare in (
        kinds[:1],
        kinds[:2],
        [*kinds[:2], ("streamclust.parts", None)],
        [*kinds[:2], ("streamclust.parts", b"x")],
    ):
        record = Output(b"?", b"g/state/0", bare)
        with pytest.raises(CheckpointError, match="without the headers of a state; delete it"):
            assembled([record])
        (whole,) = assembled([record, *sound, record], lenient=True)
        assert whole.body == b"s" * 1500


def test_parts_of_an_older_generation_are_never_mixed_in():
    old, new = parts("g", "state", b"o" * 1500, 1000), parts("g", "state", b"n" * 2400, 1000)
    assert len(old) < len(new)
    whole = [one.body for one in assembled([*old, *new[:2], *old, *new])]
    assert whole == [b"o" * 1500, b"o" * 1500, b"n" * 2400]
    (left,) = assembled([*new[2:], *old])  # what compaction leaves of a longer one before
    assert left.body == b"o" * 1500
    (gone,) = assembled([Output(None, b"g/member/a/0")])
    assert gone.body is None
