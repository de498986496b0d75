"""Bodies of requests -> events: an object of named numbers, an array of such, or a table.

>>> read(b'{"x": 1, "y": 2.5}')
[{'x': 1, 'y': 2.5}]
>>> read(b'{"vectors": [[1, 2.5], [3, null]]}')
Table(vectors=[[1.0, 2.5], [3.0, None]], features=None)
>>> rows(read(b'[{"y": 2.5, "x": 1}, {"y": 4}]'), ("x", "y"))
array([[1. , 2.5],
       [nan, 4. ]])
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamclust.schema import Missing, Schema
from streamclust.streaming import StreamClusterer

Names = Sequence[Hashable]


class Unreadable(ValueError):  # noqa: N818
    """A body that holds no events, and why."""


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """Events as rows of numbers; null is a number that is missing."""

    vectors: list[list[float | None]]
    features: list[str] | None = None
    """What the columns are; those known, in their order, if not given."""

    def __len__(self) -> int:
        return len(self.vectors)


Events = Table | list[dict[str, Any]]
Vectors = NDArray[np.float64] | list[dict[Any, Any]]
"""As a clusterer learns them: a table of the features known, in their order, or objects of those they have."""

read_table = msgspec.json.Decoder(Table).decode
read_objects = msgspec.json.Decoder(list[dict[str, float | None]]).decode
read_anything = msgspec.json.Decoder().decode


def read(body: bytes) -> Events:
    """The events of a body; Unreadable if it is of another form. What objects hold is for others to judge."""
    try:
        return _read(body)
    except RecursionError:
        raise Unreadable("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"the body cannot be read: {error}") from None


def _read(body: bytes) -> Events:
    typed: Callable[[bytes], Events] = read_objects if body.lstrip()[:1] == b"[" else read_table
    try:
        return typed(body)
    except msgspec.ValidationError:
        content = read_anything(body)
        if isinstance(content, dict) and isinstance(content.get("vectors"), list):
            raise
    if not isinstance(content, (dict, list)):
        raise Unreadable('events are {"x": 1.5, ...}, an array of such, or {"vectors": [[1.5, ...], ...]}')
    return content if isinstance(content, list) else [content]


# -------------------------------------------------------------------- events -> what is learnt


def vectors(events: Events, names: Names) -> Vectors:
    """Events as a clusterer learns them."""
    if not isinstance(events, Table):
        return renamed(events, names)
    found = array(events)
    if events.features is None:
        check_width(found, names)
        return found
    check_named(events.features, found)
    if events.features == list(names):
        return found
    return renamed([dict(zip(events.features, row, strict=True)) for row in events.vectors], names)


def refusals(clusterer: StreamClusterer, vectors: Vectors) -> dict[int, str]:
    """Why some of the events cannot be learnt, by their place."""
    reasons = clusterer.refusals(vectors)
    if clusterer.n_seen == 0 and isinstance(vectors, np.ndarray):
        complete = [i for i in np.flatnonzero(~np.isnan(vectors).any(axis=1)).tolist() if i not in reasons]
        for i in range(complete[0] if complete else len(vectors)):
            reasons.setdefault(i, "the first event must be complete: there is nothing to fill it from")
    return reasons


def without(vectors: Vectors, refused: Container[int]) -> Vectors:
    """The events but some."""
    kept = [i for i in range(len(vectors)) if i not in refused]
    if len(kept) == len(vectors):
        return vectors
    return vectors[kept] if isinstance(vectors, np.ndarray) else [vectors[i] for i in kept]


def renamed(events: list[Any], names: Names) -> list[Any]:
    """Objects whose members are called as the features are: those of arrays are numbers, which JSON makes text."""
    called = {str(name): name for name in names if not isinstance(name, str)}
    if not called:
        return events
    return [{called.get(k, k): v for k, v in e.items()} if isinstance(e, dict) else e for e in events]


# -------------------------------------------------------------------- events -> what is asked


def rows(events: Events, names: Names, missing: Missing = "impute") -> NDArray[np.float64]:
    """A row of the known features for each event. What is no number, or not allowed to be missing, is an error."""
    found = vectors(events, names)
    if isinstance(found, np.ndarray):
        if missing == "error" or not names:
            return Schema(names, missing).table(found, extend=False)
        return found
    plain = complete(found, names)
    # A schema of our own: the clusterer's may grow meanwhile.
    return Schema(names, missing).table(found, extend=False) if plain is None else plain


def complete(events: list[dict[Any, Any]], names: Names) -> NDArray[np.float64] | None:
    """A row for each event, if each has a number for just these features; else None."""
    if not names or not all(type(event) is dict and len(event) == len(names) for event in events):
        return None
    values: Any = map(itemgetter(*names), events) if len(names) > 1 else (e.values() for e in events)
    try:
        flat = list(chain.from_iterable(values))
        if len(names) == 1 and any(names[0] not in event for event in events):
            return None
    except KeyError:
        return None
    if not {float}.issuperset(map(type, flat)):
        return None
    return np.fromiter(flat, dtype=float, count=len(flat)).reshape(len(events), len(names))


def array(events: Table) -> NDArray[np.float64]:
    """The rows as an array, with NaN for what is missing."""
    lengths = set(map(len, events.vectors))
    if len(lengths) > 1:
        raise Unreadable(f"vectors must all be of one length, got {min(lengths)} to {max(lengths)} numbers")
    width = lengths.pop() if lengths else 0
    flat = list(chain.from_iterable(events.vectors))
    return np.array(flat, dtype=float).reshape(len(events), width)


def check_width(found: NDArray[np.float64], names: Names) -> None:
    """Refuse rows that are not of the features known."""
    if len(found) and names and found.shape[1] != len(names):
        raise Unreadable(
            f"vectors have {found.shape[1]} numbers, the features are {len(names)}: give as many, or name them in "
            '"features"'
        )


def check_features(vectors: Vectors, names: Names, most: int) -> None:
    """Refuse events that would make the features too many."""
    if isinstance(vectors, np.ndarray):
        total = max(len(names), vectors.shape[1])
    else:
        total = len({*names}.union(*(event for event in vectors if isinstance(event, dict))))
    if total > most:
        raise Unreadable(f"that would make {total} features, at most {most} may be (http.max_features)")


def check_named(features: list[str], found: NDArray[np.float64]) -> None:
    """Refuse names that do not go with the rows."""
    if len(set(features)) < len(features):
        raise Unreadable('"features" must differ from each other')
    if len(found) and found.shape[1] != len(features):
        raise Unreadable(f'vectors have {found.shape[1]} numbers, "features" has {len(features)} names')
