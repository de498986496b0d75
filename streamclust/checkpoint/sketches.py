"""A sketch as arrays and JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from streamclust.sketch import Compression, Sketch, check_sketch

Arrays = dict[str, NDArray[Any]]
PREFIX = "sketch."
ARRAYS = ("centre", "scale", "directions", "noise")


class State(NamedTuple):
    """Arrays, by name, and what JSON holds."""

    arrays: Arrays
    values: dict[str, Any]


def under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """The arrays whose names begin with the prefix, without it."""
    return {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}


def pack_sketch(sketch: Sketch | None, arrays: Arrays) -> dict[str, Any]:
    """A sketch: its arrays go into `arrays`, the rest comes back; nothing for none."""
    if sketch is None:
        return {}
    for name in ARRAYS:
        arrays[PREFIX + name] = getattr(sketch, name)
    if sketch.compression is not None:
        arrays |= {PREFIX + name: value for name, value in sketch.compression._asdict().items()}
    return {"sketch": {"level": sketch.level, "spread": sketch.spread, "unit": sketch.unit}}


def sketch_from_state(state: State) -> Sketch | None:
    """The sketch that `pack_sketch` packed; None if there is none."""
    if "sketch" not in state.values:
        return None
    arrays = under(state.arrays, PREFIX)
    centre, scale, directions, noise = (arrays[name] for name in ARRAYS)
    compression = Compression(*(arrays[name] for name in Compression._fields)) if "knee" in arrays else None
    sketch = Sketch(centre, scale, directions, noise, **state.values["sketch"], compression=compression)
    check_sketch(sketch)
    if not isinstance(sketch.unit, bool):
        raise ValueError(f"not a sketch: unit must be true or false, got {sketch.unit!r}")
    return sketch
