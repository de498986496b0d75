"""Invariants 1, 2, 3 and 9 of the summary tree, over split rules, kinds of scatter, weights and forgetting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamclust.moments import Moments
from streamclust.tree import SummaryTree
from tests.naive import tree as naive
from tests.streams import KINDS, SPLITS, streams

small = {
    "max_leaves": st.sampled_from([1, 2, 3, 8, 40, None]),
    "leaf_size": st.sampled_from([2, 3, 16]),
}


@st.composite
def trees(draw, stream, **fixed):
    """Settings for a tree that suits the stream."""
    timed = stream.times is not None
    half_life = draw(st.sampled_from([7.0, 300.0] if timed else [None, 20.0, 1000.0]))
    settings = {name: draw(strategy) for name, strategy in small.items()}
    return settings | {
        "n_features": stream.rows.shape[1],
        "scatter": draw(st.sampled_from(KINDS)),
        "split": draw(st.sampled_from(SPLITS)),
        "half_life": half_life,
        "seed": draw(st.integers(0, 100)),
    } | fixed  # fmt: skip


def present_weights(stream, half_life):
    weights = np.ones(len(stream)) if stream.weights is None else stream.weights
    if half_life is None:
        return weights
    times = np.arange(len(stream)) if stream.times is None else stream.times
    return naive.forward_weights(weights, times, half_life)


def assert_total(moments, rows, weights, rounded=False):
    """Weight, mean and scatter agree to nine digits, each on the scale of the data's own spread.

    `rounded`: the rows summed had their means rounded far from the origin, which costs an ulp of the mean.
    """
    digits = 1e-9
    weight, mean, scatter = naive.total(rows, weights)
    ulp = np.spacing(np.abs(rows).max())
    size = np.sqrt(np.trace(scatter) / weight) + ulp
    if rounded:
        digits += 4 * float(ulp / size)
    assert abs(moments.weight[0] - weight) <= digits * weight
    assert np.all(np.abs(moments.mean[0] - mean) <= digits * size + np.spacing(np.abs(mean.astype(float))))
    expected = Moments(np.ones(1), np.zeros((1, rows.shape[1])), scatter[None].astype(float))
    reached = moments.scatter - expected.to(moments.kind).scatter
    assert np.all(np.abs(reached) <= digits * weight * size**2)


def insert_all(tree, parts):
    for rows, weights, times in parts:
        tree.insert(rows, weight=weights, time=times)
    return tree


def assert_same_bits(a, b):
    for (name, left), (_, right) in zip(a.to_arrays().items(), b.to_arrays().items(), strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


@given(st.data())
def test_nothing_is_lost(data):
    stream = data.draw(streams())
    settings = data.draw(trees(stream))
    tree = insert_all(SummaryTree(**settings), [stream.part(0, None)])
    weights = present_weights(stream, settings["half_life"])
    assert tree.n_events == len(stream)
    assert_total(tree.total, stream.rows, weights)
    assert_total(tree.leaves().total(), stream.rows, weights, rounded=True)
    naive.check_structure(tree.to_arrays())


@given(st.data())
def test_batching_is_invisible(data):
    stream = data.draw(streams(longest=2500))
    settings = data.draw(trees(stream))
    cuts = data.draw(st.lists(st.integers(1, len(stream)), max_size=6))
    whole = insert_all(SummaryTree(**settings), [stream.part(0, None)])
    assert_same_bits(insert_all(SummaryTree(**settings), stream.chunks(cuts)), whole)


@given(st.data())
def test_one_at_a_time_is_all_at_once(data):
    stream = data.draw(streams(longest=300))
    settings = data.draw(trees(stream))
    whole = insert_all(SummaryTree(**settings), [stream.part(0, None)])
    assert_same_bits(insert_all(SummaryTree(**settings), stream.chunks(range(len(stream)))), whole)


@given(st.data())
def test_restart_is_invisible(data):
    stream = data.draw(streams(longest=2500))
    settings = data.draw(trees(stream))
    stop = data.draw(st.integers(0, len(stream)))
    first = insert_all(SummaryTree(**settings), [stream.part(0, stop)])
    again = SummaryTree.from_arrays(first.to_arrays())
    assert_same_bits(again, first)
    whole = insert_all(SummaryTree(**settings), [stream.part(0, None)])
    assert_same_bits(insert_all(again, [stream.part(stop, None)]), whole)


@given(st.data())
def test_leaves_are_bounded(data):
    stream = data.draw(streams())
    settings = data.draw(trees(stream, max_leaves=data.draw(st.integers(1, 20))))
    tree = insert_all(SummaryTree(**settings), [stream.part(0, None)])
    points, _ = tree.sample()
    assert tree.n_leaves <= settings["max_leaves"]
    assert len(points) <= settings["max_leaves"] * settings["leaf_size"]
    assert all(len(a) <= 2 * settings["max_leaves"] for a in tree._tree if len(a) > stream.rows.shape[1] + 4)


@given(st.data())
def test_exact_mode_keeps_every_event(data):
    stream = data.draw(streams(timed=False))
    settings = data.draw(trees(stream, max_leaves=None, half_life=None))
    tree = insert_all(SummaryTree(**settings), [stream.part(0, None)])
    points, weights = tree.sample()
    expected = {}
    for row, weight in zip(stream.rows, present_weights(stream, None), strict=True):
        expected[row.tobytes()] = expected.get(row.tobytes(), 0.0) + weight
    found = {}
    for point, weight in zip(points + 0.0, weights, strict=True):
        found[point.tobytes()] = found.get(point.tobytes(), 0.0) + weight
    assert found.keys() == expected.keys()
    assert all(found[key] == pytest.approx(expected[key], rel=1e-12) for key in found)


@given(st.data())
def test_samples_are_events_and_stand_for_their_leaves(data):
    stream = data.draw(streams())
    settings = data.draw(trees(stream))
    tree = insert_all(SummaryTree(**settings), [stream.part(0, None)])
    points, weights = tree.sample()
    assert {p.tobytes() for p in points} <= {r.tobytes() for r in stream.rows}
    assert np.all(weights > 0)
    assert weights.sum() == pytest.approx(tree.total.weight[0], rel=1e-9)


@given(st.data())
def test_cuts_hold_every_event_once(data):
    stream = data.draw(streams())
    settings = data.draw(trees(stream))
    tree = insert_all(SummaryTree(**settings), [stream.part(0, None)])
    rule = data.draw(st.sampled_from([{"level": 3}, {"budget": 5}, {"tolerance": 0.05}, {"level": 0}]))
    cut = tree.cut(**rule)
    rows = tree.moments(cut)
    lo, hi = tree.boxes(cut)
    weights = present_weights(stream, settings["half_life"])
    assert len(cut) <= rule.get("budget", len(cut))
    assert_total(rows.total(), stream.rows, weights, rounded=True)
    finer = tree.refine(cut, cut[:1])
    assert len(finer) in (len(cut), len(cut) + 1)
    assert_total(tree.moments(finer).total(), stream.rows, weights, rounded=True)
    slack = 1e-12 * np.abs(stream.rows).max()
    heavy = rows.weight > 0
    assert np.all(rows.mean[heavy] >= lo[heavy] - slack)
    assert np.all(rows.mean[heavy] <= hi[heavy] + slack)


@given(st.data())
def test_merging_is_order_free(data):
    stream = data.draw(streams())
    settings = data.draw(trees(stream, max_leaves=data.draw(st.sampled_from([1, 3, 40]))))
    if stream.times is None:  # each shard counts its own events: only timed trees share a clock
        settings["half_life"] = None
    n_shards = data.draw(st.integers(2, 5))
    order = data.draw(st.permutations(range(n_shards)))
    shard = np.random.default_rng(1).integers(n_shards, size=len(stream))

    def build(k):
        tree = SummaryTree(**settings | {"seed": k})
        for i in np.flatnonzero(shard == k):
            tree.insert(*stream.part(i, i + 1))
        return tree

    def merge(sequence):
        merged = build(sequence[0])
        for k in sequence[1:]:
            merged.merge(build(k))
        return merged

    weights = present_weights(stream, settings["half_life"])
    for sequence in (range(n_shards), order):
        merged = merge(list(sequence))
        assert merged.n_events == len(stream)
        assert merged.n_leaves <= settings["max_leaves"]
        assert_total(merged.total, stream.rows, weights)
        naive.check_structure(merged.to_arrays())


@given(st.data())
def test_scatter_stays_positive(data):
    stream = data.draw(streams())
    settings = data.draw(trees(stream, scatter="full", max_leaves=data.draw(st.integers(2, 12))))
    leaves = insert_all(SummaryTree(**settings), [stream.part(0, None)]).leaves()
    scale = np.trace(leaves.scatter, axis1=1, axis2=2)
    least = np.linalg.eigvalsh((leaves.scatter + leaves.scatter.transpose(0, 2, 1)) / 2)[:, 0]
    assert np.all(least >= -1e-9 * scale - 1e-300)  # a decayed leaf may hold the smallest numbers there are
