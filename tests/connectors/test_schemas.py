"""Messages with schemas of a real registry: every format read and written, and what the registry may answer."""

import io
import json
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import jsonschema
import pytest

from streamclust import StreamClusterer
from streamclust.lineage import Change
from streamclust_connectors import output_records
from streamclust_connectors.decode import Decoder, Fields
from streamclust_connectors.interfaces import Message, Transient, UnfitSchema
from streamclust_connectors.registry import Registry, reader, writer
from streamclust_connectors.registry.schemas import avro_schema, json_schema, proto_file, proto_text
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.service.outputs import AssignmentForm, lifecycle
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource
from tests.connectors.cluster import events, until
from tests.connectors.schema_registry import Guard, asked, register

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_site"))
from schemas import SCHEMAS, published_schemas

if not os.environ.get("STREAMCLUST_REQUIRE_REGISTRY"):
    for package in ("fastavro", "google.protobuf", "grpc_tools"):
        pytest.importorskip(package, reason=f"no {package}: pip install 'streamclust[registry]'")
import fastavro
from google.protobuf.descriptor_pb2 import FileDescriptorSet

FORMATS = ("avro", "protobuf", "json-schema")
RECORDS = [
    output_records.AssignmentOutput("t-0-1", 3, 0.75, 0.5, 7, 2, {"a": [1]}, 9.5),
    output_records.AssignmentOutput("t-0-2", None, None, None, None, None, None, None),
    output_records.FeaturesOutput("t-0-3", [1, 5], 7, "key", None),
    output_records.LifecycleOutput("t-0-4", "split", 20, 8, [(3, 9.0)], [(3, 5.0), (8, 4.0)]),
    output_records.RefusalOutput("t-0-5", "t", 0, 5, "decode", "ValueError", "no JSON", 1234),
]
FLAT = [output_records.AssignmentOutput, output_records.FeaturesOutput, output_records.LifecycleRow,
        output_records.RefusalOutput]  # fmt: skip


@pytest.fixture
def topic():
    return f"t{uuid.uuid4().hex[:8]}"


def expected(record):
    """The record as a row, written by hand."""
    row = {name: getattr(record, name) for name in record.__struct_fields__}
    if row.get("key") is not None:
        row["key"] = (
            row["key"] if isinstance(row["key"], str) else json.dumps(row["key"], separators=(",", ":"))
        )
    for side, weights in (("parents", "parent_weights"), ("children", "child_weights")):
        if side in row:
            row[weights] = [w for _, w in row[side]]
            row[side] = [i for i, _ in row[side]]
    return row


def read_back(url, format, message):
    """The content of a message, by its schema in the registry, without our readers."""
    id, body = int.from_bytes(message[1:5], "big"), message[5:]
    assert message[0] == 0
    schema = asked(f"{url}/schemas/ids/{id}")["schema"]
    if format == "json-schema":
        return json.loads(body)
    if format == "avro":
        return fastavro.schemaless_reader(io.BytesIO(body), json.loads(schema))
    from google.protobuf.json_format import MessageToDict

    from streamclust_connectors.registry.schemas import proto_class

    assert body[0] == 0  # the first message type of the schema
    name = next(kind for kind in FLAT if proto_file(kind).message_type[0].name in proto_name(schema))
    kind = proto_class(name)
    found = MessageToDict(kind.FromString(body[1:]), preserving_proto_field_name=True)
    return {name: as_number(value) for name, value in found.items()}


def proto_name(schema):
    """Name of the message type of a schema in base64."""
    import base64

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto.FromString(base64.b64decode(schema)).message_type[0].name


def as_number(value):
    """JSON of Protobuf writes 64-bit integers as text."""
    if isinstance(value, list):
        return [as_number(each) for each in value]
    return int(value) if isinstance(value, str) and value.isdigit() else value


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.id)
def test_a_record_is_what_its_schema_says(registry_url, topic, format, record):
    write = writer(format, Registry(registry_url), topic, type(record))
    found = read_back(registry_url, format, write(record))
    wanted = expected(record)
    if format == "protobuf":  # fields that are missing or 0 are not there
        wanted = {name: value for name, value in wanted.items() if value not in (None, 0, [])}
    assert found == wanted
    assert asked(f"{registry_url}/subjects/{topic}-value/versions") == [1]
    assert write(record) == write(record)


