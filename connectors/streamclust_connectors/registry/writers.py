"""Writes output records with a schema of the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from streamclust_connectors.output_records import LifecycleOutput, LifecycleRow, lifecycle_row, text_key
from streamclust_connectors.registry.client import Registry
from streamclust_connectors.registry.schemas import avro_schema, json_schema, proto_class

Write = Callable[[Any], bytes]


def writer(format: str, registry: Registry, topic: str, record: type[msgspec.Struct]) -> Write:
    """A function that writes the records of a topic; it registers their schema, or looks it up, at the first."""
    serialize: Callable[..., bytes] | None = None
    context: Any = None
    row_type = LifecycleRow if record is LifecycleOutput else record
    has_key = "key" in record.__struct_fields__

    def write(output: Any) -> bytes:  # noqa: ANN401  # a record of any type
        nonlocal serialize, context
        with registry.translated_errors(f"{topic}-value"):
            if serialize is None:
                from confluent_kafka.serialization import MessageField, SerializationContext

                context = SerializationContext(topic, MessageField.VALUE)
                serialize = WRITERS[format](registry, row_type)
            row = msgspec.structs.asdict(lifecycle_row(output) if row_type is LifecycleRow else output)
            if has_key:
                row["key"] = text_key(row["key"])
            return serialize(row, context)

    return write


def _avro(registry: Registry, record: type[msgspec.Struct]) -> Callable[..., bytes]:
    from confluent_kafka.schema_registry.avro import AvroSerializer

    options = {"auto.register.schemas": registry.register}
    found: Callable[..., bytes] = AvroSerializer(registry.client, avro_schema(record), conf=options)
    return found


def _json(registry: Registry, record: type[msgspec.Struct]) -> Callable[..., bytes]:
    from confluent_kafka.schema_registry.json_schema import JSONSerializer

    options = {"auto.register.schemas": registry.register, "validate": False}
    found: Callable[..., bytes] = JSONSerializer(json_schema(record), registry.client, conf=options)
    return found


def _protobuf(registry: Registry, record: type[msgspec.Struct]) -> Callable[..., bytes]:
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    kind = proto_class(record)
    options = {"auto.register.schemas": registry.register, "use.deprecated.format": False}
    serialize: Callable[..., bytes] = ProtobufSerializer(kind, registry.client, options)

    def write(row: dict[str, Any], context: object) -> bytes:
        return serialize(kind(**row), context)

    return write


WRITERS: dict[str, Callable[[Registry, type[msgspec.Struct]], Callable[..., bytes]]] = {
    "avro": _avro,
    "protobuf": _protobuf,
    "json-schema": _json,
}
"""Makes the serializer of each format."""
