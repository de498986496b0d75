"""Ctrl-C and fork: tree, counters and model agree afterwards, and the stream goes on as if nothing had happened."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.engine.wide_events import RecentWideEvents
from streamclust.utils.interrupts import HeldInterrupts
from tests.interrupting import Moments

CENTRES = np.array([[0, 0], [12, 0], [0, 12], [12, 12], [24, 6]], float)

main_thread = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals need tests in the main thread"
)


def events(n, seed=0, centres=CENTRES):
    rng = np.random.default_rng(seed)
    return centres[rng.integers(len(centres), size=n)] + rng.normal(size=(n, 2))


def moving(n):
    """A stream with births and a change, so that looks and refits have something to do."""
    return np.concatenate([events(n // 2), events(n - n // 2, 1, CENTRES[:3] + np.array([3.0, 30.0]))])


def learn_many(model, x):
    while model.n_seen < len(x):
        model.learn_many(x[model.n_seen :])


def learn_each(model, x):
    while model.n_seen < len(x):
        model.learn_one(dict(enumerate(x[model.n_seen].tolist())))


def learn_with_gaps(model, x):
    """Every seventh event lacks its second value."""
    while model.n_seen < len(x):
        i = model.n_seen
        model.learn_one({0: x[i, 0]} if i % 7 == 3 else {0: x[i, 0], 1: x[i, 1]})


def assert_same(ours, theirs):
    ours, theirs = ours.to_state(), theirs.to_state()
    assert ours.values == theirs.values
    for name, value in ours.arrays.items():
        np.testing.assert_array_equal(value, theirs.arrays[name], err_msg=name)


@main_thread
@pytest.mark.parametrize(
    ("learn", "n", "parameters"),
    [
        (learn_many, 9000, {}),
        (learn_many, 9000, {"background": False}),
        (learn_many, 9000, {"half_life": 700.0, "refit": "dp-means"}),
        (learn_each, 3000, {}),
        (learn_with_gaps, 1500, {}),
    ],
)
def test_ctrl_c_at_any_moment_is_as_if_nothing_had_happened(learn, n, parameters):
    x = moving(n)
    learn(StreamClusterer(**parameters), x)  # what is imported and compiled at the first time is not counted
    whole = StreamClusterer(**parameters)
    with Moments() as counted:
        learn(whole, x)
    assert counted.count > 1000
    rng = np.random.default_rng(n)
    hits = 0
    for at in rng.integers(counted.count, size=25).tolist():
        model = StreamClusterer(**parameters)
        try:
            with Moments(at):
                learn(model, x)
        except KeyboardInterrupt:
            hits += 1
            if model.half_life is None and model.n_seen:
                assert model.tree.total.weight[0] == pytest.approx(model.n_seen)
        learn(model, x)
        assert_same(whole, model)
    assert hits > 20


@main_thread
@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_ctrl_c_at_every_moment_keeps_the_events_that_wait(weight):
    """Single events are buffered: none is lost while the buffer is learnt, before which line Ctrl-C may come."""
    x = events(12)

    def waiting():
        model = StreamClusterer()
        model.learn_many(x[:4])
        for row in x[4:9].tolist():
            model.learn_one(dict(enumerate(row)), w=weight)
        return model

    waiting().learn_many(x[9:])
    with Moments() as counted:
        waiting().learn_many(x[9:])
    n_before = counted.count
    with Moments() as counted:
        waiting()
    for at in range(1, n_before - counted.count + 1):
        model = waiting()
        try:
            with Moments(at):
                model.learn_many(x[9:])
        except KeyboardInterrupt:
            assert model.n_seen in (9, 12)
            model.learn_many(x[model.n_seen :])
        assert model.n_seen == 12, at
        assert model.tree.total.weight[0] == 7 + 5 * weight


@main_thread
def test_ctrl_c_among_wide_events_is_as_if_nothing_had_happened():
    rng = np.random.default_rng(0)
    x = 3.0 * rng.normal(size=(4, 80))[rng.integers(4, size=6000)] + rng.normal(size=(6000, 80))
    whole = StreamClusterer()
    with Moments() as counted:
        learn_many(whole, x)
    for at in rng.integers(counted.count, size=8).tolist():
        model = StreamClusterer()
        try:
            with Moments(at):
                learn_many(model, x)
        except KeyboardInterrupt:
            pass
        learn_many(model, x)
        assert_same(whole, model)


@main_thread
def test_settling_can_be_interrupted():
    x = events(6000)
    model = StreamClusterer()
    model.learn_many(x)
    twin = StreamClusterer()
    twin.learn_many(x)
    with Moments() as counted:
        twin.settle()
    before = model.model
    with pytest.raises(KeyboardInterrupt), Moments(counted.count // 2):
        model.settle()
    assert model.model is before
    model.settle()
    assert {c.id for c in model.clusters} == {c.id for c in twin.clusters}


@main_thread
def test_held_interrupts_wait_for_the_outermost_block():
    done = []

    def work():
        with HeldInterrupts():
            with HeldInterrupts():
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")
        done.append("never")

    with Moments(), pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]


@main_thread
def test_a_handler_of_the_program_is_called_and_put_back():
    called = []
    before = signal.signal(signal.SIGINT, lambda *args: called.append(args))
    try:
        mine = signal.getsignal(signal.SIGINT)
        with HeldInterrupts():
            signal.raise_signal(signal.SIGINT)
            assert called == []
        assert len(called) == 1
        assert signal.getsignal(signal.SIGINT) is mine
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with HeldInterrupts():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_hold_nothing_back():
    handlers = []

    def work():
        with HeldInterrupts():
            handlers.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before]


FORKING = """
    import os, sys, time
    import numpy as np
    from streamclust import StreamClusterer
    from streamclust.engine import background, refit

    wait_for_it = sys.argv[1] == "waits"
    if not wait_for_it:
        background.FORK_SECONDS = 0.0
    real = refit.find

    def slow(work):
        time.sleep(0.5)
        return real(work)

    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [12, 0], [0, 12], [12, 12], [24, 6]], float)
    x = centres[rng.integers(5, size=30_000)] + rng.normal(size=(30_000, 2))
    model = StreamClusterer()
    model.learn_many(x[:6000])
    refit.find = slow
    done = 6000
    while model._pipeline.engine.stream.pending_refit is None:
        model.learn_many(x[done : done + 1])
        done += 1
    running = model._pipeline.engine.stream.pending_refit._thread
    assert running.is_alive()
    child = os.fork()
    refit.find = real
    if wait_for_it:
        assert not running.is_alive()
    model.learn_many(x[done:])
    state = model.to_state()
    digest = repr([(c.id, c.weight, c.mean) for c in model.clusters]) + repr(state.values["lineage"])
    if child == 0:
        sys.stdout.write(digest + "\\n")
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(digest)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("way", ["waits", "works on by itself"])
def test_a_forked_child_goes_on_with_a_refit_under_way(way):
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKING), way], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    child, parent = ran.stdout.splitlines()
    assert child == parent