@pytest.mark.parametrize("record", FLAT)
def test_the_text_of_a_protobuf_schema_is_its_descriptor(record, tmp_path):
    from grpc_tools import protoc

    (tmp_path / "one.proto").write_text(proto_text(record))
    target = tmp_path / "all.desc"
    assert protoc.main(["protoc", f"-I{tmp_path}", f"--descriptor_set_out={target}", "one.proto"]) == 0
    (compiled,) = FileDescriptorSet.FromString(target.read_bytes()).file
    ours = proto_file(record)
    kept = [(f.name, f.number, f.type, f.label, f.proto3_optional) for f in compiled.message_type[0].field]
    assert kept == [
        (f.name, f.number, f.type, f.label, f.proto3_optional) for f in ours.message_type[0].field
    ]


@pytest.mark.parametrize("record", FLAT)
def test_schemas_are_flat_and_described(record):
    fields = json.loads(avro_schema(record))["fields"]
    assert [field["name"] for field in fields] == list(record.__struct_fields__)
    assert list(json.loads(json_schema(record))["properties"]) == list(record.__struct_fields__)
    for field in fields:
        parts = field["type"] if isinstance(field["type"], list) else [field["type"]]
        assert field["doc"]
        for part in parts:
            assert part == "null" or (part if isinstance(part, str) else part["items"]) in (
                "string",
                "long",
                "double",
            )


PUBLISHED = {path.stem: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}


def test_published_schemas_are_those_of_the_outputs():
    for name, schema in published_schemas().items():
        assert PUBLISHED[name] == schema, "run docs/_site/schemas.py"
    assert PUBLISHED.keys() == published_schemas().keys()


@pytest.mark.compiled
def test_json_outputs_are_as_published():
    messages = [*events(3000)[0], b"oops"]
    sink = ListSink()
    policy = Policy(snapshot_every=0.0001, form=AssignmentForm(component=True))
    Service(MemorySource({("events", 0): messages}), sink, StreamClusterer(), policy=policy).run()
    for channel, name in [("assignments", "assignment"), ("lifecycle", "lifecycle"), ("snapshots", "snapshot"),
                          ("refusals", "refusal")]:  # fmt: skip
        assert sink.values(channel)
        for value in sink.values(channel)[-200:]:
            jsonschema.validate(value, PUBLISHED[name])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"id": 1}, PUBLISHED["assignment"])


def test_lifecycle_events_of_json_are_as_before():
    changes = [
        Change("split", 20, 8, {3: 9.0}, {3: 5.0, 8: 4.0}),
        Change("returned", 30, 9, {}, {3: 5.0}, 12, 4),
    ]
    for i, (output, change) in enumerate(zip(lifecycle("a-0-7", changes), changes, strict=True)):
        assert json.loads(output.value) == {"id": f"a-0-7-{i}"} | change.to_dict()


# -------------------------------------------------------------------- reading

NESTED = {
    "type": "record", "name": "Event", "namespace": "shop", "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "x", "type": ["null", "double"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}},
    ],
}  # fmt: skip


def framed(id, body):
    return b"\0" + id.to_bytes(4, "big") + body


def avro(schema, content):
    found = io.BytesIO()
    fastavro.schemaless_writer(found, schema, content)
    return found.getvalue()


def test_avro_is_read_with_dates_and_decimals_as_numbers(registry_url, topic):
    from decimal import Decimal

    id = register(registry_url, f"{topic}-value", json.dumps(NESTED))
    content = {"id": "a", "at": 5250, "x": None, "price": Decimal("12.50"), "inner": {"n": 4}}
    read = reader("avro", Registry(registry_url))
    assert read(framed(id, avro(NESTED, content))) == {
        "id": "a", "at": 5.25, "x": None, "price": 12.5, "inner": {"n": 4},
    }  # fmt: skip
    fields = Fields(key="id", time="at", features=("x", "price"))
    found = Decoder(fields, read).decode([Message(0, framed(id, avro(NESTED, content | {"x": 1.5})))])
    assert (found.vectors, found.keys, found.times) == ([{"x": 1.5, "price": 12.5}], ["a"], [5.25])


