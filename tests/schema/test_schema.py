"""The door of the engine: what it takes, what it refuses, and what it says then."""

import copy
import datetime
import json
import pickle
import subprocess
import sys
from collections import ChainMap, Counter, defaultdict
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from streamclust.schema import MAX_NAME_LENGTH, Schema

nan = float("nan")


# -------------------------------------------------------------------- rows


def test_a_row_follows_the_order_of_first_appearance_and_within_an_event_that_of_the_names():
    schema = Schema()
    assert_array_equal(schema.row({"c": 1.0, "b": 2.0}), [2.0, 1.0])
    assert_array_equal(schema.row({"c": 4.0, "b": 3.0}), [3.0, 4.0])
    assert_array_equal(schema.row({"a": 5.0, "b": 3.0, "c": 4.0}), [3.0, 4.0, 5.0])
    assert schema.names == ("b", "c", "a")
    assert len(schema) == 3
    assert schema.column("c") == 1
    assert "a" in schema
    assert "d" not in schema


def test_a_row_is_float64_and_belongs_to_the_caller():
    schema = Schema(["a", "b"])
    first = schema.row({"a": 1, "b": True})
    assert first.dtype == np.float64
    first[:] = 9.0
    assert_array_equal(schema.row({"a": 1, "b": True}), [1.0, 1.0])


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        np.float64(2),
        np.float32(2),
        np.float16(2),
        np.int8(2),
        np.uint64(2),
        np.longdouble(2),
        Decimal(2),
        Fraction(2),
        np.array(2),
        np.array(2.0),
        np.array(2, dtype=object),
    ],
    ids=lambda v: type(v).__name__,
)
@pytest.mark.parametrize("names", [None, ["x"]])
def test_numbers_of_every_type(value, names):
    row = Schema(names).row({"x": value})
    assert row.dtype == np.float64
    assert_array_equal(row, [2.0])


@pytest.mark.parametrize("value", [True, np.True_, np.array(True)])
def test_truth_is_one(value):
    assert_array_equal(Schema().row({"x": value}), [1.0])


@pytest.mark.parametrize(
    "value", [None, nan, np.nan, np.float32("nan"), Decimal("nan"), Decimal("snan"), pd.NA, np.ma.masked]
)
def test_every_kind_of_missing_is_nan_and_makes_no_column(value):
    schema = Schema(["x"])
    assert_array_equal(schema.row({"x": value}), [nan])
    assert_array_equal(schema.row({"x": 1.0, "new": value}), [1.0])
    assert schema.names == ("x",)


def test_an_emerging_feature_extends_and_a_vanished_one_stays():
    schema = Schema()
    schema.row({"a": 1.0})
    assert_array_equal(schema.row({"b": 2.0}), [nan, 2.0])
    assert_array_equal(schema.row({"a": 3.0}), [3.0, nan])
    assert_array_equal(schema.row({}), [nan, nan])


def test_prediction_ignores_the_unknown_whatever_it_is():
    schema = Schema(["a"])
    assert_array_equal(schema.row({"id": "customer 7", "a": 1.0}, extend=False), [1.0])
    assert schema.names == ("a",)
    assert Schema().row({"a": 1.0}, extend=False).shape == (0,)


def test_names_may_be_anything_hashable():
    schema = Schema()
    schema.row({("a", "b"): 1.0, 3: 2.0, None: 3.0, frozenset("z"): 4.0})
    assert schema.names == (3, None, frozenset("z"), ("a", "b"))
    assert_array_equal(schema.row({None: 1.0}), [nan, 1.0, nan, nan])


@pytest.mark.parametrize("kind", [Counter, ChainMap, lambda x: defaultdict(float, x)])
def test_any_mapping_is_an_event_and_is_only_read(kind):
    schema = Schema(["b", "a", "c"])
    x = kind({"a": 1, "b": 2})
    assert_array_equal(schema.row(x), [2.0, 1.0, nan])
    assert len(x) == 2


def test_numbers_near_the_limit_are_taken():
    big = sys.float_info.max
    schema = Schema(["a", "b"])
    assert_array_equal(schema.row({"a": big, "b": big}), [big, big])
    assert_array_equal(schema.row({"a": 10**300, "b": -big}), [1e300, -big])


# -------------------------------------------------------------------- what is refused, and the sentence

TEXT = "encode text first, for example with river's preprocessing.OneHotEncoder"
DATE = "turn dates into numbers first, for example with .timestamp() or .total_seconds()"
PARTS = "give its real and its imaginary part a feature each"
ELEMENTS = "give each of its elements a feature of its own"

