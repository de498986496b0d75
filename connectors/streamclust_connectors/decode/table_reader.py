"""A fast decoder for messages whose events have exactly the known features; it returns a table.

msgspec parses an object faster if it knows the names of its members, and refuses one with other members. The result
equals that of decoding event by event; messages that do not fit are decoded that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamclust_connectors.decode.fields import Fields
from streamclust_connectors.interfaces import Record

DECODERS: dict[str, Any] = {"json": msgspec.json.Decoder, "msgpack": msgspec.msgpack.Decoder}
OPTIONAL = object()
"""Type of an optional member of any kind."""


class NotTabular(Exception):  # noqa: N818
    """Messages of this form can only be decoded event by event."""


class Table(NamedTuple):
    """Events column by column, and the records they come from."""

    rows: NDArray[np.float64]
    records: list[Record]
    counts: list[int] | None
    """Number of events of each record; None if all have one."""
    side_columns: list[list[Any] | None]
    """Keys, times and weights; None for those without a path."""
    odd: list[Record]
    """Records that do not fit the table."""


class TableReader:
    """Reads messages whose events have exactly the features `names`; fastest if they come in the given `order`.

    >>> from streamclust_connectors.interfaces import Message
    >>> reader = TableReader(Fields(key="id"), "json", ("x", "y"), ("x", "y"))
    >>> values = [b'{"id": 1, "x": 0, "y": 2.5}', b'[{"y": 3, "x": 4, "id": 2}]', b'{"id": 3, "x": 5}']
    >>> table = reader.read([Message(i, value) for i, value in enumerate(values)])
    >>> table.rows.tolist(), table.side_columns[0], [record.offset for record in table.odd]
    ([[0.0, 2.5], [4.0, 3.0]], [1, 2], [2])
    """

    def __init__(self, fields: Fields, format: str, names: Sequence[Any], order: Sequence[Any]) -> None:
        named = isinstance(names[0], str)
        if not named and list(names) != list(range(len(names))):
            raise NotTabular("elements of an array are named by their indices")
        if fields.features is not None and named and set(fields.features) - set(fields.exclude) != set(names):
            raise NotTabular("events may have features that are not known yet")
        event: Any = event_type(fields, order if named else names)
        # not empty: an empty list is an event without features
        several = Annotated[list[event], msgspec.Meta(min_length=1)]
        kinds: list[Any] = [event | several]
        if not named and fields.vector is None:
            kinds = [event, several]  # both are arrays: one decoder cannot tell them apart
        self._inner: Callable[[Any], Any] | None = None
        if fields.events is not None:
            path = fields.events.split(".")
            kinds = [struct(add_member({}, path, list[event]))]
            self._inner = attrgetter(attribute(path))
        self._width = len(names)
        self._reads = [DECODERS[format](kind).decode for kind in kinds]
        above = [] if fields.vector is None else fields.vector.split(".")
        self._vector = attrgetter(*(attribute([*above, name]) for name in names))
        self._side = [
            None if path is None else attrgetter(attribute(path.split("."))) for path in fields.side_paths
        ]

    def read(self, records: Sequence[Record]) -> Table | None:
        """The events of the records that fit; None if decoding event by event could give another result."""
        for read in self._reads:
            try:
                contents = [read(record.value) for record in records]
            except Exception:  # parse_each finds the records that cause it
                continue
            return self._table(contents, list(records), [])
        return self._table(
            *min((parse_each(read, records) for read in self._reads), key=lambda found: len(found[2]))
        )

    def _table(self, contents: list[Any], records: list[Record], odd: list[Record]) -> Table | None:
        counts = None
        if self._inner is not None:
            contents = list(map(self._inner, contents))
        if any(type(content) is list for content in contents):
            lists = [content if type(content) is list else [content] for content in contents]
            contents, counts = list(chain.from_iterable(lists)), list(map(len, lists))
        side_columns = [None if get is None else list(map(get, contents)) for get in self._side]
        vectors: Iterable[Any] = map(self._vector, contents)
        if self._width > 1:
            vectors = chain.from_iterable(vectors)
        flat = np.fromiter(vectors, dtype=float, count=len(contents) * self._width)
        if np.isnan(flat).any() or not all(
            np.isfinite(column).all() for column in side_columns[1:] if column is not None
        ):
            return None
        return Table(flat.reshape(len(contents), self._width), records, counts, side_columns, odd)


def parse_each(
    read: Callable[[Any], Any], records: Sequence[Record]
) -> tuple[list[Any], list[Record], list[Record]]:
    """Parse records one by one: contents, their records, and the records that could not be parsed."""
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
    for path, kind in zip(fields.side_paths, (Any, float, float), strict=True):
        if path is not None:
            add_member(tree, path.split("."), kind)
    if not isinstance(names[0], str):
        vector = array(len(names))
        if fields.vector is not None:
            return struct(add_member(tree, fields.vector.split("."), vector))
        if tree:
            raise NotTabular("an array cannot hold a key, a time or a weight")
        return vector
    strict = fields.features is None
    left_out: dict[Any, Any] = dict.fromkeys(fields.exclude if strict else (), OPTIONAL)
    if left_out.keys() & set(names):
        raise NotTabular("a known feature is excluded")
    members = dict.fromkeys(names, float) | left_out
    if fields.vector is not None:
        vector = struct(members, strict)
        return struct(add_member(tree, fields.vector.split("."), vector))
    if strict and any(isinstance(kind, dict) for kind in tree.values()):
        raise NotTabular("a member is an object with a key, a time or a weight, not a number")
    for name, member in members.items():
        add_member(tree, [name], member)
    return struct(tree, strict)


def add_member(tree: dict[str, Any], path: Sequence[str], kind: object) -> dict[str, Any]:
    """Add a member of a type under a path; returns the tree of members."""
    branch = tree
    for step in path[:-1]:
        branch = branch.setdefault(step, {})
        if not isinstance(branch, dict):
            raise NotTabular(f"{step} is both a value and an object")
    if path[-1] in branch:
        raise NotTabular(f"{path[-1]} is used twice")
    branch[path[-1]] = kind
    return tree


def struct(tree: dict[str, Any], strict: bool = False) -> type:
    """The type of an object with these members, and if `strict` no others."""
    members: list[Any] = []
    for name, kind in tree.items():
        if kind is OPTIONAL:
            members.append((attribute([name]), Any, None))
        else:
            members.append((attribute([name]), struct(kind) if isinstance(kind, dict) else kind))
    names = {attribute([name]): name for name in tree}
    options: dict[str, Any] = {"rename": names, "forbid_unknown_fields": strict, "gc": False}
    try:
        return msgspec.defstruct("Object", members, kw_only=OPTIONAL in tree.values(), **options)
    except ValueError as error:  # msgspec refuses a name
        raise NotTabular(str(error)) from error


def array(n: int) -> type:
    """The type of an array of n numbers."""
    members = [(attribute([i]), float) for i in range(n)]
    return msgspec.defstruct("Array", members, array_like=True, forbid_unknown_fields=True, gc=False)


def attribute(path: Sequence[Any]) -> str:
    """A valid Python attribute name for a path of member names."""
    return ".".join(f"f{str(step).encode().hex()}" for step in path)
