"""Names of clusters of a group's model: given at any member, known to all, and kept through restarts."""

from contextlib import ExitStack
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from streamclust_connectors.decode import Decoder, Fields
from streamclust_connectors.http.backend import Backend
from streamclust_connectors.http.problems import HttpProblem
from streamclust_connectors.kafka.cluster_names import GivenNames, NameRecord, name_record, names_in
from streamclust_connectors.kafka.state_records import StoredState
from tests.connectors.cluster import events, until
from tests.connectors.members import Member

N = 400
"""Events of each partition."""


@pytest.fixture
def join(cluster):
    """Members of a group; all are closed at the end."""
    with ExitStack() as every:

        def member(*arguments, **more):
            found = Member(cluster, *arguments, **more)
            every.callback(found.close)
            return found

        yield member


def shown(member):
    """Names that a member's API shows."""
    return {one["id"]: one["name"] for one in Backend(member.service).clusters()["clusters"]}


def heaviest(member):
    """Ids of the clusters, the heaviest first."""
    return [one["id"] for one in Backend(member.service).clusters()["clusters"]]


@pytest.mark.compiled
@pytest.mark.usefixtures("client")
def test_a_name_given_at_any_member_reaches_all_and_stays(cluster, join):
    topic, out = cluster.topic(partitions=2), cluster.topic("assignments", 2)
    written = [events(3 * N, seed=number)[0] for number in range(2)]

    def write(phase):
        for number, values in enumerate(written):
            cluster.write(topic, values[phase * N : (phase + 1) * N], number)

    write(0)
    first, second = join(topic, "first", assignments=out), join(topic, "second", assignments=out)
    both = first, second
    until("partitions to be shared", lambda: [len(member.positions) for member in both] == [1, 1])
    until("a model of all events", lambda: all(member.group.n_seen == 2 * N for member in both))
    until("readiness", lambda: all(member.service.stats.ready for member in both))
    until("a leader", lambda: sum(member.group.leads for member in both) == 1)
    leader, other = both if first.group.leads else both[::-1]
    one, two, *_ = heaviest(other)

    assert Backend(other.service).name_cluster(one, "night shift") == {"id": one, "name": "night shift"}
    assert shown(other)[one] == "night shift"  # at once where it was given
    Backend(leader.service).name_cluster(two, "day shift")
    with pytest.raises(HttpProblem, match="no cluster 999"):
        Backend(other.service).name_cluster(999, "nobody")
    wanted = {one: "night shift", two: "day shift"}
    until("the names in the model", lambda: all(member.group.names == wanted for member in both))
    assert all(shown(member)[one] == "night shift" for member in both)

    write(1)
    until("events of the second phase", lambda: all(member.group.n_seen == 4 * N for member in both))
    told = [record for record in cluster.values(out) if record["cluster"] == one]
    assert told[-1]["name"] == "night shift"
    assert leader.group.names == wanted

    Backend(other.service).name_cluster(two, None)
    until("it to be taken away", lambda: leader.group.names == {one: "night shift"})
    leader.close()  # as if it were killed
    until("the other to lead", lambda: other.group.leads and len(other.positions) == 2)
    write(2)
    until("all events in the model", lambda: other.group.n_seen == 6 * N)
    assert other.group.names == {one: "night shift"}
    other.close()
    third = join(topic, "third", assignments=out)  # nobody is left who could tell it
    until("the model of before", lambda: third.group.n_seen == 6 * N)
    assert third.group.names == {one: "night shift"}


@pytest.mark.compiled
def test_a_name_that_the_leader_did_not_publish_is_read_by_the_next(cluster, join):
    """It was sent, and the leader died before its next model."""
    topic = cluster.topic(partitions=2)
    for number in range(2):
        cluster.write(topic, events(N, seed=number)[0], number)
    first, second = join(topic, "first"), join(topic, "second")
    both = first, second
    until("partitions to be shared", lambda: [len(member.positions) for member in both] == [1, 1])
    until("a model of all events", lambda: all(member.group.n_seen == 2 * N for member in both))
    until("readiness", lambda: all(member.service.stats.ready for member in both))
    until("a leader", lambda: sum(member.group.leads for member in both) == 1)
    leader, other = both if first.group.leads else both[::-1]
    leader.group.publish = lambda: ()  # it is busy
    one = heaviest(other)[0]
    Backend(other.service).name_cluster(one, "night shift")
    until("the name to be sent", lambda: not other.group._given._unsent)
    assert other.group.names == {}
    assert shown(other)[one] == "night shift"
    leader.close()
    until("the other to publish it", lambda: other.group.names == {one: "night shift"})


@pytest.mark.compiled
@pytest.mark.usefixtures("client")
def test_examples_have_the_keys_of_events_whoever_has_read_them(cluster, join):
    topic = cluster.topic(partitions=2)
    rows = [np.random.default_rng(number).normal(size=(N, 2)) for number in range(2)]
    rows = [part + 12.0 * (np.arange(N) % 2)[:, None] for part in rows]
    for number, part in enumerate(rows):
        values = [
            {"who": f"{number}:{i}", "at": float(i), "x": x, "y": y} for i, (x, y) in enumerate(part.tolist())
        ]
        cluster.write(topic, [msgspec.json.encode(value) for value in values], number)

    def member(name):
        return join(topic, name, decoder=Decoder(Fields(key="who", time="at")))

    first, second = both = member("first"), member("second")
    until("partitions to be shared", lambda: [len(one.positions) for one in both] == [1, 1])
    until("a model of all events", lambda: all(one.group.n_seen == 2 * N for one in both))

    def check(one):
        """All examples are told with the key, time and id of the event that has their values; which partitions."""
        backend, found = Backend(one.service), set()
        for cluster_id in heaviest(one):
            detail = backend.cluster(cluster_id)
            for example in detail["examples"] + detail["border"]["events"]:
                number, place = map(int, example["key"].split(":"))
                assert list(example["values"].values()) == rows[number][place].tolist()
                assert (example["time"], example["id"]) == (float(place), f"{topic}-{number}-{place}")
                found.add(number)
        return found

    assert all(check(one) == {0, 1} for one in both)
    first.leave()
    second.leave()
    third = member("third")
    until("the model of before", lambda: third.group.n_seen == 2 * N)
    assert check(third) == {0, 1}


def test_a_name_is_sent_until_the_topic_shows_it():
    given = GivenNames()
    given.add(3, "night shift")
    given.add(3, "day shift")
    (message,) = given.messages("group")
    assert message.key == b"group/name/3/0"
    record = name_record(StoredState("name/3", "", message.value))
    assert (record.cluster, record.name) == (3, "day shift")
    given.seen(NameRecord(3, "day shift", "of somebody else"), 7)
    assert len(given.messages("group")) == 1
    given.seen(record, 9)
    assert not given.messages("group")
    calls = []
    clusterer = SimpleNamespace(name=lambda cluster, name: calls.append((cluster, name)))
    given.published({"names_read_to": 8})
    given.give_to(clusterer)
    assert calls == [(3, "day shift")]  # the leader had not read it
    given.published({"names_read_to": 9})
    given.give_to(clusterer)
    assert len(calls) == 1


def test_records_that_are_no_names_are_passed_over():
    assert name_record(StoredState("model", "", b"{}")) is None
    assert name_record(StoredState("name/3", "", None)) is None
    assert name_record(StoredState("name/3", "", b"rubbish")) is None
    assert names_in(None) == {}