INTERRUPTED = """
    import numpy as np
    from streamclust import StreamClusterer
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200_000, 2))
    model = StreamClusterer()
    model.learn_many(x)
    print("learning", flush=True)
    try:
        while True:
            model.learn_many(x)
    except KeyboardInterrupt:
        pass
    assert model.tree.total.weight[0] == model.n_seen, (model.tree.total.weight[0], model.n_seen)
    model.learn_many(x)
    assert model.tree.total.weight[0] == model.n_seen
    print("whole", flush=True)
"""


def test_a_real_ctrl_c_ends_learning_promptly():
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "learning\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "whole\n"


def test_wide_events_that_were_learnt_are_counted_whatever_comes(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(3000, 80))
    model, twin = StreamClusterer(background=False), StreamClusterer(background=False)
    model.learn_many(rows[:1500])
    real = RecentWideEvents.see

    def see(self, *arguments):
        signal.raise_signal(signal.SIGINT)
        real(self, *arguments)

    monkeypatch.setattr(RecentWideEvents, "see", see)
    with pytest.raises(KeyboardInterrupt):
        model.learn_many(rows[1500:])
    monkeypatch.undo()
    twin.learn_many(rows[: model.n_seen])
    assert model.n_seen > 1500
    assert model.to_state().values == twin.to_state().values
