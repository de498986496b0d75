"""Data frames become trees: nothing is lost, whatever the partitions; what cannot be used goes to a side output."""

import numpy as np
import pytest
from pyspark.sql.functions import col, when
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust_connectors.spark import RefusedRows, assign, clusterer_of, summarize, summary
from streamclust_connectors.spark import summaries as module
from tests.naive import tree as naive
from tests.spark.conftest import NAMES

BAD = {
    3: "x is missing or not a number",
    5: "x is missing or not a number",
    70: "y is inf",
    71: "z is -inf",
    200: "x is 1e+200, larger than 1e+120",
}


def assert_total(tree, rows, weights=None):
    weight, mean, scatter = naive.total(rows, np.ones(len(rows)) if weights is None else weights)
    size = float(np.sqrt(np.trace(scatter) / weight))
    assert tree.total.weight[0] == pytest.approx(float(weight), rel=1e-9)
    np.testing.assert_allclose(tree.total.mean[0], mean.astype(float), rtol=0, atol=1e-9 * size)
    np.testing.assert_allclose(
        tree.total.scatter[0], scatter.astype(float), rtol=0, atol=1e-9 * weight * size**2
    )


def with_bad_rows(rows):
    rows = rows.copy()
    rows[3, 0], rows[5, 0], rows[70, 1], rows[71, 2], rows[200, 0] = np.nan, np.nan, np.inf, -np.inf, 1e200
    return rows, np.delete(rows, list(BAD), axis=0)


@pytest.mark.parametrize("order", ["random", "by cluster"])
def test_a_tree_of_partitions_is_as_good_as_one_of_all(frame, points, order, monkeypatch):
    rows, labels = points
    monkeypatch.setattr(module, "MAX_TREES_ON_DRIVER", 2)  # so few partitions pass through reducers, too
    if order == "by cluster":
        rows, labels = rows[np.argsort(labels, kind="stable")], np.sort(labels)
    made = summary(frame(rows, 5), NAMES)
    assert made[1:4] == (len(rows), 0, 5)
    assert_total(made.tree, rows)
    model = clusterer_of(made.tree, NAMES)
    assert model.n_clusters == 4
    assert adjusted_rand_score(labels, model.predict_many(rows)) > 0.99


def test_the_same_seed_and_partitions_give_the_same_tree(frame, points, monkeypatch):
    monkeypatch.setattr(module, "MAX_TREES_ON_DRIVER", 1)
    trees = [summarize(frame(points[0][:3000], 3), NAMES, seed=5, max_leaves=64) for _ in range(2)]
    for (name, a), (_, b) in zip(*(tree.to_arrays().items() for tree in trees), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


def test_partitions_draw_different_random_numbers(frame, points):
    work = module.PartitionWork(("x",), "gaussian", 8, None, 16, False, False, seed=1, salt=0, whole=False)
    assert len({work.empty_tree(part).seed for part in range(50)}) == 50


def test_empty_partitions_and_empty_frames(frame, points):
    rows = points[0][:50]
    made = summary(frame(rows, 1).repartition(4).where("x < 5").repartition(3), NAMES)
    assert_total(made.tree, rows[rows[:, 0] < 5])
    nothing = summary(frame(rows).where("x > 1e9"), NAMES)
    assert nothing[1:] == (0, 0, 0, 0, None)
    assert nothing.tree.n_events == 0


def wide_frame(spark, rows, partitions=3):
    """A data frame of embeddings in one column of arrays, and what makes features of it."""
    slices = spark.sparkContext.parallelize([(row,) for row in rows.tolist()], partitions)
    columns = {f"e{i}": col("embedding")[i] for i in range(rows.shape[1])}
    return spark.createDataFrame(slices, "embedding array<double>", verifySchema=False), columns


def test_partitions_of_wide_rows_share_one_sketch(spark):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=3000)
    rows = rng.normal(size=(3, 70))[labels] + 0.3 * rng.normal(size=(3000, 70))
    rows[17, 3], rows[18] = np.nan, 0.0
    data, columns = wide_frame(spark, rows)
    seen = []
    made = summary(data, columns, scale="unit", refused=lambda bad: seen.extend(bad.collect()))
    assert (made.n_rows, made.n_refused, len(seen)) == (3000, 2, 2)
    assert "no angle" in " ".join(row["refused_because"] for row in seen)
    good = np.delete(np.arange(3000), [17, 18])
    assert_total(made.tree, made.sketch.project(rows[good]))
    model = clusterer_of(made.tree, list(columns), made.sketch)
    assert model.n_clusters == 3
    assert adjusted_rand_score(labels[good], model.predict_many(rows[good]).astype(int)) > 0.99
    again = summarize(data.limit(100), columns, sketch=model.sketch, refused=lambda bad: None)
    model.shards.learn_tree(again, list(columns), "spark", model.sketch)
    assert model.n_seen == 2998 + again.n_events
    found = assign(data, model, columns).select("cluster").toPandas()["cluster"]
    assert found.notna().sum() >= 2998
    with pytest.raises(ValueError, match="give `sketch`"):
        summarize(data, columns)


def test_bad_rows_go_to_a_side_output_with_their_reasons(spark, frame, points, tmp_path):
    rows, good = with_bad_rows(points[0][:500])
    data = frame(rows, 3, name=[f"row {i}" for i in range(500)])
    data = data.withColumn("x", when(col("name") != "row 5", col("x")))  # one is null, the other NaN
    made = summary(data, NAMES, refused=str(tmp_path / "refused"))
    assert (made.n_rows, made.n_refused) == (500, 5)
    assert_total(made.tree, good)
    told = {row["name"]: row.asDict() for row in spark.read.parquet(str(tmp_path / "refused")).collect()}
    assert {name: row["refused_because"] for name, row in told.items()} == {
        f"row {i}": why for i, why in BAD.items()
    }
    assert told["row 70"]["z"] == rows[70, 2]
    assert told["row 200"]["x"] == 1e200


