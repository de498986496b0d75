"""Events far from all others: leaves of their own, no digits lost, and a tree to read without them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from streamclust.tree import SummaryTree, merge_all
from tests.naive import tree as naive
from tests.streams import SPLITS

pytestmark = pytest.mark.compiled
N = 12_000


def events(seed=0, n=N, d=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 12.0 * rng.integers(3, size=(n, 1))


def grown(x, cuts=(), **parameters):
    tree = SummaryTree(x.shape[1], **{"max_leaves": 64} | parameters)
    for part in np.split(x, cuts):
        tree.insert(part)
    return tree


@pytest.mark.parametrize("scatter", ["full", "diagonal", "scalar"])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("value", [1e7, -1e30, 1e119])
def test_the_others_keep_their_digits(scatter, split, value):
    x = events()
    x[[5, 3000, N - 1], [0, 1, 0]] = value
    tree = grown(x, scatter=scatter, split=split)
    naive.check_structure(tree.to_arrays())
    assert tree.total.weight[0] == pytest.approx(N)
    others = np.delete(x, [5, 3000, N - 1], axis=0)
    kept = tree.without_outliers()
    assert kept.total.weight[0] == pytest.approx(len(others))
    assert_allclose(kept.total.mean[0], others.mean(axis=0), rtol=1e-9)
    spread = ((others - others.mean(axis=0)) ** 2).sum(axis=0)
    assert_allclose(kept.total.to("scalar").scatter[0], spread.sum(), rtol=1e-6)
    assert np.abs(kept.sample()[0]).max() < 100.0


@pytest.mark.parametrize("first", [1e9, 1e30, -1e119])
@pytest.mark.parametrize("scatter", ["full", "scalar"])
def test_a_wild_first_event_is_no_origin(first, scatter):
    x = events(n=3000)
    x[0] = first
    total = grown(x, scatter=scatter).without_outliers().total
    assert_allclose(total.mean[0], x[1:].mean(axis=0), rtol=1e-9)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5999), st.floats(4.0, 119.0)), min_size=1, max_size=30),
    st.lists(st.integers(1, 5999), max_size=5),
    st.sampled_from([None, 500.0]),
)
def test_batching_is_invisible_with_wild_events(wild, cuts, half_life):
    x = events(n=6000)
    for row, power in wild:
        x[row, row % 2] = (-1) ** row * 10.0**power
    one, other = grown(x, half_life=half_life), grown(x, sorted(cuts), half_life=half_life)
    naive.check_structure(one.to_arrays())
    for name, value in one.to_arrays().items():
        assert_array_equal(value, other.to_arrays()[name], err_msg=name)


def test_a_saved_tree_continues_bit_for_bit():
    x = events()
    x[[4000, 9000], 0] = 1e9, -1e20
    whole, half = grown(x), grown(x[:6000])
    half = SummaryTree.from_arrays(half.to_arrays())
    half.insert(x[6000:])
    for name, value in whole.to_arrays().items():
        assert_array_equal(value, half.to_arrays()[name], err_msg=name)


def test_many_wild_events_do_not_take_the_leaves_of_the_others():
    x = events(n=40_000)
    rows = np.arange(50, 40_000, 100)
    x[rows, 0] = 10.0 ** np.random.default_rng(1).uniform(5, 100, len(rows))
    tree = grown(x)
    ordinary = tree.without_outliers()
    assert len(ordinary.leaves()) >= 16
    assert_allclose(ordinary.total.mean[0], np.delete(x, rows, axis=0).mean(axis=0), atol=0.05)


def test_a_stream_that_moves_far_away_is_no_outlier():
    x = events(n=8000)
    x[4000:] += 1e6
    tree = grown(x)
    assert tree.without_outliers() is tree
    assert (tree.leaves().mean[:, 0] > 1e5).sum() >= 10


def test_merged_trees_leave_outliers_apart():
    x = events()
    x[[100, 5000, 11_000], 1] = 1e12, -1e15, 1e50
    merged = merge_all([grown(part, seed=k) for k, part in enumerate(np.split(x, 3))])
    others = np.delete(x, [100, 5000, 11_000], axis=0)
    assert_allclose(merged.without_outliers().total.mean[0], others.mean(axis=0), rtol=1e-6)


def test_capped_weights():
    rng = np.random.default_rng(0)
    weight = rng.pareto(1.0, 4000) + 0.1
    tree = SummaryTree(2, max_leaves=64)
    tree.insert(events(n=4000), weight)
    assert tree.capped(np.inf) is tree
    mass, capped = tree.sample()[1], tree.capped(4.0).sample()[1]
    assert len(mass) == len(capped)
    assert capped.sum() < mass.sum()
    assert capped.sum() ** 2 / (capped**2).sum() > mass.sum() ** 2 / (mass**2).sum()
