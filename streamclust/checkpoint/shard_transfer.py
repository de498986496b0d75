"""One shard as arrays and JSON, as processes hand it on: its summary, and its events that wait for a sketch."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from streamclust.checkpoint.state import (
    sketch_from_state,
    transform_from_state,
    with_sketch,
    with_transform,
)
from streamclust.checkpoint.waiting_events import pack_waiting, unpack_waiting, waiting_of
from streamclust.engine.shard import Shard
from streamclust.engine.shards import key_of
from streamclust.engine.wide_events import Block
from streamclust.sketch import Sketch, Transform
from streamclust.utils.state import Arrays, State, under


def handed_on(
    summary: State | None,
    waiting: Sequence[Block],
    sketch: Sketch | None,
    more: dict[str, Any],
    transform: Transform,
) -> State:
    """A shard for another clusterer to adopt; no summary: all its events wait."""
    arrays: Arrays = {} if summary is None else dict(summary.arrays)
    values = {} if summary is None else dict(summary.values)
    with_transform(with_sketch(State(arrays, values), sketch), transform)
    values |= more
    if waiting:
        values["waiting"] = pack_waiting(waiting, "", arrays)
    return State(arrays, values)


def summary_in(state: State) -> Shard | None:
    """The summary of a shard that was handed on; None if all its events wait."""
    return Shard.from_state(state) if "watched" in state.values else None


def waiting_in(state: State) -> list[Block]:
    """The events of a shard that was handed on that wait."""
    return unpack_waiting(state.values.get("waiting", []), state.arrays)


def shard_in(state: State, key: Hashable) -> State | None:
    """One shard of a saved clusterer, as `StreamClusterer.release` gives it; None if it has no such shard."""
    summary = None
    for i, part in enumerate(state.values["shards"]):
        if key_of(part) == key:
            values = {name: value for name, value in part.items() if name != "key"}
            summary = State(under(state.arrays, f"shard{i}."), values)
    waiting = waiting_of(state, key)
    if summary is None and not waiting:
        return None
    more = {"schema": state.values["schema"], "n_features": state.values["n_features"]}
    for kept in state.values.get("clocks", []):
        if key_of({"key": kept["shard"]}) == key:
            more["clock"] = kept["clock"]
    return handed_on(summary, waiting, sketch_from_state(state), more, transform_from_state(state))
