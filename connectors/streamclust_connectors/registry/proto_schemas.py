"""Protobuf schemas of the registry: text or descriptors become message classes."""

from __future__ import annotations

import base64
import binascii
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from streamclust_connectors.registry.client import Registry

MAIN = "streamclust-main.proto"
"""Name under which a schema is compiled; other schemas that it imports have theirs."""
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages that hold one value, which may be missing."""


def load(registry: Registry, id: int) -> FileDescriptor:
    """The schema with this id."""
    texts = {name or MAIN: text for name, text in registry.texts(id, "serialized").items()}
    described = {name: _descriptor(name, text) for name, text in texts.items()}
    if all(described.values()):
        return _linked([file for file in described.values() if file])
    return _linked(_compiled(texts))


def _descriptor(name: str, text: str) -> FileDescriptorProto | None:
    """The schema, if it is written as base64 of a descriptor: as Python's clients register it."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    file.name = name
    return file


def _compiled(texts: dict[str, str]) -> list[FileDescriptorProto]:
    """Compile schemas by protoc."""
    try:
        from grpc_tools import _proto, protoc
    except ImportError:
        raise ImportError(
            "Protobuf schemas that are text need protoc: pip install grpcio-tools", name="grpc_tools"
        ) from None
    included = str(Path(_proto.__path__[0]))
    with tempfile.TemporaryDirectory() as directory:
        for name, text in texts.items():
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        target = Path(directory, "all.desc")
        folders = [f"-I{directory}", f"-I{included}"]
        if protoc.main(["protoc", *folders, "--include_imports", f"--descriptor_set_out={target}", MAIN]):
            raise ValueError("the Protobuf schema of the registry cannot be compiled")
        return list(FileDescriptorSet.FromString(target.read_bytes()).file)


def _linked(files: list[FileDescriptorProto]) -> FileDescriptor:
    """The last file, with those that it imports."""
    pool = DescriptorPool()
    known = {file.name for file in files}
    for file in files:
        for name in file.dependency:
            if name not in known:
                _add_standard(pool, name)
                known.add(name)
        pool.Add(file)
    return pool.FindFileByName(files[-1].name)


def _add_standard(pool: DescriptorPool, name: str) -> None:
    """Add a file of google.protobuf, which no registry stores."""
    from importlib import import_module

    module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def message_class(file: FileDescriptor, path: tuple[int, ...]) -> type[Message]:
    """The message type at these indices."""
    types = list(file.message_types_by_name.values())
    found: Descriptor | None = None
    for index in path:
        if not 0 <= index < len(types):
            raise ValueError(f"the schema has no message type at {'.'.join(map(str, path))}")
        found = types[index]
        types = list(found.nested_types)
    assert found is not None
    kind: type[Message] = GetMessageClass(found)
    return kind


def plain_message(message: Message) -> Any:  # noqa: ANN401  # mapping or number
    """A message as JSON would have it; a field that may be missing and is missing is left out."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return message.seconds + message.nanos / 1e9
    if name in WRAPPERS:
        return message.value
    return {
        field.name: _plain_field(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _plain_field(field: FieldDescriptor, value: Any) -> Any:  # noqa: ANN401  # any value of Protobuf
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(name): _plain_field(inner, each) for name, each in value.items()}
    if _is_repeated(field) and not isinstance(value, (str, bytes)) and hasattr(value, "__len__"):
        return [plain_message(each) if isinstance(each, Message) else each for each in value]
    return plain_message(value) if isinstance(value, Message) else value


def _is_repeated(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_repeated"):  # since protobuf 6.31
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)