NOT_NUMBERS = [
    ("red", "'red' (str)", TEXT),
    ("1.5", "'1.5' (str)", TEXT),
    (b"1", "b'1' (bytes)", TEXT),
    (np.str_("1.5"), "np.str_('1.5') (str_)", TEXT),
    (1 + 2j, "(1+2j) (complex)", PARTS),
    (np.complex64(1), "np.complex64(1+0j) (complex64)", PARTS),
    ([1.0], "[1.0] (list)", ELEMENTS),
    (np.array([1.0]), "array([1.]) (ndarray)", ELEMENTS),
    ({"y": 1}, "{'y': 1} (dict)", ELEMENTS),
    (datetime.date(2024, 5, 1), "datetime.date(2024, 5, 1) (date)", DATE),
    (datetime.timedelta(3), "datetime.timedelta(days=3) (timedelta)", DATE),
    (np.datetime64("2024-05-01"), "np.datetime64('2024-05-01') (datetime64)", DATE),
    (np.timedelta64(3, "s"), "np.timedelta64(3,'s') (timedelta64)", DATE),
    (pd.NaT, "NaT (NaTType)", DATE),
    (Ellipsis, "Ellipsis (ellipsis)", "convert it with float() first"),
]


@pytest.mark.parametrize(("value", "shown", "cure"), NOT_NUMBERS, ids=lambda v: str(v)[:20])
@pytest.mark.parametrize("names", [None, ["x"]])
def test_what_is_not_a_number_is_named_with_its_cure(value, shown, cure, names):
    schema = Schema(names)
    with pytest.raises(TypeError) as refused:
        schema.row({"x": value})
    assert str(refused.value) == f"feature 'x' must be a number, got {shown}; {cure}"
    assert schema == Schema(names)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.inf, "inf"),
        (-np.inf, "-inf"),
        (np.float32("inf"), "np.float32(inf)"),
        (Decimal("inf"), "Decimal('Infinity')"),
        (Decimal("1e400"), "Decimal('1E+400')"),
        (10**5000, "a number of 16610 bits"),
        (np.longdouble("1e4000"), "np.longdouble('1e+4000')"),
        (10**400, "1000"),
        (Fraction(10**400), "Fracti"),
    ],
    ids=lambda v: type(v).__name__,
)
@pytest.mark.parametrize("names", [None, ["x"]])
def test_the_infinite_and_the_too_large_are_refused(value, shown, names):
    schema = Schema(names)
    with pytest.raises(ValueError, match="feature 'x' must be finite and within float64, got ") as refused:
        schema.row({"x": value})
    assert f"got {shown}" in str(refused.value)
    assert str(refused.value).endswith("; clip or rescale it, or give None to count it as missing")
    assert schema == Schema(names)


def test_an_event_must_be_a_mapping():
    with pytest.raises(TypeError) as refused:
        Schema().row([1.0, 2.0])
    assert str(refused.value) == (
        "an event must map features to numbers, as {'x': 1.0} does, got [1.0, 2.0] (list)"
    )


def test_a_refused_event_leaves_no_trace():
    schema = Schema(["a"])
    with pytest.raises(TypeError):
        schema.row({"new": 1.0, "a": "red"})
    assert "new" not in schema
    assert_array_equal(schema.row({}), [nan])
    with pytest.raises(ValueError, match="row 1: feature 'a' must be finite"):
        schema.table([{"new": 1.0}, {"a": np.inf}])
    with pytest.raises(TypeError, match="row 1: feature 'a' must be a number"):
        schema.table(pd.DataFrame({"new": [1.0, 2.0], "a": [1.0, "red"]}))
    assert schema.names == ("a",)
    assert "new" not in schema


# -------------------------------------------------------------------- missing="error"

MISSING = (
    'feature \'b\' is missing, which missing="error" forbids; use missing="impute" or "zero" to allow it'
)
NEW = 'feature \'c\' is new, which missing="error" forbids; use missing="impute" or "zero" to allow it'


