"""Laws of joining components into clusters of any shape."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from streamclust.moments import Moments
from streamclust.shapes import merge_tree
from tests.naive import shapes as naive

seeds = st.integers(0, 2**32 - 1)


def scene(seed, d=2):
    """Bells, boxes and strips cut into pieces, events of any weight, and the pieces as components."""
    rng = np.random.default_rng(seed)
    parts, k = [], 0
    for _ in range(rng.integers(1, 4)):
        n, pieces = int(rng.integers(60, 200)), int(rng.integers(1, 4))
        x = rng.normal(size=(n, d)) if rng.random() < 0.5 else rng.uniform(-1, 1, size=(n, d)) * 2.0
        x[:, 0] *= rng.uniform(0.5, 3.0)
        x += rng.uniform(-6, 6, size=d)
        piece = np.searchsorted(np.quantile(x[:, 0], np.arange(1, pieces) / pieces), x[:, 0])
        parts.append((x, piece + k))
        k += pieces
    points, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    weight = rng.uniform(0.5, 2.0, size=len(points)) if rng.random() < 0.5 else np.ones(len(points))
    components = Moments.rows_of_points(points, weight).to_groups(labels, kind="full")
    return SimpleNamespace(points=points, weight=weight, components=components, rng=rng, k=k)


def same_heights(one, two, **tolerance):
    assert_array_equal(one.edges.pairs, two.edges.pairs)
    assert_allclose(two.edges.height, one.edges.height, **tolerance)
    assert_allclose(two.edges.error, one.edges.error, **tolerance)


@given(seed=seeds, d=st.integers(1, 4))
def test_units_and_origin_of_features_do_not_matter(seed, d):
    """Units and shifts that cost no digits of these points."""
    s = scene(seed, d)
    points = np.round(s.points * 1024) / 1024
    groups = s.rng.integers(s.k, size=len(points)) if s.rng.random() < 0.1 else labels_of(s)
    scale = 2.0 ** s.rng.integers(-20, 20, size=d)
    shift = s.rng.integers(-64, 64, size=d).astype(float)
    here = merge_tree(pieces(points, s.weight, groups, s.k), points, s.weight)
    moved = (points + shift) * scale
    there = merge_tree(pieces(moved, s.weight, groups, s.k), moved, s.weight)
    same_heights(here, there, rtol=1e-6, atol=1e-7)


def labels_of(s):
    """The nearest component of each point."""
    gaps = s.points[:, None] - s.components.mean
    return np.einsum("nkd,nkd->nk", gaps, gaps).argmin(axis=1)


def pieces(points, weight, labels, k):
    """Moments of the groups that have more than one event."""
    found = Moments.rows_of_points(points, weight).to_groups(labels, k, kind="full")
    return found[np.flatnonzero(np.bincount(labels, minlength=k) > 1)]


@given(seed=seeds)
def test_the_order_of_components_does_not_matter(seed):
    s = scene(seed)
    order = s.rng.permutation(s.k)
    here = merge_tree(s.components, s.points, s.weight)
    there = merge_tree(s.components[order], s.points, s.weight)
    same_heights(here, there, rtol=0, atol=0)
    both = {*zip(here.clusters()[order].tolist(), there.clusters().tolist(), strict=True)}
    assert len(both) == len(np.unique(here.clusters())) == len(np.unique(there.clusters()))


@given(seed=seeds, parts=st.integers(2, 4))
def test_splitting_the_weight_of_a_component_changes_nothing(seed, parts):
    s = scene(seed)
    which = int(s.rng.integers(s.k))
    share = s.rng.dirichlet(np.ones(parts))
    split = s.components[np.append(np.arange(s.k), np.full(parts - 1, which))]
    factor = np.ones(len(split))
    factor[which], factor[s.k :] = share[0], share[1:]
    here = merge_tree(s.components, s.points, s.weight)
    there = merge_tree(split.scale(factor), s.points, s.weight)
    same_heights(here, there, rtol=1e-6, atol=1e-9)
    assert_array_equal(there.clusters()[: s.k], here.clusters())
    assert np.all(there.clusters()[s.k :] == here.clusters()[which])


@given(seed=seeds, n=st.integers(100, 400), d=st.integers(1, 5), gap=st.floats(8.0, 1e6))
def test_two_far_bells_never_join(seed, n, d, gap):
    rng = np.random.default_rng(seed)
    labels = np.arange(2 * n) % 2
    direction = rng.normal(size=d)
    x = rng.normal(size=(2 * n, d)) + labels[:, None] * gap * direction / np.linalg.norm(direction)
    tree = merge_tree(pieces(x, np.ones(2 * n), labels, 2), x)
    assert_array_equal(tree.clusters(), [0, 1])
    assert np.all(tree.edges.height > 2 * tree.edges.error)


@given(seed=seeds, n=st.integers(500, 2000), d=st.integers(1, 4), cut=st.floats(0.3, 0.7))
def test_halves_of_a_uniform_strip_always_join(seed, n, d, cut):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, d)) * ([10.0] + [1.0] * (d - 1))
    tree = merge_tree(pieces(x, np.ones(n), (x[:, 0] > 10 * cut).astype(int), 2), x)
    assert_array_equal(tree.clusters(), [0, 0])


@given(seed=seeds)
def test_heights_rise_and_merges_are_those_that_connect_components(seed):
    s = scene(seed)
    tree = merge_tree(s.components, s.points, s.weight)
    assert np.all(np.diff(tree.height) >= 0)
    assert len(tree.children) < s.k
    nodes = tree.children.ravel()
    assert len(np.unique(nodes)) == len(nodes)
    assert np.all(tree.children < s.k + np.arange(len(tree.children))[:, None])


@given(seed=seeds)
def test_a_higher_threshold_only_joins_more(seed):
    """Lone components aside, which may find another to join: clusters are nested."""
    s = scene(seed)
    tree = merge_tree(s.components, s.points, s.weight)
    alike = tree._replace(edges=tree.edges._replace(peaks=np.ones_like(tree.edges.peaks)))
    cautious, plain, bold = (alike.clusters(t) for t in (-2 * tree.edges.error, 0.0, np.inf))
    for fine, coarse in ((cautious, plain), (plain, bold)):
        assert len({*zip(fine.tolist(), coarse.tolist(), strict=True)}) == len(np.unique(fine))


@settings(max_examples=12)
@given(seed=seeds, d=st.integers(1, 3))
def test_fast_equals_slow(seed, d):
    s = scene(seed, d)
    order = np.lexsort(s.components.mean.T[::-1])
    c = s.components[order]
    tree = merge_tree(c, s.points, s.weight)
    mean, covariance, points = naive.standardised(c.mean, c.covariance, s.points, s.weight)
    if s.k < 2:
        assert len(tree.edges.pairs) == 0
        return
    first, second = naive.best_two(c.weight, mean, covariance, points)
    pairs = naive.adjacent(first, second, s.weight, s.k)
    assert_array_equal(tree.edges.pairs, np.array(pairs).reshape(-1, 2))
    slow = [(i, j, *naive.height(i, j, mean, covariance, points, s.weight, first)) for i, j in pairs]
    if pairs:
        _, _, height, gap, error, one, two = np.array(slow).T
        known = np.isfinite(height)
        height[known] = naive.expected(height[known].tolist(), error[known].tolist())
        assert_allclose(tree.edges.height, np.maximum(height, gap), rtol=1e-3, atol=1e-4)
        assert_allclose(tree.edges.error, error, rtol=1e-3, atol=1e-5)
        scale = tree.edges.peaks[:, 0] / np.where(one > 0, one, 1.0)
        assert_allclose(tree.edges.peaks[:, 1], two * scale, rtol=1e-3)
    exact = [(i, j, h, se, a, b) for (i, j), h, se, (a, b) in zip(*tree.edges, strict=True)]
    for caution in (0.0, 2.0):
        assert_array_equal(tree.joined_by(caution), by_first(naive.clusters(s.k, exact, caution)))


def by_first(labels):
    seen = {}
    return [seen.setdefault(label, len(seen)) for label in labels.tolist()]