def test_bad_rows_are_told_of_where_nobody_asked_for_them(frame, points):
    rows, good = with_bad_rows(points[0][:500])
    with pytest.warns(RefusedRows, match="5 of 500 rows refused"):
        tree = summarize(frame(rows), NAMES)
    assert_total(tree, good)


def test_weights_times_and_families_refuse_rows_of_their_own(frame):
    rng = np.random.default_rng(0)
    rows, weights = rng.poisson(5.0, size=(300, 2)).astype(float), rng.uniform(1, 3, 300)
    rows[7, 1], weights[9], weights[11] = -1.0, np.nan, -2.0
    seen = []
    data = frame(rows, 2, w=weights.tolist())
    made = summary(
        data, NAMES[:2], family="poisson", weight="w", refused=lambda bad: seen.extend(bad.collect())
    )
    reasons = sorted(row["refused_because"] for row in seen)
    starts = ["every weight must be finite", "poisson data must be counts", "weights must not be negative"]
    assert all(reason.startswith(start) for reason, start in zip(reasons, starts, strict=True))
    good = np.delete(np.arange(300), [7, 9, 11])
    assert made.tree.total.weight[0] == pytest.approx(weights[good].sum(), rel=1e-12)
    timed = summarize(frame(rows[good], 2, t=np.arange(297.0).tolist()), NAMES[:2], time="t", half_life=50.0)
    expected = naive.forward_weights(np.ones(297), np.arange(297.0), 50.0)
    assert_total(timed, rows[good], expected)


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ("x", {}, "columns must be a list of names, got the text 'x'"),
        ([], {}, "columns must name at least one feature"),
        (["x", "x"], {}, "columns must be distinct"),
        (["x", "who"], {}, "there is no column 'who'; the columns are x, y, z, name"),
        (["x", "name"], {}, "column 'name' is not numeric but string"),
        (["x"], {"half_life": 3.0}, "half_life needs `time`"),
        (["x"], {"max_leaves": 0}, "max_leaves must be a whole number, at least 1"),
        (["x"], {"weight": "name"}, "column 'name' is not numeric"),
    ],
)
def test_what_cannot_be_summarised_is_refused_before_anything_runs(frame, columns, options, told):
    data = frame(np.zeros((2, 3)), 1, name=["a", "b"])
    with pytest.raises((TypeError, ValueError), match=told):
        summarize(data, columns, **options)


def test_features_may_be_computed(frame, points):
    rows = points[0][:400]
    tree = summarize(frame(rows), {"twice": col("x") * 2, "y": col("y")})
    np.testing.assert_allclose(tree.total.mean[0], [2 * rows[:, 0].mean(), rows[:, 1].mean()], rtol=1e-9)


# -------------------------------------------------------------------- assigning


@pytest.fixture(scope="module")
def model(points):
    model = StreamClusterer(seed=1)
    model.learn_many([dict(zip(NAMES, row, strict=True)) for row in points[0][:3000].tolist()])
    model.settle()
    return model


def test_assigned_rows_are_what_the_model_says(frame, points, model):
    rows = points[0][3000:3500].copy()
    rows[5, 1] = np.nan
    found = assign(frame(rows, 3, number=range(500)), model).orderBy("number").toPandas()
    whole = np.arange(500) != 5
    for some in (whole, ~whole):
        expected = model.model.assign(rows[some])
        np.testing.assert_array_equal(found["cluster"][some], expected.cluster)
        np.testing.assert_allclose(found["probability"][some], expected.probability, rtol=1e-9)
        np.testing.assert_allclose(found["novelty"][some], expected.novelty, rtol=1e-9)
    assert list(found.columns) == [*NAMES, "number", "cluster", "probability", "novelty"]


def test_a_cluster_of_several_components_is_assigned_as_one(frame):
    """Two moons in a data frame, each of several components."""
    rows, moon = make_moons(3000, noise=0.07, random_state=0)
    data = frame(rows, 3, moon=moon.tolist())
    joined = clusterer_of(summarize(data, NAMES[:2]), NAMES[:2])
    assert joined.n_clusters == 2 < joined.model.result.n_clusters
    found = assign(data, joined).toPandas()
    assert adjusted_rand_score(found["moon"], found["cluster"]) > 0.95
    assert set(found["cluster"]) == set(joined.model.names.tolist())
    assert found["probability"].min() > 0.5


def test_rows_that_are_no_points_are_assigned_to_nothing(frame, points, model):
    rows = points[0][:20].copy()
    rows[4, 0] = np.inf
    published = model.model
    found = assign(frame(rows), published, NAMES, into=("id", "p", "strange")).toPandas()
    assert found["id"].isna().to_numpy().tolist() == [i == 4 for i in range(20)]
    assert found["strange"].isna().sum() == 1


def test_a_model_that_does_not_fit_is_refused(frame, points, model):
    data = frame(points[0][:4], 1)
    with pytest.raises(ValueError, match="the clusterer has no clusters"):
        assign(data, StreamClusterer())
    with pytest.raises(ValueError, match="give `columns` in its order"):
        assign(data, model.model)
    with pytest.raises(ValueError, match="the model has 3 features, got 2 columns"):
        assign(data, model, ["x", "y"])
    with pytest.raises(ValueError, match=r"already has \['x'\]"):
        assign(data, model, into=("x", "p", "n"))
