"""Several threads share one model: no event is lost, readers do not wait, copies are of one moment."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from streamclust import StreamClusterer, StreamFeatures

CENTRES = np.array([[0, 0], [12, 0], [0, 12], [12, 12], [24, 6]], float)
PATIENCE = 120.0
"""Seconds after which a thread is taken to wait for ever."""


def events(n, seed=0):
    rng = np.random.default_rng(seed)
    return CENTRES[rng.integers(5, size=n)] + rng.normal(size=(n, 2))


def together(*jobs):
    """Run functions in threads of their own, at once; raise what one of them raised."""
    errors, start = [], threading.Barrier(len(jobs))

    def run(job):
        try:
            start.wait(PATIENCE)
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    for error in errors:
        raise error


@pytest.fixture(autouse=True)
def threads_take_turns_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def whole(model):
    """Whether counters and trees agree."""
    weight = sum(model.shards.tree(shard).total.weight[0] for shard in model.shards)
    by_shard = {shard: model.shards.tree(shard).total.weight[0] for shard in model.shards}
    return weight == pytest.approx(model.n_seen) and by_shard == pytest.approx(model.shards.n_seen)


# ---------------------------------------------------------------- learning


def one_by_one(model, seed, shard):
    for x, y in events(3000, seed).tolist():
        model.learn_one({"x": x, "y": y}, shard=shard)


def with_new_features(model, seed, shard):
    for i, (x, y) in enumerate(events(1000, seed).tolist()):
        model.learn_one(
            {"y": y} if i % 50 == 7 else {"x": x, "y": y, "z": 1.0} if i > 500 else {"x": x, "y": y}
        )


def in_batches(model, seed, shard):
    for part in np.split(events(3000, seed), 60):
        model.learn_many([{"x": x, "y": y} for x, y in part.tolist()], shard=shard)


def in_checked_batches(model, seed, shard):
    for part in np.split(events(3000, seed), 20):
        model.learn(model.check([{"x": x, "y": y} for x, y in part.tolist()], shard=shard))


@pytest.mark.parametrize(
    ("ways", "shards", "parameters"),
    [
        ([one_by_one] * 4, [0] * 4, {}),
        ([one_by_one] * 4, [0, 1, 2, 1], {"background": False}),
        ([one_by_one, in_batches, with_new_features, in_checked_batches], [0, 0, 0, 1], {}),
    ],
)
def test_no_event_is_lost(ways, shards, parameters):
    model = StreamClusterer(**parameters)
    model.learn_many([{"x": 0.0, "y": 0.0}])
    together(
        *(lambda w=w, i=i, s=s: w(model, i, s) for i, (w, s) in enumerate(zip(ways, shards, strict=True)))
    )
    assert model.n_seen == 1 + sum(1000 if way is with_new_features else 3000 for way in ways)
    assert whole(model)
    assert model.n_clusters >= 5


def test_no_event_is_lost_that_is_appended_to_a_buffer_while_it_is_replaced():
    """Rows appended to a former buffer are learnt by the next flush, whatever shard and features came meanwhile."""
    model = StreamClusterer()
    model.learn_many([{"x": 0.0, "y": 1.0}] * 30)
    model.settle()
    pipeline = vars(model)["_pipeline"]
    late = pipeline.buffer.open
    model.learn_one({"x": 0.0, "y": 1.0})
    model.learn_many([{"a": 5.0, "x": 1.0, "y": 1.0}], shard="other")
    late.rows.append((7.0, 8.0))  # a thread that had read the buffer before
    pipeline.buffer.replaced.append(late)
    assert model.n_seen == 33
    assert model.shards.tree(0).total.weight[0] == 32
    assert model.n_seen == 33
    assert whole(model)


def test_features_of_a_stream_lose_no_event():
    rng = np.random.default_rng(0)
    parts = 5.0 * rng.normal(size=(3, 6))
    x = rng.integers(2, size=(4, 800, 3)) @ parts + rng.normal(size=(4, 800, 6))
    model = StreamFeatures(warmup=128)
    known = []

    def ask():
        for row in x[0]:
            found = model.transform_one(dict(enumerate(row)))
            known.append(set(found) >= model.predict_one(dict(enumerate(row))) or model.n_seen)

    jobs = [lambda part=part: [model.learn_one(dict(enumerate(row))) for row in part] for part in x]
    together(*jobs, ask, lambda: [model.to_state() for _ in range(20)])
    assert model.n_seen == 3200
    assert model.shards.n_seen == {0: 3200}
    assert len(known) == 800


# ---------------------------------------------------------------- one moment


@pytest.mark.parametrize("learn", [one_by_one, in_batches])
def test_what_is_saved_and_copied_beside_a_learner_is_of_one_moment(tmp_path, learn):
    model, done = StreamClusterer(), threading.Event()
    model.learn_many([{"x": 0.0, "y": 0.0}])
    found = []

    def learn_on():
        for seed in range(3):
            learn(model, seed, 0)
        done.set()

    def take():
        while not done.is_set() or len(found) < 12:
            model.save(tmp_path / "x")
            taken = (
                StreamClusterer.load(tmp_path / "x"),
                copy.deepcopy(model),
                pickle.loads(pickle.dumps(model)),
            )
            found.extend(taken)
            assert model.snapshot().leaves.weight.sum() <= model.n_seen + 1

    together(learn_on, take)
    assert all(map(whole, found))
    assert len({each.n_seen for each in found}) > 1


def test_a_copy_has_a_lock_of_its_own():
    model = StreamClusterer(background=False)
    model.learn_many(events(300))
    twins = [copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.clone()]
    with model._lock:
        together(*(lambda twin=twin: twin.learn_many(events(300, 1)) for twin in twins))
    assert [twin.n_seen for twin in twins] == [600, 600, 600, 300]
    assert model.n_seen == 300


# ---------------------------------------------------------------- who waits, and who does not


def test_readers_of_the_published_model_do_not_wait_for_a_learner_and_others_do(tmp_path):
    inside, go_on = threading.Event(), threading.Event()

    def stop_here(change):
        inside.set()
        assert go_on.wait(PATIENCE)

    model = StreamClusterer(on_event=stop_here, background=False)
    go_on.set()
    model.learn_many(events(3000))
    published = model.n_clusters
    assert model.tail_one({0: 0.0, 1: 0.0}) > 0.01
    go_on.clear()
    inside.clear()
    moved = events(3000, 1) + 100.0
    learner = threading.Thread(target=model.learn_many, args=(moved,), daemon=True)
    learner.start()
    assert inside.wait(PATIENCE)  # in the middle of learn_many
    saver = threading.Thread(target=model.save, args=(tmp_path / "x",), daemon=True)
    saver.start()
    assert model.predict_one({0: 0.0, 1: 0.0}) in model.model.names
    assert set(model.predict_many(events(100))) <= set(model.model.names)
    assert len(model.predict_proba_one({0: 0.0, 1: 0.0})) == model.n_clusters
    assert np.isfinite(model.score_one({0: 0.0, 1: 0.0}))
    assert 0.0 < model.tail_one({0: 0.0, 1: 0.0}) <= 1.0
    clusters = model.clusters
    assert len(clusters) == len(model.centers) == model.n_clusters > published
    assert sum(cluster.share for cluster in clusters) == pytest.approx(1.0)
    saver.join(0.2)
    assert saver.is_alive()
    assert not (tmp_path / "x").exists()
    go_on.set()
    learner.join(PATIENCE)
    saver.join(PATIENCE)
    assert whole(StreamClusterer.load(tmp_path / "x"))
    assert model.n_seen == 6000


def test_a_learner_that_never_pauses_lets_others_in(tmp_path):
    model, done = StreamClusterer(background=False), threading.Event()
    x = events(2000)

    def learn_on():
        while not done.is_set():
            model.learn_many(x)

    def save():
        for _ in range(5):
            model.save(tmp_path / "x")
        done.set()

    together(learn_on, save)
    assert whole(StreamClusterer.load(tmp_path / "x"))


def test_a_callback_may_use_the_model_that_calls_it(tmp_path):
    told, learnt = [], []

    def ask(change):
        model.save(tmp_path / "x")
        kept = StreamClusterer.load(tmp_path / "x")
        assert whole(kept)
        if len(learnt) < 3:
            learnt.append(change)
            model.learn_one({0: 0.0, 1: 0.0})
        told.append(
            (change, len(model.clusters), model.snapshot().n_leaves, model.predict_one({0: 0.0, 1: 0.0}))
        )

    model = StreamClusterer(on_event=ask, background=False)
    together(lambda: model.learn_many(events(3000)), lambda: one_by_number(model))
    assert len(told) == len(model.events) > 4
    assert model.n_seen == 6000 + 3
    assert whole(model)


def one_by_number(model):
    for row in events(3000, 5).tolist():
        model.learn_one(dict(enumerate(row)))


def test_two_models_can_be_merged_with_each_other_at_once():
    one, two = StreamClusterer(), StreamClusterer()
    for model in (one, two):
        model.learn_many(events(300))
    for _ in range(3):
        together(lambda: one.merge(two), lambda: two.merge(one), lambda: one.learn_many(events(50)))
    assert whole(one)
    assert whole(two)


def test_a_callback_may_use_a_model_that_merges_the_one_that_calls_it():
    called, merging = threading.Event(), threading.Event()

    class Told:
        """Cannot be copied."""

        lock = threading.Lock()

        def __deepcopy__(self, memo):
            raise TypeError("not to be copied")

        def use_the_other(self, change):
            if not called.is_set():
                called.set()
                merging.wait(1.0)
            one.learn_many(events(10))

    one = StreamClusterer(background=False)
    one.learn_many(events(300))
    two = StreamClusterer(background=False, on_event=Told().use_the_other)

    def merge():
        called.wait(PATIENCE)
        merging.set()
        one.merge(two)

    together(lambda: two.learn_many(events(3000)), merge)
    told = len(two.events)
    one.merge(two)
    assert len(two.events) == told
    assert whole(one)
    assert whole(two)


# ---------------------------------------------------------------- fork

FORKING = """
    import os, sys, threading
    import numpy as np
    from streamclust import StreamClusterer
    from streamclust.streaming import thread_safety

    way = sys.argv[1]
    if way == "torn":
        thread_safety.FORK_SECONDS = 0.01
    x = np.random.default_rng(0).normal(size=(20_000, 2))
    model, torn = StreamClusterer(), StreamClusterer(on_event=lambda change: held.set() or leave.wait(60))
    held, leave, done = threading.Event(), threading.Event(), threading.Event()

    def learn():
        if way == "torn":
            torn.learn_many(x[:100])
        while not done.is_set():
            model.learn_many(x)

    thread = threading.Thread(target=learn, daemon=True)
    thread.start()
    if way == "torn":
        held.wait(60)
    while not model.n_seen and way != "torn":
        pass
    child = os.fork()
    if child == 0:
        model.learn_many(x[:500])
        ok = not model.n_seen or model.tree.total.weight[0] == model.n_seen
        if way == "torn":
            try:
                torn.learn_many(x)
                ok = False
            except RuntimeError as error:
                ok = ok and "forked while another thread" in str(error)
        os._exit(0 if ok else 3)
    code = os.waitpid(child, 0)[1]
    leave.set()
    done.set()
    thread.join(60)
    assert not thread.is_alive()
    assert not model.n_seen or model.tree.total.weight[0] == model.n_seen
    sys.exit(os.waitstatus_to_exitcode(code))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("way", ["whole", "torn"])
def test_a_fork_waits_for_learners_and_a_child_knows_a_torn_model(way):
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKING), way], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
