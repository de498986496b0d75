"""State: named arrays and JSON values, the form in which classes pack themselves for checkpoints.

By convention `x.to_state()` packs an object and `X.from_state(state)` restores it, bit for bit. An object that holds
others puts their arrays under a prefix of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Packed = TypeVar("Packed")


class State(NamedTuple):
    """Arrays by name, and values that JSON can hold."""

    arrays: Arrays
    values: dict[str, Any]

    def add_to(self, arrays: Arrays, values: dict[str, Any], name: str) -> None:
        """Add this state to a larger one, as a part of this name."""
        arrays |= prefixed(f"{name}.", self.arrays)
        values[name] = self.values

    def part(self, name: str) -> State | None:
        """The part of this name; None if there is none."""
        values = self.values.get(name)
        return None if values is None else State(under(self.arrays, f"{name}."), values)


def prefixed(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """The arrays with a prefix before their names.

    >>> prefixed("tree.", {"weight": np.ones(1)})
    {'tree.weight': array([1.])}
    """
    return {prefix + name: value for name, value in arrays.items()}


def under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """The arrays whose names begin with a prefix, without it.

    >>> under({"tree.weight": np.ones(1), "whole.rows": np.zeros(2)}, "tree.")
    {'weight': array([1.])}
    """
    return {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}


def fields_state(thing: object, skip: tuple[str, ...] = ()) -> State:
    """The fields of a dataclass, but for some."""
    assert is_dataclass(thing)
    held = {f.name: getattr(thing, f.name) for f in fields(thing) if f.name not in skip}
    arrays = {name: value for name, value in held.items() if isinstance(value, np.ndarray)}
    return State(arrays, {name: value for name, value in held.items() if name not in arrays})


def from_fields(kind: type[Packed], state: State, **more: object) -> Packed:
    """A dataclass from its saved fields, and `more`; arrays of other names are left out."""
    assert is_dataclass(kind)
    names = {f.name for f in fields(kind)}
    arrays = {name: value for name, value in state.arrays.items() if name in names}
    return kind(**state.values, **arrays, **more)
