"""What a cluster is, against the events themselves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from streamclust import StreamClusterer
from streamclust.engine.feature_profiles import feature_variances
from streamclust.families import FAMILIES
from streamclust.moments import Moments

NAMES = "abcdefgh"
N = 250  # fewer than the summary samples: its figures are those of all events


def events(family, seed=2):
    """Rows of two clusters that differ most in the column before the last; the last is constant."""
    rng, d = np.random.default_rng(seed), len(NAMES)
    kind = rng.integers(2, size=N)
    rows = rng.poisson(6.0, size=(N, d)) * 1.0
    rows[:, -2] = rng.poisson(np.where(kind, 60.0, 2.0))
    if family == "bernoulli":
        rows = (rng.random((N, d)) < np.where(kind, 0.95, 0.05)[:, None]) * 1.0
        rows[:, -2] = kind
    rows[:, -1] = 1.0
    return rows


def taught(family, **options):
    model = StreamClusterer(family, warmup=50, **options)
    rows = events(family)
    model.learn_many([dict(zip(NAMES, row, strict=True)) for row in rows.tolist()])
    model.settle()
    return model, rows


@pytest.mark.parametrize("family", FAMILIES)
def test_a_description_is_that_of_the_clusters_events(family):
    model, rows = taught(family)
    assert model.n_clusters >= 2
    labels = model.predict_many(rows)
    for cluster in model.clusters:
        own = rows[labels == cluster.id]
        found = model.describe(cluster.id)
        assert sorted(f.name for f in found) == list(NAMES)
        assert [f.distance for f in found] == sorted((f.distance for f in found), reverse=True)
        for feature in found:
            column = NAMES.index(feature.name)
            assert feature.mean == pytest.approx(cluster.mean[feature.name])
            assert feature.std == pytest.approx(own[:, column].std(), abs=1e-9)
            assert feature.overall_mean == pytest.approx(rows[:, column].mean())
            assert feature.overall_std == pytest.approx(rows[:, column].std(), abs=1e-9)
            assert 0 <= feature.distance <= 1
            gap = feature.mean - feature.overall_mean
            assert feature.shift == pytest.approx(gap / feature.overall_std if feature.overall_std else 0.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_sets_clusters_apart_comes_first_and_constants_last(family):
    model, _ = taught(family)
    heavy = [cluster.id for cluster in model.clusters[:2]]
    for cluster in heavy:
        found = model.describe(cluster)
        assert found[0].name == NAMES[-2]
        assert found[-1].distance == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("half_life", [None, 40.0])
def test_weights_count(half_life):
    model = StreamClusterer(warmup=10**6, half_life=half_life)
    rng = np.random.default_rng(1)
    rows, weight = rng.normal(size=(N, 2)), rng.uniform(0.5, 2.0, size=N)
    model.learn_many(rows, weight=weight)
    if half_life:
        weight = weight * 2.0 ** (np.arange(N) / half_life)
    mean = np.average(rows, axis=0, weights=weight)
    std = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weight))
    found = sorted(model.describe(0), key=lambda feature: feature.name)
    assert_allclose([f.mean for f in found], mean, rtol=1e-9)
    assert_allclose([f.std for f in found], std, rtol=1e-9)
    assert [f.distance for f in found] == pytest.approx([0, 0])  # everything is one cluster


def test_profiles_stay_as_they_are_while_the_stream_goes_on():
    model, rows = taught("gaussian")
    profiles = model.profiles()
    before = [profiles.describe(i) for i in profiles.ids.tolist()]
    model.learn_many([dict(zip(NAMES, row, strict=True)) for row in (rows + 9).tolist()])
    assert [profiles.describe(i) for i in profiles.ids.tolist()] == before
    assert [model.describe(i) for i in model.model.names.tolist()] != before


def test_a_cluster_that_is_not_there_is_told_with_those_that_are():
    model, _ = taught("gaussian")
    with pytest.raises(KeyError, match=r"no cluster 4711 now; the clusters are \[0"):
        model.describe(4711)
    with pytest.raises(KeyError, match="no cluster 0"):
        StreamClusterer().describe(0)


@pytest.mark.parametrize("kind", ["full", "diagonal", "scalar", "none"])
def test_variances_are_told_as_far_as_the_scatter_does(kind):
    points = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 2.0, 3.0]
    found = feature_variances(Moments.of_points(points, kind=kind))[0]
    exact = points.var(axis=0)
    expected = {"scalar": np.full(3, exact.mean()), "none": np.full(3, np.nan)}.get(kind, exact)
    assert_allclose(found, expected)


def test_the_latest_events_are_those_that_came_last():
    model = StreamClusterer()
    assert model.latest().shape == (0, 0)
    rows = np.random.default_rng(3).normal(size=(300, 2))
    model.learn_many(rows[:150], shard="a")
    model.learn_many(rows[150:], shard="b")
    assert_allclose(model.latest(20), np.concatenate([rows[140:150], rows[290:]]))
    assert len(model.latest(10_000)) == 300
    model.learn_one({0: 1.0, 1: 2.0}, shard="b")
    assert_allclose(model.latest(2)[-1], [1.0, 2.0])  # though it waited to be learnt with others
