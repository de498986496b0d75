"""The loop as a member of a group, between doubles: one partition's trouble is its own."""

import pytest

from streamclust import StreamClusterer
from streamclust.checkpoint import shard_in
from streamclust.streaming import ModelSharing
from streamclust_connectors.decode import Decoder
from streamclust_connectors.interfaces import DataLoss, Transient, positions_from_state
from streamclust_connectors.kafka.group_model import Leader
from streamclust_connectors.kafka.state_records import StoredState, packed
from streamclust_connectors.kafka.state_topic import STATE
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource
from tests.connectors.cluster import events

P, Q = ("in", 0), ("in", 1)
N = 200
POLICY = Policy(checkpoint_every=0.0, backoff=0.001, longest_backoff=0.01)


class Alone:
    """A group of one, without a model."""

    ready, leads, version, staleness, clusterer = True, False, None, None, None

    def __init__(self):
        self.closed = False

    def update_learner(self, learner):
        learner.sharing.follow(None)

    def update_leadership(self, positions):
        pass

    discard_uncommitted = publish = lambda self: ()

    def send_status(self, status):
        self.status = status

    def close(self):
        self.closed = True


class MemoryStore:
    """A store whose states come with their partitions."""

    transactional = True

    def __init__(self):
        self.states = {}

    def latest(self):
        return None

    def save(self, state):
        for name, place in positions_from_state(state.values["positions"]).items():
            if (summary := shard_in(state, name)) is not None:
                self.states[name] = place, summary

    def find(self, partition):
        return self.states.get(partition)

    def hand_over(self, partition, place, summary):
        pass

    def close(self):
        pass


class Poisoned(Decoder):
    """Fails at one record as nothing should: neither a dead letter nor a failure that passes."""

    def decode(self, records, names=()):
        if any(record.value == b"poison" for record in records):
            raise ZeroDivisionError("a bug")
        return super().decode(records, names)


def member(source, sink=None, decoder=None):
    sink = sink or ListSink(exactly_once=True)
    return Service(source, sink, StreamClusterer(), MemoryStore(), decoder, POLICY, group=Alone())


def told(service, partition):
    """How many events of a partition were told, each once."""
    found = [one["id"] for one in service.sink.values("assignments")]
    assert len(set(found)) == len(found)
    return sum(id.startswith(f"in-{partition[1]}-") for id in found)


def test_a_poison_record_stops_its_partition_alone():
    good, bad = events(N)[0], events(N, seed=1)[0]
    service = member(
        MemorySource({P: good, Q: [*bad[:50], b"poison", *bad[50:]]}, size=50), decoder=Poisoned()
    )
    source = service.source
    end = source.poll

    def polled(seconds):
        if not source.script and not source.lag().get(P) and service.stats.stopped:
            service.stop()
        return end(seconds)

    source.poll = polled
    service.run()
    assert told(service, P) == N
    assert told(service, Q) == 50
    assert service.stats.stopped == {Q: "ZeroDivisionError: a bug"}
    assert service.group.status.stopped == {"in-1": "ZeroDivisionError: a bug"}
    assert service.partitions.store.states[Q][0].offset == 50, "the state is that before the poison"


def test_records_deleted_as_they_are_read_stop_their_partition_alone():
    source = MemorySource({P: events(N)[0], Q: events(N, seed=1)[0]}, size=50)
    service = member(source)
    poll, turns = source.poll, iter(range(100))

    def polled(seconds):
        turn = next(turns)
        if turn == 4:
            source.partitions[Q] = source.partitions[Q][150:]
            raise DataLoss("offsets out of range")
        if turn > 4 and service.stats.stopped and not source.lag()[P]:
            service.stop()
        return poll(seconds)

    source.poll = polled
    service.run()
    assert told(service, P) == N
    assert told(service, Q) < 150
    assert "were deleted before they were learnt" in service.stats.stopped[Q]


def test_a_partition_that_has_to_wait_lets_others_begin():
    """At one failed try a turn: each may take seconds, and a member that does not poll is dropped."""
    three = {("in", number): events(N, seed=number)[0] for number in range(3)}
    source = MemorySource(three, size=50, endless=True)
    service = member(source)
    extent, tried = source.extent, []

    def waiting(partition):
        if partition in (P, Q):
            tried.append(partition)
            raise Transient("its last owner's transaction is open")
        return extent(partition)

    source.lag = dict
    source.extent = waiting
    found = []
    for _ in range(4):
        service.run_once()
        found.append(list(service.partitions.positions))
    assert tried == [P, Q, P], "one each turn, in turns"
    assert found == [[], [], [], [("in", 2)]]


def test_a_last_state_that_is_refused_ends_nothing():
    """As when a rebalance has begun: the next owner goes on from the state before."""
    service = member(MemorySource({P: events(N)[0]}, endless=True))
    commit, over = service.sink.commit, []

    def refused(positions):
        if over:
            raise Transient("the group is rebalancing")
        commit(positions)
        if positions == {P: N}:
            over.append(True)
            service.stop()

    service.sink.commit = refused
    service.run()
    assert service.group.closed
    assert service.sink.closed


class Read:
    """A state topic that was read already."""

    def __init__(self, *states):
        self.states = states

    def newest(self, number, name):
        return {STATE: StoredState(STATE, "", self.states[number])}


def test_a_summary_that_cannot_be_read_is_left_out_of_the_model():
    alone = StreamClusterer()
    alone.learn_many(events(N)[1], shard=P)
    sound = packed(shard_in(alone.to_state(), P))
    leader = Leader("in", 2, Read(sound, b"rubbish"), StreamClusterer(), 0)
    assert leader.publication().sequence == 1
    assert leader.clusterer.shards.names == (P,)


def test_a_refit_that_fails_leaves_the_group_its_last_model(monkeypatch):
    alone = StreamClusterer()
    alone.learn_many(events(N)[1], shard=P)
    leader = Leader("in", 1, Read(packed(shard_in(alone.to_state(), P))), StreamClusterer(), 0)
    monkeypatch.setattr(ModelSharing, "catch_up", lambda self: 1 / 0)
    with pytest.raises(Transient, match="model failed: ZeroDivisionError"):
        leader.publication()
