"""Names of features: their order, their length, and errors about them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from streamclust.utils.values import shown

MAX_NAME_LENGTH = 500
"""Characters of a feature's name."""


def in_order(
    x: Mapping[Any, Any], columns: Mapping[Hashable, int], order: Callable[[Hashable], Any]
) -> Iterable[tuple[Any, Any]]:
    """The items of an event, features that have no column yet sorted by `order`."""
    new = [name for name in x if name not in columns]
    if len(new) < 2:
        return x.items()
    return [
        *((name, x[name]) for name in x if name in columns),
        *((name, x[name]) for name in sorted(new, key=order)),
    ]


def check_name(name: Hashable, where: str = "") -> None:
    """Refuse a name of more than MAX_NAME_LENGTH characters: it would be stored and shown for good."""
    if isinstance(name, (str, bytes)) and len(name) > MAX_NAME_LENGTH:
        raise ValueError(
            f"{where}the name of a feature has at most {MAX_NAME_LENGTH} characters, got {shown(name)} with "
            f"{len(name)}; shorten it, for example to a hash"
        )


def name_order(name: Hashable) -> tuple[str, Any]:
    """Sort key of names: numbers first, then by type; text as it is, anything else by its repr."""
    if isinstance(name, (int, float)):
        return "", name
    return type(name).__name__, name if isinstance(name, str) else repr(name)


def json_name(name: Hashable) -> str | int:
    """A name as JSON can hold it; TypeError if it would come back as another."""
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
        return int(name)
    if isinstance(name, str):
        return str(name)
    raise TypeError(
        f"feature {name!r} ({type(name).__name__}) cannot be saved: only text and integers survive as names; "
        "rename it, for example to str(name)"
    )


# -------------------------------------------------------------------- errors


def missing_feature(name: Hashable, where: str = "") -> ValueError:
    """The error for an event that lacks a feature where none may be missing."""
    return ValueError(
        f'{where}feature {name!r} is missing, which missing="error" forbids; use missing="impute" or "zero" to allow it'
    )


def new_feature(name: Hashable, where: str = "") -> ValueError:
    """The error for an event with a new feature where none may come."""
    return ValueError(
        f'{where}feature {name!r} is new, which missing="error" forbids; use missing="impute" or "zero" to allow it'
    )


def not_a_table(data: object) -> str:
    """The message for data that are not many events."""
    return (
        "many events are a list of mappings, a frame in memory (pandas, polars, pyarrow) or a numpy table, "
        f"got {shown(data)} ({type(data).__name__})"
    )
