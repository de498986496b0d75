"""Parses request bodies into events: an object of named numbers, an array of such objects, or a table.

>>> read(b'{"x": 1, "y": 2.5}')
[{'x': 1, 'y': 2.5}]
>>> read(b'{"vectors": [[1, 2.5], [3, null]]}')
BodyTable(vectors=[[1.0, 2.5], [3.0, None]], features=None)
>>> rows(read(b'[{"y": 2.5, "x": 1}, {"y": 4}]'), ("x", "y"))
array([[1. , 2.5],
       [nan, 4. ]])
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamclust.parameters import Missing
from streamclust.schema import Schema
from streamclust_connectors.decode.fields import Json, get_path, numbers_from_base64

Names = Sequence[Hashable]


class InvalidBody(ValueError):  # noqa: N818
    """The request body holds no valid events; the message says why."""


class Unfit(ValueError):  # noqa: N818
    """The events do not fit the known features; the message says why."""


class BodyTable(msgspec.Struct, forbid_unknown_fields=True):
    """Events as rows of numbers; null is a missing value."""

    vectors: list[list[float | None]]
    features: list[str] | None = None
    """Names of the columns; None for the known features in their order."""

    def __len__(self) -> int:
        return len(self.vectors)


Events = BodyTable | list[dict[str, Any]]
Vectors = NDArray[np.float64] | list[dict[Any, Any]]
"""Events as `StreamClusterer.check` takes them: an array over the known features, or a list of mappings."""

read_table = msgspec.json.Decoder(BodyTable).decode
read_objects = msgspec.json.Decoder(list[dict[str, float | None]]).decode
read_anything = msgspec.json.Decoder().decode


def read(body: bytes, vector: str | None = None) -> Events:
    """Parse the events of a body; InvalidBody if it has another form. Values of objects are not checked here.

    `vector` is the path of the vector in an event: an array of numbers or base64 of float32.

    >>> read(b'[{"id": 7, "embedding": [1, 2.5]}, {"embedding": "AACAPwAAAEA="}]', vector="embedding")
    BodyTable(vectors=[[1.0, 2.5], [1.0, 2.0]], features=None)
    """
    try:
        return _read(body) if vector is None else _read_vectors(body, vector)
    except RecursionError:
        raise InvalidBody("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidBody(f"the body cannot be read: {error}") from None


def _read(body: bytes) -> Events:
    typed: Callable[[bytes], Events] = read_objects if body.lstrip()[:1] == b"[" else read_table
    try:
        return typed(body)
    except msgspec.ValidationError:
        content = read_anything(body)
        if isinstance(content, dict) and isinstance(content.get("vectors"), list):
            if not any(isinstance(each, str) for each in content["vectors"]):
                raise
            return msgspec.convert(content | {"vectors": unpacked(content["vectors"])}, BodyTable)
    if not isinstance(content, (dict, list)):
        raise InvalidBody(
            'the body must be {"x": 1.5, ...}, an array of such objects, or {"vectors": [[1.5, ...], ...]}'
        )
    return content if isinstance(content, list) else [content]


def _read_vectors(body: bytes, vector: str) -> Events:
    """Events with the vector under a path, or a table."""
    content = read_anything(body)
    if isinstance(content, dict) and isinstance(content.get("vectors"), list):
        return _read(body)
    try:
        return table_of_vectors(
            get_path(event, vector) for event in (content if isinstance(content, list) else [content])
        )
    except KeyError as error:
        raise InvalidBody(str(error.args[0])) from None


def table_of_vectors(vectors: Iterable[Json]) -> BodyTable:
    """Table of vectors, which are arrays of numbers or base64 of float32."""
    return BodyTable(msgspec.convert(unpacked(vectors), list[list[float | None]]))


def unpacked(vectors: Iterable[Json]) -> list[Json]:
    """Vectors with an array of numbers in place of each base64 text."""
    try:
        return [numbers_from_base64(each) if isinstance(each, str) else each for each in vectors]
    except ValueError as error:
        raise InvalidBody(str(error)) from None


# -------------------------------------------------------------------- learning


def vectors(events: Events, names: Names) -> Vectors:
    """Events in the form that `StreamClusterer.check` takes."""
    if not isinstance(events, BodyTable):
        return renamed(events, names)
    found = array(events)
    if events.features is None:
        check_width(found, names)
    else:
        check_named(events.features, found)
    if not len(found):
        return []  # an empty array has no width to compare
    if events.features is None or events.features == list(names):
        return found
    return renamed([dict(zip(events.features, row, strict=True)) for row in events.vectors], names)


def renamed(events: list[Any], names: Names) -> list[Any]:
    """Rename "0", "1", ... to integers if the features are numbered: JSON has text names only."""
    integers = {str(name): name for name in names if not isinstance(name, str)}
    if not integers:
        return events
    return [{integers.get(k, k): v for k, v in e.items()} if isinstance(e, dict) else e for e in events]


# -------------------------------------------------------------------- predicting


def rows(events: Events, names: Names, missing: Missing = "impute") -> NDArray[np.float64]:
    """One row of the known features per event; what is no number is missing. ValueError if none may be missing."""
    found = vectors(events, names)
    if isinstance(found, np.ndarray):
        if missing == "error" or not names:
            return Schema(names, missing).table(found, extend=False)
        return found
    plain = complete(found, names)
    # A separate schema: the clusterer's may grow meanwhile.
    schema = Schema(names, missing, lenient=missing != "error")
    return schema.table(found, extend=False) if plain is None else plain


def complete(events: list[dict[Any, Any]], names: Names) -> NDArray[np.float64] | None:
    """One row per event if every event has a number for exactly these features; else None."""
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


def array(events: BodyTable) -> NDArray[np.float64]:
    """The rows as an array, with NaN for missing values."""
    lengths = set(map(len, events.vectors))
    if len(lengths) > 1:
        raise InvalidBody(
            f"all vectors must have the same length, got {min(lengths)} to {max(lengths)} numbers"
        )
    width = lengths.pop() if lengths else 0
    flat = list(chain.from_iterable(events.vectors))
    return np.array(flat, dtype=float).reshape(len(events), width)


def check_width(found: NDArray[np.float64], names: Names) -> None:
    """Refuse rows whose length is not the number of known features."""
    if len(found) and names and found.shape[1] != len(names):
        raise Unfit(
            f"vectors have {found.shape[1]} numbers, but there are {len(names)} features; send as many numbers, or "
            'name the columns in "features"'
        )


def check_features(vectors: Vectors, names: Names, most: int) -> None:
    """Refuse events that would bring too many features."""
    if isinstance(vectors, np.ndarray):
        total = max(len(names), vectors.shape[1])
    else:
        total = len({*names}.union(*(event for event in vectors if isinstance(event, dict))))
    if total > most:
        raise Unfit(
            f"these events would make {total} features; at most {most} are allowed (http.max_features)"
        )


def check_named(features: list[str], found: NDArray[np.float64]) -> None:
    """Refuse feature names that do not match the rows."""
    if len(set(features)) < len(features):
        raise InvalidBody('the names in "features" must be distinct')
    if len(found) and found.shape[1] != len(features):
        raise InvalidBody(f'vectors have {found.shape[1]} numbers, but "features" has {len(features)} names')
