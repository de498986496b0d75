"""Frames with columns of text and dates."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streamclust import StreamClusterer
from streamclust.batch import StreamEstimator
from streamclust.schema.frames import LeftOutColumns
from streamclust.streaming import InvalidValues

FRAME = pd.DataFrame(
    {
        "y": np.arange(60.0) % 7,
        "city": ["Oslo", None] * 30,
        "on": pd.date_range("2026-01-01", periods=60),
        "kind": pd.Categorical(["a", "b"] * 30),
        "x": np.arange(60.0) % 5,
    }
)
KINDS = {"pandas": lambda frame: frame, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}


NO_TABLES = {
    "pandas Series": pd.Series([1.0, 2.0]),
    "polars Series": pl.Series([1.0, 2.0]),
    "polars LazyFrame": pl.LazyFrame({"x": [1.0], "y": [2.0]}),
    "pyarrow RecordBatch": pa.RecordBatch.from_pydict({"x": [1.0], "y": [2.0]}),
    "pyarrow ChunkedArray": pa.chunked_array([[1.0, 2.0]]),
}


@pytest.mark.parametrize("name", NO_TABLES)
@pytest.mark.parametrize("missing", ["impute", "error"])
def test_objects_that_are_no_tables_get_a_sentence(name, missing):
    """One that says what to do, without a chain of other errors."""
    model = StreamClusterer(missing=missing)
    model.learn_one({"x": 1.0, "y": 2.0})
    for method in (model.learn_many, model.check, model.predict_many, model.score_many, model.assign_many):
        with pytest.raises(TypeError, match=f"^a {name} (is|has) .*: ") as raised:
            method(NO_TABLES[name])
        assert raised.value.__cause__ is None
        assert raised.value.__context__ is None
    assert model.n_seen == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_clusterer_leaves_them_out_with_one_warning(kind):
    frame = KINDS[kind](FRAME)
    model = StreamClusterer(feature_order=("y", "x"), categorical=False)
    with pytest.warns(LeftOutColumns, match="left out: 'city', 'on', 'kind'") as told:
        model.learn_many(frame)
    model.learn_many(frame)  # without another warning, which would be an error here
    assert model.check(frame).refused == {}
    assert [warning.filename for warning in told] == [__file__]
    plain = StreamClusterer(feature_order=("y", "x"))
    for _ in range(2):
        plain.learn_many(KINDS[kind](FRAME[["y", "x"]]))
    assert (model.n_seen, model.n_refused, model.feature_names) == (120, 0, ("y", "x"))
    assert model.centers == plain.centers
    assert len(model.predict_many(frame)) == 60


def test_a_feature_that_is_known_stays_one():
    model = StreamClusterer()
    model.learn_many(pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]}))
    with pytest.warns(InvalidValues, match="feature 'y' must be a number"):
        model.learn_many(pd.DataFrame({"x": [1.0, 2.0], "y": ["a", "b"]}))
    assert (model.n_seen, model.n_invalid) == (4, {"y": 2})


def test_the_strict_have_text_refused():
    with pytest.raises(TypeError, match="city"):
        StreamClusterer(invalid="raise").learn_many(FRAME[["x", "city"]].dropna())


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_an_estimator_leaves_them_out(kind):
    frame = KINDS[kind](FRAME)
    with pytest.warns(LeftOutColumns, match="'city', 'on', 'kind'") as told:
        model = StreamEstimator(background=False).fit(frame)
    assert [warning.filename for warning in told] == [__file__]
    assert model.feature_names_in_.tolist() == ["y", "x"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.predict(frame), model.labels_)


def test_features_that_come_together_stand_in_the_order_given(tmp_path):
    model = StreamClusterer(feature_order=["z", "b"])
    model.learn_many([{"a": 1.0, "b": 2.0, "z": 3.0}] * 3)
    assert model.feature_names == ("z", "b", "a")
    model.save(tmp_path / "m")
    again = StreamClusterer.load(tmp_path / "m")
    assert again.feature_order == ["z", "b"]
    assert again.feature_names == ("z", "b", "a")
