"""Bytes to events, whatever the bytes."""

import base64
import json
import math

import msgspec
import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.streaming import InvalidValues
from streamclust_connectors.decode import Decoder, Fields
from streamclust_connectors.interfaces import Message


def read(*values, names=(), fields=None, format="json"):
    records = [Message(i, value) for i, value in enumerate(values)]
    return Decoder(fields, format).decode(records, names)


def test_objects_and_arrays():
    assert read(b'{"x": 1, "y": 2.5}', b'{"y": null}').vectors == [{"x": 1, "y": 2.5}, {"y": None}]
    assert read(b"[1, 2.5, null]").vectors == [{0: 1, 1: 2.5, 2: None}]


@pytest.mark.parametrize("format", ["json", "msgpack"])
def test_plain_events_of_known_features_are_a_table(format):
    encode = getattr(msgspec, format).encode
    found = read(*map(encode, [{"b": 2, "a": 1.5}, {"a": 3, "b": 4}]), names=("a", "b"), format=format)
    assert np.array_equal(found.vectors, [[1.5, 2], [3, 4]])
    assert np.array_equal(read(encode({"a": 7}), names=("a",), format=format).vectors, [[7]])
    assert np.array_equal(read(encode([1, 2]), names=(0, 1), format=format).vectors, [[1, 2]])


@pytest.mark.parametrize(
    "value",
    [
        b'{"a": 1}',
        b'{"a": 1, "b": null}',
        b'{"a": 1, "c": 2}',
        b'{"a": true, "b": 2}',
        b"[1, 2]",
    ],
)
def test_other_events_among_them_are_read_one_by_one(value):
    good = b'{"a": 1.5, "b": 2}'
    assert isinstance(read(good, names=("a", "b")).vectors, np.ndarray)
    mixed = read(good, value, names=("a", "b"))
    assert isinstance(mixed.vectors, list)
    assert mixed.vectors[0] == {"a": 1.5, "b": 2}


def test_what_is_no_event_does_not_hinder_a_table():
    good = b'{"a": 1.5, "b": 2}'
    found = read(b"oops", good, None, b'{"a": 1e999, "b": 2}', b"3", good, names=("a", "b"))
    assert np.array_equal(found.vectors, [[1.5, 2]] * 2)
    assert [record.offset for record in found.records] == [1, 5]
    assert ([failure.record.offset for failure in found.failures], found.tombstones) == ([0, 3, 4], 1)


def test_an_id_does_not_depend_on_what_else_was_read():
    values = [b'{"x": 1}', b'[{"x": 2}]', b'[{"x": 3}, {"x": 4}]']
    together = read(*values).ids(("t", 0), slice(0, 4))
    assert together == ["t-0-0", "t-0-1", "t-0-2-0", "t-0-2-1"]
    records = [Message(i, value) for i, value in enumerate(values)]
    for names in ((), ("x",)):
        apart = [Decoder().decode([record], names) for record in records]
        assert [i for found in apart for i in found.ids(("t", 0), slice(0, len(found)))] == together


def test_fields_are_found_by_their_paths():
    fields = Fields(events="batch", vector="data.v", key="meta.id", time="meta.at", weight="n")
    event = {"data": {"v": [1, 2]}, "meta": {"id": "a", "at": 5}, "n": 3}
    found = read(json.dumps({"batch": [event, event | {"n": 4}]}).encode(), fields=fields)
    assert found.vectors == [{0: 1, 1: 2}] * 2
    assert (found.keys, found.times, found.weights) == (["a", "a"], [5.0, 5.0], [3.0, 4.0])
    assert found.ids(("t", 3), slice(0, 2)) == ["t-3-0-0", "t-3-0-1"]


def test_key_time_and_weight_beside_the_features_are_none_of_them():
    found = read(b'{"id": 7, "at": 1, "x": 2}', fields=Fields(key="id", time="at"))
    assert found.vectors == [{"x": 2}]


def test_chosen_features_leave_the_others_out():
    assert read(b'{"city": "Oslo", "x": 2}', fields=Fields(features=("x", "y"))).vectors == [{"x": 2}]


def test_a_message_may_be_a_list_of_events():
    assert read(b'[{"x": 1}, {"x": 2}]').vectors == [{"x": 1}, {"x": 2}]
    assert read(b"[[1, 2], [3, 4]]").vectors == [{0: 1, 1: 2}, {0: 3, 1: 4}]


