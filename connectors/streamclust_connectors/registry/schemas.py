"""Schemas of output records in Avro, JSON Schema and Protobuf."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import msgspec

from streamclust_connectors.output_records import Column, LifecycleOutput, LifecycleRow, columns

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import Message

NAMESPACE = "streamclust"
JSON_TYPES = {"string": "string", "long": "integer", "double": "number"}
PROTO_TYPES = {"string": 9, "long": 3, "double": 1}
"""Numbers of the types string, int64 and double in a descriptor."""
OPTIONAL, REPEATED = 1, 3
"""Labels of a field in a descriptor."""


SCHEMA_TYPES = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
"""Types of schemas by format, as the registry names them."""


def schema_text(format: str, record: type[msgspec.Struct]) -> str:
    """Schema of an output in a format, as it is registered; lifecycle events are rows there."""
    flat = LifecycleRow if record is LifecycleOutput else record
    return {"avro": avro_schema, "protobuf": proto_base64, "json-schema": json_schema}[format](flat)


def _name(record: type[msgspec.Struct]) -> str:
    """Name of the schema: that of the class without its last word."""
    return record.__name__.removesuffix("Output").removesuffix("Row")


def avro_schema(record: type[msgspec.Struct]) -> str:
    """Avro schema of a flat output."""
    fields = [_avro_field(column) for column in columns(record)]
    found = {
        "type": "record",
        "name": _name(record),
        "namespace": NAMESPACE,
        "doc": record.__doc__,
        "fields": fields,
    }
    return json.dumps(found)


def _avro_field(column: Column) -> dict[str, Any]:
    kind: Any = {"type": "array", "items": column.kind} if column.is_list else column.kind
    field = {"name": column.name, "doc": column.description, "type": kind}
    return field | ({"type": ["null", kind], "default": None} if column.is_nullable else {})


def json_schema(record: type[msgspec.Struct]) -> str:
    """JSON Schema of a flat output."""
    every = columns(record)
    found = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": _name(record),
        "description": record.__doc__,
        "type": "object",
        "properties": {column.name: _json_property(column) for column in every},
        "required": [column.name for column in every if not column.is_nullable],
    }
    return json.dumps(found)


def _json_property(column: Column) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": JSON_TYPES[column.kind]}
    if column.is_list:
        kind = {"type": "array", "items": kind}
    described = {"description": column.description}
    return described | ({"oneOf": [{"type": "null"}, kind]} if column.is_nullable else kind)


def proto_file(record: type[msgspec.Struct]) -> FileDescriptorProto:
    """Protobuf descriptor of a flat output."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    name = _name(record)
    file = FileDescriptorProto(name=f"{NAMESPACE}/{name.lower()}.proto", package=NAMESPACE, syntax="proto3")
    message = file.message_type.add(name=name)
    for number, column in enumerate(columns(record), 1):
        label = REPEATED if column.is_list else OPTIONAL
        field = message.field.add(name=column.name, number=number, type=PROTO_TYPES[column.kind], label=label)
        if column.is_nullable:
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{column.name}")
    return file


def proto_base64(record: type[msgspec.Struct]) -> str:
    """Protobuf descriptor of a flat output in base64, as Python's client registers it."""
    return base64.b64encode(proto_file(record).SerializeToString()).decode()


def proto_class(record: type[msgspec.Struct]) -> type[Message]:
    """Protobuf message class of a flat output."""
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    pool.Add(proto_file(record))
    kind: type[Message] = GetMessageClass(pool.FindMessageTypeByName(f"{NAMESPACE}.{_name(record)}"))
    return kind


def proto_text(record: type[msgspec.Struct]) -> str:
    """Protobuf schema of a flat output, as text.

    >>> from streamclust_connectors.output_records import FeaturesOutput
    >>> print(proto_text(FeaturesOutput))  # doctest: +ELLIPSIS
    syntax = "proto3";
    package streamclust;
    <BLANKLINE>
    message Features {
      string id = 1;  // Id of the message...
      repeated int64 features = 2;  // Ids of the features that the event has
    ...
    """
    words = {"string": "string", "long": "int64", "double": "double"}
    lines = [
        f"  {'repeated ' if c.is_list else 'optional ' if c.is_nullable else ''}{words[c.kind]} {c.name} = {i};"
        f"  // {c.description}"
        for i, c in enumerate(columns(record), 1)
    ]
    head = f'syntax = "proto3";\npackage {NAMESPACE};\n\nmessage {_name(record)} {{\n'
    return head + "\n".join(lines) + "\n}"
