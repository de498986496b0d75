"""Invariant 9: trees of any shards, merged in any order, hold what one tree of all events would, as well."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamclust.tree import SummaryTree, merge_all, merging
from tests.laws.test_tree_laws import assert_total, insert_all, present_weights, trees
from tests.naive import tree as naive
from tests.streams import streams


def shards_of(stream, draw):
    """Which shard each event goes to: any, or by place in the stream or in space; some shards stay empty."""
    n = draw(st.integers(1, 9))
    shape = draw(st.sampled_from(["random", "in order", "sorted", "lopsided"]))
    if shape == "random":
        return n, np.random.default_rng(1).integers(n, size=len(stream))
    if shape == "lopsided":
        return n, np.minimum(np.random.default_rng(1).geometric(0.7, size=len(stream)) - 1, n - 1)
    place = np.arange(len(stream)) if shape == "in order" else np.argsort(np.argsort(stream.rows[:, 0]))
    return n, place * n // len(stream)


def build(stream, settings, shard, k):
    tree = SummaryTree(**settings | {"seed": k})
    for i in np.flatnonzero(shard == k):
        tree.insert(*stream.part(i, i + 1))
    return tree


@given(st.data())
def test_all_at_once_is_order_free_and_loses_nothing(data):
    stream = data.draw(streams(longest=800))
    settings = data.draw(trees(stream, max_leaves=data.draw(st.sampled_from([1, 2, 5, 40, None]))))
    if stream.times is None:
        settings["half_life"] = None
    n, shard = shards_of(stream, data.draw)
    parts = [build(stream, settings, shard, k) for k in range(n)]
    before = [part.to_arrays() for part in parts]
    order = data.draw(st.permutations(range(n)))
    rows = {row.tobytes() for row in stream.rows}
    for sequence in (range(n), order):
        merged = merge_all([parts[k] for k in sequence])
        arrays = merged.to_arrays()
        points, masses = merged.sample()
        assert merged.n_events == len(stream)
        assert merged.n_leaves <= (settings["max_leaves"] or len(stream))
        assert_total(merged.total, stream.rows, present_weights(stream, settings["half_life"]))
        naive.check_structure(arrays)
        assert {point.tobytes() for point in points} <= rows
        assert masses.sum() == pytest.approx(merged.total.weight[0], rel=1e-9)
        assert np.all(arrays["spread"] >= -1e-9 * max(arrays["spread"].max(), 1e-300))
    for part, kept in zip(parts, before, strict=True):
        for name, value in part.to_arrays().items():
            np.testing.assert_array_equal(value, kept[name], err_msg=name)


@given(st.data())
def test_merged_trees_go_on_learning_and_merging(data):
    stream = data.draw(streams(longest=800))
    settings = data.draw(trees(stream, max_leaves=data.draw(st.sampled_from([2, 5, 40]))))
    if stream.times is None:
        settings["half_life"] = None
    n, shard = shards_of(stream, data.draw)
    merged = SummaryTree(**settings)
    for k in range(n):
        part = build(stream, settings, shard, k)
        if k % 2:
            merged.merge(part)
        else:
            insert_all(merged, [stream.part(i, i + 1) for i in np.flatnonzero(shard == k)])
    assert merged.n_events == len(stream)
    assert_total(merged.total, stream.rows, present_weights(stream, settings["half_life"]))
    naive.check_structure(merged.to_arrays())


@given(st.integers(1, 30), st.integers(2, 5))
def test_however_many_trees_there_are_few_are_pooled_at_a_time(n, most):
    rows = np.random.default_rng(n).normal(size=(n, 5, 2))
    parts = [
        insert_all(SummaryTree(2, max_leaves=3, seed=k), [(part, None, None)]) for k, part in enumerate(rows)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "MAX_POOLED_TREES", most)
        merged = merge_all(parts)
    assert_total(merged.total, rows.reshape(-1, 2), np.ones(5 * n))
