"""The loop, between doubles of source and sink."""

import hashlib
import json
import random
import signal

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.checkpoint.files import encode
from streamclust.schema.encoding import IdentifierColumns
from streamclust_connectors.decode import Decoder, Fields
from streamclust_connectors.interfaces import Assigned, Batch, DataLoss, Extent, Message, Revoked, Transient
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.service.outputs import ERROR_HEADER_PREFIX, AssignmentForm
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource
from streamclust_connectors.state_directory import StateDirectory
from tests.conftest import INTERPRETED
from tests.connectors.cluster import events

P, Q = ("in", 0), ("in", 1)
N = 300 if INTERPRETED else 3000
OPTIONS = {"warmup": 50, "seed": 3}
EAGER = Policy(checkpoint_every=0.0, backoff=0.001)


def serve(source, sink=None, store=None, policy=None, **more):
    service = Service(source, sink or ListSink(), StreamClusterer(**OPTIONS), store, policy=policy, **more)
    service.run()
    return service


def bits(clusterer):
    return hashlib.sha256(encode(clusterer.to_state())).hexdigest()


def plain(rows, size=None, shard=P):
    """What an uninterrupted run leaves."""
    clusterer = StreamClusterer(**OPTIONS)
    names = [f"x{i}" for i in range(rows.shape[1])]
    clusterer.learn_many([dict(zip(names, row, strict=True)) for row in rows.tolist()], shard=shard)
    return clusterer


class Crash(BaseException):
    """The process ends, and no handler runs."""


# ---------------------------------------------------------------- learning and emitting


def test_learns_what_the_clusterer_would_have():
    values, rows = events(N)
    assert bits(serve(MemorySource({P: values}, size=77)).clusterer) == bits(plain(rows))


def test_outputs_do_not_depend_on_batches():
    values, _ = events(N)
    sinks = [ListSink(), ListSink()]
    for sink, size in zip(sinks, (N, 61), strict=True):
        serve(MemorySource({P: values}, size=size), sink)
    assert sinks[0].outputs["assignments"] == sinks[1].outputs["assignments"]
    assert sinks[0].outputs["lifecycle"] == sinks[1].outputs["lifecycle"]
    found = sinks[0].values("assignments")
    assert [one["id"] for one in found] == [f"in-0-{i}" for i in range(N)]
    assert found[0]["cluster"] is None  # before the first event there is nothing to belong to
    assert all(isinstance(one["cluster"], int) and 0 <= one["probability"] <= 1 for one in found[1:])
    assert len({one["id"] for one in sinks[0].values("lifecycle")}) == len(sinks[0].outputs["lifecycle"]) > 0


def test_assignments_are_those_of_the_model_that_the_event_met():
    values, rows = events(N)
    sink = ListSink()
    service = serve(MemorySource({P: values}), sink)
    last = sink.values("assignments")[-1]
    assert last["version"] == service.clusterer.model.version
    assert last["cluster"] == service.clusterer.predict_many(rows[-1:])[0]
    assert last["novelty"] == pytest.approx(service.clusterer.score_many(rows[-1:])[0])


def test_keys_times_and_weights_go_along():
    values = [json.dumps({"id": f"k{i}", "at": i, "n": 2, "x": i % 7}).encode() for i in range(50)]
    sink = ListSink()
    decoder = Decoder(Fields(key="id", time="at", weight="n"))
    service = serve(MemorySource({P: values}), sink, decoder=decoder)
    assert [(one["key"], one["time"]) for one in sink.values("assignments")] == [
        (f"k{i}", i) for i in range(50)
    ]
    assert service.clusterer.tree.total.weight[0] == pytest.approx(100)


def test_assignments_in_bundles_are_the_same():
    values, _ = events(200)
    one, many = ListSink(), ListSink()
    serve(MemorySource({P: values}, size=70), one)
    serve(MemorySource({P: values}, size=70), many, policy=Policy(form=AssignmentForm(16)))
    bundles = many.values("assignments")
    assert [told for bundle in bundles for told in bundle] == one.values("assignments")
    assert max(map(len, bundles)) == 16


