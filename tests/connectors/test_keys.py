"""A model for each key, between doubles of source and sink."""

import msgspec
import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.checkpoint import CheckpointError, State, encode
from streamclust_connectors.decode import Decoder, Fields
from streamclust_connectors.interfaces import Assigned, Batch, Message, Revoked, SavedPosition, Transient
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.service.key_database import (
    KeyDatabase,
    SavedModel,
    packed,
    saved_position,
    unpacked,
)
from streamclust_connectors.service.key_models import KeyModels, KeyStore
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource
from tests.conftest import INTERPRETED

P, Q = ("in", 0), ("in", 1)
OPTIONS = {"seed": 3, "warmup": 20}
N_KEYS = 4 if INTERPRETED else 12
N = 60 * N_KEYS
EAGER = Policy(checkpoint_every=0.0, backoff=0.001)
NEVER = Policy(checkpoint_every=1e9, backoff=0.001)


def events(n=N, seed=0, n_keys=N_KEYS):
    """Events of several customers in turn by chance: customer i has 1 + i % 3 clusters."""
    rng = np.random.default_rng(seed)
    who = rng.integers(n_keys, size=n)
    rows = rng.normal(size=(n, 2)) + 15.0 * (rng.integers(6, size=n) % (1 + who % 3))[:, None]
    return [
        {"customer": f"c{i}", "x": x, "y": y} for i, (x, y) in zip(who.tolist(), rows.tolist(), strict=True)
    ]


def encoded(some):
    return [msgspec.json.encode(event) for event in some]


def models_in(directory, max_models=1000, **more):
    return KeyModels(OPTIONS, directory, max_models, **more)


def service_on(source, sink, models, policy=EAGER, **more):
    decoder = Decoder(Fields(key=None if models.by_record_key else "customer"))
    return Service(source, sink, models, KeyStore(models), decoder, policy, **more)


def run(directory, values, size=77, max_models=1000, policy=EAGER, **more):
    """The sink and the models after a run on one partition."""
    sink, models = ListSink(), models_in(directory, max_models, **more)
    service_on(MemorySource({P: values}, size=size), sink, models, policy).run()
    return sink, models


def alone(some):
    """What each customer's own clusterer says of its events, by their places, and its state."""
    told, models = {}, {}
    for place, event in enumerate(some):
        model = models.setdefault(event["customer"], StreamClusterer(**OPTIONS, background=False))
        point = {name: event[name] for name in "xy"}
        told[place] = model.assign_many([point]).cluster[0] if model.n_seen else None
        model.learn_one(point)
    return told, models


def bits(model):
    return encode(model.to_state())


def test_each_key_is_learnt_as_its_own_clusterer_learns_it(tmp_path):
    some = events()
    told, separate = alone(some)
    sink, models = run(tmp_path, encoded(some))
    found = sink.values("assignments")
    assert [one["id"] for one in found] == [f"in-0-{i}" for i in range(N)]  # in the order of the events
    assert [one["key"] for one in found] == [event["customer"] for event in some]
    assert [one["cluster"] for one in found] == [told[i] for i in range(N)]
    assert models.n_keys == len(separate) == N_KEYS
    for key, model in separate.items():
        assert bits(models.peek(P, key)) == bits(model)


def test_outputs_do_not_depend_on_batches(tmp_path):
    values = encoded(events())
    sinks = [run(tmp_path / str(size), values, size)[0] for size in (N, 13)]
    assert sinks[0].outputs["assignments"] == sinks[1].outputs["assignments"]
    lives = [sorted(sink.values("lifecycle"), key=lambda one: one["id"]) for sink in sinks]
    assert lives[0] == lives[1]
    assert {one["key"] for one in lives[0]} == {f"c{i}" for i in range(N_KEYS)}
    assert len({one["id"] for one in lives[0]}) == len(lives[0])


def test_models_that_leave_memory_come_back_as_they_were(tmp_path):
    values = encoded(events())
    many, _ = run(tmp_path / "many", values)
    few, models = run(tmp_path / "few", values, size=5, max_models=2)
    assert few.outputs["assignments"] == many.outputs["assignments"]
    assert models.n_evicted > 10
    assert models.n_loaded > 10
    assert models.n_live <= 2 + 5


def test_memory_is_freed_before_a_checkpoint_is_due(tmp_path):
    _, models = run(tmp_path, encoded(events()), size=5, max_models=2, policy=NEVER)
    assert models.n_live <= 2 + 5


class Crash(BaseException):
    """The process ends, and no handler runs."""


class CrashingSink(ListSink):
    """Fails at a commit."""

    left = 3

    def commit(self, positions):
        self.left -= 1
        if self.left < 0:
            raise Crash
        super().commit(positions)


@pytest.mark.parametrize("max_models", [2, 1000])
def test_after_a_crash_each_event_counts_once_and_repeats_are_equal(tmp_path, max_models):
    values = encoded(events())
    whole, straight = run(tmp_path / "whole", values)
    sink, models = CrashingSink(), models_in(tmp_path / "crashed", max_models)
    with pytest.raises(Crash):
        service_on(MemorySource({P: values}, size=50), sink, models, Policy(checkpoint_every=0.0)).run()
    models.close()  # as the end of the process does; nothing is written
    at = saved_position(tmp_path / "crashed" / "keys" / "in-0.sqlite").offset
    assert 0 < at < N
    again, continued = run(tmp_path / "crashed", values, max_models=max_models)
    expected = {one["id"]: one for one in whole.values("assignments")}
    assert [one["id"] for one in again.values("assignments")] == [f"in-0-{i}" for i in range(at, N)]
    for one in sink.values("assignments") + again.values("assignments"):
        assert one == expected[one["id"]]
    assert continued.n_seen == N
    for i in range(N_KEYS):
        assert bits(continued.peek(P, f"c{i}")) == bits(straight.peek(P, f"c{i}"))


