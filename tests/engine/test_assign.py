"""Points that few clusters price, by bounds, against all clusters pricing all points: the same bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from streamclust._kernels.engine.assign import assign_points
from streamclust._kernels.engine.windows import see_points
from streamclust.families.cost_form import Quadratic

D, K = 33, 40


def form_of(seed, apart, scales, infinite):
    """Clusters `apart` from each other, whose precisions have `scales`; some may own nothing."""
    rng = np.random.default_rng(seed)
    root = np.tril(rng.normal(size=(K, D, D)) * 0.2 / np.sqrt(D)) + np.eye(D)
    root *= rng.choice(scales, size=(K, 1, 1)) * rng.choice(scales, size=(1, 1, D))
    centre = apart * rng.normal(size=(K, D))
    centre[1] = centre[0]
    root[1] = root[0]
    offset = 10.0 * rng.normal(size=K)
    offset[1] = offset[0]
    offset[rng.random(K) < infinite] = np.inf
    return Quadratic(centre, np.ascontiguousarray(root), offset)


def points_of(form, seed, n=700):
    rng = np.random.default_rng(seed)
    x = form.centre[rng.integers(K, size=n)] + rng.normal(size=(n, D)) * rng.choice(
        [0.0, 1.0, 100.0], size=(n, 1)
    )
    return np.ascontiguousarray(x)


def assigned(form, points, directions):
    labels = np.empty(len(points), dtype=np.int64)
    cost, nearest = np.empty((2, len(points)))
    assign_points(points, *form, directions, labels, cost, nearest)
    return labels, cost, nearest


@given(
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.3, 3.0, 1e6]),
    st.sampled_from([(1.0,), (0.5, 2.0), (1e-4, 1.0, 1e4)]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_bounds_change_no_bit(seed, apart, scales, infinite):
    form = form_of(seed, apart, scales, infinite)
    points = points_of(form, seed)
    directions = form.directions()
    assert directions.shape[1] == D
    assert len(directions) > 0
    expected = assigned(form, points, np.zeros((0, D)))
    for found, known in zip(assigned(form, points, directions), expected, strict=True):
        assert_array_equal(found, known)
    for part in (slice(0, 1), slice(3, 200)):  # of other batches too
        found = assigned(form, points[part], directions)
        for some, known in zip(found, expected, strict=True):
            assert_array_equal(some, known[part])


def test_directions_may_be_any():
    """Directions that do not tell clusters apart, or repeat each other, cost time alone."""
    form = form_of(0, 1.0, (1.0,), 0.0)
    points = points_of(form, 0)
    expected = assigned(form, points, np.zeros((0, D)))
    for directions in (np.zeros((3, D)), np.ones((2, D)), np.eye(D)[:5] * 1e-200):
        for found, known in zip(assigned(form, points, directions), expected, strict=True):
            assert_array_equal(found, known)


@pytest.mark.parametrize(
    ("clusters", "change"),
    [(slice(0, 20), 1.0), (slice(None), 1e200), (slice(None), 0.0)],
    ids=["few clusters", "too large to square", "no precision"],
)
def test_no_directions(clusters, change):
    form = form_of(0, 1.0, (1.0,), 0.0)
    form = Quadratic(form.centre[clusters], form.root[clusters] * change, form.offset[clusters])
    assert form.directions().shape == (0, D)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 8, 11])
def test_deviations_from_the_cluster_of_a_point(d):
    rng = np.random.default_rng(d)
    root = np.tril(rng.normal(size=(2, d, d))) + 3.0 * np.eye(d)
    centre, points = np.array([np.zeros(d), np.full(d, 50.0)]), rng.normal(size=(20, d))
    cell, whitened = np.empty(20, dtype=np.int64), np.full((20, d), np.nan)
    see_points(points, centre, root, np.zeros(2), np.zeros((0, d)), 1e9, cell, whitened)
    assert_array_equal(cell, 0)
    np.testing.assert_allclose(whitened, np.sqrt(2.0) * points @ root[0].T, rtol=1e-12, atol=1e-12)
    see_points(points, centre, root, np.zeros(2), np.zeros((0, d)), -1.0, cell, whitened)
    assert_array_equal((cell, whitened.any(axis=1)), ([2] * 20, [False] * 20))
