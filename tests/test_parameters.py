"""Every class that takes the engine's parameters takes them as they are declared, and says the same about them."""

import dataclasses
import inspect
import math
from collections.abc import Callable
from types import NoneType
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from streamclust import StreamClusterer
from streamclust.batch import StreamEstimator
from streamclust.engine import EngineSettings
from streamclust.engine.settings import COVARIANCE, check_parameters
from streamclust.engine.tuning import TUNING
from streamclust.families import FAMILIES, MIXTURES
from streamclust.parameters import (
    GAUSSIANS,
    NOT_TAKEN,
    PARAMETERS,
    FamilyName,
    MixtureName,
    documentation,
    taken_by,
)
from streamclust.streaming.clocks import MAX_STEP_HALF_LIVES, MAX_VOTES
from streamclust.streaming.clusterer import (
    MAX_FEATURES,
    MAX_SIMPLE_FEATURES,
    MAX_WIDE_FEATURES,
)
from streamclust_connectors.cli import app
from streamclust_connectors.settings import ConfigError, load, to_toml
from streamclust_connectors.settings.engine import EngineSection
from tests.streams import clustered

ESTIMATORS = [StreamClusterer, StreamEstimator]
PLACES = [*ESTIMATORS, EngineSettings, EngineSection]
NAMES_ARE_TEXT = {
    "feature_order": tuple[str, ...] | None,
    "transforms": Literal["auto", "none"] | dict[str, Literal["log", "none"] | float],
}
"""In a settings file."""


def declared(place):
    return taken_by(place.__name__)


def signature(place):
    """Names and defaults of what a class takes."""
    if place is EngineSection:
        return {name: field.default for name, field in place.model_fields.items()}
    return {name: p.default for name, p in inspect.signature(place).parameters.items()}


def hints(place):
    """Types of what a class takes."""
    if place is EngineSection:
        return get_type_hints(place)
    return get_type_hints(place.__init__ if place in ESTIMATORS else place)


def plain(hint):
    """A type, whatever the arguments of functions are."""
    return Callable if any(get_origin(kind) is Callable for kind in get_args(hint)) else hint


@pytest.mark.parametrize("place", PLACES)
def test_names_defaults_and_their_order_are_those_declared(place):
    assert list(signature(place).items()) == [(name, p.default) for name, p in declared(place).items()]


@pytest.mark.parametrize("place", PLACES)
def test_types_are_those_declared(place):
    found = hints(place)
    expected = {name: parameter.type for name, parameter in declared(place).items()}
    if place is EngineSection:
        expected |= NAMES_ARE_TEXT
    assert {name: plain(found[name]) for name in expected} == {n: plain(t) for n, t in expected.items()}
    assert plain(PARAMETERS["on_event"].type) is Callable


@pytest.mark.parametrize("place", ESTIMATORS)
def test_docstrings_say_what_is_declared(place):
    assert documentation(declared(place)) in inspect.getdoc(place)


def test_what_is_not_taken_is_a_parameter_and_has_a_reason():
    assert set(NOT_TAKEN) == {place.__name__ for place in PLACES}
    for reasons in NOT_TAKEN.values():
        assert set(reasons) < set(PARAMETERS)
        assert all(reasons.values())


def test_words_are_those_that_exist():
    assert set(get_args(FamilyName)) == {*FAMILIES, "mixed"}
    assert set(get_args(MixtureName)) == set(MIXTURES)
    assert tuple(COVARIANCE) == GAUSSIANS


def test_texts_name_every_word_and_the_figures_of_the_code():
    said = {name: f"{p.help} {p.details}" for name, p in PARAMETERS.items()}
    for name, parameter in PARAMETERS.items():
        for kind in (parameter.type, *get_args(parameter.type)):
            words = get_args(kind) if get_origin(kind) is Literal else ()
            assert all((f'"{word}"' if word else str(word)) in said[name] for word in words)
    figures = {
        "warmup": (TUNING.min_refit_events, TUNING.min_sample, TUNING.max_first_events),
        "max_features": (MAX_FEATURES, MAX_SIMPLE_FEATURES, MAX_WIDE_FEATURES),
        "max_time_step": (MAX_STEP_HALF_LIVES, MAX_VOTES),
    }
    for name, numbers in figures.items():
        assert all(f" {number:g}" in said[name] for number in numbers)
    assert f"{round(TUNING.block_events * TUNING.window_events, -4):,} events" in said["drift"]


def test_help_is_one_sentence():
    for parameter in PARAMETERS.values():
        assert parameter.help.endswith(".")
        assert ". " not in parameter.help
        assert "None" not in parameter.help  # a settings file has no such word


