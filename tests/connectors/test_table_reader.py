"""Messages read into a table, against the same ones read one by one."""

import itertools
import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamclust_connectors.decode import Decoder, Fields
from streamclust_connectors.decode.table_reader import NotTabular, TableReader
from streamclust_connectors.interfaces import Message

NAMES = {
    "plain": ("x", "y"),
    "one": ("x",),
    "odd": ("größe", "a b", "class", "", "f0", "0"),
    "unsuited": ('quo"te', "back\\slash"),
    "array": (0, 1, 2),
}
FIELDS = [
    Fields(),
    Fields(key="id"),
    Fields(key="id", time="at", weight="n"),
    Fields(vector="v"),
    Fields(vector="data.v", key="data.id", time="meta.at", weight="meta.n"),
    Fields(events="batch"),
    Fields(events="body.batch", vector="v", key="id"),
    Fields(vector="v", key="v.x"),
    Fields(key="meta.id"),
    Fields(key="x"),
    Fields(time="id", weight="id"),
    Fields(features=("x", "y")),
    Fields(features=("y", "x"), key="x", time="at"),
    Fields(features=("x", "y", "z"), vector="v"),
    Fields(exclude=("z", "other")),
    Fields(exclude=("other",), key="id", time="at"),
    Fields(exclude=("y",), vector="v"),
    Fields(features=("x", "y", "z"), exclude=("z", "id")),
]

numbers = st.one_of(
    st.integers(-9, 9),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e308, -0.0, 5e-324, 10**400]),
)
wrong = st.sampled_from([None, True, "1", [], [1], {}, {"x": 1}])
VALUES = {
    "tidy": st.one_of(st.integers(-9, 9), st.floats(-1e9, 1e9)),
    "wild": st.one_of(*[numbers] * 5, wrong),
}
KINDS = {"tidy": ["whole"] * 12 + ["twice"], "wild": ["whole"] * 7 + ["fewer", "more", "twice"]}


class Members(list):
    """Members of an object, of which some may have the same name."""


def text(content):
    """JSON, with the names that come twice."""
    if isinstance(content, Members):
        return "{" + ",".join(f"{json.dumps(name)}: {text(value)}" for name, value in content) + "}"
    if isinstance(content, list):
        return "[" + ", ".join(map(text, content)) + "]"
    return json.dumps(content)


def packed(content):
    """The same for MessagePack, where the last of a name counts."""
    if isinstance(content, Members):
        return {name: packed(value) for name, value in content}
    return [packed(part) for part in content] if isinstance(content, list) else content


@st.composite
def vectors(draw, names, mood):
    values = VALUES[mood]
    if isinstance(names[0], int):
        slack = mood == "wild"
        return draw(st.lists(values, min_size=len(names) - slack, max_size=len(names) + slack))
    members = Members((name, draw(values)) for name in draw(st.permutations(names)))
    kind = draw(st.sampled_from(KINDS[mood]))
    if kind == "fewer":
        del members[0]
    elif kind == "more":
        members.append((draw(st.sampled_from(["z", "id", "other"])), draw(values)))
    elif kind == "twice":
        members.append((names[0], draw(values)))
    return members


def put(members, path, value):
    """Members with one more under a path."""
    head, *rest = path.split(".", 1)
    if rest:
        inner = next((held for name, held in members if name == head), None)
        if not isinstance(inner, Members):
            inner = Members()
            members.append((head, inner))
        put(inner, rest[0], value)
    else:
        members.append((head, value))


@st.composite
def events(draw, fields, names, mood):
    event = vector = draw(vectors(names, mood))
    if fields.vector is not None:
        event = Members()
        put(event, fields.vector, vector)
    if isinstance(event, Members):
        keys = st.one_of(st.text(max_size=3), st.integers(), st.lists(st.none(), max_size=2))
        for path, kind in zip(fields.side_paths, (keys, VALUES[mood], VALUES[mood]), strict=True):
            if path is not None and (mood == "tidy" or draw(st.integers(0, 15))):
                put(event, path, draw(kind))
    return event


