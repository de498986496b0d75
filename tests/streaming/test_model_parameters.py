"""Parameters of live models, and subclasses with parameters of their own."""

import numpy as np
import pytest

from streamclust import StreamClusterer, StreamFeatures
from streamclust.batch import StreamEstimator
from streamclust.checkpoint import CheckpointError

ROWS = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([0.0, 9.0], 100)[:, None]


@pytest.mark.parametrize("kind", [StreamClusterer, StreamFeatures])
def test_a_parameter_of_a_live_model_cannot_be_changed_without_effect(kind):
    model = kind(half_life=100.0)
    with pytest.raises(AttributeError, match=r"half_life=100.*clone\(\{'half_life': 7.0\}\)"):
        model.half_life = 7.0
    model.half_life = 100.0
    assert model.half_life == 100.0
    other = model.clone({"half_life": 7.0})
    assert (other.half_life, model.half_life) == (7.0, 100.0)


@pytest.mark.parametrize("kind", [StreamClusterer, StreamFeatures])
def test_a_callback_can_be_set_at_any_time(kind):
    told, model = [], kind(warmup=64)
    model.on_event = told.append
    model.learn_many(ROWS)
    assert told == list(model.events)
    assert told
    with pytest.raises(ValueError, match="on_event must be a function"):
        model.on_event = 3


def test_a_clone_with_attributes_goes_on_by_itself():
    model = StreamClusterer()
    model.learn_many(ROWS)
    twin = model.clone(include_attributes=True)
    twin.learn_many(ROWS)
    assert (model.n_seen, twin.n_seen) == (200, 400)


def test_an_estimator_refuses_to_go_on_under_other_parameters():
    model = StreamEstimator().partial_fit(ROWS)
    model.set_params(half_life=50.0, outliers=0.01)
    assert model.get_params()["half_life"] == 50.0
    with pytest.raises(ValueError, match="half_life cannot be changed between calls of partial_fit"):
        model.partial_fit(ROWS)
    model.fit(ROWS)
    assert model.engine_.settings.half_life == 50.0
    assert model.set_params(outliers=0.02).partial_fit(ROWS).engine_.n_seen == 400


class Named(StreamClusterer):
    """Takes a parameter of its own, and few of the others."""

    def __init__(self, name, half_life=None, tags=()):
        super().__init__(half_life=half_life, drift="ignore")
        self.name = name
        self.tags = tags


class Passing(StreamClusterer):
    """Passes on what it does not know."""

    def __init__(self, name, **kwargs):
        self.name = name
        super().__init__(**kwargs)


class NamedFeatures(StreamFeatures):
    """Features of a stream with a name."""

    def __init__(self, name="a", seed=0):
        super().__init__(seed=seed, warmup=64)
        self.name = name


@pytest.mark.parametrize(
    "model",
    [
        Named("a", half_life=60.0, tags=["x"]),
        Passing("a", half_life=60.0, drift="ignore", seed=3),
        NamedFeatures("a", seed=3),
    ],
)
def test_a_subclass_with_parameters_of_its_own_is_saved_and_loaded(tmp_path, model):
    model.learn_many(ROWS)
    model.save(tmp_path / "x")
    told = []
    again = type(model).load(tmp_path / "x", on_event=told.append)
    assert vars(again)["name"] == "a"
    for name in ("tags", "half_life", "drift", "seed", "warmup"):
        assert getattr(again, name, None) == getattr(model, name, None)
    for each in (model, again):
        each.learn_many(ROWS + 50.0)
    ours, theirs = model.to_state(), again.to_state()
    assert ours.values == theirs.values
    assert all(np.array_equal(value, theirs.arrays[name]) for name, value in ours.arrays.items())
    base = StreamFeatures if isinstance(model, StreamFeatures) else StreamClusterer
    with pytest.raises(CheckpointError, match=r"takes 'name'.*load it by that class"):
        base.load(tmp_path / "x")


def test_a_parameter_that_cannot_be_saved_is_named_when_saving(tmp_path):
    model = Named(object())
    model.learn_many(ROWS)
    with pytest.raises(TypeError, match="parameter name of Named cannot be saved"):
        model.save(tmp_path / "x")
    assert not (tmp_path / "x").exists()
