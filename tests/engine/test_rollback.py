"""Looks and refits that fail: the last good model stays, events go on being learnt, the next refit starts fresh."""

import logging

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.engine import births, monitor, refit

CENTRES = np.array([[0, 0], [12, 0], [0, 12], [12, 12], [24, 6]], float)


def events(n, seed=0):
    rng = np.random.default_rng(seed)
    return CENTRES[rng.integers(5, size=n)] + rng.normal(size=(n, 2))


def ids_of(model):
    return {cluster.id for cluster in model.clusters}


def n_refits(model):
    return model.to_state().values["n_refits"]


def has_refit_under_way(model):
    return "refit" in model.to_state().values


def failing(real, numbers, error):
    """The search, which fails at the refits of these numbers."""

    def find(work):
        if work.number in numbers:
            raise error
        return real(work)

    return find


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("error", [ValueError("NaN"), MemoryError("no room"), AssertionError()])
def test_a_failed_refit_is_counted_and_the_stream_goes_on(monkeypatch, caplog, background, error):
    model = StreamClusterer(background=background)
    model.learn_many(events(6000))
    model.settle()  # no refit is under way
    ids, version, refits_so_far = ids_of(model), model.model.version, n_refits(model)
    assert len(ids) == 5
    real = refit.find
    monkeypatch.setattr(refit, "find", failing(real, {refits_so_far + 1}, error))
    while not model.n_failed_refits:
        model.learn_many(events(1000, seed=model.n_seen))
    assert model.n_failed_in_a_row == 1
    assert type(error).__name__ in model.last_refit_error
    assert ids_of(model) == ids
    assert model.model.version == version
    assert [r.levelno for r in caplog.records if "refit failed" in r.message] == [logging.ERROR]
    seen = model.n_seen
    while n_refits(model) < refits_so_far + 2 or has_refit_under_way(model):
        model.learn_many(events(1000, seed=model.n_seen))
    assert model.n_seen > seen
    assert model.tree.total.weight[0] == pytest.approx(model.n_seen)
    assert (model.n_failed_refits, model.n_failed_in_a_row) == (1, 0)
    assert ids_of(model) == ids
    assert model.model.version > version


def test_refits_that_always_fail_cost_no_event_and_are_logged_ever_more_rarely(monkeypatch, caplog):
    def find(work):
        raise ValueError("never")

    monkeypatch.setattr(refit, "find", find)
    model = StreamClusterer(refit_every=500)
    x = events(20_000)
    for start in range(0, len(x), 1000):
        model.learn_many(x[start : start + 1000])
    assert model.n_seen == 20_000
    assert model.tree.total.weight[0] == pytest.approx(20_000)
    assert model.n_failed_in_a_row == model.n_failed_refits > 8
    told = [r for r in caplog.records if "refit failed" in r.message]
    assert len(told) == int(np.log2(model.n_failed_refits)) + 1
    assert model.n_clusters == 1  # the model before the first refit
    assert model.predict_one({0: 0.0, 1: 0.0}) is not None


def test_a_failed_look_leaves_the_model_as_it_was(monkeypatch):
    model = StreamClusterer()
    model.learn_many(events(5000))
    before = model.model

    def broken(*_):
        raise FloatingPointError("overflow")

    monkeypatch.setattr(births, "newborn", broken)
    monkeypatch.setattr(monitor, "with_latest", broken)
    model.learn_many(events(4096, seed=1))
    assert model.n_failed_refits > 0
    assert model.model.result is before.result
    monkeypatch.undo()
    model.learn_many(events(40_000, seed=2))
    assert model.n_failed_in_a_row == 0
    assert model.n_clusters == 5


def test_clusters_that_are_not_finite_are_not_published(monkeypatch):
    real = refit.fit

    def broken(*args, **kwargs):
        found = real(*args, **kwargs)
        found.clusters.mean[0] = np.nan
        return found

    model = StreamClusterer()
    model.learn_many(events(6000))
    monkeypatch.setattr(refit, "fit", broken)
    model.settle()
    assert "NaN or infinity" in model.last_refit_error
    assert np.isfinite(model.model.clusters.mean).all()


def test_a_checkpoint_of_a_failed_refit_goes_on_as_the_stream_itself(monkeypatch, tmp_path):
    model = StreamClusterer()
    model.learn_many(events(6000))
    number = n_refits(model) + 1
    monkeypatch.setattr(refit, "find", failing(refit.find, {number}, ValueError("NaN")))
    x = events(60_000, seed=5)
    done = 0
    while not has_refit_under_way(model) or n_refits(model) < number:
        model.learn_many(x[done : done + 64])
        done += 64
    model.save(tmp_path / "a.checkpoint")
    twin = StreamClusterer.load(tmp_path / "a.checkpoint")
    for each in (model, twin):
        each.learn_many(x[done:])
    assert model.n_failed_refits == twin.n_failed_refits == 1
    assert model.last_refit_error == twin.last_refit_error
    ours, theirs = model.to_state(), twin.to_state()
    assert ours.values == theirs.values
    for name, value in ours.arrays.items():
        np.testing.assert_array_equal(value, theirs.arrays[name])


def test_callbacks_see_the_change_and_their_errors_lose_nothing(caplog):
    heard = []

    def listen(change):
        heard.append(change)
        present = ids_of(model)
        assert set(change.children) <= present
        raise RuntimeError("the alert could not be sent")

    model = StreamClusterer(on_event=listen)
    model.learn_many(events(20_000))
    assert model.n_seen == 20_000
    assert heard == model.events
    assert len(heard) >= 5
    assert "the alert could not be sent" in caplog.text
    assert "AssertionError" not in caplog.text