def test_components_are_named_if_asked_for():
    values, rows = events(190)
    plainly, asked = ListSink(), ListSink()
    serve(MemorySource({P: values}), plainly)
    service = serve(MemorySource({P: values}), asked, policy=Policy(form=AssignmentForm(component=True)))
    told = asked.values("assignments")
    assert "component" not in told[0]  # there was no model yet
    last = told[-1]
    view = service.clusterer.view()
    assert last["component"] == service.clusterer.assign_many(rows[-1:]).component[0]
    assert view.component_ids[last["component"]] == last["cluster"]
    assert [{k: v for k, v in one.items() if k != "component"} for one in told] == plainly.values(
        "assignments"
    )


def test_clusters_at_other_levels_are_named_if_asked_for():
    values, rows = events(190)
    plainly, asked = ListSink(), ListSink()
    serve(MemorySource({P: values}), plainly)
    service = serve(
        MemorySource({P: values}), asked, policy=Policy(form=AssignmentForm(levels=("fine", 2, 1, 99)))
    )
    told, clusterer = asked.values("assignments"), service.clusterer
    assert "levels" not in told[0]  # there was no model yet
    last = told[-1]
    for level, cluster in zip(("fine", 2, 1), last["levels"], strict=False):
        assert cluster == clusterer.predict_many(rows[-1:], level=level)[0]
    assert last["levels"][3] == last["levels"][0]
    assert [{k: v for k, v in one.items() if k != "levels"} for one in told] == plainly.values("assignments")


def test_what_nobody_asked_for_is_not_sent():
    sink = ListSink(channels=("lifecycle",))
    service = serve(MemorySource({P: [*events(200)[0], b"oops"]}), sink)
    assert set(sink.outputs) == {"lifecycle"}
    assert service.stats.dead_letters == 1


def test_a_tree_for_each_partition():
    (a, rows_a), (b, rows_b) = events(N, 1), events(N // 2, 2)
    service = serve(MemorySource({P: a, Q: b}, size=100))
    for name, rows in ((P, rows_a), (Q, rows_b)):
        total = service.clusterer.shards.tree(name).total
        assert total.weight[0] == len(rows)
        assert np.allclose(total.mean[0], rows.mean(axis=0))
        assert bits_of(service.clusterer.shards.tree(name)) == bits_of(plain(rows, shard=name).tree)


def bits_of(tree):
    return [array.tobytes() for array in tree.to_arrays().values()]


# ---------------------------------------------------------------- what cannot be learnt

BAD = [
    b'{"x0": 1',
    b'{"x0": "a", "x1": ""}',
    b'{"x0": 1e200}',
    b"\x00\xff",
    b"{}",
    b"[1, 2",
    b'{"x0": null}',
]


def test_text_of_messages_is_categories():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=900)
    values = [
        json.dumps(
            {"x": float(rng.normal(9.0 * k)), "channel": f"c{k}", "id": f"user{i}", "flag": bool(i % 2)}
        ).encode()
        for i, k in enumerate(truth.tolist())
    ]
    sink = ListSink()
    service = serve(MemorySource({P: values}, size=83), sink)
    plain_model = StreamClusterer(**OPTIONS)
    with pytest.warns(IdentifierColumns):
        plain_model.learn_many([json.loads(value) for value in values], shard=P)
    assert bits(service.clusterer) == bits(plain_model)
    assert set(service.clusterer.categories) == {"channel", "flag"}
    assert service.clusterer.n_clusters == 3
    assert "dead-letters" not in sink.outputs or not sink.outputs["dead-letters"]


