"""Encoding of mixed tables: which columns are categories, what becomes of rare, missing and new values."""

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from sklearn.metrics import adjusted_rand_score

from streamclust.batch import BayesianKMeans
from streamclust.schema.encoding import OTHER, Encoding, IdentifierColumns

N = 60


def test_columns_are_told_by_their_values():
    rng = np.random.default_rng(0)
    table = {
        "amount": rng.normal(size=N),
        "count": rng.integers(5, size=N),
        "flag": rng.random(N) < 0.5,
        "half": np.repeat([0.0, 1.0], N // 2),
        "city": ["Oslo", "Rome", None] * (N // 3),
    }
    found = Encoding.of(table)
    assert found.numbers == ("amount", "count")
    assert set(found.categories) == {"flag", "half", "city"}
    assert found.categories["city"] == ("Oslo", "Rome")
    assert Encoding.of(table, categorical=["count", "city"]).categories.keys() == {"count", "city"}
    assert found.rows(table).shape == (N, 2 + 2 + 2 + 2)


def test_ids_and_free_text_are_left_out_with_one_warning():
    table = {
        "x": np.arange(N) * 1.0,
        "id": [f"user-{i}" for i in range(N)],
        "note": [f"text {i}" for i in range(N)],
    }
    with pytest.warns(IdentifierColumns, match="'id', 'note'"):
        found = Encoding.of(table)
    assert found.left_out == ("id", "note")
    assert "id" in Encoding.of(table, categorical=["id"]).categories


def test_rare_values_share_one_and_new_ones_too():
    table = {"x": np.zeros(100), "word": [f"w{i % 7}" for i in range(100)]}
    found = Encoding.of(table, max_categories=4)
    assert found.categories["word"][-1] == OTHER
    assert len(found.categories["word"]) == 4
    rows = found.rows({"x": [0.0, 0.0, 0.0], "word": ["never seen", None, "w0"]})
    assert rows[:, 1:].sum(axis=1).tolist() == [1.0, 0.0, 1.0]
    assert rows[0, -1] == 1.0


def test_what_is_no_table_is_refused():
    with pytest.raises(ValueError, match="lacks column 'city'"):
        Encoding.of({"x": [1.0], "city": ["Oslo"]}).rows({"x": [1.0]})
    with pytest.raises(ValueError, match="'town'"):
        Encoding.of({"x": [1.0]}, categorical=["town"])
    with pytest.raises(TypeError, match="string or a number"):
        Encoding.of({"x": [1.0], "city": [{"a": 1}]})
    with pytest.raises(ValueError, match="no column"):
        Encoding.of({})


def customers(seed, n=900):
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=n)
    share = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    return kind, {
        "visits": rng.normal(size=n) + 2.5 * kind,
        "spend": rng.normal(size=n) - 2.5 * kind,
        "channel": np.array(["web", "shop", "phone"])[[rng.choice(3, p=share[k]) for k in kind]],
        "newsletter": rng.random(n) < 0.5,
    }


@pytest.mark.compiled
@pytest.mark.parametrize("library", [pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_frames_of_every_library_are_clustered_with_their_categories(library):
    kind, table = customers(0)
    model = BayesianKMeans().fit(library(table))
    assert model.n_clusters_ == 3
    assert adjusted_rand_score(kind, model.labels_) > 0.8
    assert (model.predict(library(table)) == model.labels_).mean() > 0.99
    assert "channel=web" in model.encoding_.names


@pytest.mark.compiled
def test_a_coin_changes_nothing():
    rng = np.random.default_rng(1)
    kind = rng.integers(3, size=900)
    x = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])[kind] + rng.normal(size=(900, 2))
    coins = rng.integers(2, size=(900, 3)).astype(float)
    assert BayesianKMeans().fit(np.hstack([x, coins])).n_clusters_ == 3


def test_numbers_alone_are_clustered_as_before():
    x = np.random.default_rng(2).normal(size=(200, 2))
    model = BayesianKMeans().fit(x)
    assert model.encoding_ is None
    assert (model.labels_ == BayesianKMeans(categorical=False).fit(x).labels_).all()
