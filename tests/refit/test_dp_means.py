"""DP-means on points, leaves and streams; penalties; bad input."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from streamclust.moments import Moments
from streamclust.refit.dp_means.fit import dp_means_steps, fit_points, fit_rows, fit_tree
from streamclust.refit.penalties import penalty_for_clusters
from streamclust.tree import SummaryTree
from tests.naive import mad_bayes as naive
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


@pytest.mark.compiled
def test_planted_sets_beside_the_published_algorithm():
    """Never above it, below it where it misses the planted partition, and more often at the planted K."""
    missed, lower, right, literally_right = 0, 0, 0, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        k, d = int(rng.integers(3, 13)), int(rng.integers(2, 9))
        x, truth = clustered(300, d, k, seed=1000 + seed, spread=5.0)
        k = len(np.unique(truth))
        found, ones = fit_points(x, n_clusters_hint=k), np.ones(len(x))
        labels = naive.dp_means(x, ones, found.penalty)
        literal = naive.dp_objective(x, ones, labels, found.penalty)
        plan = naive.dp_objective(x, ones, truth.tolist(), found.penalty)
        assert found.objective <= literal * (1 + 1e-9)
        missed += literal > plan * (1 + 1e-9)
        lower += literal > plan * (1 + 1e-9) and found.objective < literal * (1 - 1e-9)
        right += found.n_clusters == k
        literally_right += len(set(labels)) == k
    assert missed >= 5
    assert lower > 0.75 * missed
    assert right > literally_right
    assert right >= 35


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
    assert {s.stage for s in steps} == {"in order", "farthest first", "start 1", "start 2", "all rows"}
    assert steps[-1].result.labels.shape == (30_000,)
    assert steps[-1].n_clusters == 5


@pytest.mark.compiled
def test_leaves_of_a_tree_find_what_the_points_do():
    x, truth = clustered(20_000, 3, k=6, seed=0, spread=15.0)
    tree = SummaryTree(3, max_leaves=256)
    tree.insert(x)
    penalty = 20_000.0
    leaves, points = fit_tree(tree, penalty, splits=True), fit_points(x, penalty, splits=True)
    assert leaves.n_clusters == points.n_clusters == 6
    assert leaves.objective <= points.objective * 1.01
    assert leaves.cost(x) <= points.objective * 1.01
    assert adjusted_rand_score(truth, leaves.assign(x)) > 0.99
    warm = fit_tree(tree, penalty, start=leaves, splits=True)
    assert warm.objective <= leaves.objective * (1 + 1e-12)


@pytest.mark.compiled
def test_a_refit_of_the_leaves_is_the_same_in_any_order():
    x, _ = clustered(3000, 2, k=6, seed=4, spread=12.0)
    batch = fit_points(x, 120.0, restarts=1)
    for order in range(10):
        tree = SummaryTree(2, scatter="scalar", max_leaves=512, seed=order)
        tree.insert(x[np.random.default_rng(order).permutation(3000)])
        assert fit_tree(tree, 120.0, restarts=1).cost(x) <= batch.objective * 1.02


# ---------------------------------------------------------------- penalties


def test_penalty_is_the_distance_of_the_kth_pick():
    x = np.array([[0.0], [1.0], [10.0], [12.0]])
    rows = Moments.rows_of_points(x)
    mean = x.mean()
    assert penalty_for_clusters(rows, 1) == pytest.approx((12 - mean) ** 2, rel=1e-5)
    assert fit_points(x, n_clusters_hint=2).penalty == penalty_for_clusters(rows, 2)
    # A hair above it, so that rounding does not decide whether that pick opens a cluster.
    assert mean**2 < penalty_for_clusters(rows, 2) == pytest.approx(mean**2, rel=1e-5)
    # More clusters than places: each place may have one.
    assert fit_points(np.repeat(x, 3, axis=0), n_clusters_hint=9, restarts=1).n_clusters == 4


def test_rough_k_on_leaves_gives_about_k(blobs):
    x, _ = blobs
    tree = SummaryTree(2, scatter="scalar", max_leaves=64)
    tree.insert(x)
    assert 3 <= fit_tree(tree, n_clusters_hint=5).n_clusters <= 7


@pytest.mark.parametrize("penalty", [0, -1.0, np.nan, np.inf, "much", None])
def test_penalties_that_cannot_be(penalty):
    if penalty is None:
        assert fit_points(np.arange(6.0)[:, None]).penalty > 0
        return
    with pytest.raises(ValueError, match=r"penalty .* must be positive and finite"):
        fit_points(np.arange(6.0)[:, None], penalty)


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
