"""Digits: nine of them, on the scale of each feature's own spread, wherever the data are and however small."""

import numpy as np
import pytest

from streamclust.tree import SummaryTree
from tests.conftest import INTERPRETED
from tests.naive import moments as naive_moments
from tests.naive import tree as naive
from tests.streams import KINDS, SPLITS

N = 1500 if INTERPRETED else 6000

PLACES = {
    "at the origin": (1.0, 0.0),
    "far away": (1.0, 1e8),
    "far away on one side": (1.0, np.array([1e8, 0.0, -1e8])),
    "tiny": (1e-8, 0.0),
    "huge": (1e8, 0.0),
    "mixed scales": (np.array([1e-8, 1.0, 1e8]), 0.0),
    "mixed scales, far away": (np.array([1e-4, 1.0, 1e4]), np.array([1e4, 1e8, 1e12])),
    "tiny beside far away": (np.array([1e-8, 1.0, 1e8]), np.array([0.0, 1e8, 1e12])),
}


def stream(place, n=N, seed=0):
    """Clusters in three correlated features; the first row, which becomes the tree's origin, is an outlier."""
    scale, offset = PLACES[place]
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.7], [0.3, 0.0, 1.0]])
    x += 4.0 * rng.integers(3, size=(n, 1))
    x[0] = 20.0
    return x * scale + offset, rng.exponential(size=n) + 0.01


def assert_moments(moments, row, expected, blur=0.0, digits=1e-9):
    """Row `row` of the moments against weight, mean and full scatter, feature by feature.

    `blur` is how far apart representable means lie there: what they are read as can be no closer.
    """
    weight, mean, scatter = (np.asarray(part, dtype=float) for part in expected)
    size = np.sqrt(np.diagonal(scatter) / weight)
    assert abs(moments.weight[row] - weight) <= digits * weight
    assert np.all(np.abs(moments.mean[row] - mean) <= digits * size + blur)
    squares = weight * np.outer(size, size)
    if moments.kind == "full":
        assert np.all(np.abs(moments.scatter[row] - scatter) <= digits * squares)
    elif moments.kind == "diagonal":
        assert np.all(np.abs(moments.scatter[row] - np.diagonal(scatter)) <= digits * np.diagonal(squares))
    elif moments.kind == "scalar":
        assert abs(moments.scatter[row] - np.trace(scatter)) <= digits * np.trace(squares)


def ulp(data):
    return np.spacing(np.abs(data).max(axis=0))


@pytest.mark.parametrize("max_leaves", [1, 32, None])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_totals_keep_nine_digits(place, kind, split, max_leaves):
    data, weights = stream(place, n=N // 3 if max_leaves is None else N)
    tree = SummaryTree(3, scatter=kind, split=split, max_leaves=max_leaves)
    tree.insert(data, weight=weights)
    assert_moments(tree.total, 0, naive.total(data, weights), blur=ulp(data))


@pytest.mark.parametrize("place", PLACES)
def test_totals_keep_nine_digits_while_forgetting(place):
    data, weights = stream(place)
    tree = SummaryTree(3, max_leaves=32, half_life=N / 100)  # the landmark moves
    tree.insert(data, weight=weights)
    present = naive.forward_weights(weights, np.arange(N), N / 100)
    recent = present > 1e-25
    assert_moments(tree.total, 0, naive.total(data[recent], present[recent]), blur=ulp(data))


@pytest.mark.compiled
@pytest.mark.parametrize("place", PLACES)
def test_totals_keep_nine_digits_through_merges_of_trees_with_other_origins(place):
    data, weights = stream(place)
    merged = None
    for k, part in enumerate(np.array_split(np.arange(N), 4)):
        tree = SummaryTree(3, max_leaves=32, seed=k)
        tree.insert(data[part], weight=weights[part])
        if merged is None:
            merged = tree
        else:
            merged.merge(tree)
    assert_moments(merged.total, 0, naive.total(data, weights), blur=ulp(data))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_leaves_keep_nine_digits(place, kind):
    data, weights = stream(place, n=400)
    tree = SummaryTree(3, scatter=kind, max_leaves=None)
    tree.insert(data, weight=weights)
    weight_of = dict(zip(map(bytes, data), weights, strict=True))
    arrays, leaves = tree.to_arrays(), tree.leaves()
    for row, slot in enumerate(np.flatnonzero(arrays["node"] >= 0)):
        points = arrays["points"][slot, : arrays["count"][slot]]
        expected = naive_moments.moments(points, [weight_of[bytes(p)] for p in points])
        assert_moments(leaves, row, expected, blur=ulp(points))


@pytest.mark.parametrize("place", PLACES)
def test_inner_nodes_keep_nine_digits(place):
    data, weights = stream(place, n=400)
    tree = SummaryTree(3, max_leaves=None)
    tree.insert(data, weight=weights)
    weight_of = dict(zip(map(bytes, data), weights, strict=True))
    arrays = tree.to_arrays()
    for node in tree.cut(level=2):
        below, held = [node], []
        while below:
            child = arrays["child"][below.pop()]
            if child < 0:
                held.append(arrays["points"][~child, : arrays["count"][~child]])
            else:
                below += [child, child + 1]
        points = np.concatenate(held)
        expected = naive_moments.moments(points, [weight_of[bytes(p)] for p in points])
        assert_moments(tree.moments(np.array([node])), 0, expected, blur=ulp(points))


@pytest.mark.parametrize("place", PLACES)
def test_a_bounded_tree_tells_clusters_apart_wherever_they_are(place):
    data, _ = stream(place)
    tree = SummaryTree(3, max_leaves=32)
    tree.insert(data)
    leaves = tree.leaves()
    widest = np.argmax(data.var(axis=0))
    within = np.einsum("rii->ri", leaves.scatter).sum(axis=0)[widest]
    assert within < 0.1 * len(data) * data[:, widest].var()
