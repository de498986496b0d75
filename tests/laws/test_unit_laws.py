"""What a tree learns does not depend on the units its features come in."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamclust.tree import SummaryTree, merge_all

pytestmark = pytest.mark.compiled  # thousands of events in each tree

POWERS = st.lists(st.floats(-8.0, 8.0), min_size=3, max_size=3)
SHIFTS = st.lists(st.integers(-1000, 1000), min_size=3, max_size=3)


def clustered(n, seed):
    """Ten clusters in three features, correlated within."""
    rng = np.random.default_rng(seed)
    centres, shapes = rng.normal(0.0, 6.0, (10, 3)), rng.normal(size=(10, 3, 3))
    label = rng.integers(10, size=n)
    return centres[label] + np.einsum("nij,nj->ni", shapes[label], rng.normal(size=(n, 3)))


def grown(rows, **settings):
    tree = SummaryTree(n_features=rows.shape[1], **{"max_leaves": 32, "seed": 1} | settings)
    tree.insert(rows)
    return tree


def sampled(tree, scale, shift):
    """The sample in units of its own, in an order that does not depend on which half of a split is called the left."""
    points, weight = tree.sample()
    points = (points - shift) / scale
    order = np.argsort(points[:, 0])
    return points[order], weight[order]


def assert_alike(tree, other, scale, shift):
    """Two trees of the same events in different units hold the same sample, with the same weights."""
    (points, weight), (others, other_weight) = sampled(tree, 1.0, 0.0), sampled(other, scale, shift)
    np.testing.assert_allclose(other_weight, weight, rtol=1e-6)
    np.testing.assert_allclose(others, points, atol=1e-4)


@pytest.mark.parametrize("split", ["principal", "widest"])
@pytest.mark.parametrize("kind", ["full", "diagonal"])
@settings(max_examples=10, deadline=None)
@given(powers=POWERS, shift=SHIFTS, seed=st.integers(0, 100), n=st.sampled_from([40, 1500, 5000]))
def test_units_do_not_matter(kind, split, powers, shift, seed, n):
    rows, scale = clustered(n, seed), 10.0 ** np.array(powers)
    offset = scale * np.array(shift)
    assert_alike(
        grown(rows, scatter=kind, split=split),
        grown(rows * scale + offset, scatter=kind, split=split),
        scale,
        offset,
    )


@settings(max_examples=5, deadline=None)
@given(powers=POWERS, seed=st.integers(0, 100))
def test_units_do_not_matter_to_a_merged_tree(powers, seed):
    scale = 10.0 ** np.array(powers)
    parts = [clustered(700, 3 * seed + k) + 4.0 * k for k in range(3)]
    one = merge_all([grown(part, seed=k) for k, part in enumerate(parts)])
    other = merge_all([grown(part * scale, seed=k) for k, part in enumerate(parts)])
    assert_alike(one, other, scale, 0.0)


def test_one_large_unit_does_not_take_all_the_cuts():
    rows = clustered(20_000, 0)
    within = grown(rows).leaves().scatter.sum(axis=0).diagonal()
    blown_up = grown(rows * [1000.0, 1.0, 1.0]).leaves().scatter.sum(axis=0).diagonal()
    np.testing.assert_allclose(blown_up, within * [1e6, 1.0, 1.0], rtol=1e-3)


def test_a_feature_that_begins_to_vary_late_is_cut_too():
    rng = np.random.default_rng(0)
    still = np.column_stack([rng.normal(size=5000), np.full(5000, 7.0)])
    moving = np.column_stack([rng.normal(size=20_000), 7.0 + 1e-6 * rng.choice([-1.0, 1.0], 20_000)])
    tree = grown(np.concatenate([still, moving]))
    assert tree.leaves().scatter[:, 1, 1].sum() < 0.25 * tree.total.scatter[0, 1, 1]


def test_a_feature_that_was_added_late_is_cut_too():
    rng = np.random.default_rng(0)
    tree = grown(rng.normal(size=(5000, 2)))
    tree.widen([5.0])
    tree.insert(np.column_stack([rng.normal(size=(20_000, 2)), rng.choice([-1e6, 1e6], 20_000)]))
    assert tree.leaves().scatter[:, 2, 2].sum() < 0.25 * tree.total.scatter[0, 2, 2]


def test_a_saved_tree_keeps_its_units():
    rows = clustered(3000, 0) * [1e-8, 1.0, 1e8]
    tree = grown(rows[:1500])
    twin = SummaryTree.from_arrays(tree.to_arrays())
    for t in (tree, twin):
        t.insert(rows[1500:])
    for a, b in zip(tree.sample(), twin.sample(), strict=True):
        np.testing.assert_array_equal(a, b)
