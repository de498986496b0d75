"""Reads messages that begin with the id of a schema, and follow it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec

from streamclust_connectors.registry.client import Registry

if TYPE_CHECKING:
    from google.protobuf.message import Message

HEAD_BYTES = 5
"""Length of a zero byte and the id of the schema."""

Read = Callable[[bytes], Any]


def reader(format: str, registry: Registry) -> Read:
    """A function that reads the messages of a format into mappings, lists, text and numbers."""
    return READERS[format](registry)


def schema_id(message: bytes) -> int:
    r"""Id of a message's schema.

    >>> schema_id(b"\x00\x00\x00\x00\x07...")
    7
    """
    if len(message) < HEAD_BYTES or message[0] != 0:
        raise ValueError(
            "the message does not begin with the id of a schema (a zero byte and four more); "
            "was it written without a schema registry? Then set decode.format"
        )
    return int.from_bytes(message[1:HEAD_BYTES], "big")


def plain_value(value: Any) -> Any:  # noqa: ANN401  # any value of Avro
    """A value of Avro as JSON would have it: dates as seconds since 1970, decimals as numbers.

    >>> plain_value({"at": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), "price": [Decimal("1.5")]})
    {'at': 5.0, 'price': [1.5]}
    """
    match value:
        case Mapping():
            return {name: plain_value(inner) for name, inner in value.items()}
        case list():
            return [plain_value(inner) for inner in value]
        case Decimal():
            return float(value)
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        case date():
            return float((value - date(1970, 1, 1)).days * 86_400)
        case time():
            return 3600.0 * value.hour + 60.0 * value.minute + value.second + value.microsecond / 1e6
    return value


def _avro(registry: Registry) -> Read:
    readers: dict[int, Read] = {}

    def read(message: bytes) -> Any:  # noqa: ANN401  # any value of Avro
        id = schema_id(message)
        if id not in readers:
            readers[id] = _avro_reader(registry, id)
        return readers[id](message)

    return read


def _avro_reader(registry: Registry, id: int) -> Read:
    """Reads the messages of one schema; confluent-kafka's deserializer, with its rules, takes 2.6 times as long."""
    from fastavro import parse_schema, schemaless_reader

    texts = registry.texts(id)
    named: dict[str, Any] = {}
    for text in texts.values():
        parsed = parse_schema(json.loads(text), named)
    has_dates = any("logicalType" in text for text in texts.values())

    def read(message: bytes) -> Any:  # noqa: ANN401  # any value of Avro
        found = schemaless_reader(BytesIO(message[HEAD_BYTES:]), parsed, None)
        return plain_value(found) if has_dates else found

    return read


def _json(registry: Registry) -> Read:
    decode = msgspec.json.Decoder().decode

    def read(message: bytes) -> Any:  # noqa: ANN401  # any value of JSON
        schema_id(message)
        return decode(message[HEAD_BYTES:])

    return read


def _protobuf(registry: Registry) -> Read:
    files: dict[int, Any] = {}
    kinds: dict[tuple[int, tuple[int, ...]], type[Message]] = {}

    def read(message: bytes) -> Any:  # noqa: ANN401  # any value of Protobuf
        from streamclust_connectors.registry import proto_schemas

        id = schema_id(message)
        path, start = message_path(message, HEAD_BYTES)
        if (id, path) not in kinds:
            if id not in files:
                files[id] = proto_schemas.load(registry, id)
            kinds[id, path] = proto_schemas.message_class(files[id], path)
        return proto_schemas.plain_message(kinds[id, path].FromString(message[start:]))

    return read


def message_path(message: bytes, at: int) -> tuple[tuple[int, ...], int]:
    r"""Which message type of the schema follows, as indices from the outermost, and where it begins.

    >>> message_path(b"\x00", 0), message_path(b"\x04\x02\x00", 0)
    (((0,), 1), ((1, 0), 3))
    """
    count, at = _signed(message, at)
    path = []
    for _ in range(count):
        index, at = _signed(message, at)
        path.append(index)
    return tuple(path) or (0,), at


def _signed(message: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag base 128, and where it ends."""
    found = shift = 0
    while True:
        if at >= len(message) or shift > 28:
            raise ValueError("the message ends within its description of the schema")
        found |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 128:
            return (found >> 1) ^ -(found & 1), at


READERS: dict[str, Callable[[Registry], Read]] = {"avro": _avro, "protobuf": _protobuf, "json-schema": _json}
"""Makes the reader of each format."""
