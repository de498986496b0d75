"""Laws of the schema: batching, key order and kind of container are invisible; prediction never writes."""

import json
from collections.abc import Hashable

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from streamclust.schema import Schema

NAMES = ["a", "b", "c", "d", 0, 1, ("e", "f")]
floats = st.floats(allow_infinity=False, allow_nan=False)
numbers = st.one_of(floats, st.integers(-(10**6), 10**6), st.booleans(), floats.map(np.float64))
missing = st.sampled_from([None, float("nan")])
events = st.dictionaries(st.sampled_from(NAMES), st.one_of(numbers, missing))
streams = st.lists(events, max_size=8)
bad = st.sampled_from(["red", np.inf, -np.inf, 10**400, [1.0], 1j, b"x"])


def widen(rows: list[np.ndarray], width: int) -> np.ndarray:
    table = np.full((len(rows), width), np.nan)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table


def known(stream: list[dict]) -> list[Hashable]:
    """Slow twin of the order of columns: the features with a number, as they come; within an event by name."""
    found = []
    for x in stream:
        new = [name for name, v in x.items() if v is not None and v == v and name not in found]
        found += sorted(new, key=lambda name: (isinstance(name, str) + 2 * isinstance(name, tuple), name))
    return found


@given(streams)
def test_a_table_is_its_rows_one_by_one(stream):
    single, many = Schema(), Schema()
    rows = [single.row(x) for x in stream]
    table = many.table(stream)
    assert list(many.names) == known(stream)
    assert single == many
    assert_array_equal(table, widen(rows, len(single)))


@given(streams, st.integers(0, 8))
def test_chunks_are_invisible(stream, cut):
    whole, parts = Schema(), Schema()
    table = whole.table(stream)
    rows = [*parts.table(stream[:cut]), *parts.table(stream[cut:])]
    assert whole == parts
    assert_array_equal(table, widen(rows, len(whole)))


@given(streams)
def test_each_value_stands_in_the_column_of_its_name(stream):
    schema = Schema()
    table = schema.table(stream)
    for x, row in zip(stream, table, strict=True):
        for name, value in schema.mapping(row).items():
            expected = x.get(name)
            np.testing.assert_equal(value, np.nan if expected is None else float(expected))


@given(streams, events, st.randoms())
def test_the_order_of_keys_is_irrelevant(stream, x, random):
    schema = Schema()
    schema.table([*stream, x])
    items = list(x.items())
    random.shuffle(items)
    assert_array_equal(schema.row(dict(items)), schema.row(x))


@given(streams)
def test_absent_none_and_nan_are_the_same(stream):
    without = [{name: v for name, v in x.items() if v is not None and v == v} for x in stream]
    full, sparse = Schema(), Schema()
    assert_array_equal(full.table(stream), sparse.table(without))
    assert full == sparse


@given(streams, events)
def test_an_emerging_feature_leaves_earlier_events_without_it(stream, x):
    schema = Schema()
    before = schema.table(stream)
    width = len(schema)
    schema.row(x)
    assert_array_equal(schema.table(stream)[:, :width], before)
    assert np.isnan(schema.table(stream)[:, width:]).all()


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
@given(columns=st.dictionaries(st.sampled_from("abcd"), st.lists(st.none() | floats, min_size=4, max_size=4)))
def test_a_frame_is_its_rows_one_by_one(make, columns):
    listed, framed = Schema(["c"]), Schema(["c"])
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    assert_array_equal(framed.table(make(columns)), listed.table(rows))
    assert framed == listed


@given(st.lists(st.lists(floats, min_size=3, max_size=3), min_size=1))
def test_an_array_is_its_rows_one_by_one(rows):
    schema = Schema()
    table = schema.table(np.array(rows))
    assert_array_equal(table, [schema.row(dict(enumerate(row))) for row in rows])


@given(streams, streams)
def test_prediction_never_changes_the_schema_and_agrees_with_learning(stream, others):
    schema = Schema()
    table = schema.table(stream)
    names = schema.names
    assert_array_equal(schema.table(stream, extend=False), table)
    width = len(names)
    predicted = [schema.row(x, extend=False) for x in others]
    assert_array_equal(widen(predicted, width), schema.table(others, extend=False))
    assert schema.names == names
    assert_array_equal(schema.table(others)[:, :width], schema.table(others, extend=False)[:, :width])


@given(streams, streams, st.sampled_from(NAMES), bad, st.sampled_from(["impute", "error"]), st.data())
def test_refused_input_leaves_the_schema_unchanged(stream, others, name, value, mode, data):
    schema = Schema(known(stream), missing=mode)
    names = schema.names
    others.insert(data.draw(st.integers(0, len(others))), {"new": 1.0, name: value})
    with pytest.raises((TypeError, ValueError), match="feature"):
        schema.table(others)
    with pytest.raises((TypeError, ValueError), match="feature"):
        schema.row({"new": 1.0, name: value})
    assert schema.names == names
    assert [n for n in [*NAMES, "new"] if n in schema] == [n for n in NAMES if n in names]


@given(st.lists(st.dictionaries(st.sampled_from("abc"), numbers | missing), min_size=1, max_size=5))
def test_strict_takes_a_stream_exactly_if_every_event_has_the_same_features(stream):
    schema = Schema(missing="error")
    whole = all(v is not None and v == v for x in stream for v in x.values())
    filled = [x for x in stream if x]
    first = next((i for i, x in enumerate(stream) if x), len(stream))
    uniform = all(x.keys() == stream[first].keys() for x in stream[first:]) if filled else True
    if whole and uniform:
        assert_array_equal(schema.table(stream), Schema().table(stream))
    else:
        with pytest.raises(ValueError, match='which missing="error" forbids'):
            schema.table(stream)
        assert len(schema) == 0


@given(st.lists(st.text() | st.integers(), unique=True), st.sampled_from(["impute", "error"]))
def test_a_schema_survives_json(names, mode):
    schema = Schema(names, missing=mode)
    restored = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert restored == schema
    assert [type(name) for name in restored.names] == [type(name) for name in names]
