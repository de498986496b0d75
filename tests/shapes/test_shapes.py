"""Shapes that people know, and components that are not like each other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from streamclust._kernels.shapes.line import inner_range
from streamclust.moments import Moments
from streamclust.shapes import merge_tree
from streamclust.shapes.expected import expected_heights
from tests.naive import shapes as naive
from tests.parts import from_python


def pieces(points, labels, kind="full"):
    return Moments.rows_of_points(points).to_groups(labels, kind=kind)


def ring(n, radius, n_pieces, rng, noise=0.05):
    """Points of a ring, and the piece of it that each is in."""
    angle = rng.uniform(0, 2 * np.pi, size=n)
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (radius + noise * rng.normal(size=(n, 1)))
    return x, (angle / (2 * np.pi) * n_pieces).astype(int)


def test_rings_within_each_other():
    rng = np.random.default_rng(0)
    (inner, a), (outer, b) = ring(1000, 1.0, 8, rng), ring(2000, 2.0, 12, rng)
    x = np.concatenate([inner, outer])
    assert_array_equal(merge_tree(pieces(x, np.append(a, b + 8)), x).clusters(), np.repeat([0, 1], [8, 12]))


@pytest.mark.parametrize("tails", [1, 3, 100])
@pytest.mark.parametrize("n", [2, 40, 3000])
def test_quantiles_by_buckets_are_those_of_all_numbers_in_order(n, tails):
    """With one degree of freedom nearly all numbers are in one bucket."""
    rng = np.random.default_rng(n)
    t, weight = rng.standard_t(tails, size=n), rng.exponential(size=n)
    expected = [naive.quantile(t, weight, share) for share in (0.02, 0.98)]
    assert_allclose(from_python(inner_range)(t, weight), expected, rtol=0)
    equal = np.where(np.arange(n) < n - 1, 3.0, 5.0)  # both quantiles are 3, if there are many
    assert_array_equal(from_python(inner_range)(equal, np.ones(n)), (3.0, 5.0))


@pytest.mark.parametrize("kind", ["full", "diagonal", "scalar"])
def test_strips_with_covariances_of_any_form(kind):
    rng = np.random.default_rng(1)
    x = rng.uniform(size=(3000, 2)) * [6.0, 1.0]
    strip = np.arange(3000) % 2
    x[:, 1] += 3.0 * strip
    tree = merge_tree(pieces(x, (x[:, 0] // 1).astype(int) + 6 * strip, kind), x)
    assert_array_equal(tree.clusters(), np.repeat([0, 1], 6))


def test_boxes_with_a_thin_gap_between_them_stay_apart():
    """Along the line they are one plateau but for the gap."""
    rng = np.random.default_rng(2)
    x = rng.uniform(size=(4000, 2))
    box = np.arange(4000) % 2
    x[:, 0] += 1.08 * box
    tree = merge_tree(pieces(x, box), x)
    assert_array_equal(tree.clusters(), [0, 1])
    x[:, 0] -= 0.08 * box
    assert_array_equal(merge_tree(pieces(x, box), x).clusters(), [0, 0])


def test_touching_bells_stay_apart_and_halves_of_a_bell_join():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4000, 2))
    half = (x[:, 0] > 0).astype(int)
    assert_array_equal(merge_tree(pieces(x, half), x).clusters(), [0, 0])
    bell = np.arange(4000) % 2
    x[:, 0] += 4.0 * bell
    assert_array_equal(merge_tree(pieces(x, bell), x).clusters(), [0, 1])


def test_merges_are_a_dendrogram_of_components():
    rng = np.random.default_rng(4)
    x = rng.uniform(size=(4000, 1)) * 4.0
    x[2000:] += 100.0
    piece = (x[:, 0] % 100 // 1).astype(int) + 4 * (x[:, 0] > 50)
    tree = merge_tree(pieces(x, piece), x)
    below = tree.height < 0
    assert below.sum() == 6
    assert len(tree.children) in (6, 7)  # far clusters may have no edge
    assert np.all(tree.error >= 0)


def test_a_cautious_cut_joins_no_more():
    rng = np.random.default_rng(5)
    x, piece = ring(700, 1.0, 10, rng)
    tree = merge_tree(pieces(x, piece), x)
    assert tree.joined_by(2.0).max() >= tree.clusters().max()
    assert_array_equal(tree.joined_by(0.0), tree.clusters())
    assert_array_equal(tree.clusters(np.inf), np.zeros(10))
    assert_array_equal(tree.clusters(-np.inf), np.arange(10))


@pytest.mark.parametrize("density", [5.0, 50.0])
def test_a_sparse_component_joins_one_dense_one_and_bridges_none(density):
    """Two dense boxes, and few events in the wide space between them and around."""
    edges = np.array([[0, 2], [1, 2]])
    height, error = np.array([-0.1, -0.2]), np.full(2, 0.01)
    peaks = np.array([[density, 1.0], [density, 1.0]])
    tree = merge_tree(pieces(np.arange(6.0)[:, None], np.arange(6) // 2), np.arange(6.0)[:, None])
    alone = tree._replace(edges=type(tree.edges)(edges, height, error, peaks))
    assert_array_equal(alone.clusters(), [0, 1, 1])
    rows = [(*pair, h, se, *p) for pair, h, se, p in zip(edges, height, error, peaks, strict=True)]
    assert_array_equal(naive.clusters(3, rows), [0, 1, 1])


def test_what_most_edges_are_decides_of_those_that_chance_could_have_made():
    """A ring of many pieces of few events stays whole; overlapping bells of few events each stay apart."""
    x, piece = ring(1000, 1.0, 20, np.random.default_rng(11))
    own = pieces(x, piece)
    assert (judged_heights(own, x) > 0).any()
    assert merge_tree(own, x).clusters().max() == 0
    rng = np.random.default_rng(13)
    bell = np.repeat(np.arange(16), 300)
    y = rng.normal(size=(4800, 2)) + 3.5 * np.stack([bell // 4, bell % 4], axis=1)
    own = pieces(y, bell)
    assert (judged_heights(own, y) < 0).any()
    assert merge_tree(own, y).clusters().max() == 15


def judged_heights(components, points):
    """Heights of adjacent components, each judged by its own events alone."""
    mean, covariance, x = naive.standardised(
        components.mean, components.covariance, points, np.ones(len(points))
    )
    first, second = naive.best_two(components.weight, mean, covariance, x)
    pairs = naive.adjacent(first, second, np.ones(len(x)), len(mean))
    return np.array([naive.height(i, j, mean, covariance, x, np.ones(len(x)), first)[0] for i, j in pairs])


def test_a_single_edge_keeps_its_height():
    assert expected_heights(np.array([0.2, np.inf]), np.array([0.1, 0.0])).tolist() == [0.2, np.inf]
    many = np.random.default_rng(12).normal(size=300)
    assert_allclose(expected_heights(many, np.zeros(300)), many, atol=0.2)


def test_components_that_own_no_event_stay_alone():
    x = np.random.default_rng(6).normal(size=(300, 2))
    three = Moments.stack(
        [pieces(x, (x[:, 0] > 0).astype(int)), pieces(x[:50] + 500.0, np.zeros(50, dtype=int))]
    )
    assert_array_equal(merge_tree(three, x).clusters(), [0, 0, 1])


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_hardly_any_events(n):
    x = np.random.default_rng(7).normal(size=(n, 3))
    two = pieces(np.random.default_rng(8).normal(size=(40, 3)), np.arange(40) % 2)
    tree = merge_tree(two, x)
    assert len(tree.clusters()) == 2
    assert not np.isnan(tree.edges.height).any()


def test_one_component_and_constant_features():
    x = np.random.default_rng(9).normal(size=(500, 2))
    flat = np.column_stack([x, np.full(500, 3.0)])
    assert_array_equal(merge_tree(pieces(flat, np.zeros(500, dtype=int)), flat).clusters(), [0])
    assert_array_equal(merge_tree(pieces(flat, (x[:, 0] > 0).astype(int)), flat).clusters(), [0, 0])
    atoms = np.repeat([[0.0], [1.0]], 100, axis=0)
    assert_array_equal(merge_tree(pieces(atoms, np.arange(200) // 100), atoms).clusters(), [0, 1])


def test_impossible_input_is_named():
    x = np.random.default_rng(10).normal(size=(50, 2))
    two = pieces(x, np.arange(50) % 2)
    with pytest.raises(ValueError, match="rows of 2 features"):
        merge_tree(two, x[:, :1])
    with pytest.raises(ValueError, match="with a weight each"):
        merge_tree(two, x, np.ones(3))
    with pytest.raises(ValueError, match="components without covariances"):
        merge_tree(Moments.rows_of_points(x), x)