@pytest.mark.parametrize("extend", [True, False])
def test_strict_rows(extend):
    schema = Schema(missing="error")
    schema.row({"a": 1.0, "b": 2.0})
    assert_array_equal(schema.row({"b": 4.0, "a": 3.0}, extend), [3.0, 4.0])
    for x, sentence in [
        ({"a": 1.0}, MISSING),
        ({"a": 1.0, "b": None}, MISSING),
        ({"a": 1.0, "b": nan}, MISSING),
    ]:
        with pytest.raises(ValueError, match="missing") as refused:
            schema.row(x, extend)
        assert str(refused.value) == sentence
    with pytest.raises(ValueError, match="new") as refused:
        schema.row({"a": 1.0, "b": 2.0, "c": 3.0}, extend)
    assert str(refused.value) == NEW
    assert schema.names == ("a", "b")


def test_strict_refuses_a_hole_in_the_first_event():
    schema = Schema(missing="error")
    with pytest.raises(ValueError, match="feature 'b' is missing"):
        schema.row({"a": 1.0, "b": None})
    assert len(schema) == 0


def test_strict_prediction_before_the_first_event_knows_no_features():
    assert Schema(missing="error").row({"a": 1.0}, extend=False).shape == (0,)


def test_strict_tables():
    schema = Schema(["a", "b"], missing="error")
    for table, sentence in [
        ([{"a": 1.0, "b": 2.0}, {"a": 1.0}], "row 1: " + MISSING),
        ([{"a": 1.0, "b": 2.0, "c": 1.0}], "row 0: " + NEW),
        (pd.DataFrame({"a": [1.0]}), MISSING),
        (pd.DataFrame({"a": [1.0, 1.0], "b": [1.0, nan]}), "row 1: " + MISSING),
        (pd.DataFrame({"a": [1.0], "b": [1.0], "c": [1.0]}), NEW),
        (np.array([[1.0, 2.0], [3.0, nan]]), "row 1: " + MISSING),
    ]:
        with pytest.raises(ValueError, match="feature") as refused:
            schema.table(table)
        assert str(refused.value) == sentence
    assert schema.table(pd.DataFrame({"b": []})).shape == (0, 2)


# -------------------------------------------------------------------- tables


def frames(data):
    return [pd.DataFrame(data), pl.DataFrame(data), pa.table(data)]


def test_frames_are_matched_by_name():
    for frame in frames({"b": [1, 2], "a": [0.5, 1.5]}):
        schema = Schema(["a", "b"])
        assert_array_equal(schema.table(frame), [[0.5, 1.0], [1.5, 2.0]])
        assert schema.names == ("a", "b")


def test_frames_with_holes_truths_and_decimals():
    data = {
        "i": [1, None],
        "t": [True, None],
        "n": [None, None],
        "d": [Decimal("1.5"), None],
        "f": [None, 2.5],
    }
    typed = pd.DataFrame({"i": pd.array([1, None], "Int64"), "t": pd.array([True, None], "boolean")})
    for frame in [*frames(data), pd.concat([typed, pd.DataFrame(data)[["n", "d", "f"]]], axis=1)]:
        schema = Schema()
        assert_array_equal(schema.table(frame), [[1.5, 1.0, 1.0, nan], [nan, nan, nan, 2.5]])
        assert schema.names == ("d", "i", "t", "f")


def test_a_column_appears_with_its_first_number_as_it_would_event_by_event():
    frame = pd.DataFrame({"late": [nan, 1.0], "first": [2.0, 3.0], "never": [nan, nan]})
    schema = Schema()
    assert_array_equal(schema.table(frame), [[2.0, nan], [3.0, 1.0]])
    assert schema.names == ("first", "late")
    one_by_one = Schema()
    one_by_one.table(frame.to_dict("records"))
    assert one_by_one == schema


def test_prediction_reads_only_the_known_columns_of_a_frame():
    for frame in frames({"name": ["x", "y"], "a": [1.0, 2.0]}):
        schema = Schema(["a", "b"])
        assert_array_equal(schema.table(frame, extend=False), [[1.0, nan], [2.0, nan]])
        assert schema.names == ("a", "b")


def test_frames_refuse_what_is_not_a_number():
    day = datetime.datetime(2024, 5, 1)
    for column, shown, cure in [
        (["1.5", "2"], "'1.5' (str)", TEXT),
        ([day, day], "4, 5, 1, 0, 0) (datetime)", DATE),
        ([[1.0], [2.0]], "[1.0] (list)", ELEMENTS),
    ]:
        for frame in frames({"x": column}):
            schema = Schema()
            with pytest.raises(TypeError, match="row 0: feature 'x' must be a number") as refused:
                schema.table(frame)
            assert str(refused.value).endswith(cure)
            assert shown in str(refused.value) or "Timestamp" in str(refused.value)
            assert len(schema) == 0


