"""DP-means of a summary tree: the radius it keeps or chooses, and clusters read off the members."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from streamclust.engine.dp_means import NEXT_RADII, RadiusSearch, deviations, penalties, refit_dp_means
from streamclust.refit.bkm.fit import sampled_problem
from streamclust.tree import SummaryTree
from tests.streams import clustered

pytestmark = pytest.mark.compiled  # thousands of events in each tree

SCATTER = {"gaussian": "full", "diagonal": "diagonal", "spherical": "scalar"}


def grown(rows, family="gaussian", max_leaves=256):
    tree = SummaryTree(rows.shape[1], SCATTER[family], max_leaves)
    tree.insert(rows)
    return tree


@pytest.mark.parametrize("family", SCATTER)
@pytest.mark.parametrize(("d", "k"), [(2, 1), (2, 5), (6, 12)])
def test_planted_clusters_are_found_without_being_told_how_many(family, d, k):
    rows, labels = clustered(6000, d, k=k, seed=11, spread=12.0)
    found = refit_dp_means(family, grown(rows, family))
    assert found.n_clusters == k
    assert adjusted_rand_score(labels, found.assign(rows)) > 0.99
    assert found.clusters.weight.sum() == pytest.approx(6000)
    assert found.clusters.kind == SCATTER[family]


def test_covariances_are_those_of_the_members():
    rows, labels = clustered(4000, 3, k=4, seed=2, spread=15.0)
    found = refit_dp_means("gaussian", grown(rows, max_leaves=512))
    own = found.assign(rows)
    for k in range(4):
        np.testing.assert_allclose(found.clusters.covariance[k], np.cov(rows[own == k].T), atol=0.25)
    assert adjusted_rand_score(labels, own) == 1.0


def test_no_other_radius_on_the_way_has_a_lower_free_energy():
    rows, _ = clustered(3000, 2, k=7, seed=4, spread=6.0)
    tree = grown(rows)
    best = refit_dp_means("gaussian", tree)
    search, unit = RadiusSearch(sampled_problem("gaussian", tree), tree.leaves()), deviations(tree.total)
    tried = list(islice(penalties(search._rows_in(unit)), 6))  # before it may have given up
    assert tried == sorted(tried, reverse=True)
    slack = 1e-9 * abs(best.free_energy)
    for penalty in tried:
        assert search.within(unit * np.sqrt(penalty)).free_energy >= best.free_energy - slack


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), radius=st.floats(1.0, 30.0), k=st.integers(1, 8))
def test_a_given_radius_holds_every_leaf(seed, radius, k):
    rows, _ = clustered(2500, 2, k=k, seed=seed, spread=8.0)
    tree = grown(rows)
    found = refit_dp_means("gaussian", tree, penalty=radius**2)
    np.testing.assert_array_equal(found.radius, [radius, radius])
    leaves = tree.leaves()
    gaps = ((leaves.mean[:, None] - found.clusters.mean) ** 2).sum(axis=2)
    np.testing.assert_array_equal(found.labels, gaps.argmin(axis=1))
    # Means are of sampled events, leaves' means of all of theirs: a little slack. Outliers have no cluster.
    far = gaps.min(axis=1) > (1.1 * radius + 0.5) ** 2
    assert leaves.weight[far].sum() <= 0.01 * 2500


@settings(max_examples=10, deadline=None)
@given(powers=st.lists(st.integers(-20, 20), min_size=3, max_size=3), seed=st.integers(0, 100))
def test_units_of_the_features_do_not_matter(powers, seed):
    rows, _ = clustered(2000, 3, k=5, seed=seed, spread=8.0)
    scale = 2.0 ** np.array(powers)
    one, other = refit_dp_means("gaussian", grown(rows)), refit_dp_means("gaussian", grown(rows * scale))
    assert one.n_clusters == other.n_clusters
    np.testing.assert_array_equal(one.assign(rows), other.assign(rows * scale))


def test_a_warm_refit_keeps_about_its_radius_and_its_clusters():
    rows, _ = clustered(8000, 2, k=6, seed=5, spread=9.0)
    before = refit_dp_means("gaussian", grown(rows[:4000]))
    after = refit_dp_means("gaussian", grown(rows), before)
    assert any(np.array_equal(after.radius, step * before.radius) for step in NEXT_RADII)
    assert after.n_clusters == before.n_clusters
    assert adjusted_rand_score(before.assign(rows), after.assign(rows)) > 0.98


def test_a_single_outlier_is_no_cluster():
    rows, _ = clustered(3000, 2, k=3, seed=1, spread=9.0)
    rows = np.concatenate([rows, [[500.0, 500.0], [-700.0, 0.0]]])
    assert refit_dp_means("gaussian", grown(rows), penalty=64.0).n_clusters == 3


@pytest.mark.parametrize("rows", [[[3.0, 4.0]], [[1.0, 2.0]] * 40, [[0.0, 0.0], [1.0, 0.0], [9.0, 9.0]]])
def test_hardly_any_data(rows):
    found = refit_dp_means("gaussian", grown(np.array(rows)))
    assert found.n_clusters >= 1
    assert found.clusters.weight.sum() == pytest.approx(len(rows))
    assert np.isfinite(found.log_predictive(np.array([[2.0, 2.0]]))).all()


@pytest.mark.parametrize("penalty", [0.0, -1.0, np.nan, np.inf])
def test_radii_that_cannot_be(penalty):
    with pytest.raises(ValueError, match="must be positive and finite"):
        refit_dp_means("gaussian", grown(np.eye(2)), penalty=penalty)
    with pytest.raises(ValueError, match="no data"):
        refit_dp_means("gaussian", SummaryTree(2))
