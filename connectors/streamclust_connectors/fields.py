"""Paths of an event's fields in a message, and their extraction."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeGuard

Json = Any
"""A value parsed from JSON: an object, an array, a number or text. Which, is found out when it is read."""

MAX_QUOTED_CHARACTERS = 80
"""Characters of a bad value that an error message quotes."""

UNREADABLE_PREFIX = "unreadable: "
"""Prefix of the text that a source delivers in place of a record it could not read; the reason follows."""


@dataclass(frozen=True)
class Fields:
    """Paths, with dots, of an event's fields; a field without a path is absent.

    events      a list of events; without it the message is one event, or is itself a list of them
    vector      the object, the array of numbers or the base64 of float32, in the event; without it the event itself is
    features    which members of an object count; without it all but key, time and weight
    exclude     members of an object that do not count
    """

    events: str | None = None
    vector: str | None = None
    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    key: str | None = None
    time: str | None = None
    weight: str | None = None

    @property
    def aside(self) -> tuple[str | None, str | None, str | None]:
        """Paths of key, time and weight."""
        return self.key, self.time, self.weight


def event_reader(fields: Fields) -> Callable[[Any], tuple[dict[Any, Any], Any, float, float]]:
    """A function that extracts vector, key, time and weight from an event; raises an error with the reason."""
    left_out = set(fields.exclude)
    if fields.features is None and fields.vector is None:
        left_out |= {path for path in fields.aside if path}

    def read(event: Json) -> tuple[dict[Any, Any], Any, float, float]:
        if isinstance(event, str) and event.startswith(UNREADABLE_PREFIX):
            raise ValueError(event.removeprefix(UNREADABLE_PREFIX))
        key = None if fields.key is None else at(event, fields.key)
        time = math.nan if fields.time is None else moment(event, fields.time)
        weight = 1.0 if fields.weight is None else number(event, fields.weight)
        vector = event if fields.vector is None else at(event, fields.vector)
        if isinstance(vector, str) and fields.vector is not None:
            vector = packed_numbers(vector)
        if isinstance(vector, list):
            vector = dict(enumerate(vector))
        elif not isinstance(vector, dict):
            raise TypeError(f"an event must be an object or an array of numbers, got {show(vector)}")
        elif fields.features is not None:
            vector = {name: vector[name] for name in fields.features if name in vector}
        if left_out:
            vector = {name: value for name, value in vector.items() if name not in left_out}
        for name, value in vector.items():
            if value != value:
                raise ValueError(f"feature {name!r} is NaN; leave it out, or send null, if it is missing")
        return vector, key, time, weight

    return read


def packed_numbers(text: str) -> list[float]:
    """Numbers from base64 of little-endian float32, as embeddings are often sent.

    >>> packed_numbers("AACAPwAAAEA=")
    [1.0, 2.0]
    """
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(
            f"a vector must be an array of numbers or base64 of float32, got {show(text)}"
        ) from None
    if not content or len(content) % 4:
        raise ValueError(f"base64 of float32 has 4 bytes for each number, got {len(content)} bytes")
    return list(struct.unpack(f"<{len(content) // 4}f", content))


def at(content: Json, path: str) -> Json:
    """Look up a dotted path in nested objects; a member whose own name contains dots is found too.

    >>> at({"a": {"b": [10, 20]}}, "a.b.1"), at({"Sepal.Length": 5.1}, "Sepal.Length")
    (20, 5.1)
    """
    found = content
    for step in path.split("."):
        try:
            found = found[int(step)] if isinstance(found, list) else found[step]
        except (KeyError, IndexError, TypeError, ValueError):
            if isinstance(content, dict) and path in content:
                return content[path]
            raise KeyError(f"no {path!r} in the message: {step!r} is missing") from None
    return found


def moment(event: Json, path: str) -> float:
    """The time under a path: a number, or a date as ISO 8601 writes it, in seconds since 1970; UTC if it does not say.

    >>> moment({"at": 5}, "at"), moment({"at": "1970-01-02 00:00:30"}, "at")
    (5.0, 86430.0)
    """
    value = at(event, path)
    if not isinstance(value, str):
        return number(event, path)
    try:
        date = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"{path} must be a number or a date as 2026-01-31 or 2026-01-31T12:00:00Z, got {show(value)}"
        ) from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def number(event: Json, path: str) -> float:
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


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is an int or float, but not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def show(value: object) -> str:
    """Short description of a value for error messages."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number of thousands of digits"
    return f"{text[:MAX_QUOTED_CHARACTERS]}{'…' if len(text) > MAX_QUOTED_CHARACTERS else ''} ({type(value).__name__})"
