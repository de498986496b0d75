"""Messages whose events all have just the features known -> a table, by a reader made for them.

msgspec reads an object of numbers faster where it knows their names, and refuses one that has others. So what is read
here is what would have been read one by one, and all else is left to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamclust_connectors.fields import Fields
from streamclust_connectors.ports import Record

DECODERS: dict[str, Any] = {"json": msgspec.json.Decoder, "msgpack": msgspec.msgpack.Decoder}


class Unsuited(Exception):  # noqa: N818
    """Such messages can only be read one by one."""


class Table(NamedTuple):
    """Events column by column, and the records they come from."""

    rows: NDArray[np.float64]
    records: list[Record]
    counts: list[int] | None
    """How many events each record has; None where each is one."""
    aside: list[list[Any] | None]
    """Keys, times and weights, where they were asked for."""
    odd: list[Record]
    """Records that are something else."""


class TableReader:
    """Reads messages of events that have just the features `names`, best where they come in the `order` given.

    >>> from streamclust_connectors.ports import Message
    >>> reader = TableReader(Fields(key="id"), "json", ("x", "y"), ("x", "y"))
    >>> values = [b'{"id": 1, "x": 0, "y": 2.5}', b'[{"y": 3, "x": 4, "id": 2}]', b'{"id": 3, "x": 5}']
    >>> table = reader.read([Message(i, value) for i, value in enumerate(values)])
    >>> table.rows.tolist(), table.aside[0], [record.offset for record in table.odd]
    ([[0.0, 2.5], [4.0, 3.0]], [1, 2], [2])
    """

    def __init__(self, fields: Fields, format: str, names: Sequence[Any], order: Sequence[Any]) -> None:
        named = isinstance(names[0], str)
        if not named and list(names) != list(range(len(names))):
            raise Unsuited("the elements of an array are called by their places")
        if fields.features is not None and named and set(fields.features) != set(names):
            raise Unsuited("events may have features that are not known yet")
        event: Any = event_type(fields, order if named else names)
        several = Annotated[
            list[event], msgspec.Meta(min_length=1)
        ]  # an empty list is an event without features
        kinds: list[Any] = [event | several]
        if not named and fields.vector is None:
            kinds = [event, several]  # both arrays, which one reader does not tell apart
        self._inner: Callable[[Any], Any] | None = None
        if fields.events is not None:
            path = fields.events.split(".")
            kinds = [struct(planted({}, path, list[event]))]
            self._inner = attrgetter(attribute(path))
        self._width = len(names)
        self._reads = [DECODERS[format](kind).decode for kind in kinds]
        above = [] if fields.vector is None else fields.vector.split(".")
        self._vector = attrgetter(*(attribute([*above, name]) for name in names))
        self._aside = [
            None if path is None else attrgetter(attribute(path.split("."))) for path in fields.aside
        ]

    def read(self, records: Sequence[Record]) -> Table | None:
        """The events of those records that are such messages; None where that would not be what one by one is."""
        for read in self._reads:
            try:
                contents = [read(record.value) for record in records]
            except Exception:  # whatever it is, reading one by one will tell
                continue
            return self._table(contents, list(records), [])
        return self._table(
            *min((sorted_out(read, records) for read in self._reads), key=lambda found: len(found[2]))
        )

    def _table(self, contents: list[Any], records: list[Record], odd: list[Record]) -> Table | None:
        counts = None
        if self._inner is not None:
            contents = list(map(self._inner, contents))
        if any(type(content) is list for content in contents):
            lists = [content if type(content) is list else [content] for content in contents]
            contents, counts = list(chain.from_iterable(lists)), list(map(len, lists))
        aside = [None if get is None else list(map(get, contents)) for get in self._aside]
        vectors: Iterable[Any] = map(self._vector, contents)
        if self._width > 1:
            vectors = chain.from_iterable(vectors)
        flat = np.fromiter(vectors, dtype=float, count=len(contents) * self._width)
        if np.isnan(flat).any() or not all(
            np.isfinite(column).all() for column in aside[1:] if column is not None
        ):
            return None
        return Table(flat.reshape(len(contents), self._width), records, counts, aside, odd)


def sorted_out(
    read: Callable[[Any], Any], records: Sequence[Record]
) -> tuple[list[Any], list[Record], list[Record]]:
    """What could be read, the records it was read from, and the other records."""
    contents, kept, odd = [], [], []
    for record in records:
        try:
            contents.append(read(record.value))
            kept.append(record)
        except Exception:
            odd.append(record)
    return contents, kept, odd


# -------------------------------------------------------------------- types of messages


def event_type(fields: Fields, names: Sequence[Any]) -> type:
    """The type of an event with these features, in this order."""
    tree: dict[str, Any] = {}
    for path, kind in zip(fields.aside, (Any, float, float), strict=True):
        if path is not None:
            planted(tree, path.split("."), kind)
    if not isinstance(names[0], str):
        vector = array(len(names))
        if fields.vector is not None:
            return struct(planted(tree, fields.vector.split("."), vector))
        if tree:
            raise Unsuited("an array has no room for anything beside its numbers")
        return vector
    strict = fields.features is None
    if fields.vector is not None:
        vector = struct(dict.fromkeys(names, float), strict)
        return struct(planted(tree, fields.vector.split("."), vector))
    if strict and any(isinstance(kind, dict) for kind in tree.values()):
        raise Unsuited("an object that holds a key, a time or a weight is no number")
    for name in names:
        planted(tree, [name], float)
    return struct(tree, strict)


def planted(tree: dict[str, Any], path: Sequence[str], kind: Any) -> dict[str, Any]:  # noqa: ANN401
    """The members of an object, with one of this type under a path."""
    branch = tree
    for step in path[:-1]:
        branch = branch.setdefault(step, {})
        if not isinstance(branch, dict):
            raise Unsuited(f"{step} is two things at once")
    if path[-1] in branch:
        raise Unsuited(f"{path[-1]} is two things at once")
    branch[path[-1]] = kind
    return tree


def struct(tree: dict[str, Any], strict: bool = False) -> type:
    """The type of an object with these members; `strict`, with no others."""
    members = [
        (attribute([name]), struct(kind) if isinstance(kind, dict) else kind) for name, kind in tree.items()
    ]
    names = {attribute([name]): name for name in tree}
    try:
        return msgspec.defstruct("Object", members, rename=names, forbid_unknown_fields=strict, gc=False)
    except ValueError as error:  # a name that msgspec does not take
        raise Unsuited(str(error)) from error


def array(n: int) -> type:
    """The type of an array of so many numbers."""
    members = [(attribute([i]), float) for i in range(n)]
    return msgspec.defstruct("Array", members, array_like=True, forbid_unknown_fields=True, gc=False)


def attribute(path: Sequence[Any]) -> str:
    """How a member of a message is called in Python, whatever its name."""
    return ".".join(f"f{str(step).encode().hex()}" for step in path)
