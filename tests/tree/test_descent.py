"""Ownership by example: the paper's misprint, awkward clusters, trees that learn on."""

import numpy as np
import pytest

from streamclust.families import Gaussian
from streamclust.families.cost_form import Linear, Quadratic
from streamclust.moments import Moments
from streamclust.tree import SummaryTree
from streamclust.tree.descent import BOUNDS, own
from streamclust.tree.label import fastest, tree_pays
from tests.naive import descent as naive
from tests.streams import SPLITS, clustered

every_bound = pytest.mark.parametrize("bound", BOUNDS)


def spheres(centre, precision, offset):
    """Spherical costs offset + precision ‖x - centre‖²."""
    centre = np.asarray(centre, dtype=float)
    root = np.sqrt(np.asarray(precision, dtype=float))[:, None, None] * np.eye(centre.shape[1])
    return Quadratic(centre, root, np.asarray(offset, dtype=float))


def exact(rows, split="principal", leaf_size=16, scatter="full"):
    tree = SummaryTree(rows.shape[1], scatter=scatter, max_leaves=None, split=split, leaf_size=leaf_size)
    tree.insert(rows)
    return tree


def separated(n=2000, d=2, k=4):
    x, z = clustered(n, d, k=k, seed=3)
    family = Gaussian.informed(x)
    return x, family.cost_form(family.posterior(Moments.rows_of_points(x).to_groups(z, k, kind="full")))


@every_bound
@pytest.mark.parametrize("split", SPLITS)
def test_the_printed_bound_mislabels_and_ours_does_not(bound, split):
    """A thin box beside a tight cluster: its centre is within the box's range in one feature only (erratum 4)."""
    rng = np.random.default_rng(0)
    box = np.column_stack([np.linspace(-10, 10, 401), rng.uniform(1.0, 1.2, size=401)])
    tight, broad = spheres([[0.0, 0.0], [0.0, 0.0]], [1.0, 0.01], [0.0, 3.0]), 1
    lo, hi = box.min(axis=0), box.max(axis=0)
    least = naive.printed_lower_bound(lo, hi, tight.centre[0], 1.0, 0.0)
    most = naive.printed_upper_bound(lo, hi, tight.centre[1], 0.01, 3.0)
    truth = naive.labels(box, tight)
    assert most < least, "by the printed bounds the broad cluster owns the box"
    assert np.any(truth != broad), "yet some of its points are the tight cluster's"
    tree = exact(box, split)
    np.testing.assert_array_equal(own(tree, tight, bound).labels, naive.labels(tree.sample()[0], tight))


@every_bound
def test_a_tight_cluster_inside_a_broad_one(bound):
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=(3000, 2)) * 10, rng.normal(size=(300, 2)) * 0.01 + [3.0, -2.0]])
    form = spheres([[0.0, 0.0], [3.0, -2.0]], [0.005, 5000.0], [4.6, -9.2])
    tree = exact(x)
    ownership = own(tree, form, bound)
    np.testing.assert_array_equal(ownership.labels, naive.labels(tree.sample()[0], form))
    assert 300 <= ownership.moments.weight[1] <= 310


@every_bound
def test_one_cluster_owns_the_root(bound):
    x, form = separated(k=1)
    ownership = own(exact(x), form, bound)
    assert ownership.owned.tolist() == [0]
    np.testing.assert_allclose(ownership.moments.scatter[0], Moments.of_points(x).scatter[0], rtol=1e-9)


@pytest.mark.compiled
@every_bound
def test_whole_nodes_are_owned_where_clusters_are_apart(bound):
    x, form = separated(20_000)
    ownership = own(exact(x), form, bound)
    assert len(ownership.owned) + len(ownership.single) < len(x) / 5


def test_clusters_of_infinite_offset_own_nothing():
    x, form = separated()
    form = form._replace(offset=np.where(np.arange(4) == 2, np.inf, form.offset))
    moments = own(exact(x), form).moments
    assert moments.weight[2] == 0
    assert moments.weight.sum() == pytest.approx(len(x))
    nobody = own(exact(x), form._replace(offset=np.full(4, np.inf)))
    assert nobody.moments.weight.tolist() == [len(x), 0, 0, 0]


def test_equal_clusters_go_to_the_first():
    x, form = separated(k=1)
    twice = Quadratic(*(np.concatenate([part, part]) for part in form))
    assert own(exact(x), twice).moments.weight.tolist() == [len(x), 0]
    flat = Linear(np.zeros((3, 2)), np.zeros(3))
    assert own(exact(x), flat).moments.weight.tolist() == [len(x), 0, 0]