def test_bad_messages_go_to_the_dead_letters_and_change_nothing():
    values, rows = events(N)
    dirty = []
    for i, value in enumerate(values):
        dirty += [value] + ([BAD[i % len(BAD)]] if i % 3 == 0 else []) + ([None] if i % 50 == 0 else [])
    sink = ListSink()
    service = serve(MemorySource({P: dirty}, size=83), sink)
    assert bits(service.clusterer) == bits(plain(rows))
    expected = [(i, value) for i, value in enumerate(dirty) if value in BAD]
    letters = sink.outputs["dead-letters"]
    assert [letter.value for letter in letters] == [value for _, value in expected]
    headers = [{name: value.decode() for name, value in letter.headers} for letter in letters]
    prefix = "__streamclust.errors."
    assert [int(header[prefix + "offset"]) for header in headers] == [i for i, _ in expected]
    assert all(
        header[prefix + "message"] and header[prefix + "stage"] in ("decode", "learn") for header in headers
    )
    assert {header[prefix + "topic"] for header in headers} == {"in"}
    assert service.stats.tombstones == sum(value is None for value in dirty)


def test_a_message_of_many_events_is_learnt_whole_or_not_at_all():
    source = MemorySource({P: [b'[{"x": 1}, {"x": 2}]', b'[{"x": 3}, {"x": "a"}, {"x": 5}]', b'[{"x": 6}]']})
    sink = ListSink()
    service = serve(source, sink)
    assert service.stats.events == service.clusterer.n_seen == 3
    assert [letter.value[:10] for letter in sink.outputs["dead-letters"]] == [b'[{"x": 3},']


def test_a_message_that_is_left_out_as_a_whole_brings_no_feature():
    messages = [b'{"z": 1}', b'[{"z": 1, "x": 1, "y": 2}, {"x": "a"}]', b'{"z": 2, "y": 3}']
    sink = ListSink()
    service = serve(MemorySource({P: messages}), sink)
    assert service.clusterer.feature_names == ("z", "y")
    assert [letter.value for letter in sink.outputs["dead-letters"]] == messages[1:2]
    assert [one["id"] for one in sink.values("assignments")] == ["in-0-0", "in-0-2"]


@pytest.mark.filterwarnings("ignore::streamclust.streaming.RefusedEvents")
@pytest.mark.parametrize("size", [1, 7, 300])
def test_a_wrong_time_goes_to_the_dead_letters_until_time_has_moved(size):
    times = [10.0 * i for i in range(100)]
    times[50] *= 1000.0  # milliseconds
    times += [1e6 + 10.0 * i for i in range(100)]  # after a pause
    values = [json.dumps({"x": i % 7, "t": t}).encode() for i, t in enumerate(times)]
    sink = ListSink()
    clusterer = StreamClusterer(half_life=100.0)
    source = MemorySource({P: values}, size=size)
    service = Service(source, sink, clusterer, decoder=Decoder(fields=Fields(time="t")))
    service.run()
    letters = [json.loads(letter.value) for letter in sink.outputs["dead-letters"]]
    assert [letter["t"] for letter in letters] == [times[50], *times[100:131]]
    assert (service.clusterer.n_seen, service.clusterer.n_refused) == (168, 32)
    alone = StreamClusterer(half_life=100.0)
    alone.learn_many([{"x": float(i % 7)} for i in range(200)], time=times, shard=P)
    assert bits(service.clusterer) == bits(alone)


def test_a_dead_letter_keeps_its_own_headers():
    sink = ListSink()
    serve(MemorySource({P: [Message(4, b"oops", b"key", [("mine", b"1")])]}), sink)
    (letter,) = sink.outputs["dead-letters"]
    assert (letter.key, letter.headers[0], letter.origin) == (b"key", ("mine", b"1"), P)


def test_a_dead_letter_too_large_goes_without_what_makes_it_so():
    long, mine = b"o" * 5000, [("mine", b"1")]
    messages = [
        Message(0, b"oops", b"k", mine),
        Message(1, long, b"k", mine),
        Message(2, b"oops", long, mine),
    ]
    sink = ListSink()
    sink.max_message_bytes = 3000
    serve(MemorySource({P: messages}), sink)
    whole, without, bare = sink.outputs["dead-letters"]
    assert (whole.value, without.value, bare.value) == (b"oops", b"", b"")
    assert (whole.key, without.key, bare.key) == (b"k", b"k", None)
    names = [
        {name.removeprefix(ERROR_HEADER_PREFIX): value for name, value in letter.headers}
        for letter in (without, bare)
    ]
    assert [told.get("mine") for told in names] == [b"1", None]
    assert [told["left_out"] for told in names] == [b"value", b"value, key, headers"]
    assert [told["value_bytes"] for told in names] == [b"5000", b"4"]
    assert names[0]["value_sha256"] == hashlib.sha256(long).hexdigest().encode()
    assert all(letter.size <= sink.max_message_bytes for letter in sink.outputs["dead-letters"])


