"""Paths of an event's fields in a message, and functions that read them."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeGuard

Json = Any
"""A value parsed from JSON: an object, an array, a number, text, a boolean or null."""

MAX_QUOTED_CHARACTERS = 80
"""Characters of a bad value that an error message quotes."""

UNREADABLE_PREFIX = "unreadable: "
"""Prefix of the text that a source delivers in place of a record it could not read; the reason follows."""


@dataclass(frozen=True)
class Fields:
    """Dotted paths of an event's fields; a field without a path is absent.

    events      list of events in the message; if None, the message is one event or a list of events
    vector      object, array of numbers or base64 of float32 in the event; if None, the event itself
    features    members of the object to use; if None, all but key, time and weight
    exclude     members of the object to ignore
    """

    events: str | None = None
    vector: str | None = None
    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    key: str | None = None
    time: str | None = None
    weight: str | None = None

    @property
    def side_paths(self) -> tuple[str | None, str | None, str | None]:
        """Paths of key, time and weight."""
        return self.key, self.time, self.weight


def event_reader(fields: Fields) -> Callable[[Any], tuple[dict[Any, Any], Any, float, float]]:
    """A function that reads vector, key, time and weight of an event; it raises an error with the reason."""
    left_out = set(fields.exclude)
    if fields.features is None and fields.vector is None:
        left_out |= {path for path in fields.side_paths if path}

    def read(event: Json) -> tuple[dict[Any, Any], Any, float, float]:
        if isinstance(event, str) and event.startswith(UNREADABLE_PREFIX):
            raise ValueError(event.removeprefix(UNREADABLE_PREFIX))
        key = None if fields.key is None else get_path(event, fields.key)
        time = math.nan if fields.time is None else read_time(event, fields.time)
        weight = 1.0 if fields.weight is None else read_number(event, fields.weight)
        vector = event if fields.vector is None else get_path(event, fields.vector)
        if isinstance(vector, str) and fields.vector is not None:
            vector = numbers_from_base64(vector)
        if isinstance(vector, list):
            vector = dict(enumerate(vector))
        elif not isinstance(vector, dict):
            raise TypeError(
                f"an event must be an object or an array of numbers, got {describe_value(vector)}"
            )
        elif fields.features is not None:
            vector = {name: vector[name] for name in fields.features if name in vector}
        if left_out:
            vector = {name: value for name, value in vector.items() if name not in left_out}
        for name, value in vector.items():
            if value != value:
                raise ValueError(f"feature {name!r} is NaN; omit it or send null if the value is missing")
        return vector, key, time, weight

    return read


def numbers_from_base64(text: str) -> list[float]:
    """Numbers from base64 of little-endian float32, as embeddings are often sent.

    >>> numbers_from_base64("AACAPwAAAEA=")
    [1.0, 2.0]
    """
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(
            f"a vector must be an array of numbers or base64 of float32, got {describe_value(text)}"
        ) from None
    if not content or len(content) % 4:
        raise ValueError(f"base64 of float32 has 4 bytes for each number, got {len(content)} bytes")
    return list(struct.unpack(f"<{len(content) // 4}f", content))


def get_path(content: Json, path: str) -> Json:
    """Look up a dotted path in nested objects; a member whose own name contains dots is found too.

    >>> get_path({"a": {"b": [10, 20]}}, "a.b.1"), get_path({"Sepal.Length": 5.1}, "Sepal.Length")
    (20, 5.1)
    """
    found = content
    for step in path.split("."):
        try:
            found = found[int(step)] if isinstance(found, list) else found[step]
        except (KeyError, IndexError, TypeError, ValueError):
            if isinstance(content, dict) and path in content:
                return content[path]
            raise KeyError(f"there is no {path!r} in the message: {step!r} is missing") from None
    return found


def read_time(event: Json, path: str) -> float:
    """The time under a path: a number, or an ISO 8601 date as seconds since 1970 (UTC if it names no zone).

    >>> read_time({"at": 5}, "at"), read_time({"at": "1970-01-02 00:00:30"}, "at")
    (5.0, 86430.0)
    """
    value = get_path(event, path)
    if not isinstance(value, str):
        return read_number(event, path)
    try:
        date = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"{path} must be a number or a date such as 2026-01-31 or 2026-01-31T12:00:00Z, got {describe_value(value)}"
        ) from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def read_number(event: Json, path: str) -> float:
    """The number under a path."""
    value = get_path(event, path)
    if not is_number(value):
        raise TypeError(f"{path} must be a number, got {describe_value(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ValueError(f"{path} must be finite, got {describe_value(value)}")
    return found


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is an int or float, but not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def describe_value(value: object) -> str:
    """Short description of a value for error messages."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number of thousands of digits"
    return f"{text[:MAX_QUOTED_CHARACTERS]}{'…' if len(text) > MAX_QUOTED_CHARACTERS else ''} ({type(value).__name__})"