def test_far_from_the_origin_no_digit_is_lost():
    x, form = separated()
    # moving by a power of two times whole numbers is exact for points rounded to 1/1024
    x, centre = np.round(x * 1024) / 1024, np.round(form.centre * 1024) / 1024
    near, far = exact(x), exact(x + 2.0**27)
    here = own(near, form._replace(centre=centre))
    there = own(far, form._replace(centre=centre + 2.0**27))
    np.testing.assert_array_equal(here.labels, there.labels)
    np.testing.assert_allclose(there.moments.scatter, here.moments.scatter, rtol=1e-9)


def test_moments_of_points_far_from_a_broad_clusters_centre():
    """Summed about the cluster's own centre these lose every digit: they are summed again, about their mean."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(500, 2)) * 1e-4 + [1e5, -1e5]
    form = spheres([[0.0, 0.0]], [1e-12], [0.0])
    moments = own(exact(x), form, assign="points").moments
    (_, mean, scatter), *_ = naive.cluster_moments(x, np.ones(500), np.zeros(500, dtype=int), 1)
    np.testing.assert_allclose(moments.mean[0], mean.astype(float), rtol=1e-15)
    np.testing.assert_allclose(
        moments.scatter[0], scatter.astype(float), rtol=1e-9, atol=1e-9 * np.trace(scatter)
    )


def test_values_so_large_that_costs_overflow():
    x = np.array([[1e119, 1.0], [-1e119, 2.0], [0.0, 0.0], [1e100, 3.0]])
    form = spheres([[0.0, 0.0], [1e119, 0.0]], [1e100, 1e100], [0.0, 0.0])
    tree = exact(x, leaf_size=2)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(own(tree, form).labels, naive.labels(tree.sample()[0], form))


def test_an_empty_tree_owns_nothing():
    form = spheres([[0.0, 0.0], [1.0, 1.0]], [1.0, 1.0], [0.0, 0.0])
    ownership = own(SummaryTree(2, max_leaves=None), form)
    assert ownership.moments.weight.tolist() == [0, 0]
    assert ownership.labels.tolist() == []


def test_the_layout_follows_the_tree():
    x, form = separated()
    tree = exact(x[:1000])
    before = own(tree, form)
    tree.insert(x[1000:])
    after = own(tree, form)
    assert before.moments.weight.sum() == pytest.approx(1000)
    assert after.moments.weight.sum() == pytest.approx(2000)
    np.testing.assert_array_equal(after.labels, naive.labels(tree.sample()[0], form))
    with pytest.raises(ValueError, match="learnt since"):
        before.predict(x)


def test_bounded_leaves_go_whole_to_the_cheapest():
    x, form = separated(5000)
    tree = SummaryTree(2, max_leaves=12)
    tree.insert(x)
    ownership = own(tree, form)
    assert ownership.single.size == 0
    cheapest = form.cost(tree.leaves()).argmin(axis=1)
    expected = tree.leaves().to_groups(cheapest, 4)
    np.testing.assert_allclose(ownership.moments.weight, expected.weight, rtol=1e-12)
    np.testing.assert_allclose(ownership.moments.scatter, expected.scatter, rtol=1e-9, atol=1e-9)
    assert ownership.cost == pytest.approx(np.trace(form.cost(expected)), rel=1e-9)


def test_auto_prefers_the_tree_in_few_features():
    assert tree_pays(100_000, 2, 5)
    assert not tree_pays(100_000, 16, 5)
    assert not tree_pays(10, 2, 2)
    assert tree_pays(100_000, 8, 5, linear=True)
    assert [fastest(100_000, d, 5) for d in (2, 8, 64)] == ["tree", "points", "blas"]


def test_what_is_asked_wrongly_is_refused():
    x, form = separated()
    tree = exact(x)
    with pytest.raises(
        ValueError, match="bound must be one of paper, ball, rotated, difference, got 'corners'"
    ):
        own(tree, form, bound="corners")
    with pytest.raises(ValueError, match="leaf must be one of"):
        own(tree, form, leaf="half")
    with pytest.raises(ValueError, match="in 2 features"):
        own(tree, Linear(np.ones((2, 3)), np.zeros(2)))
    with pytest.raises(ValueError, match="at least one cluster"):
        own(tree, Linear(np.ones((0, 2)), np.zeros(0)))
    diagonal = exact(x, scatter="diagonal")
    np.testing.assert_array_equal(own(diagonal, form).moments.weight, own(tree, form).moments.weight)
    with pytest.raises(ValueError, match="diagonal scatter does not hold"):
        _ = own(diagonal, form).cost
