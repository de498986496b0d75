"""A stream's features as arrays and JSON, and back, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamclust.checkpoint.sketches import State
from streamclust.engine.feature_stream import BLOCK_ROWS, FeatureSettings, FeatureStream
from streamclust.lineage import Lineage

OLDER = {"n_failed_refits": 0}
"""Counts that older checkpoints do not have."""
ARRAYS = ("A", "G", "ids", "rows", "keys")
COUNTS = ("n_events", "n_refits", "n_missing", "next_refit", "n_failed_refits")


def features_state(stream: FeatureStream) -> State:
    """Complete state of a feature stream."""
    width = max([stream.A.shape[1], *map(len, stream.pending)])
    pending = np.full((len(stream.pending), width), np.nan)
    for i, row in enumerate(stream.pending):
        pending[i, : len(row)] = row
    arrays: dict[str, NDArray[Any]] = {name: np.array(getattr(stream, name)) for name in ARRAYS}
    values = {name: getattr(stream, name) for name in COUNTS}
    return State(
        arrays | {"pending": pending, "numbers": np.array([stream.weight, stream.penalty])},
        values | {"generator": stream.generator.bit_generator.state, "lineage": stream.lineage.to_dict()},
    )


def features_from_state(state: State, settings: FeatureSettings) -> FeatureStream:
    """The feature stream that `features_state` saved; KeyError, TypeError or ValueError if it is none."""
    arrays, values = state
    stream = FeatureStream(settings)
    for name in ARRAYS:
        setattr(stream, name, np.array(arrays[name]))
    for name in COUNTS:
        setattr(stream, name, int((OLDER | values)[name]))
    stream.pending = list(np.array(arrays["pending"]))
    stream.weight, stream.penalty = map(float, arrays["numbers"])
    stream.generator.bit_generator.state = values["generator"]
    stream.lineage = Lineage.from_dict(values["lineage"])
    if not sound(stream):
        raise ValueError("its arrays do not fit each other")
    stream.publish()
    return stream


def sound(stream: FeatureStream) -> bool:
    """Whether sizes and counts of a stream go together, and its numbers are finite."""
    k, d = stream.A.shape if stream.A.ndim == 2 else (-1, -1)
    return bool(
        stream.G.shape == (k, k)
        and stream.ids.shape == (k,)
        and stream.rows.shape == (len(stream.keys), d)
        and len(stream.pending) < BLOCK_ROWS
        and stream.n_events % BLOCK_ROWS == 0
        and stream.next_refit > stream.n_events
        and stream.ids.tolist() == sorted(stream.lineage.born_at)
        and np.isfinite(stream.A).all()
        and np.isfinite(stream.G).all()
    )
