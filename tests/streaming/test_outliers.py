"""Streams with a few wild values: clusters, pictures and hierarchies are those of the other events."""

import numpy as np
import pytest

from streamclust import StreamClusterer

pytestmark = pytest.mark.compiled

CENTRES = np.array([[0, 0], [12, 0], [0, 12], [12, 12], [24, 6]], float)
N = 12_000


def events(n=N, d=2, seed=0):
    rng = np.random.default_rng(seed)
    centres = CENTRES if d == 2 else 4.0 * np.random.default_rng(7).normal(size=(5, d))
    if d == 1:
        centres = 12.0 * np.arange(5.0)[:, None]
    label = rng.integers(5, size=n)
    return centres[label] + rng.normal(size=(n, d)), label


def assert_finds_five(x, label, weight=None, **parameters):
    model = StreamClusterer(**parameters)
    model.learn_many(x, weight)
    model.settle()
    assert model.n_failed_refits == 0
    assert model.n_clusters == 5
    ordinary = np.abs(x).max(axis=1) < 1e3
    found = np.asarray(model.predict_many(x[ordinary]))
    common = sum(np.bincount(label[ordinary][found == c]).max() for c in set(found))
    assert common > 0.99 * ordinary.sum()
    return model


@pytest.mark.parametrize("value", [1e7, -1e9, 1e30, 1e119])
@pytest.mark.parametrize("at", [0, 5, N // 2])
def test_one_wild_value(value, at):
    x, label = events()
    x[at, 0] = value
    model = assert_finds_five(x, label)
    assert model.score_one(dict(enumerate(x[at]))) > 100 * model.score_one(dict(enumerate(x[at + 1])))


@pytest.mark.parametrize(
    "parameters",
    [
        {"family": "diagonal"},
        {"family": "spherical"},
        {"refit": "chunky-em"},
        {"refit": "dp-means"},
        {"half_life": 3000},
        {"max_leaves": 32},
    ],
    ids=str,
)
def test_wild_values_of_all_sizes(parameters):
    x, label = events()
    for i, row in enumerate(range(0, N, 1000)):
        x[row, i % 2] = (-1) ** i * 10.0 ** (6 + 9 * i)
    assert_finds_five(x, label, **parameters)


@pytest.mark.parametrize("d", [1, 8, 100])
@pytest.mark.parametrize("at", [3, N // 2])
def test_few_and_many_features(d, at):
    x, label = events(d=d)
    x[at, 0] = 1e9
    assert_finds_five(x, label)


def test_a_group_of_five_does_no_harm():
    x, _ = events(40_000)
    x[500::2000, 0] = 1e9 + np.arange(20)
    model = StreamClusterer()
    model.learn_many(x)
    model.settle()
    assert model.n_clusters in (5, 6)
    assert len({model.predict_one({0: float(a), 1: float(b)}) for a, b in CENTRES}) == 5


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_a_group_of_twelve_is_one_more_cluster(apart):
    x, label = events()
    x[500::1000, 0] = 1e9 + apart * np.arange(12)
    label[500::1000] = 5
    model = StreamClusterer(background=False)
    model.learn_many(x)
    model.settle()
    assert model.n_clusters == 6
    found = np.asarray(model.predict_many(x))
    assert sum(np.bincount(label[found == c]).max() for c in set(found)) > 0.99 * len(x)


@pytest.mark.parametrize("refit", ["bkm", "dp-means", "chunky-em"])
def test_a_wild_value_of_a_constant_feature(refit):
    """Spherical clusters have one scale for all features."""
    x, label = events()
    x = np.column_stack([x, np.full(N, -2.0)])
    x[N // 2, 2] = 1e9
    model = StreamClusterer(family="spherical", refit=refit)
    model.learn_many(x)
    model.settle()
    found = np.asarray(model.predict_many(x))
    assert sum(np.bincount(label[found == c]).max() for c in set(found)) > 0.99 * N
    assert model.n_clusters == 5 or refit == "chunky-em"  # it takes three features to vary alike


def test_units_do_not_matter():
    x, _ = events()
    x[[7, 5000], [0, 1]] = 1e9, -1e12
    for scale, shift in ((1e-6, 0.0), (1e5, 1e8)):
        y = x * scale + shift
        model = StreamClusterer()
        model.learn_many(y)
        model.settle()
        assert model.n_clusters == 5


@pytest.mark.parametrize("method", ["rbhc", "abc", "bhc"])
@pytest.mark.parametrize("n", [3, 20, 600])
@pytest.mark.parametrize("count", [1, 8])
def test_snapshots_of_wild_events(method, n, count):
    x, _ = events(n)
    x[: min(count, n - 1), 0] = 1e119 * (1.0 - 0.1 * np.arange(min(count, n - 1)))
    model = StreamClusterer()
    model.learn_many(x)
    model.settle()
    for consistent in (True, False):
        tree = model.snapshot(method=method, consistent=consistent)
        assert np.isfinite(tree.drawn_height).all()


def test_pictures_show_the_clusters():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    x, _ = events(3000)
    x[1500, 0] = 1e119
    model = StreamClusterer()
    model.learn_many(x)
    for ax in (model.plot(), model.tree.plot()):
        assert max(map(abs, (*ax.get_xlim(), *ax.get_ylim()))) < 100
    assert np.abs(model.view().leaves.mean).max() < 100


@pytest.mark.parametrize("refit", ["bkm", "dp-means"])
@pytest.mark.parametrize("seed", [1, 2])
def test_heavy_tailed_weights(refit, seed):
    x, label = events(5000, seed=seed)
    weight = np.random.default_rng([seed, 1]).pareto(1.0, len(x))
    model = assert_finds_five(x, label, weight, refit=refit)
    assert sum(c.weight for c in model.clusters) == pytest.approx(weight.sum())


def test_a_sketch_is_not_left_for_a_few_wild_events():
    x, label = events(d=100)
    x[2000::1000, 0] = 10.0 ** (6 + 3 * np.arange(10))
    model = assert_finds_five(x, label)
    assert model.residual_growth < 2.0


def test_events_outside_every_cluster_are_minus_one_on_request():
    x, _ = events(6_000)
    model = StreamClusterer(n_clusters=3)
    model.learn_many(x)
    latest, far = x[-2_000:], np.array([[60.0, 60.0], [-40.0, 6.0]])
    before = model.predict_many(latest)
    assert (before >= 0).all()
    assert model.predict_one({0: 60.0, 1: 60.0}) in set(before)
    model.outliers = 0.01
    assert model.predict_many(far).tolist() == [-1, -1] == model.predict_many(far, level="fine").tolist()
    assert model.assign_many(far).cluster.tolist() == [-1, -1]
    assert model.predict_one({0: 60.0, 1: 60.0}) is None
    assert model.predict_one({0: 0.0, 1: 0.0}) is not None
    inside = model.predict_many(latest)
    outside = inside == -1
    assert 0.0 < outside.mean() < 0.03
    np.testing.assert_array_equal(outside, model.tail_many(latest) < 0.01)
    np.testing.assert_array_equal(inside[~outside], before[~outside])
    again = StreamClusterer.from_state(model.to_state())
    assert again.outliers == 0.01
    np.testing.assert_array_equal(again.predict_many(latest), inside)
    model.outliers = None
    np.testing.assert_array_equal(model.predict_many(latest), before)
    model.outliers = 0.01
    assert model.predict_many([{"unknown": 1.0}]).tolist() == [None]


@pytest.mark.parametrize("share", [0, 1, -0.1, 2.0, True, "few"])
def test_a_share_of_outliers_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="outliers must be a share of events above 0 and below 1"):
        StreamClusterer(outliers=share)
    model = StreamClusterer()
    with pytest.raises(ValueError, match="outliers must be a share"):
        model.outliers = share
    assert model.outliers is None