# -------------------------------------------------------------------- the service and the commands


def test_the_settings_file_says_what_is_declared():
    text = to_toml(load())
    for parameter in declared(EngineSection).values():
        assert f"# {parameter.help}\n" in text


@pytest.mark.parametrize("command", ["fit", "spark-summarize"])
def test_commands_say_what_is_declared(command):
    options = {option.name: option for option in get_command(app).commands[command].params}
    shared = options.keys() & PARAMETERS.keys()
    assert shared == {"family", "half_life", "seed"} | ({"detail"} if command == "fit" else set())
    for name in shared:
        assert options[name].help.startswith(PARAMETERS[name].help)


def refused(check, *arguments):
    try:
        check(*arguments)
    except ValueError:  # pydantic's errors and ConfigError are ValueErrors too
        return True
    return False


def values(parameter):
    """Values of the right type, right and wrong."""
    kind = next((k for k in get_args(parameter.type) if k is not NoneType), parameter.type)
    if get_origin(parameter.type) is Literal or get_origin(kind) is Literal:
        words = get_args(parameter.type if get_origin(parameter.type) is Literal else kind)
        return st.sampled_from(words) | st.text(min_size=1)
    return {int: st.integers(-3, 5) | st.integers(), float: st.floats(), bool: st.booleans()}.get(kind)


BOTH = {name: values(p) for name, p in declared(EngineSection).items() if values(p) is not None}


@given(st.sampled_from(sorted(BOTH)).flatmap(lambda name: st.tuples(st.just(name), BOTH[name])))
def test_the_service_refuses_what_the_library_refuses(given):
    name, value = given
    told = {"family": "gaussian", name: value}
    assert refused(check_parameters, told) == refused(lambda: EngineSection(**told))


@pytest.mark.parametrize("name", PARAMETERS)
def test_none_is_allowed_where_it_is_declared_and_the_cure_says_what_it_does(name):
    parameter = PARAMETERS[name]
    optional = NoneType in get_args(parameter.type)
    assert optional == bool(parameter.use_none_to)
    assert refused(check_parameters, {name: None}) != optional
    check_parameters({name: parameter.default})
    with pytest.raises(ValueError, match=f"^{name} must be .*{parameter.use_none_to}"):
        check_parameters({name: object()})


def test_parameters_that_do_not_go_together_are_refused_before_a_service_runs():
    for family in set(FAMILIES) - set(GAUSSIANS):
        with pytest.raises(ConfigError, match=r"engine: refit=.chunky-em. fits Gaussians"):
            load(overrides={"engine": {"refit": "chunky-em", "family": family}})
        with pytest.raises(ValueError, match="fits Gaussians"):
            StreamClusterer(refit="chunky-em", family=family)
        with pytest.raises(ConfigError, match=r"engine: mixture=.uninformative. is for family=.gaussian."):
            load(overrides={"engine": {"mixture": "uninformative", "family": family}})
        with pytest.raises(ValueError, match=r"mixture=.uninformative. is for"):
            StreamClusterer(mixture="uninformative", family=family)
    for mixture in ("infinite", "uninformative"):
        with pytest.raises(ValueError, match=r"mixture must be .finite., got"):
            StreamClusterer(refit="chunky-em", mixture=mixture)
        StreamClusterer(refit="dp-means", mixture=mixture)


# -------------------------------------------------------------------- the scikit-learn estimator


@pytest.mark.compiled
def test_what_the_estimator_takes_reaches_its_engine():
    rows, _ = clustered(300, 2, k=3, seed=1)
    told = []
    other = {
        "family": "diagonal", "refit": "dp-means", "mixture": "infinite", "max_leaves": 64, "refit_every": 100,
        "warmup": 50, "half_life": 1e4, "drift": "ignore", "birth_penalty": 4.0, "shape": "any", "detail": "fine",
        "n_clusters": None, "background": False, "seed": 3,
    }  # fmt: skip
    beside = {
        "on_event": told.append, "max_directions": 8, "scale": "deviation", "transforms": "none", "outliers": None,
    }  # fmt: skip
    model = StreamEstimator(**other, **beside).fit(rows)
    assert {*other, *beside} == set(model.get_params())
    assert dataclasses.asdict(model.engine_.settings) == other | {"leaf_size": EngineSettings().leaf_size}
    assert {child for change in told for child in change.children} >= set(model.ids_.tolist())
    with pytest.raises(ValueError, match="on_event must be a function"):
        StreamEstimator(on_event=3).fit(rows)
    with pytest.raises(ValueError, match="birth_penalty must be positive"):
        StreamEstimator(birth_penalty=math.nan).fit(rows)