def test_avro_schemas_may_refer_to_others_and_change(registry_url, topic):
    inner = {"type": "record", "name": "Inner", "namespace": "shop", "fields": [{"name": "n", "type": "int"}]}
    register(registry_url, f"{topic}-inner", json.dumps(inner))
    outer = {
        "type": "record",
        "name": "Outer",
        "namespace": "shop",
        "fields": [{"name": "i", "type": "shop.Inner"}],
    }
    reference = {"name": "shop.Inner", "subject": f"{topic}-inner", "version": 1}
    id = register(registry_url, f"{topic}-value", json.dumps(outer), references=[reference])
    whole = outer | {"fields": [{"name": "i", "type": inner}]}
    read = reader("avro", Registry(registry_url))
    assert read(framed(id, avro(whole, {"i": {"n": 3}}))) == {"i": {"n": 3}}
    other = {"type": "record", "name": "Other", "fields": [{"name": "y", "type": "float"}]}
    id = register(registry_url, f"{topic}-other-value", json.dumps(other))
    assert read(framed(id, avro(other, {"y": 0.5}))) == {"y": 0.5}


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other { int32 unused = 1; }
message Event {
  enum Kind { A = 0; B = 1; }
  message Inner { double n = 1; }
  double x = 1;
  optional int64 count = 2;
  Inner inner = 3;
  repeated double vector = 4;
  google.protobuf.Timestamp at = 5;
  google.protobuf.DoubleValue maybe = 6;
  map<string, double> named = 7;
  Kind kind = 8;
}
"""


def compiled(text, directory, name="Event"):
    """A message class of a schema, by protoc."""
    from google.protobuf import timestamp_pb2, wrappers_pb2
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass
    from grpc_tools import _proto, protoc

    (directory / "one.proto").write_text(text)
    paths = [f"-I{directory}", f"-I{next(iter(_proto.__path__))}"]
    assert protoc.main(["protoc", *paths, f"--descriptor_set_out={directory / 'd'}", "one.proto"]) == 0
    pool = DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    (file,) = FileDescriptorSet.FromString((directory / "d").read_bytes()).file
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))


@pytest.mark.parametrize("as_text", [True, False], ids=["text", "descriptor"])
def test_protobuf_is_read_from_schemas_of_text_and_of_descriptors(registry_url, topic, tmp_path, as_text):
    import base64

    kind = compiled(PROTO, tmp_path)
    schema = PROTO if as_text else base64.b64encode(kind.DESCRIPTOR.file.serialized_pb).decode()
    id = register(registry_url, f"{topic}-value", schema, "PROTOBUF")
    message = kind(x=1.5, count=0, vector=[1, 2], named={"a": 3}, kind=1)
    message.inner.n, message.at.seconds, message.maybe.value = 4.0, 10, 0.25
    read = reader("protobuf", Registry(registry_url))
    body = b"\x02\x02" + message.SerializeToString()  # one index: the second message type
    assert read(framed(id, body)) == {
        "x": 1.5, "count": 0, "inner": {"n": 4.0}, "vector": [1.0, 2.0], "at": 10.0, "maybe": 0.25,
        "named": {"a": 3.0}, "kind": 1,
    }  # fmt: skip
    assert read(framed(id, b"\x02\x02")) == {"x": 0.0, "vector": [], "named": {}, "kind": 0}
    assert read(framed(id, b"\x04\x02\x00" + kind.Inner(n=2.0).SerializeToString())) == {"n": 2.0}
    with pytest.raises(ValueError, match="no message type at 7"):
        read(framed(id, b"\x02\x0e"))


def test_protobuf_schemas_may_import_others(registry_url, topic):
    register(
        registry_url,
        f"{topic}-inner",
        'syntax = "proto3"; package shop; message Inner { double n = 1; }',
        "PROTOBUF",
    )
    outer = 'syntax = "proto3"; package shop; import "inner.proto"; message Outer { Inner inner = 1; }'
    reference = {"name": "inner.proto", "subject": f"{topic}-inner", "version": 1}
    id = register(registry_url, f"{topic}-value", outer, "PROTOBUF", [reference])
    body = b"\x00" + b"\x0a\x09" + b"\x09" + bytes(6) + b"\xf0\x3f"  # inner, of 9 bytes: n = 1.0
    assert reader("protobuf", Registry(registry_url))(framed(id, body)) == {"inner": {"n": 1.0}}


def test_json_schema_is_read_by_its_content(registry_url, topic):
    assert reader("json-schema", Registry(registry_url))(framed(7, b'{"x": 1.5}')) == {"x": 1.5}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b'{"x": 1}', "written without a schema registry"),
        (b"\0\0", "written without a schema registry"),
        (framed(99_999, b"\0abc"), "99999"),
    ],
)
def test_a_message_that_cannot_be_read_is_a_dead_letter(registry_url, format, message, why):
    if format == "json-schema" and "99" in why:
        why = "JSON"  # its content needs no schema
    found = Decoder(format=reader(format, Registry(registry_url))).decode([Message(3, message)])
    (failure,) = found.failures
    assert why in failure.reason
    assert not len(found)


# -------------------------------------------------------------------- answers of the registry


def test_a_registry_that_does_not_answer_is_waited_for(registry_url, topic):
    id = register(registry_url, f"{topic}-value", json.dumps(NESTED))
    nowhere = Registry("http://127.0.0.1:9")
    with pytest.raises(Transient, match="does not answer"):
        Decoder(format=reader("avro", nowhere)).decode([Message(0, framed(id, b"abc"))])
    with pytest.raises(Transient, match="does not answer"):
        writer("avro", nowhere, topic, output_records.AssignmentOutput)(RECORDS[0])


def test_a_service_loses_nothing_while_the_registry_is_away(registry_url, topic):
    schema = {"type": "record", "name": "E", "fields": [{"name": "x", "type": "double"}]}
    id = register(registry_url, f"{topic}-value", json.dumps(schema))
    messages = [framed(id, avro(schema, {"x": float(i)})) for i in range(50)]
    registry = Registry(registry_url)
    good = reader("avro", registry)
    fails = iter([True, True, False])

    def read(message):
        if next(fails, False):
            raise Transient("away")
        return good(message)

    encoders = {"assignments": writer("avro", registry, f"{topic}.out", output_records.AssignmentOutput)}
    sink = ListSink()
    policy = Policy(poll=0.0, backoff=0.0, encoders=encoders)
    service = Service(
        MemorySource({(topic, 0): messages}),
        sink,
        StreamClusterer(),
        decoder=Decoder(format=read),
        policy=policy,
    )
    service.run()
    assert (service.stats.events, service.stats.dead_letters, service.stats.retries) == (50, 0, 2)
    rows = [read_back(registry_url, "avro", output.value) for output in sink.outputs["assignments"]]
    assert [row["id"] for row in rows] == [f"{topic}-0-{i}" for i in range(50)]


@pytest.mark.parametrize("format", FORMATS)
def test_schemas_are_checked_where_they_may_not_be_registered(registry_url, topic, format):
    record = output_records.AssignmentOutput
    strict = Registry(registry_url, register=False)
    with pytest.raises(UnfitSchema, match=f"no such schema of {topic}-value.*config schemas"):
        writer(format, strict, topic, record)(RECORDS[0])
    writer(format, Registry(registry_url), topic, record)(RECORDS[0])
    assert writer(format, strict, topic, record)(RECORDS[0])


def test_a_schema_that_the_registry_refuses_is_named(registry_url, topic):
    asked_of = f"{registry_url}/config/{topic}-value"
    other = {"type": "record", "name": "Assignment", "namespace": "streamclust",
             "fields": [{"name": "id", "type": "int"}]}  # fmt: skip
    register(registry_url, f"{topic}-value", json.dumps(other))
    import urllib.request

    request = urllib.request.Request(
        asked_of, b'{"compatibility": "FULL"}', {"Content-Type": "application/json"}, method="PUT"
    )
    urllib.request.urlopen(request, timeout=10).close()
    with pytest.raises(UnfitSchema, match=f"refuses the schema of {topic}-value"):
        writer("avro", Registry(registry_url), topic, output_records.AssignmentOutput)(RECORDS[0])


def test_tls_and_a_password(registry_url, topic, tmp_path):
    guard = Guard(registry_url, tmp_path, "me", "hunter2-and-more")
    try:
        trusted = str(guard.certificate)
        write = writer("avro", Registry(guard.url, "me", "hunter2-and-more", trusted), topic,
                       output_records.AssignmentOutput)  # fmt: skip
        assert read_back(registry_url, "avro", write(RECORDS[0]))["id"] == RECORDS[0].id
        for registry, why in [
            (Registry(guard.url, "me", "wrong", trusted), "refuses the login"),
            (Registry(guard.url, None, None, trusted), "refuses the login"),
            (Registry(guard.url, "me", "hunter2-and-more"), "CERTIFICATE_VERIFY_FAILED"),
        ]:
            with pytest.raises(Transient, match=why) as caught:
                writer("avro", registry, topic, output_records.AssignmentOutput)(RECORDS[0])
            assert "hunter2" not in str(caught.value)
    finally:
        guard.stop()


@pytest.mark.parametrize(
    ("format", "package"),
    [("avro", "fastavro"), ("protobuf", "google.protobuf"), ("json-schema", "jsonschema")],
)
def test_a_missing_package_is_named(format, package):
    script = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"from streamclust_connectors.registry import import_packages\nimport_packages([{format!r}])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'streamclust[registry]'" in done.stderr
    assert package.split(".")[0] in done.stderr


# -------------------------------------------------------------------- on Kafka


def written(format, url, topic, rows):
    """Events as a producer of the format writes them, and one that is none."""
    if format == "json-schema":
        return [framed(1, json.dumps(row).encode()) for row in rows] + [b"oops"]
    fields = [{"name": name, "type": "string" if name == "id" else "double"} for name in rows[0]]
    if format == "avro":
        schema = {"type": "record", "name": "Event", "fields": fields}
        id = register(url, f"{topic}-value", json.dumps(schema))
        return [framed(id, avro(schema, row)) for row in rows] + [b"oops"]
    text = " ".join(f"{f['type']} {f['name']} = {i};" for i, f in enumerate(fields, 1))
    schema = f'syntax = "proto3"; package shop; message Event {{ {text} }}'
    id = register(url, f"{topic}-value", schema, "PROTOBUF")
    with tempfile.TemporaryDirectory() as directory:
        kind = compiled(schema, Path(directory))
    return [framed(id, b"\0" + kind(**row).SerializeToString()) for row in rows] + [b"oops"]


@pytest.mark.compiled
@pytest.mark.parametrize("format", FORMATS)
def test_in_and_out_on_a_broker(cluster, registry_url, tmp_path, format):
    n, topic = 200, cluster.topic()
    rows = [json.loads(event) | {"id": f"customer-{i}"} for i, event in enumerate(events(n)[0])]
    messages = written(format, registry_url, topic, rows)
    key = framed(1, b"\x02a")  # written with a schema of its own: must go out as it came
    cluster.write(topic, messages, key=key)
    (tmp_path / "service.toml").write_text(f"""
        [kafka]
        bootstrap_servers = "{cluster.address}"
        topic = "{topic}"
        [decode]
        format = "{format}"
        key = "id"
        [registry]
        url = "{registry_url}"
        [output]
        format = "{format}"
        refusals = true
        [checkpoint]
        directory = "state"
        every_seconds = 1.0
    """)
    with (tmp_path / "log").open("w") as log:
        command = [Path(sys.executable).with_name("streamclust"), "run", "--config", "service.toml"]
        service = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:

        def told():
            assert service.poll() is None, (tmp_path / "log").read_text()
            return len(cluster.read(f"{topic}.assignments")) == n and cluster.read(f"{topic}.refusals")

        until("the service to do its work", told)
        service.terminate()
        assert service.wait(60) == 0, (tmp_path / "log").read_text()
    finally:
        service.kill()
        service.wait()
    assigned = cluster.read(f"{topic}.assignments")
    found = [read_back(registry_url, format, record.value) for record in assigned]
    assert [row["id"] for row in found] == [f"{topic}-0-{i}" for i in range(n)]
    assert [row["key"] for row in found] == [row["id"] for row in rows]
    assert {record.key for record in assigned} == {key}
    assert all(0 <= row["probability"] <= 1 for row in found if row.get("cluster") is not None)
    changes = [read_back(registry_url, format, record.value) for record in cluster.read(f"{topic}.lifecycle")]
    assert {change["kind"] for change in changes} >= {"born"}
    (letter,) = cluster.read(f"{topic}.dlq")
    assert (letter.value, letter.key) == (b"oops", key)
    (refusal,) = cluster.read(f"{topic}.refusals")
    refusal = read_back(registry_url, format, refusal.value)
    assert (refusal["topic"], refusal["offset"], refusal["stage"]) == (topic, n, "decode")
    assert "schema registry" in refusal["message"]


@pytest.mark.compiled
def test_a_missing_schema_ends_the_service_with_the_reason(cluster, registry_url, tmp_path):
    topic = cluster.topic()
    cluster.write(topic, events(5)[0])
    flags = {
        "kafka.bootstrap_servers": cluster.address,
        "kafka.topic": topic,
        "registry.url": registry_url,
        "registry.register_schemas": "false",
        "output.format": "avro",
        "checkpoint.directory": "state",
    }
    command = [Path(sys.executable).with_name("streamclust"), "run"]
    command += [part for name, value in flags.items() for part in ("--set", f"{name}={value}")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2, done.stderr
    assert f"no such schema of {topic}.assignments-value" in done.stderr


def test_printed_schemas_are_those_that_are_looked_up(registry_url, topic):
    command = [Path(sys.executable).with_name("streamclust"), "config", "schemas", "--set"]
    for format in FORMATS:
        stem = f"{topic}{format[:4]}"
        flags = [f"kafka.topic={stem}", "--format", format]
        shown = subprocess.run([*command, *flags], capture_output=True, check=True)
        for subject, body in json.loads(shown.stdout).items():
            asked(f"{registry_url}/subjects/{subject}/versions", body)
        if format != "protobuf":  # its text is not the base64 that the client looks up
            write = writer(
                format, Registry(registry_url, register=False), f"{stem}.assignments", type(RECORDS[0])
            )
            assert read_back(registry_url, format, write(RECORDS[0]))["id"] == RECORDS[0].id