def test_a_partition_takes_its_keys_to_its_next_owner(tmp_path):
    values = encoded(events())
    _, straight = run(tmp_path / "straight", values)
    first, second = models_in(tmp_path / "moved"), models_in(tmp_path / "moved")
    one, other = ListSink(), ListSink()
    here, there = (
        service_on(MemorySource({}), sink, models) for sink, models in ((one, first), (other, second))
    )
    here.source = here.partitions.source = Scripted([Assigned([P])], values)
    there.source = there.partitions.source = Scripted([Assigned([P])], values)
    half = [Message(i, value) for i, value in enumerate(values[: N // 2])]
    here.run_once()
    here.source.say([Batch(P, half)])
    here.run_once()
    here.run_once()
    there.run_once()  # is assigned the partition while its owner has not given it up
    with pytest.raises(Transient, match="still in use"):
        there.run_once()
    here.source.say([Revoked([P])])
    here.run_once()
    assert first.n_live == first.n_keys == 0
    there.run_once()
    assert there.source.sought == {P: N // 2}
    there.source.say([Batch(P, [Message(i, values[i]) for i in range(N // 2, N)])])
    there.run_once()
    there.run_once()
    assert [found["id"] for found in one.values("assignments") + other.values("assignments")] == [
        f"in-0-{i}" for i in range(N)
    ]
    for i in range(N_KEYS):
        assert bits(second.peek(P, f"c{i}")) == bits(straight.peek(P, f"c{i}"))


class Scripted(MemorySource):
    """Delivers what it is told to."""

    def __init__(self, said, values):
        super().__init__({P: values})
        self.said, self.sought = [list(said)], {}

    def say(self, items):
        self.said.append(items)

    def poll(self, seconds):
        return self.said.pop(0) if self.said else []

    def seek(self, partition, offset):
        self.sought[partition] = offset


def test_a_key_of_two_partitions_has_a_model_in_each(tmp_path, caplog):
    values = encoded(events(20, n_keys=1))
    sink, models = ListSink(), models_in(tmp_path)
    service_on(MemorySource({P: values, Q: values[:5]}), sink, models).run()
    assert models.partitions_of("c0") == [P, Q]
    assert (models.peek(P, "c0").n_seen, models.peek(Q, "c0").n_seen) == (20, 5)
    assert caplog.text.count("partition the topic by that key") == 1


def test_events_without_a_key_are_dead_letters(tmp_path):
    good = {"customer": "a", "x": 1.0}
    bad = [
        {"x": 1.0},
        {"customer": None, "x": 1.0},
        {"customer": "", "x": 1.0},
        {"customer": "k" * 2000, "x": 1.0},
    ]
    several = [good, {"customer": "b", "x": None}]  # learnt together or not at all
    sink, models = run(
        tmp_path, encoded([good, *bad, several, {"customer": "a", "x": "?"}, {"customer": 7, "x": 2.0}])
    )
    assert [one["id"] for one in sink.values("assignments")] == ["in-0-0", "in-0-7"]
    assert len(sink.outputs["dead-letters"]) == 6
    assert models.n_keys == 2
    assert models.peek(P, "7").n_seen == models.peek(P, "a").n_seen == 1


def test_the_key_may_be_that_of_the_record(tmp_path):
    sink, models = ListSink(), models_in(tmp_path, by_record_key=True)
    service = service_on(Scripted([Assigned([P])], []), sink, models)
    service.run_once()
    keys = [b"a", b"b", None, b"a"]
    service.source.say([Batch(P, [Message(i, b'{"x": 1}', key) for i, key in enumerate(keys)])])
    service.run_once()
    assert [one["key"] for one in sink.values("assignments")] == ["a", "b", "a"]
    assert len(sink.outputs["dead-letters"]) == 1
    assert models.peek(P, "a").feature_names == ("x",)


# ---------------------------------------------------------------- database


def test_a_model_is_packed_without_loss():
    model = StreamClusterer(**OPTIONS)
    model.learn_many([{"x": float(i % 7), "y": float(i % 3)} for i in range(50)])
    state = model.to_state()
    assert bits(StreamClusterer.from_state(unpacked(packed(state)))) == bits(model)
    with pytest.raises(CheckpointError):
        unpacked(packed(state)[:-9])


def test_models_and_offset_are_written_together_or_not_at_all(tmp_path):
    path, place = tmp_path / "one.sqlite", SavedPosition(5, "t", 1)
    database = KeyDatabase(path)

    def failing():
        yield SavedModel("b", 1, 1, packed(State({}, {})))
        raise OSError("no")

    database.write(place, 9, [SavedModel("a", 9, 2, packed(State({}, {"n": 9})))])
    with pytest.raises(OSError, match="no"):
        database.write(SavedPosition(6, "t", 1), 10, failing())
    database.close()
    again = KeyDatabase(path)
    assert (again.position, again.events, len(again)) == (place, 9, 1)
    assert again.read("a").values == {"n": 9}
    assert again.read("b") is None
    assert [tuple(known) for known in again.keys(10)] == [("a", 9, 2)]
    assert again.keys(10, after="a") == []
    again.close()


def test_a_damaged_file_is_said_to_be_one(tmp_path):
    path = tmp_path / "one.sqlite"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(CheckpointError, match="damaged"):
        KeyDatabase(path)
    with pytest.raises(CheckpointError, match="damaged"):
        saved_position(path)