def test_frames_refuse_the_infinite():
    for frame in frames({"x": [1.0, np.inf]}):
        with pytest.raises(ValueError, match=r"row 1: feature 'x' must be finite .* got np.float64\(inf\)"):
            Schema().table(frame)


def test_frames_refuse_columns_of_the_same_name():
    with pytest.raises(ValueError, match="unique column names"):
        Schema().table(pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]))


def test_pandas_names_that_are_not_text():
    schema = Schema()
    schema.table(pd.DataFrame({0: [1.0], ("a", "b"): [2.0]}))
    assert schema.names == (0, ("a", "b"))


def test_arrays_name_their_columns_by_position():
    schema = Schema()
    assert_array_equal(schema.table(np.array([[1, 2], [3, 4]], dtype=np.int8)), [[1.0, 2.0], [3.0, 4.0]])
    assert schema.names == (0, 1)
    assert_array_equal(schema.row({1: 5.0}), [nan, 5.0])


def test_a_column_of_an_array_exists_before_its_first_number():
    schema = Schema()
    assert_array_equal(schema.table(np.array([[nan, 1.0]])), [[nan, 1.0]])
    assert schema.names == (0, 1)


def test_arrays_take_the_order_of_the_schema():
    schema = Schema(["b", "a"])
    data = np.array([[1.0, 2.0]])
    table = schema.table(data)
    assert schema.mapping(table[0]) == {"b": 1.0, "a": 2.0}
    table[:] = 0.0
    assert data[0, 0] == 1.0


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.0, None], [True, Decimal(2)]], dtype=object),
        np.ma.array([[1.0, 7.0], [1.0, 2.0]], mask=[[False, True], [False, False]]),
        np.ma.array([[1, np.iinfo(np.int64).max], [1, 2]], mask=[[False, True], [False, False]]),
        np.ma.array([[1.0, np.inf], [1.0, 2.0]], mask=[[False, True], [False, False]]),
    ],
)
def test_arrays_with_holes(array):
    assert_array_equal(Schema().table(array), [[1.0, nan], [1.0, 2.0]])


def test_arrays_refused():
    schema = Schema(["a", "b"])
    with pytest.raises(ValueError, match="schema has 2") as refused:
        schema.table(np.zeros((4, 3)))
    assert str(refused.value) == (
        "the schema has 2 features, the array has 3 columns; give it as many, "
        "or name its columns (a frame or a list of mappings)"
    )
    with pytest.raises(ValueError, match="a table needs") as refused:
        schema.table(np.zeros(2))
    assert str(refused.value) == (
        "a table needs rows and columns, got an array of shape (2,); "
        "use .reshape(1, -1) for one event, .reshape(-1, 1) for one feature"
    )
    with pytest.raises(ValueError, match=r"row 1: feature 'b' must be finite .* got np.float64\(-inf\)"):
        schema.table(np.array([[1.0, 2.0], [0.0, -np.inf]]))
    with pytest.raises(ValueError, match="row 0: feature 'a' must be finite"):
        schema.table(np.array([["1e4000", "1"]]).astype(np.longdouble))
    for array in (np.array([["x", "y"]]), np.zeros((1, 2), "M8[ns]"), np.zeros((1, 2), complex)):
        with pytest.raises(TypeError, match="row 0: feature 'a' must be a number"):
            schema.table(array)
    assert schema == Schema(["a", "b"])


def test_empty_tables():
    schema = Schema(["a", "b"])
    for data in (
        [],
        (),
        iter([]),
        np.zeros((0, 2)),
        np.zeros((0, 2), object),
        pd.DataFrame(),
        pl.DataFrame(),
    ):
        assert schema.table(data).shape == (0, 2)
    assert Schema().table([]).shape == (0, 0)
    assert Schema().table([{}, {}]).shape == (2, 0)
    assert Schema().table(np.ones((3, 2)), extend=False).shape == (3, 0)


def test_events_from_any_iterable():
    schema = Schema()
    assert_array_equal(schema.table({"a": i} for i in range(2)), [[0.0], [1.0]])
    assert_array_equal(schema.table(({"a": 5}, {"b": 6})), [[5.0, nan], [nan, 6.0]])


@pytest.mark.parametrize("data", [{"a": [1.0]}, "a,b", b"a", 3, None])
def test_what_is_not_a_table(data):
    with pytest.raises(TypeError) as refused:
        Schema().table(data)
    assert str(refused.value).startswith(
        "many events are a list of mappings, a frame in memory (pandas, polars, pyarrow) or a numpy table, "
    )


