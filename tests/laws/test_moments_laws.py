"""Laws of moments, for all four kinds of scatter, against exact arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from streamclust.moments import SCATTERS, Moments
from tests.naive import moments as naive

EPS = np.finfo(float).eps
kinds = st.sampled_from(SCATTERS)


@st.composite
def weighted_points(draw, min_size=1, max_size=10):
    """Points of one width, anywhere within 1e8, and their weights, some of them zero."""
    n, d = draw(st.integers(min_size, max_size)), draw(st.integers(1, 4))
    origin = draw(st.sampled_from([0.0, 0.0, 1.0, -1e4, 1e8]))
    size = draw(st.sampled_from([1e-8, 1.0, 1.0, 1e3, 1e8]))
    unit = st.floats(-1, 1, allow_subnormal=False) | st.integers(-2, 2)
    table = draw(st.lists(st.lists(unit, min_size=d, max_size=d), min_size=n, max_size=n))
    weight = st.floats(0.01, 100) | st.sampled_from([0.0, 1.0, 1.0])
    weights = draw(st.lists(weight, min_size=n, max_size=n))
    return origin + size * np.array(table, dtype=float), np.array(weights)


def assert_moments(actual, points, expected, steps=8):
    """Rows equal the twin's to 1e-9 relative, or as well as means among `points` can be written down.

    A mean M away from the origin is a float64, wrong by EPS * M; `steps` of such roundings blur the distance
    between two means, and with it the scatter between them.
    """
    assert len(actual) == len(expected)
    blur = steps * EPS * np.abs(points).max(axis=0)
    reach = np.ptp(points, axis=0) + blur
    for row, (weight, mean, scatter) in zip(actual, expected, strict=True):
        assert_allclose(row.weight[0], weight, rtol=1e-12)
        assert np.all(np.abs(row.mean[0] - mean) <= blur + 1e-12 * reach)
        slack = weight * (np.outer(blur, reach) + np.outer(reach, blur)) + 1e-9 * weight * np.outer(
            reach, reach
        )
        slack = np.array(naive.coarsen(slack, actual.kind), dtype=float)
        assert np.all(np.abs(row.scatter[0] - np.array(scatter)) <= slack + 1e-290)


def points_as_rows(points, weights, kind):
    return Moments.rows_of_points(points, weights).to_groups(np.arange(len(points)), len(points), kind)


@given(kinds, weighted_points())
def test_points(kind, data):
    points, weights = data
    assert_moments(Moments.of_points(points, weights, kind), points, [naive.moments(points, weights, kind)])


@given(kinds, weighted_points(), st.integers(0, 10))
def test_split_anywhere_and_merge_is_the_whole(kind, data, cut):
    points, weights = data
    parts = [Moments.of_points(points[s], weights[s], kind) for s in (slice(cut), slice(cut, None))]
    expected = [naive.moments(points, weights, kind)]
    for whole in (parts[0] + parts[1], Moments.stack(parts).total()):
        assert_moments(whole, points, expected)


@given(kinds, weighted_points(), st.randoms())
def test_the_order_and_the_nesting_of_merges_are_irrelevant(kind, data, random):
    points, weights = data
    parts = list(points_as_rows(points, weights, kind))
    while len(parts) > 1:
        first = parts.pop(random.randrange(len(parts)))
        second = parts.pop(random.randrange(len(parts)))
        parts.append(first + second)
    assert_moments(parts[0], points, [naive.moments(points, weights, kind)], steps=40)


@given(kinds, weighted_points(), st.data())
def test_groups_are_the_moments_of_their_points(kind, data, draw):
    points, weights = data
    labels = draw.draw(st.lists(st.integers(-2, 3), min_size=len(points), max_size=len(points)))
    expected = naive.groups(points, labels, 4, weights, kind)
    rows = Moments.rows_of_points(points, weights)
    grouped = rows.to_groups(np.array(labels), 4, kind)
    assert_moments(grouped, points, expected)
    one_hot = np.array([[float(label == g) for g in range(4)] for label in labels])
    assert_moments(rows.mix(one_hot, kind), points, expected)
    kept = np.array([label >= 0 for label in labels])
    assert_array_equal(rows[kept].to_groups(np.array(labels)[kept], 4, kind).scatter, grouped.scatter)


@given(kinds, weighted_points(), st.data())
def test_groups_of_groups_are_groups(kind, data, draw):
    points, weights = data
    fine = np.array(draw.draw(st.lists(st.integers(0, 4), min_size=len(points), max_size=len(points))))
    coarse = np.array(draw.draw(st.lists(st.integers(-1, 1), min_size=5, max_size=5)))
    twice = Moments.rows_of_points(points, weights).to_groups(fine, 5, kind).to_groups(coarse, 2)
    assert_moments(twice, points, naive.groups(points, coarse[fine], 2, weights, kind), steps=16)


@given(kinds, weighted_points(), st.data())
def test_mixing_by_fractions(kind, data, draw):
    points, weights = data
    share = st.floats(0.001, 1) | st.sampled_from([0.0, 1.0])
    shares = np.array(
        draw.draw(
            st.lists(st.lists(share, min_size=3, max_size=3), min_size=len(points), max_size=len(points))
        )
    )
    expected = naive.mix(points, shares, weights, kind)
    assert_moments(Moments.rows_of_points(points, weights).mix(shares, kind), points, expected)
    assert_moments(points_as_rows(points, weights, kind).mix(shares), points, expected)


@given(kinds, weighted_points(), st.integers(0, 10), st.floats(0.01, 1), st.floats(0.01, 1))
def test_mixing_rows_that_already_have_scatter(kind, data, cut, a, b):
    points, weights = data
    rows = Moments.stack(
        [Moments.of_points(points[s], weights[s], kind) for s in (slice(cut), slice(cut, None))]
    )
    shares = np.array([[a]] * min(cut, len(points)) + [[b]] * max(len(points) - cut, 0))
    mixed = rows.mix(np.array([[a], [b]]))
    assert_moments(mixed, points, naive.mix(points, shares, weights, kind), steps=16)


@given(kinds, weighted_points(), st.floats(0.01, 100))
def test_scale_counts_every_event_so_many_times(kind, data, factor):
    points, weights = data
    scaled = Moments.of_points(points, weights, kind).scale(factor)
    assert_moments(scaled, points, naive.mix(points, [[factor]] * len(points), weights, kind))
    assert not scaled.scale(0.0).weight.any()
    assert not scaled.scale(0.0).scatter.any()


@given(kinds, weighted_points(), st.integers(-1000, 1000))
def test_shift_moves_the_mean_alone(kind, data, offset):
    points, weights = data
    m = Moments.of_points(points, weights, kind)
    shifted = m.shift(np.full(points.shape[1], float(offset)))
    assert_array_equal(shifted.mean, m.mean + offset)
    assert_array_equal(shifted.scatter, m.scatter)
    assert_array_equal(shifted.weight, m.weight)


@given(kinds, weighted_points(min_size=2), st.data())
def test_taking_away_undoes_merging(kind, data, draw):
    points, weights = data
    weights = weights + 0.01
    cut = draw.draw(st.integers(1, len(points) - 1))
    one, other = (Moments.of_points(points[s], weights[s], kind) for s in (slice(cut), slice(cut, None)))
    left = (one + other) - other
    # A mean left with a small share of the weight is known so much worse.
    steps = 16 * (1 + float(weights.sum() / weights[:cut].sum())) ** 2
    assert_moments(left, points, [naive.moments(points[:cut], weights[:cut], kind)], steps)
    assert np.all(left.trace >= 0)


@given(kinds, weighted_points(), st.integers(0, 10), st.floats(-1e8, 1e8))
def test_rows_without_weight_are_neutral(kind, data, place, where):
    points, weights = data
    m = Moments.of_points(points, weights + 0.01, kind)
    ghost = Moments.empty(1, points.shape[1], kind).shift(np.full(points.shape[1], where))
    for same in (m + ghost, ghost + m, m - ghost):
        assert_array_equal(same.weight, m.weight)
        assert_array_equal(same.mean, m.mean)
        assert_array_equal(same.scatter, m.scatter)
    with_ghost = np.insert(points, min(place, len(points)), where, axis=0)
    ghostly = np.insert(weights, min(place, len(points)), 0.0)
    assert_array_equal(
        Moments.of_points(with_ghost, ghostly, kind).scatter, Moments.of_points(points, weights, kind).scatter
    )
    assert_array_equal(
        Moments.of_points(with_ghost, ghostly, kind).mean, Moments.of_points(points, weights, kind).mean
    )


@pytest.mark.parametrize(("fine", "coarse"), [(f, c) for i, f in enumerate(SCATTERS) for c in SCATTERS[i:]])
@given(data=weighted_points(), cut=st.integers(0, 10))
def test_coarsening_commutes_with_merging(fine, coarse, data, cut):
    points, weights = data
    one, other = (Moments.of_points(points[s], weights[s], fine) for s in (slice(cut), slice(cut, None)))
    early, late = one.to(coarse) + other.to(coarse), (one + other).to(coarse)
    assert_array_equal(early.weight, late.weight)
    assert_array_equal(early.mean, late.mean)
    assert_allclose(early.scatter, late.scatter, rtol=1e-12)
    grouped = Moments.stack([one, other]).to_groups(None, kind=coarse)
    assert_allclose(grouped.scatter, Moments.stack([one, other]).total().to(coarse).scatter, rtol=1e-12)


@given(kinds, weighted_points())
def test_a_scatter_is_symmetric_and_not_negative(kind, data):
    m = Moments.of_points(*data, kind)
    assert np.all(m.trace >= 0)
    if kind == "full":
        assert_allclose(m.scatter, m.scatter.transpose(0, 2, 1), rtol=1e-12)
        assert np.linalg.eigvalsh(m.scatter[0]).min() >= -1e-12 * m.trace[0]
