"""Where the parts of an event are in a message, and how they are taken from one that was read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SHOWN = 80
"""Reasons quote at most so many characters of what was wrong."""


@dataclass(frozen=True)
class Fields:
    """Where an event's parts are, as paths with dots. What is not said is not there.

    events      a list of events; without it the message is one event, or is itself a list of them
    vector      the object or array of numbers, in the event; without it the event itself is
    features    which members of an object count; without it all but key, time and weight
    """

    events: str | None = None
    vector: str | None = None
    features: tuple[str, ...] | None = None
    key: str | None = None
    time: str | None = None
    weight: str | None = None

    @property
    def aside(self) -> tuple[str | None, str | None, str | None]:
        """The paths of what comes with a vector."""
        return self.key, self.time, self.weight


def event_reader(fields: Fields) -> Callable[[Any], tuple[dict[Any, Any], Any, float, float]]:
    """A function of an event: its vector, key, time and weight; raises, and says why, where it has none."""
    aside = {path for path in fields.aside if path and "." not in path}

    def read(event: Any) -> tuple[dict[Any, Any], Any, float, float]:  # noqa: ANN401
        key = None if fields.key is None else at(event, fields.key)
        time = math.nan if fields.time is None else number(event, fields.time)
        weight = 1.0 if fields.weight is None else number(event, fields.weight)
        vector = event if fields.vector is None else at(event, fields.vector)
        if isinstance(vector, list):
            vector = dict(enumerate(vector))
        elif not isinstance(vector, dict):
            raise TypeError(f"an event must be an object or an array of numbers, got {show(vector)}")
        elif fields.features is not None:
            vector = {name: vector[name] for name in fields.features if name in vector}
        elif aside and fields.vector is None:
            vector = {name: value for name, value in vector.items() if name not in aside}
        for name, value in vector.items():
            if value != value:
                raise ValueError(f"feature {name!r} is NaN; leave it out, or send null, if it is missing")
        return vector, key, time, weight

    return read


def at(content: Any, path: str) -> Any:  # noqa: ANN401
    """What lies under a path with dots.

    >>> at({"a": {"b": [10, 20]}}, "a.b.1")
    20
    """
    for step in path.split("."):
        try:
            content = content[int(step)] if isinstance(content, list) else content[step]
        except (KeyError, IndexError, TypeError, ValueError):
            raise KeyError(f"no {path!r} in the message: {step!r} is missing") from None
    return content


def number(event: Any, path: str) -> float:  # noqa: ANN401
    """The number under a path."""
    value = at(event, path)
    if not is_number(value):
        raise TypeError(f"{path} must be a number, got {show(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ValueError(f"{path} must be finite, got {show(value)}")
    return found


def is_number(value: Any) -> bool:  # noqa: ANN401
    """Whether it is a number, true and false not being any."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def show(value: Any) -> str:  # noqa: ANN401
    """What something is, in a few words."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number of thousands of digits"
    return f"{text[:SHOWN]}{'…' if len(text) > SHOWN else ''} ({type(value).__name__})"