@st.composite
def messages(draw, fields, names, format, mood):
    kind = draw(st.sampled_from(["event"] * 8 + ["events"] * 3 + ["rubbish", "none"]))
    if kind == "none":
        return None
    if kind == "rubbish":
        return draw(
            st.one_of(st.binary(max_size=8), st.sampled_from([b"[]", b"{}", b"[[]]", b"3", b'{"x": 1']))
        )
    content = (
        draw(events(fields, names, mood))
        if kind == "event"
        else draw(st.lists(events(fields, names, mood), max_size=3))
    )
    if fields.events is not None:
        whole = Members()
        put(whole, fields.events, content if kind == "events" else [content])
        content = whole
    if format == "json":
        return text(content).encode()
    try:
        return msgspec.msgpack.encode(packed(content))
    except OverflowError:  # integers of more than 64 bits
        return None


@st.composite
def streams(draw):
    fields, names = draw(st.sampled_from(FIELDS)), NAMES[draw(st.sampled_from(sorted(NAMES)))]
    format = draw(st.sampled_from(["json", "msgpack"]))
    mood = draw(st.sampled_from(["tidy", "tidy", "wild"]))
    return (
        fields,
        names,
        format,
        draw(st.lists(messages(fields, names, format, mood), min_size=1, max_size=6)),
    )


def described(found, names):
    """All there is to know of decoded events; where they are a table, as one."""
    table = isinstance(found.vectors, np.ndarray)
    return (
        found.vectors.tolist()
        if table
        else [[float(vector[name]) for name in names] for vector in found.vectors],
        found.ids(("t", 0), slice(0, len(found))),
        [None if column is None else list(column) for column in (found.keys, found.times, found.weights)],
        [(f.record.offset, f.exception, f.reason) for f in found.failures],
        found.tombstones,
    )


@given(streams())
def test_a_table_is_what_one_by_one_is(stream):
    fields, names, format, contents = stream
    records = [Message(10 + i, content) for i, content in enumerate(contents)]
    decoder = Decoder(fields, format)
    slow, fast = decoder.decode(records), decoder.decode(records, names)
    if isinstance(fast.vectors, np.ndarray):
        assert described(fast, names) == described(slow, names)
    else:
        assert fast == slow


def room(fields, names):
    """Whether events can be such: beside the numbers of an array there is room for nothing."""
    return isinstance(names[0], str) or fields.vector is not None or not any(fields.side_paths)


@pytest.mark.parametrize(
    ("fields", "names"),
    [pair for pair in itertools.product(FIELDS[:7], [("x", "y"), ("größe",), (0, 1)]) if room(*pair)],
)
@pytest.mark.parametrize("format", ["json", "msgpack"])
def test_good_events_become_a_table(fields, format, names):
    vector = [1.5, 2][: len(names)] if isinstance(names[0], int) else Members((name, 7) for name in names)
    event = vector
    if fields.vector is not None:
        event = Members()
        put(event, fields.vector, vector)
    for path in fields.side_paths:
        if path is not None:
            put(event, path, 3)
    several = [event, event]
    if fields.events is not None:
        whole = Members()
        put(whole, fields.events, several)
        several = event = whole
    encode = (
        (lambda it: text(it).encode())
        if format == "json"
        else (lambda it: msgspec.msgpack.encode(packed(it)))
    )
    decoder = Decoder(fields, format)
    for content in (event, several):
        found = decoder.decode([Message(0, encode(content)), Message(1, encode(content))], names)
        assert isinstance(found.vectors, np.ndarray)
        assert described(found, names) == described(decoder.decode(found.records[:: len(found) // 2]), names)


def test_a_name_that_cannot_be_asked_for_is_told():
    with pytest.raises(NotTabular):
        TableReader(Fields(), "json", ('quo"te',), ('quo"te',))


def test_features_may_change_their_order():
    decoder = Decoder()
    for order in (("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")):
        value = msgspec.json.encode({name: ord(name) for name in order})
        assert decoder.decode([Message(0, value)], ("a", "b", "c")).vectors.tolist() == [[97, 98, 99]]
