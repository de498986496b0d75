"""The loop as a member of a group, between doubles: one partition's trouble is its own."""

import threading
from unittest.mock import MagicMock

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.checkpoint import State, shard_in
from streamclust.streaming import ModelSharing
from streamclust_connectors.decode import Decoder
from streamclust_connectors.interfaces import DataLoss, Transient, positions_from_state
from streamclust_connectors.kafka.group_model import MODEL, GroupModel, Leader
from streamclust_connectors.kafka.state_records import StoredState, packed
from streamclust_connectors.kafka.state_topic import STATE
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource
from tests.connectors.cluster import events, until

P, Q = ("in", 0), ("in", 1)
N = 200
POLICY = Policy(checkpoint_every=0.0, backoff=0.001, longest_backoff=0.01)


class Alone:
    """A group of one, without a model."""

    ready, leads, version, revision, staleness, clusterer = True, False, None, None, None, None

    def __init__(self):
        self.names, self.example_keys = {}, {}
        self.closed = False

    def update_learner(self, learner):
        learner.sharing.follow(None)

    def update_leadership(self, positions, waiting):
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


def test_a_partition_that_has_to_wait_lets_others_be_read(monkeypatch):
    """Brokers may not answer for minutes: the loop goes on polling meanwhile, and says which partition is not read."""
    monkeypatch.setattr("streamclust_connectors.service.lookups.RETRY_SECONDS", 0.01)
    three = {("in", number): events(N, seed=number)[0] for number in range(3)}
    source = MemorySource(three, size=50, endless=True)
    source.remote = True
    service = member(source)
    extent, silent = source.extent, threading.Event()
    lag, source.lag = source.lag, dict

    def waiting(partition):
        if partition == P and not silent.wait(0 if silent.is_set() else 60):
            raise AssertionError("nobody has waited so long")
        if partition == Q and not silent.is_set():
            raise Transient("its last owner's transaction is open")
        return extent(partition)

    source.extent = waiting
    service.partitions._lookups._turn = MagicMock()  # P's lookup hangs, the others have their turns
    service.run_once()
    until("the third", lambda: service.run_once() or list(service.stats.positions) == [("in", 2)])
    until("the reason", lambda: service.run_once() or service.stats.waiting.get(Q))
    assert service.stats.waiting == {P: "", Q: "its last owner's transaction is open"}
    assert not service.stats.ready
    assert "not all assigned partitions are read (in-0, in-1): its last owner's" in service.stats.not_ready
    source.lag = lag
    silent.set()
    until("all", lambda: service.run_once() or told_all(service, three))
    assert service.stats.ready


def told_all(service, partitions):
    return service.stats.positions == dict.fromkeys(partitions, N)


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


def drifting(n=7000):
    """Two clusters, which move slowly after 4,000 events."""
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(n, 1))
        + 12.0 * rng.integers(2, size=(n, 1))
        + np.clip(np.arange(n) - 4000, 0, None)[:, None] / 1000
    )


def test_members_follow_every_publication_of_a_version():
    """Between refits the clusters of a version move, and it is published again: two members must not differ then."""
    rows, points = drifting(), np.linspace(-6.0, 18.0, 100)[:, None]
    leader, member = StreamClusterer(seed=3), StreamClusterer(seed=3)
    group = GroupModel("in", "g", "one", MagicMock(), {}, StreamClusterer)
    group._thread = MagicMock()  # the test brings what the thread would read
    answers = {}
    for sequence, start in enumerate(range(4000, 7000, 250), 1):
        leader.learn_many(rows[0 if start == 4000 else start : start + 250])
        state = leader.sharing.merged_state()
        published = State(state.arrays, state.values | {"sequence": sequence, "published_at": 0.0})
        group._apply(StoredState(MODEL, str(sequence), packed(published)))
        group.update_learner(member)
        name = member.model.version, group.revision
        assert name == (leader.model.version, sequence)
        ours, theirs = member.assign_many(points), leader.assign_many(points)
        assert np.array_equal(ours.cluster, theirs.cluster)
        np.testing.assert_allclose(ours.novelty, theirs.novelty)
        answers[name] = tuple(ours.cluster.tolist())
    versions = [version for version, _ in answers]
    assert len(set(versions)) < len(set(zip(versions, answers.values(), strict=True))), (
        "no version had two answers"
    )
