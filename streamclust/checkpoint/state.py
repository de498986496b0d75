"""States of an engine, a shard and a model: composed of the states of their parts, checked when they are loaded."""

from __future__ import annotations

from dataclasses import replace

from streamclust.checkpoint.validation import check_engine, whole
from streamclust.engine import Engine, Model
from streamclust.engine.feature_stream import FeatureStream
from streamclust.engine.settings import OLDER_SETTINGS
from streamclust.engine.shard import Shard
from streamclust.engine.shards import MERGED, key_of
from streamclust.engine.stream import Stream
from streamclust.sketch import Sketch, Transform
from streamclust.utils.state import State

OLDER = OLDER_SETTINGS | {"transforms": "none"}
"""Parameters that older checkpoints do not name, as they were then."""

shard_state = Shard.to_state
shard_from_state = Shard.from_state
features_state = FeatureStream.to_state
features_from_state = FeatureStream.from_state


def engine_state(engine: Engine, merged: bool = False) -> State:
    """Complete state of an engine, or with its shards `merged` into one; waits for a running refit."""
    return engine.stream.to_state(merged)


def engine_from_state(state: State) -> Engine:
    """The engine that `engine_state` saved; ValueError for a state that cannot be that of an engine."""
    whole("n_features", state.values["n_features"])
    engine = Engine.of(Stream.from_state(state))
    check_engine(engine)
    return engine


def model_state(model: Model) -> State:
    """State of a published model, with its sketch and its transform."""
    arrays, values = model.to_state()
    return with_transform(with_sketch(State(arrays, values), model.sketch), model.transform)


def model_from_state(state: State) -> Model:
    """The model that `model_state` saved."""
    transform = transform_from_state(state)
    return replace(Model.from_state(state), sketch=sketch_from_state(state), transform=transform)


def model_in(state: State) -> Model | None:
    """The published model of a saved clusterer; None if it has learnt nothing."""
    saved = state.part("model")
    if saved is None:
        return None
    return replace(Model.from_state(saved, sketch_from_state(state)), transform=transform_from_state(state))


def with_sketch(state: State, sketch: Sketch | None) -> State:
    """The state with that of a sketch as a part, if there is one."""
    if sketch is not None:
        sketch.to_state().add_to(state.arrays, state.values, "sketch")
    return state


def with_transform(state: State, transform: Transform) -> State:
    """The state with that of a transform as a part, if any feature is transformed."""
    if not transform.is_none:
        transform.to_state().add_to(state.arrays, state.values, "transform")
    return state


def transform_from_state(state: State) -> Transform:
    """The transform that is a part of a state."""
    return Transform.from_state(state.part("transform"))


def sketch_from_state(state: State) -> Sketch | None:
    """The sketch that is a part of a state; None if there is none."""
    saved = state.part("sketch")
    return None if saved is None else Sketch.from_state(saved)


__all__ = [
    "MERGED",
    "OLDER",
    "engine_from_state",
    "engine_state",
    "features_from_state",
    "features_state",
    "key_of",
    "model_from_state",
    "model_in",
    "model_state",
    "shard_from_state",
    "shard_state",
    "sketch_from_state",
    "transform_from_state",
    "with_sketch",
    "with_transform",
]
