"""DP-means on points, leaves and streams; penalties; bad input."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from streamclust.moments import Moments
from streamclust.refit.dp_means import dp_means_steps, fit_points, fit_rows, refit
from streamclust.refit.dp_online import OnlineDPMeans
from streamclust.refit.penalties import penalty_for_clusters
from streamclust.tree import SummaryTree
from tests.streams import clustered


@pytest.fixture
def blobs():
    """Five clusters of deviation 1, some 20 apart."""
    rng = np.random.default_rng(3)
    centres = 20.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 2]])
    labels = rng.integers(5, size=400)
    return centres[labels] + rng.normal(size=(400, 2)), labels


@pytest.mark.parametrize("collapsed", [False, True])
@pytest.mark.parametrize("splits", [False, True])
def test_finds_the_clusters_that_a_split_would_not_improve(blobs, collapsed, splits):
    x, truth = blobs
    found = fit_points(x, 150.0 if splits else 64.0, collapsed=collapsed, splits=splits)
    assert found.n_clusters == 5
    assert adjusted_rand_score(truth, found.labels) == 1.0
    np.testing.assert_array_equal(found.assign(x), found.labels)
    assert found.cost(x) == pytest.approx(found.objective)
    assert np.all(np.diff(found.clusters.weight) <= 0)
    for c in range(5):
        np.testing.assert_allclose(found.means[c], x[found.labels == c].mean(axis=0))


def test_collapsed_moves_lower_what_plain_passes_leave():
    x, _ = clustered(300, 3, k=8, seed=1, spread=2.0)
    plain = fit_points(x, penalty=12.0)
    moments = Moments.rows_of_points(x)
    lower = fit_rows(moments, 12.0, start=plain, collapsed=True)
    assert lower.objective < plain.objective


def test_splits_minimise_the_objective_itself(blobs):
    x, _ = blobs
    assert fit_points(x, 30.0, splits=True, restarts=1).objective < fit_points(x, 30.0, restarts=1).objective


def test_one_start_keeps_the_radius_whatever_the_number_of_points(blobs):
    x, _ = blobs
    ten_times = np.repeat(x, 10, axis=0) + 1e-3 * np.random.default_rng(0).normal(size=(4000, 2))
    few, many = (fit_points(points, 150.0, restarts=1).n_clusters for points in (x, ten_times))
    assert few == many == 5


def test_weights_count_as_repeated_points(blobs):
    x, _ = blobs
    times = np.random.default_rng(0).integers(1, 4, size=400)
    weighted = fit_points(x, 300.0, weight=times.astype(float), restarts=1)
    repeated = fit_points(np.repeat(x, times, axis=0), 300.0, restarts=1)
    np.testing.assert_array_equal(np.repeat(weighted.labels, times), repeated.labels)
    assert weighted.objective == pytest.approx(repeated.objective)


@pytest.mark.compiled
def test_many_points_are_started_on_some():
    x, _ = clustered(30_000, 2, k=5, seed=3, spread=20.0)
    steps = list(dp_means_steps(Moments.rows_of_points(x), 30_000.0, restarts=3, splits=True))
    assert {s.run for s in steps} == {"start 0", "start 1", "start 2", "all rows"}
    assert steps[-1].partition.labels.shape == (30_000,)
    assert steps[-1].n_clusters == 5


@pytest.mark.compiled
def test_leaves_of_a_tree_find_what_the_points_do():
    x, truth = clustered(20_000, 3, k=6, seed=0, spread=15.0)
    tree = SummaryTree(3, max_leaves=256)
    tree.insert(x)
    penalty = 20_000.0
    leaves, points = refit(tree, penalty, splits=True), fit_points(x, penalty, splits=True)
    assert leaves.n_clusters == points.n_clusters == 6
    assert leaves.objective <= points.objective * 1.01
    assert leaves.cost(x) <= points.objective * 1.01
    assert adjusted_rand_score(truth, leaves.assign(x)) > 0.99
    warm = refit(tree, penalty, start=leaves, splits=True)
    assert warm.objective <= leaves.objective * (1 + 1e-12)


@pytest.mark.compiled
def test_online_stays_bounded_and_a_refit_settles_it():
    """Thirty orders of one stream: K differs; after a refit of the leaves it is that of the batch."""
    x, _ = clustered(3000, 2, k=6, seed=4, spread=12.0)
    penalty = 60.0
    batch = fit_points(x, penalty, restarts=1)
    for order in range(30):
        y = x[np.random.default_rng(order).permutation(3000)]
        online = OnlineDPMeans(2, penalty)
        online.learn(y)
        assert online.n_clusters <= 12
        tree = SummaryTree(2, scatter="scalar", max_leaves=512, seed=order)
        tree.insert(y)
        settled = refit(tree, penalty, restarts=1)
        assert settled.cost(x) <= batch.objective * 1.02
        online.settle(settled)
        assert not online.provisional.any()
        assert online.clusters.weight.sum() == pytest.approx(3000)


def test_online_ids_are_issued_once():
    online = OnlineDPMeans(1, 4.0)
    assert online.predict([[1.0]]).tolist() == [-1]
    assert online.learn([[0.0], [10.0]]).tolist() == [0, 1]
    found = fit_rows(online.clusters, 4.0)
    assert online.settle(found, [1, None]) == [1, 2]
    assert online.learn([[100.0]]).tolist() == [3]
    assert online.provisional.tolist() == [False, False, True]
    assert online.settle(online.clusters) == [4, 5, 6]
    assert online.predict([[99.0]]).tolist() == [6]


def test_online_growth_is_capped_with_a_warning():
    online = OnlineDPMeans(1, 1.0, max_clusters=3)
    with pytest.warns(RuntimeWarning, match="max_clusters=3"):
        labels = online.learn(10.0 * np.arange(6.0)[:, None])
    assert labels.tolist() == [0, 1, 2, 2, 2, 2]
    assert online.clusters.weight.sum() == 6


# ---------------------------------------------------------------- penalties


def test_penalty_is_the_distance_of_the_kth_pick():
    x = np.array([[0.0], [1.0], [10.0], [12.0]])
    rows = Moments.rows_of_points(x)
    mean = x.mean()
    assert penalty_for_clusters(rows, 1) == (12 - mean) ** 2
    assert fit_points(x, n_clusters_hint=2).penalty == penalty_for_clusters(rows, 2) == mean**2
    # More clusters than places: each place may have one.
    assert fit_points(np.repeat(x, 3, axis=0), n_clusters_hint=9, restarts=1).n_clusters == 4


def test_rough_k_on_leaves_gives_about_k(blobs):
    x, _ = blobs
    tree = SummaryTree(2, scatter="scalar", max_leaves=64)
    tree.insert(x)
    assert 3 <= refit(tree, n_clusters_hint=5).n_clusters <= 7


@pytest.mark.parametrize("penalty", [0, -1.0, np.nan, np.inf, "much", None])
def test_penalties_that_cannot_be(penalty):
    if penalty is None:
        assert fit_points(np.arange(6.0)[:, None]).penalty > 0
        return
    with pytest.raises(ValueError, match=r"penalty .* must be positive and finite"):
        fit_points(np.arange(6.0)[:, None], penalty)
    with pytest.raises(ValueError, match=r"penalty .* must be positive and finite"):
        OnlineDPMeans(1, penalty)


def test_huge_penalty_is_one_cluster(blobs):
    x, _ = blobs
    found = fit_points(x, 1e300)
    assert found.n_clusters == 1
    assert found.objective == pytest.approx(((x - x.mean(axis=0)) ** 2).sum())


def test_tiny_penalty_gives_each_place_a_cluster_and_the_cap_warns():
    x = np.repeat(np.arange(40.0)[:, None], 2, axis=0)
    found = fit_points(x, 1e-6)
    assert found.n_clusters == 40
    assert found.objective == pytest.approx(39e-6)
    with pytest.warns(RuntimeWarning, match="max_clusters=7"):
        assert fit_points(x, 1e-6, max_clusters=7).n_clusters == 7
    with pytest.warns(RuntimeWarning, match="max_clusters=7"):
        assert fit_points(x, 1e-6, max_clusters=7, collapsed=True, splits=True).n_clusters == 7


@pytest.mark.parametrize("collapsed", [False, True])
def test_one_point_and_equal_points(collapsed):
    assert fit_points([[3.0, 4.0]], 1.0, collapsed=collapsed).labels.tolist() == [0]
    equal = fit_points(np.full((20, 3), 7.0), collapsed=collapsed, splits=True)
    assert equal.n_clusters == 1
    assert equal.objective == 0.0


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 1e8), (1e-8, 0.0), (1e6, -1e8)])
def test_any_distance_from_the_origin_and_any_scale(blobs, scale, offset):
    x, truth = blobs
    found = fit_points(x * scale + offset, 300.0 * scale**2, splits=True)
    assert adjusted_rand_score(truth, found.labels) == 1.0
    assert found.objective == pytest.approx(fit_points(x, 300.0, splits=True).objective * scale**2, rel=1e-6)


def test_bad_rows_are_named(blobs):
    x, _ = blobs
    with pytest.raises(ValueError, match="finite"):
        fit_points([[1.0], [np.nan]], 1.0)
    with pytest.raises(ValueError, match="no rows of any weight"):
        fit_points(x, 1.0, weight=np.zeros(400))
    with pytest.raises(ValueError, match="no rows of any weight"):
        fit_points(np.empty((0, 2)), 1.0)
    with pytest.raises(ValueError, match="start must be means of 2 features"):
        fit_rows(Moments.rows_of_points(x), 1.0, start=np.zeros((2, 3)))
    for name in ("restarts", "max_clusters", "n_clusters_hint"):
        for value in (0, 1.5, True):
            with pytest.raises(ValueError, match=f"{name} must be a whole number"):
                fit_points(x, **{name: value})
    online = OnlineDPMeans(2, 1.0)
    for rows, message in (([[1.0]], "2 columns"), ([[1.0, np.inf]], "finite")):
        with pytest.raises(ValueError, match=message):
            online.learn(rows)
    with pytest.raises(ValueError, match="not negative"):
        online.learn([[1.0, 2.0]], weight=[-1.0])
    with pytest.raises(ValueError, match="must have 2 features"):
        online.settle(Moments.empty(1, 3, "scalar"))
    online.learn([[0.0, 0.0], [9.0, 9.0]])
    for ids in ([1], [4, 4]):
        with pytest.raises(ValueError, match="ids"):
            online.settle(online.clusters, ids)


def test_rows_of_no_weight_get_the_nearest_cluster(blobs):
    x, truth = blobs
    weight = np.ones(400)
    weight[:50] = 0.0
    found = fit_points(x, 64.0, weight=weight)
    assert found.clusters.weight.sum() == 350
    assert adjusted_rand_score(truth, found.labels) == 1.0


def test_a_result_can_be_looked_at(blobs):
    import matplotlib

    matplotlib.use("Agg")
    x, _ = blobs
    found = fit_points(x, 64.0)
    assert "5 clusters of 400 events" in repr(found)
    assert found._repr_html_().count("<tr>") == 6
    assert len(found.to_dict()["clusters"]) == 5
    np.testing.assert_allclose(found.plot().collections[0].get_offsets(), found.means)