@pytest.mark.parametrize("data", [[[1.0, 2.0]], [{"a": 1.0}, 3.0], ["ab"]])
def test_an_event_among_many_must_be_a_mapping(data):
    with pytest.raises(TypeError, match=r"row \d: an event must map features to numbers"):
        Schema().table(data)


# -------------------------------------------------------------------- making, showing, saving


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"missing": "drop"}, ValueError, "missing must be 'zero', 'impute' or 'error', got 'drop'"),
        ({"names": "ab"}, TypeError, "names must be a list, whose order is that of the columns, got 'ab'"),
        ({"names": {"a"}}, TypeError, "names must be a list, whose order is that of the columns, got {'a'}"),
        ({"names": [["a"]]}, TypeError, "the name of a feature must be hashable, got ['a']"),
        ({"names": ["a", "b", "a"]}, ValueError, "names must differ from each other, got 'a' more than once"),
    ],
)
def test_bad_arguments(arguments, error, sentence):
    with pytest.raises(error) as refused:
        Schema(**arguments)
    assert str(refused.value) == sentence


def test_an_unknown_column():
    with pytest.raises(KeyError, match="no feature 'b' has been seen; the schema is Schema"):
        Schema(["a"]).column("b")


def test_repr():
    assert repr(Schema(["a", 1])) == "Schema(names=['a', 1], missing='impute')"
    assert repr(Schema(range(12))).startswith("Schema(names=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...], ")


def test_mapping_of_a_row_made_earlier():
    schema = Schema(["a"])
    early = schema.row({"a": 1.0})
    schema.row({"b": 2.0})
    assert schema.mapping(early) == {"a": 1.0}
    assert schema.mapping([3.0, 4.0]) == {"a": 3.0, "b": 4.0}
    for row in ([1.0, 2.0, 3.0], [[1.0]]):
        with pytest.raises(ValueError, match="a row has at most 2 values, got an array of shape"):
            schema.mapping(row)


def test_saved_names_keep_their_type():
    schema = Schema(["a", 3, np.int64(4), np.str_("b")], missing="error")
    state = json.loads(json.dumps(schema.to_dict()))
    restored = Schema.from_dict(state)
    assert restored == schema
    assert [type(name) for name in restored.names] == [str, int, int, str]


@pytest.mark.parametrize("name", [("a", "b"), 1.5, None, True, b"a"])
def test_names_that_json_would_change_are_not_saved(name):
    with pytest.raises(TypeError) as refused:
        Schema([name]).to_dict()
    assert str(refused.value) == (
        f"feature {name!r} ({type(name).__name__}) cannot be saved: only text and integers survive as names; "
        "rename it, for example to str(name)"
    )


def test_a_saved_schema_must_be_whole():
    with pytest.raises(ValueError, match=r"a saved schema holds 'names' and 'missing', got \['names'\]"):
        Schema.from_dict({"names": []})


def test_copies_are_independent():
    schema = Schema(["a"])
    for twin in (copy.deepcopy(schema), copy.copy(schema), pickle.loads(pickle.dumps(schema))):
        twin.row({"b": 1.0})
        assert schema.names == ("a",)
        assert twin.names == ("a", "b")
    assert schema != 3


def test_frames_are_not_imported_until_given():
    code = "import sys, streamclust.schema; print({'pandas', 'polars', 'pyarrow'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


# -------------------------------------------------------------------- names


@pytest.mark.parametrize("missing", ["impute", "error"])
@pytest.mark.parametrize("known", [(), ("x",)])
def test_a_name_of_thousands_of_characters_is_refused(missing, known):
    long, schema = "n" * (MAX_NAME_LENGTH + 1), Schema(known, missing)
    with pytest.raises(ValueError, match=f"at most {MAX_NAME_LENGTH} characters") as error:
        schema.row({"x": 1.0, long: 2.0})
    assert len(str(error.value)) < 200
    if missing == "impute":
        with pytest.raises(ValueError, match=f"at most {MAX_NAME_LENGTH} characters"):
            schema.table(pd.DataFrame({"x": [1.0], long: [2.0]}))
    assert schema.names == known


def test_a_name_of_hundreds_is_one():
    assert Schema().row({"n" * MAX_NAME_LENGTH: 1.0}).tolist() == [1.0]
    long = "n" * (MAX_NAME_LENGTH + 1)
    assert Schema(["x"]).row({"x": 1.0, long: 2.0}, extend=False).tolist() == [1.0]
