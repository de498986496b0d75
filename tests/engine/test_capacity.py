"""The summary's leaves follow the number of clusters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from streamclust.checkpoint.state import engine_from_state, engine_state
from streamclust.engine import Engine, EngineSettings
from streamclust.engine.capacity import leaves_for
from streamclust.engine.results import large_rows
from streamclust.engine.tuning import TUNING
from streamclust.tree import SummaryTree


def grid(n, k, seed=0):
    """Events of k round clusters in the plane, far apart."""
    rng = np.random.default_rng(seed)
    side = int(np.ceil(np.sqrt(k)))
    of = rng.integers(k, size=n)
    return 12.0 * np.stack([of % side, of // side], axis=1) + rng.normal(size=(n, 2))


@pytest.fixture(scope="module")
def many():
    """An engine that has seen a hundred clusters, and the leaves it had before it knew of them."""
    engine = Engine(2, EngineSettings(background=False))
    engine.learn(grid(6000, 100))
    return engine


def test_many_clusters_get_more_leaves(many):
    assert len(many.model.names) == 100
    assert (
        many.shards[0].tree.max_leaves
        == leaves_for(100, many.shards[0].tree.leaf_bytes)
        > TUNING.first_leaves
    )


def test_a_bound_that_is_given_holds():
    engine = Engine(2, EngineSettings(background=False, max_leaves=64))
    engine.learn(grid(3000, 30))
    assert engine.shards[0].tree.max_leaves == 64
    assert engine.shards[0].tree.n_leaves <= 64


def test_a_saved_engine_keeps_its_room(many):
    twin = engine_from_state(engine_state(many))
    more = grid(3000, 100, seed=1)
    for engine in (twin, many):
        engine.learn(more)
    assert twin.shards[0].tree.max_leaves == many.shards[0].tree.max_leaves > TUNING.first_leaves
    for name, value in many.shards[0].tree.to_arrays().items():
        assert_array_equal(value, twin.shards[0].tree.to_arrays()[name], err_msg=name)


def test_shards_have_the_same_room(many):
    twin = engine_from_state(engine_state(many))
    twin.learn(grid(10, 100, seed=2), shard="another")
    room = twin.shards[0].tree.max_leaves
    assert twin.shards["another"].tree.max_leaves == room
    fresh = Engine(2, EngineSettings(background=False))
    fresh.learn(grid(10, 100, seed=3))
    fresh.merge(many)
    assert fresh.shards[0].tree.max_leaves == room
    fresh = Engine(2, EngineSettings(background=False))
    fresh.learn(grid(10, 100, seed=3), shard=7)
    fresh.adopt(0, twin.release(0))
    assert fresh.shards[7].tree.max_leaves == room


@given(st.integers(1, 100_000), st.integers(100, 10**7))
def test_room_is_bounded(n_clusters, leaf_bytes):
    leaves = leaves_for(n_clusters, leaf_bytes)
    assert TUNING.first_leaves <= leaves <= TUNING.max_leaves
    assert leaves == TUNING.first_leaves or leaves * leaf_bytes <= TUNING.max_summary_bytes
    assert leaves <= leaves_for(n_clusters + 1, leaf_bytes)


@settings(max_examples=20)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 700),
    st.integers(2, 30),
    st.integers(1, 60),
    st.sampled_from(["full", "none"]),
)
def test_a_tree_with_more_room_loses_nothing(seed, n, limit, more, scatter):
    rng = np.random.default_rng(seed)
    x = rng.integers(4, size=(n, 2)) + rng.normal(size=(n, 2)) * rng.integers(2)
    tree = SummaryTree(2, scatter, max_leaves=limit, leaf_size=4)
    tree.insert(x)
    before, leaves = tree.total, tree.n_leaves
    tree.raise_max_leaves(limit + more)
    assert tree.max_leaves == limit + more
    assert leaves <= tree.n_leaves <= limit + more
    tree.insert(x)
    assert_allclose(tree.total.weight, 2 * before.weight)
    assert_allclose(tree.total.mean, before.mean, atol=1e-12)
    assert_allclose(tree.total.scatter, 2 * before.scatter, atol=1e-9)
    assert_allclose(tree.sample()[1].sum(), 2 * n)
    loaded = SummaryTree.from_arrays(tree.to_arrays())
    assert loaded.max_leaves == limit + more


def test_batches_do_not_show_after_room_was_made():
    x = grid(9000, 9)
    whole, parts = (SummaryTree(2, max_leaves=100) for _ in range(2))
    for tree in (whole, parts):
        tree.insert(x[:5000])
        tree.raise_max_leaves(300)
    whole.insert(x[5000:])
    for row in np.array_split(x[5000:], 37):
        parts.insert(row)
    for name, value in whole.to_arrays().items():
        assert_array_equal(value, parts.to_arrays()[name], err_msg=name)


def test_many_equal_clusters_are_not_rare():
    assert len(large_rows(np.ones(500))) == 500
    weight = np.r_[np.full(10, 0.0995), np.full(5, 0.001)]
    assert_array_equal(large_rows(weight), np.arange(10))