def test_a_decoder_of_somebody_elses_may_say_anything():
    def talkative(_):
        raise ValueError("o" * 100_000)

    sink = ListSink()
    serve(MemorySource({P: [b"oops"]}), sink, decoder=Decoder(format=talkative))
    (letter,) = sink.outputs["dead-letters"]
    assert 0 < len(dict(letter.headers)[ERROR_HEADER_PREFIX + "message"]) <= 1000


# ---------------------------------------------------------------- restarts


class Crashing(ListSink):
    """Ends the process at its n-th commit, before or after it takes effect."""

    def __init__(self, after, before, **options):
        super().__init__(**options)
        self.after, self.before = after, before

    def commit(self, positions):
        self.after -= 1
        if self.after == 0 and self.before:
            self._open = []
            raise Crash
        super().commit(positions)
        if self.after == 0:
            raise Crash


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("exactly_once", [True, False])
def test_restarts_are_invisible(tmp_path, before, exactly_once):
    values, rows = events(N)
    values[5] = b"oops"
    kept = np.delete(rows, 5, axis=0)
    rng = np.random.default_rng(int(before))
    sink = Crashing(0, before, exactly_once=exactly_once)
    steps = 0
    while True:
        store = StateDirectory(tmp_path)
        sink.after = int(rng.integers(4, 10))
        checkpoint = [1e9, 0.0][int(rng.integers(2))] if steps % 3 else 0.0
        source = MemorySource({P: values}, size=int(rng.integers(N // 30, N // 12)))
        policy = Policy(checkpoint_every=checkpoint)
        service = Service(source, sink, StreamClusterer(**OPTIONS), store, policy=policy)
        steps += 1
        try:
            service.run()
            break
        except Crash:
            store.close()
    assert steps > 1
    assert service.clusterer.n_seen == N - 1
    ours, plainly = service.clusterer, plain(kept)
    assert bits(ours) == bits(plainly)
    ids = [one["id"] for one in sink.values("assignments")]
    assert set(ids) == {f"in-0-{i}" for i in range(N) if i != 5}
    undisturbed = ListSink()
    whole = serve(MemorySource({P: values}), undisturbed)
    assert service.partitions.keys.copy() == whole.partitions.keys.copy()
    if exactly_once:
        assert sink.outputs["assignments"] == undisturbed.outputs["assignments"]
        assert sink.outputs["lifecycle"] == undisturbed.outputs["lifecycle"]
        assert len(sink.outputs["dead-letters"]) == 1
    else:
        repeated = {output.value for output in sink.outputs["assignments"]}
        assert repeated == {output.value for output in undisturbed.outputs["assignments"]}


def test_names_go_along_and_outlive_a_restart(tmp_path):
    values, _ = events(N)
    store, sink = StateDirectory(tmp_path), ListSink()
    first = Service(MemorySource({P: values[: N // 2]}), sink, StreamClusterer(**OPTIONS), store)
    first.run_once()
    first.run()
    named = first.clusterer.clusters[0].id
    store.close()
    store = StateDirectory(tmp_path)
    source = MemorySource({P: values[: N // 2]})
    again = Service(source, sink, StreamClusterer(**OPTIONS), store, policy=Policy(checkpoint_every=1e9))
    while not again.partitions.positions:
        again.run_once()
    again.name_cluster(named, "day")
    again.run_once()  # without a new record: the name alone is worth a checkpoint
    store.close()
    store, sink = StateDirectory(tmp_path), ListSink()
    last = Service(MemorySource({P: values}), sink, StreamClusterer(**OPTIONS), store)
    last.run()
    assert last.clusterer.names.get(named) == "day"
    told = sink.values("assignments")
    assert len(told) == N - N // 2
    assert all(one.get("name") == ("day" if one["cluster"] == named else None) for one in told)


def test_failures_that_pass_lose_nothing(tmp_path):
    values, rows = events(N)
    for exactly_once in (True, False):
        sink = ListSink(exactly_once=exactly_once, failures=[Transient("a"), Transient("b"), Transient("c")])
        source = MemorySource({P: values}, size=100, script=[Transient("not yet"), None])
        service = serve(source, sink, StateDirectory(tmp_path / str(exactly_once)), EAGER)
        assert service.stats.retries == 4
        assert bits(service.clusterer) == bits(plain(rows))
        ids = [one["id"] for one in sink.values("assignments")]
        assert set(ids) == {f"in-0-{i}" for i in range(N)}
        assert len(ids) == N or not exactly_once


def test_records_below_the_watermark_are_skipped(tmp_path):
    values, rows = events(100)

    class Repeating(MemorySource):
        def seek(self, partition, offset):
            super().seek(partition, max(0, offset - 30))

    serve(MemorySource({P: values[:60]}), store=StateDirectory(tmp_path)).partitions.store.close()
    service = serve(Repeating({P: values}), store=StateDirectory(tmp_path))
    assert service.stats.skipped == 30
    assert bits(service.clusterer) == bits(plain(rows))


def test_a_checkpoint_that_fails_is_not_told(tmp_path):
    source = MemorySource({P: events(50)[0]})
    with pytest.raises(Crash):
        serve(source, Crashing(1, True), StateDirectory(tmp_path))
    assert source.committed == {}
    assert source.closed


@pytest.mark.parametrize("every", [None, 1, 70, 100, 10_000])
def test_checkpoints_by_events(tmp_path, every):
    """One is due at the end of the turn that brings the last of so many events, and one at the end for the rest."""
    source = MemorySource({P: events(300)[0]}, size=50)
    policy = Policy(checkpoint_every=1e9, checkpoint_events=every)
    service = serve(source, store=StateDirectory(tmp_path), policy=policy)
    turns = 300 // 50 + 1  # the last finds nothing
    between = 1000 if every is None else 50 * -(-every // 50)
    expected, rest = divmod(300, between)
    assert 0 <= expected < turns
    assert service.stats.checkpoints == expected + bool(rest)


# ---------------------------------------------------------------- partitions that come and go


def test_partitions_move_with_what_was_learnt(tmp_path):
    (a, rows_a), (b, rows_b) = events(N, 1), events(N, 2)
    first, second = StateDirectory(tmp_path), StateDirectory(tmp_path)
    assert (first.slot, second.slot) == (0, 1)
    half = {P: a[: N // 2], Q: b[: N // 2]}
    here = serve(MemorySource(half, script=[None] * 5 + [Revoked((Q,))]), store=first, policy=EAGER)
    assert here.clusterer.shards.names == (P,)
    there = serve(MemorySource({Q: b}), store=second)
    assert there.stats.positions == {Q: N}
    total = there.clusterer.shards.tree(Q).total
    assert total.weight[0] == N
    assert np.allclose(total.mean[0], rows_b.mean(axis=0))
    # and back: the first finds what the second has learnt since, though its own old checkpoint knew less
    first.close()
    again = serve(MemorySource({P: a, Q: b}), store=StateDirectory(tmp_path))
    assert again.stats.events == N - N // 2
    for name, rows in ((P, rows_a), (Q, rows_b)):
        assert np.allclose(again.clusterer.shards.tree(name).total.mean[0], rows.mean(axis=0))


def test_what_a_process_leaves_that_was_killed_is_taken_over(tmp_path):
    values, rows = events(N)
    store = StateDirectory(tmp_path)
    with pytest.raises(Crash):
        serve(MemorySource({P: values}, size=50), Crashing(5, False), store, EAGER)
    other = serve(MemorySource({P: values}), store=StateDirectory(tmp_path))
    assert other.partitions.store.slot == 1
    total = other.clusterer.shards.tree(P).total
    assert total.weight[0] == N
    assert np.allclose(total.mean[0], rows.mean(axis=0))
    store.close()
    # The killed one comes back without the partition: it keeps nothing of it, nor hands over what is behind.
    back = StateDirectory(tmp_path)
    assert back.slot == 0
    service = serve(MemorySource({Q: values[:10]}), store=back)
    assert service.clusterer.shards.names == (Q,)
    assert back.find(P)[0].offset == N


def test_a_partition_that_is_assigned_again_goes_on_where_it_was(tmp_path):
    values, rows = events(N)
    script = [None, Revoked((P,)), Assigned((P,))]
    service = serve(MemorySource({P: values}, script=script), store=StateDirectory(tmp_path))
    assert np.allclose(service.clusterer.shards.tree(P).total.mean[0], rows.mean(axis=0))
    assert service.clusterer.n_seen == N


# ---------------------------------------------------------------- what was lost


class Changed(MemorySource):
    def __init__(self, extent, values):
        super().__init__({P: values})
        self.now = extent

    def extent(self, partition):
        return self.now or super().extent(partition)


def test_version_and_revision_name_one_answer():
    """Clusters move between refits: points that come again and again get one answer from each (version, revision)."""
    rng, n = np.random.default_rng(0), 7000
    way = np.clip(np.arange(n) - 4000, 0, None) / 1000
    rows = rng.normal(size=n) + 12.0 * rng.integers(2, size=n) + way
    rows[::7] = rng.choice([5.0, 6.0, 7.0, 8.0], size=len(rows[::7]))
    values = [json.dumps({"x": x}).encode() for x in rows.tolist()]
    service = serve(MemorySource({P: values}, size=111))
    answers = {}
    for one in service.sink.values("assignments"):
        name = one["version"], one["revision"], rows[int(one["id"].split("-")[-1])]
        answers.setdefault(name, set()).add((one["cluster"], one["probability"], one["novelty"]))
    assert all(len(found) == 1 for found in answers.values())
    assert len({(version, revision) for version, revision, _ in answers}) > len({v for v, _, _ in answers})


class Refusing(ListSink):
    """Refuses the outputs of one commit: of the last one, as the service stops."""

    def __init__(self, service_of, **more):
        super().__init__(**more)
        self.service_of, self.refused = service_of, 0

    def commit(self, positions):
        if self.service_of().stopping and not self.refused:
            self.refused += 1
            raise Transient("a refusal that was still on its way")
        super().commit(positions)


@pytest.mark.parametrize("with_store", [True, False])
def test_outputs_that_are_refused_as_the_service_stops_are_sent_again(tmp_path, with_store):
    """Their records are learnt again from the last checkpoint, and only then are the offsets committed."""
    values, _ = events(200)
    source = MemorySource({P: values}, size=50, endless=True)
    store = StateDirectory(tmp_path) if with_store else None
    sink = Refusing(lambda: service)
    service = Service(source, sink, StreamClusterer(**OPTIONS), store, policy=Policy(backoff=0.001))
    poll = source.poll

    def polled(seconds):
        if service.stats.positions == {P: 200}:
            service.stop()
        return poll(seconds)

    source.poll = polled
    service.run()
    assert sink.refused == 1
    assert service.clusterer.n_seen == 200
    assert source.committed == {P: 200}
    assert {one["id"] for one in sink.values("assignments")} == {f"in-0-{i}" for i in range(200)}
    assert service.stats.events == 200


def test_a_loop_that_waits_for_long_is_not_ready():
    """For a broker, in a call that does not return: nothing is read meanwhile."""
    now = [100.0]
    service = Service(
        MemorySource({P: events(10)[0]}, endless=True), ListSink(), StreamClusterer(), clock=lambda: now[0]
    )
    assert not service.stats.ready
    for _ in range(3):
        service.run_once()
    assert service.stats.ready
    now[0] += 11.0
    assert not service.stats.ready
    assert "has not read anything for 11 s" in service.stats.not_ready
    service.run_once()
    assert service.stats.ready


def test_records_that_were_delivered_and_not_learnt_are_behind():
    """As when a commit fails again and again: the client has delivered everything, and nothing is learnt."""
    source = MemorySource({P: events(100)[0]}, endless=True)
    sink = ListSink(exactly_once=True)
    service = Service(source, sink, StreamClusterer())
    commit, broken = sink.commit, [False]

    def failing(positions):
        if broken[0]:
            raise Transient("no broker")
        commit(positions)

    sink.commit = failing
    for _ in range(3):
        service.run_once()
    assert service.stats.lag == {P: 0}
    source.partitions[P] += [Message(100 + i, value) for i, value in enumerate(events(50)[0])]
    broken[0] = True
    for _ in range(3):
        service._try_once()
        assert not service.stats.ready
        assert "no broker" in service.stats.not_ready
    broken[0] = False
    for _ in range(3):
        service._try_once()
    assert service.stats.ready
    assert (service.stats.events, service.stats.messages) == (150, 150)


class Shuffled(MemorySource):
    """Delivers small batches of its partitions in an order of chance."""

    def __init__(self, partitions, seed, **more):
        super().__init__(partitions, **more)
        self.draw = random.Random(seed)

    def poll(self, seconds):
        if self.script or not any(self.lag().values()):
            return super().poll(seconds)
        name = self.draw.choice([name for name, behind in self.lag().items() if behind])
        records = self.partitions[name][self.at[name] :][: self.draw.randint(1, 60)]
        self.at[name] = records[-1].offset + 1
        return [Batch(name, records)]


@pytest.mark.parametrize("seed", range(3))
def test_a_restart_learns_several_partitions_in_the_same_order(tmp_path, seed):
    """Else versions that were told would come again with other clusters, or go back."""
    three = {("in", number): events(600, seed=number)[0] for number in range(3)}
    policy = Policy(checkpoint_every=1000.0)

    def service(directory, order):
        source = Shuffled(three, order)
        return Service(
            source, ListSink(), StreamClusterer(warmup=100), StateDirectory(directory), policy=policy
        )

    first = service(tmp_path, seed)
    for turn in range(25):
        first.run_once()
        if turn == 10:
            first.checkpoint()
    first.partitions.store.close()  # killed: what was learnt since the checkpoint is learnt again
    second = service(tmp_path, seed + 100)
    second.run()
    told = [one for sink in (first.sink, second.sink) for one in sink.values("assignments")]
    by_id = {}
    for one in told:
        assert by_id.setdefault(one["id"], one) == one, "an event was told twice, and differently"
    assert len(by_id) == 1800
    new = [one["version"] for one in sorted_as_told(first, second)]
    assert new == sorted(new)


def sorted_as_told(first, second):
    """What was told, without what a restart told again."""
    before = first.sink.values("assignments")
    known = {one["id"] for one in before}
    after = [one for one in second.sink.values("assignments") if one["id"] not in known]
    return [one for one in [*before, *after] if one["version"] is not None]


def test_partitions_that_were_added_are_no_loss(tmp_path):
    """Old ones go on; of added ones every record is new, wherever a partition without a position starts."""
    values, _ = events(200)
    serve(MemorySource({P: values[:100]}), store=StateDirectory(tmp_path)).partitions.store.close()
    source = Changed(Extent(0, 200, None, 3), values)
    source.partitions[("in", 2)] = source.partitions[P]
    source.script.append(Assigned((("in", 2),)))
    service = serve(source, store=StateDirectory(tmp_path), policy=Policy(start="latest"))
    assert service.stats.events == 300
    assert service.stats.positions == {P: 200, ("in", 2): 200}


@pytest.mark.parametrize(
    ("extent", "sentence", "start"),
    [
        (Extent(150, 200), "records 100 to 149 of in-0 were deleted", 150),
        (Extent(0, 50), "truncated", 0),
        (Extent(0, 200, "another"), "deleted and recreated", 0),
    ],
)
def test_what_is_lost_is_told_with_what_to_do(tmp_path, extent, sentence, start):
    values, _ = events(200)
    serve(MemorySource({P: values[:100]}), store=StateDirectory(tmp_path)).partitions.store.close()
    with pytest.raises(DataLoss, match=f"{sentence}.*on_data_loss"):
        serve(Changed(extent, values), store=(store := StateDirectory(tmp_path)))
    store.close()
    source = Changed(extent, values)
    sought = []
    source.seek = lambda partition, offset: sought.append(offset) or MemorySource.seek(source, partition, 200)
    serve(source, store=StateDirectory(tmp_path), policy=Policy(on_data_loss="continue", stop_at_end=True))
    assert sought == [start]


def test_a_new_partition_begins_where_it_is_told():
    service = serve(MemorySource({P: events(100)[0]}), policy=Policy(start="latest"))
    assert (service.stats.events, service.stats.positions) == (0, {P: 100})


# ---------------------------------------------------------------- the rest of the loop


def test_a_sink_that_is_full_pauses_the_source():
    class Slow(ListSink):
        asked = 0

        @property
        def full(self):
            self.asked += 1
            return self.asked % 3 != 0

        @full.setter
        def full(self, value):
            pass

    paused = []

    class Watched(MemorySource):
        def poll(self, seconds):
            found = super().poll(seconds)
            paused.append((self.paused, any(isinstance(part, tuple) and part[0] == P for part in found)))
            return found

    service = serve(Watched({P: events(200)[0]}, size=50), Slow())
    assert service.stats.events == 200
    assert any(was for was, _ in paused)
    assert not any(was and records for was, records in paused)


def test_snapshots_on_demand_and_by_the_clock():
    now = iter(np.arange(0.0, 1e6, 0.05))
    sink = ListSink()
    source = MemorySource({P: events(200)[0]}, size=20)
    service = Service(
        source, sink, StreamClusterer(), policy=Policy(snapshot_every=5.0), clock=lambda: next(now)
    )
    service.request_snapshot()
    service.run()
    found = sink.values("snapshots")
    assert found[0]["id"] == "in-0-20"
    assert len(found) > 1
    assert sum(found[-1]["dendrogram"]["weight"]) == pytest.approx(found[-1]["events"])
    assert [kept.events for kept in service.snapshots.all] == [each["events"] for each in found]


def test_snapshots_are_kept_where_nobody_takes_them():
    service = Service(MemorySource({P: events(200)[0]}), ListSink(channels=()), StreamClusterer())
    service.request_snapshot()
    service.run()
    (kept,) = service.snapshots.all
    assert (kept.version, kept.events, service.stats.snapshots) == (1, 200, 1)


def test_a_snapshot_too_large_goes_without_details():
    sizes = []
    for largest in (None, 10**6, 100):
        sink = ListSink()
        sink.max_message_bytes = largest
        service = Service(MemorySource({P: events(200)[0]}), sink, StreamClusterer())
        service.request_snapshot()
        service.run()
        (found,) = sink.values("snapshots")
        sizes.append(len(sink.outputs["snapshots"][0].value))
        assert (found["dendrogram"]["scatter"] is None) == (largest == 100)
    assert sizes[0] == sizes[1] > sizes[2]


def test_stops_on_a_signal_in_good_order(tmp_path):
    source = MemorySource({P: events(200)[0]}, size=10, endless=True)
    service = Service(source, ListSink(), StreamClusterer(), StateDirectory(tmp_path))
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    try:
        service.stop_on_signals()
        poll = source.poll

        def polled(seconds):
            if source.at.get(P) == 100:
                signal.raise_signal(signal.SIGTERM)
            return poll(seconds)

        source.poll = polled
        service.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert service.stats.events == 110  # the batch of that turn is finished
    assert source.committed == {P: 110}
    assert source.closed
    assert service.sink.closed


def test_statistics():
    now = [100.0]
    service = Service(
        MemorySource({P: events(100)[0]}, size=10), ListSink(), StreamClusterer(), clock=lambda: now[0]
    )
    for _ in range(6):
        now[0] += 2.0
        service.stats.beat()
        service.run_once()
    assert service.stats.events == 50
    assert service.stats.rate == pytest.approx(50 / 10)
    assert service.stats.lag == {P: 50}
    assert service.stats.ready
    now[0] += 7.0
    assert service.stats.heartbeat_age == 7.0
