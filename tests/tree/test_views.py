"""Copies, new features, missing values, and the tree as the latest events see it."""

import numpy as np
import pytest

from streamclust.tree import SummaryTree
from tests.streams import KINDS, clustered


def same(a, b):
    ours, theirs = a.to_arrays(), b.to_arrays()
    return all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture
def rows():
    return clustered(1500, 3, k=4, seed=2)[0]


def test_a_copy_goes_its_own_way_from_the_same_place(rows):
    tree = SummaryTree(3, max_leaves=20, half_life=500.0)
    tree.insert(rows[:1000])
    twin = tree.copy()
    assert same(tree, twin)
    twin.insert(rows[1000:])
    assert not same(tree, twin)
    tree.insert(rows[1000:])
    assert same(tree, twin)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_leaves", [12, None])
def test_features_added_later_are_features_that_never_varied(rows, kind, max_leaves):
    late = SummaryTree(2, kind, max_leaves)
    late.insert(rows[:1000, :2])
    late.widen([7.5])
    late.insert(rows[1000:])
    always = SummaryTree(3, kind, max_leaves)
    always.insert(np.column_stack([rows[:1000, :2], np.full(1000, 7.5)]))
    always.insert(rows[1000:])
    if kind == "full":  # the others break ties between directions by sums of another length
        np.testing.assert_array_equal(late.leaves().mean, always.leaves().mean)
    for name in ("weight", "mean", "scatter"):
        np.testing.assert_allclose(
            getattr(late.total, name), getattr(always.total, name), rtol=1e-9, atol=1e-9
        )
    SummaryTree.from_arrays(late.to_arrays())  # it is sound


def test_an_empty_tree_can_be_widened(rows):
    tree = SummaryTree(1)
    tree.widen([1.0, 2.0])
    tree.insert(rows)
    np.testing.assert_allclose(tree.total.mean[0], rows.mean(axis=0))


@pytest.mark.parametrize("values", [[np.nan], ["a"], [[1.0]], [np.inf]])
def test_new_features_need_a_number_each(values):
    with pytest.raises(ValueError, match=r"."):
        SummaryTree(2).widen(values)


def test_a_missing_value_comes_from_the_leaf_nearest_in_the_others():
    tree = SummaryTree(2, max_leaves=8)
    tree.insert([[0.0, 1e8], [0.1, 1e8], [50.0, 1e8 + 9.0], [50.1, 1e8 + 9.0]] * 30)
    assert tree.fill([49.0, np.nan]) == pytest.approx([49.0, 1e8 + 9.0])
    assert tree.fill([1.0, np.nan]) == pytest.approx([1.0, 1e8])
    assert tree.fill([1.0, 2.0]) == pytest.approx([1.0, 2.0])
    for bad in ([np.nan, np.nan], [1.0], [1.0, 2.0, np.nan]):
        with pytest.raises(ValueError, match="to fill"):
            tree.fill(bad)
    with pytest.raises(ValueError, match="no value"):
        SummaryTree(2).fill([1.0, np.nan])


def test_shares_are_those_of_the_leaves_that_would_take_the_rows(rows):
    tree = SummaryTree(3, max_leaves=None)
    tree.insert(rows)
    np.testing.assert_allclose(tree.shares(rows) * len(rows), tree.leaves().weight)
    weight = np.random.default_rng(0).exponential(size=len(rows))
    again = SummaryTree(3, max_leaves=None)
    again.insert(rows, weight)
    np.testing.assert_allclose(again.shares(rows, weight) * weight.sum(), again.leaves().weight)


def test_a_reweighted_tree_reads_as_if_leaves_weighed_so(rows):
    tree = SummaryTree(3, max_leaves=20)
    tree.insert(rows)
    factor = np.linspace(0.0, 2.0, len(tree.leaves()))
    view = tree.reweighted(factor)
    kept = tree.leaves().scale(factor)
    for name in ("weight", "mean", "scatter"):
        np.testing.assert_allclose(getattr(view.leaves(), name), getattr(kept, name)[factor > 0])
    np.testing.assert_allclose(view.total.weight, kept.weight.sum())
    assert view.sample()[1].sum() == pytest.approx(kept.weight.sum())
    assert tree.total.weight[0] == len(rows)


def test_events_drawn_with_the_tree_s_own_seed_do_not_choose_their_keys():
    rows = (np.random.default_rng(7).random(2000) < 0.5).astype(float)[:, None]
    tree = SummaryTree(1, max_leaves=1, seed=7, leaf_size=64)
    tree.insert(rows)
    assert 0.3 < tree.sample()[0].mean() < 0.7