def test_tombstones_are_counted():
    found = read(None, b'{"x": 1}', None)
    assert (found.tombstones, len(found), len(found.failures)) == (2, 1, 0)


@pytest.mark.parametrize(
    ("value", "fields", "reason"),
    [
        (b'{"x": 1', None, "truncated"),
        (b"\xff\x00\x01", None, "malformed"),
        (b"", None, "truncated"),
        (b'{"x": NaN}', None, "malformed"),
        (b'{"x": 1e999}', None, "out of range"),
        (b"[" * 100_000, None, "nested too deeply"),
        (b"3", None, "object or an array"),
        (b'"text"', None, "object or an array"),
        (b'[{"x": 1}, 3]', None, "object or an array"),
        (b'{"x": 1}', Fields(vector="v"), "no 'v'"),
        (b'{"v": {"x": 1}, "t": "now"}', Fields(vector="v", time="t"), "t must be a number"),
        (b'{"x": 1, "n": true}', Fields(weight="n"), "n must be a number"),
        (b'{"x": 1, "n": 1' + b"0" * 400 + b"}", Fields(weight="n"), "n must be finite"),
        (b'{"e": {"x": 1}}', Fields(events="e"), "must be a list"),
    ],
)
def test_what_cannot_be_read_is_told(value, fields, reason):
    (failure,) = read(value, fields=fields).failures
    assert reason in failure.reason


def test_not_a_number_is_no_number():
    (failure,) = read(msgspec.msgpack.encode({"x": math.nan}), names=("x",), format="msgpack").failures
    assert "'x' is NaN" in failure.reason


def test_decoders_of_ones_own():
    assert read(b"1 2", format=lambda value: [float(part) for part in value.split()]).vectors == [
        {0: 1.0, 1: 2.0}
    ]
    (failure,) = read(b"1 b", format=lambda value: [float(part) for part in value.split()]).failures
    assert failure.exception == "ValueError"
    with pytest.raises(ValueError, match="json, msgpack"):
        Decoder(format="avro")


def test_embeddings_are_arrays_or_base64():
    fields = Fields(vector="embedding", key="id")
    packed = base64.b64encode(np.array([1.0, 2.0, -0.5], dtype="<f4").tobytes()).decode()
    values = [
        b'{"id": 1, "embedding": [1, 2, -0.5]}',
        json.dumps({"id": 2, "embedding": packed}).encode(),
        b'{"id": 4}',
        b'{"id": 5, "embedding": "AAA"}',
        b'{"id": 6, "embedding": "AAAA"}',
        b'{"id": 8, "embedding": [1, null, 3]}',
        b'{"id": 9, "embedding": [1, 2]}',
        b'[{"id": 10, "embedding": [1, 2, 3]}, {"id": 11, "embedding": [1, 2, 3, 4]}]',
        b'{"id": 12, "embedding": ["1", "2"]}',
    ]
    for names in ((), (0, 1, 2)):
        found = read(*values, names=names, fields=fields)
        assert found.keys == [1, 2, 8]
        assert found.vectors[:2] == [{0: 1, 1: 2, 2: -0.5}] * 2
        reasons = {failure.record.offset: failure.reason for failure in found.failures}
        assert "embedding" in reasons[2]
        assert "base64" in reasons[3]
        assert "4 bytes" in reasons[4]
        assert reasons[6] == "the vector has 2 numbers, but the first vector had 3"
        assert reasons[7] == "the vector has 4 numbers, but the first vector had 3"  # with all of its message
        assert sorted(reasons) == [2, 3, 4, 6, 7, 8]


def test_bytes_that_are_no_numbers_are_refused():
    fields = Fields(vector="embedding")
    packed = [np.array([1.0, bad, -0.5], dtype="<f4").tobytes() for bad in (2.0, np.nan, np.inf)]
    found = read(
        *(json.dumps({"embedding": base64.b64encode(each).decode()}).encode() for each in packed),
        fields=fields,
    )
    (failure,) = found.failures
    assert (failure.record.offset, "is NaN" in failure.reason) == (1, True)
    model = StreamClusterer()
    with pytest.warns(InvalidValues, match="finite"):
        model.learn_many(found.vectors)
    assert (model.n_seen, model.n_invalid) == (2, {1: 1})
