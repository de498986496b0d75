"""The soak, briefly; `python tests/chaos/soak.py` learns two hundred streams of 100,000 events."""

import subprocess
import sys

import numpy as np
import pytest

from streamclust import StreamClusterer
from tests.chaos import soak
from tests.chaos.soak_streams import SHARE_OF_STREAMS, Plan

pytestmark = pytest.mark.compiled

SMALL = 3000


def planned(*troubles):
    """A plan of few events whose stream has these troubles."""
    left_out = frozenset(SHARE_OF_STREAMS) - {*troubles}
    plans = (Plan(seed, SMALL, left_out) for seed in range(10_000))
    return next(plan for plan in plans if plan.troubles == {*troubles} and plan.has_twin)


def test_a_stream_is_drawn_from_its_seed():
    first, again = (list(Plan(3, SMALL).blocks()) for _ in range(2))
    for ours, theirs in zip(first, again, strict=True):
        np.testing.assert_array_equal(ours.rows, theirs.rows)
        assert ours[2:] == theirs[2:]
    assert sum(len(block.rows) for block in first) == SMALL
    kinds = [str(Plan(seed, SMALL)) for seed in range(200)]
    assert all(any(trouble in kind for kind in kinds) for trouble in SHARE_OF_STREAMS)


@pytest.mark.parametrize(
    "troubles",
    [
        ("interrupts", "restarts", "shards", "weights"),
        ("drift", "features", "merges", "repeats", "stuck", "vanishing"),
        ("weights", "wide"),
    ],
)
def test_streams_in_trouble_are_whole_and_the_same_bits_as_undisturbed(troubles):
    seen = soak.soak(planned(*troubles))
    assert seen["clusters"] >= 1
    assert "restarts" not in troubles or seen["restarts"] + seen["interrupts"] > 0


class Forgetful(StreamClusterer):
    """Loses an event of every batch."""

    def learn_many(self, X, **more):
        super().learn_many(X[1:], **more | {"weight": None})


def test_what_is_lost_is_found_out(monkeypatch):
    monkeypatch.setattr(soak, "StreamClusterer", Forgetful)
    with pytest.raises(AssertionError, match="events by shard"):
        soak.soak(planned())


def test_events_that_wait_for_a_sketch_weigh_nothing_yet():
    plan = next(plan for seed in range(1000) if "wide" in (plan := Plan(seed, SMALL)).troubles)
    model, ledger = StreamClusterer(**plan.parameters), soak.Ledger(plan.parameters["half_life"])
    for block in plan.blocks():
        soak.learn(model, block)
        ledger.add(block)
        ledger.check(model, may_wait=True)
    ledger.weight[block.shard] *= 1.0 + 1e-6
    with pytest.raises(AssertionError, match="weighs"):
        ledger.check(model, may_wait=True)


def test_a_twin_that_differs_is_found_out():
    plan = planned()
    model = StreamClusterer(**plan.parameters)
    for block in plan.blocks():
        soak.learn(model, block)
    soak.check_twin(plan, model)
    model.settle()
    with pytest.raises(AssertionError, match="twin"):
        soak.check_twin(plan, model)


def test_a_failing_stream_is_named_by_its_seed_and_ends_the_script_with_1():
    command = [sys.executable, soak.__file__, "--events", "1000", "--only", "8", "--patience"]
    whole = subprocess.run([*command, "200"], capture_output=True, text=True, check=False)
    assert (whole.returncode, whole.stderr) == (0, ""), whole.stdout
    assert "1 of 1 streams of 1,000 events are whole" in whole.stdout
    hangs = subprocess.run([*command, "0.01"], capture_output=True, text=True, check=False)
    assert hangs.returncode == 1
    assert "FAILED: hangs" in hangs.stdout
    assert "failed: --only 8" in hangs.stderr


@pytest.mark.parametrize(
    ("code", "ends"), [("pass", True), ("while True: pass", False), ("input()", False)], ids=str
)
def test_a_process_hangs_that_computes_for_too_long_or_not_at_all(code, ends, monkeypatch):
    monkeypatch.setattr(soak, "STILL_SECONDS", 3.0)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        try:
            assert soak.wait_for(process, 0.5) == ends
        finally:
            process.kill()
