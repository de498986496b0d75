"""Moments by example: small cases worked by hand, precision far from the origin, and what is refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from streamclust._kernels import moments as kernels
from streamclust.moments import SCATTERS, Moments, scatter_shape, scatter_width
from tests.naive import moments as naive
from tests.parts import from_python

merge_into = from_python(kernels.merge_into)

POINTS = np.array([[0.0, 1.0], [2.0, 5.0], [4.0, 0.0], [-1.0, 3.0], [7.0, 7.0]])
WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0, 1.0])
LABELS = np.array([0, 2, -1, 0, 2])
SHARES = np.array([[1.0, 0.0], [0.25, 0.75], [0.5, 0.5], [0.0, 1.0], [0.125, 0.0]])


def assert_rows(actual, expected, rtol=1e-12):
    """Every row of moments equals its (weight, mean, scatter), relative to the largest number of its kind."""
    assert len(actual) == len(expected)
    for row, (weight, mean, scatter) in zip(actual, expected, strict=True):
        for found, wanted in ((row.weight, weight), (row.mean[0], mean), (row.scatter[0], scatter)):
            size = np.max(np.abs(wanted), initial=0.0)
            assert_allclose(np.squeeze(found), np.squeeze(wanted), rtol=0, atol=rtol * size)


# -------------------------------------------------------------------- making and reading


@pytest.mark.parametrize("kind", SCATTERS)
def test_points(kind):
    assert_rows(Moments.of_points(POINTS, WEIGHTS, kind), [naive.moments(POINTS, WEIGHTS, kind)])
    assert_rows(Moments.of_points(POINTS, kind=kind), [naive.moments(POINTS, None, kind)])


@pytest.mark.parametrize("kind", SCATTERS)
def test_one_point_has_no_scatter(kind):
    m = Moments.of_points([[3.0, 4.0]], [2.5], kind)
    assert_array_equal(m.weight, [2.5])
    assert_array_equal(m.mean, [[3.0, 4.0]])
    assert not m.scatter.any()


def test_duplicates_count_as_weight():
    repeated = Moments.of_points(np.repeat(POINTS, 3, axis=0))
    assert_rows(repeated, [naive.moments(POINTS, [3.0] * 5)])
    assert not Moments.of_points([[0.1, 0.7]] * 7).scatter.any()


def test_fewer_points_than_features():
    points = np.arange(10.0).reshape(2, 5) ** 2
    m = Moments.of_points(points)
    assert_rows(m, [naive.moments(points)])
    assert np.linalg.matrix_rank(m.scatter[0]) == 1


@pytest.mark.parametrize("kind", SCATTERS)
def test_no_points(kind):
    m = Moments.of_points(np.zeros((0, 3)), kind=kind)
    empty = Moments.empty(1, 3, kind)
    for found, wanted in ((m.weight, empty.weight), (m.mean, empty.mean), (m.scatter, empty.scatter)):
        assert_array_equal(found, wanted)
        assert found.shape == wanted.shape


@pytest.mark.parametrize("kind", SCATTERS)
def test_no_rows(kind):
    none = Moments.empty(0, 3, kind)
    assert len(none + none) == len(none - none) == len(none.scale(2.0)) == 0
    assert_array_equal(none.total().weight, [0.0])
    assert len(none.to_groups(np.zeros(0, int))) == 0
    assert_array_equal(none.to_groups(np.zeros(0, int), 2).weight, [0.0, 0.0])
    for columns in (0, 1, 2):
        mixed = none.mix(np.zeros((0, columns)))
        assert mixed.mean.shape == (columns, 3)
        assert not mixed.mean.any()


def test_rows_are_taken_by_number_slice_and_mask():
    rows = Moments.rows_of_points(POINTS, WEIGHTS)
    assert_array_equal(rows[0].mean, POINTS[:1])
    assert_array_equal(rows[-1].mean, POINTS[-1:])
    assert_array_equal(rows[np.int64(1)].weight, [2.0])
    assert_array_equal(rows[1:3].mean, POINTS[1:3])
    assert_array_equal(rows[[3, 0]].mean, POINTS[[3, 0]])
    assert_array_equal(rows[WEIGHTS > 1].mean, POINTS[WEIGHTS > 1])
    assert [float(row.weight[0]) for row in rows] == WEIGHTS.tolist()
    for beyond in (5, -6):
        with pytest.raises(IndexError, match=f"row {beyond} of 5"):
            rows[beyond]


def test_covariance_and_trace():
    full = Moments.of_points(POINTS, WEIGHTS)
    covariance = np.cov(POINTS.T, aweights=WEIGHTS, ddof=0)
    assert_allclose(full.covariance[0], covariance)
    assert_allclose(full.to("diagonal").covariance[0], np.diag(covariance))
    assert_allclose(full.to("scalar").covariance[0], np.trace(covariance) / 2)
    for kind in ("full", "diagonal", "scalar"):
        assert_allclose(full.to(kind).trace, np.trace(covariance) * 7.5)
        assert not Moments.empty(2, 3, kind).covariance.any()
    assert_array_equal(full.to("none").trace, [0.0])


def test_the_scatter_of_a_coarser_kind_is_a_copy():
    full = Moments.of_points(POINTS)
    full.to("diagonal").scatter[:] = -1.0
    full.to("scalar").scatter[:] = -1.0
    assert_rows(full, [naive.moments(POINTS)])


@pytest.mark.parametrize("kind", SCATTERS)
def test_flat_there_and_back(kind):
    m = Moments.rows_of_points(POINTS).to_groups(LABELS, kind=kind)
    assert m.flat_scatter.shape == (3, scatter_width(kind, 2))
    back = Moments.from_flat(m.weight, m.mean, m.flat_scatter, kind)
    assert_array_equal(back.scatter, m.scatter)


def test_stack_and_total():
    a, b = Moments.of_points(POINTS[:2]), Moments.of_points(POINTS[2:])
    stacked = Moments.stack([a, b, a])
    assert_rows(stacked, [naive.moments(part) for part in (POINTS[:2], POINTS[2:], POINTS[:2])])
    assert_rows(stacked[:2].total(), [naive.moments(POINTS)])


# -------------------------------------------------------------------- groups and mixtures


@pytest.mark.parametrize("kind", SCATTERS)
def test_groups(kind):
    rows = Moments.rows_of_points(POINTS, WEIGHTS)
    expected = naive.groups(POINTS, LABELS, 4, WEIGHTS, kind)
    assert_rows(rows.to_groups(LABELS, 4, kind), expected)
    assert_rows(rows.to_groups(LABELS, kind=kind), expected[:3])
    assert len(rows.to_groups(np.full(5, -1))) == 0


@pytest.mark.parametrize("kind", SCATTERS)
def test_mixtures(kind):
    rows = Moments.rows_of_points(POINTS, WEIGHTS)
    assert_rows(rows.mix(SHARES, kind), naive.mix(POINTS, SHARES, WEIGHTS, kind))


def test_a_component_without_weight_is_empty():
    mixed = Moments.rows_of_points(POINTS).mix(np.eye(5, 7)[:, [0, 6]])
    assert_array_equal(mixed.weight, [1.0, 0.0])
    assert_array_equal(mixed.mean, [POINTS[0], [0.0, 0.0]])


def test_an_empty_row_has_no_say_whatever_its_mean():
    rows = Moments.rows_of_points([[1e300, -1e300], *POINTS], [0.0, *WEIGHTS])
    assert_rows(rows.to_groups(None, kind="full"), [naive.moments(POINTS, WEIGHTS)])


# -------------------------------------------------------------------- taking away


@pytest.mark.parametrize("kind", SCATTERS)
def test_taking_all_away_leaves_an_empty_row(kind):
    m = Moments.of_points(POINTS + 1e8, WEIGHTS, kind)
    left = m - m
    for found in (left.weight, left.mean, left.scatter):
        assert not found.any()


@pytest.mark.parametrize("kind", SCATTERS)
def test_parts_far_from_the_origin_can_be_taken_away(kind):
    for seed in range(20):
        points = np.random.default_rng(seed).normal(size=(2, 3)) + 1e8
        one, other = (Moments.of_points(points[i : i + 1], kind=kind) for i in range(2))
        left = (one + other) - other
        assert_allclose(left.mean, one.mean, rtol=1e-15 * 4)
        assert np.all(left.trace >= 0)


@pytest.mark.parametrize("kind", ["full", "diagonal", "scalar"])
def test_what_is_not_part_is_not_taken_away(kind):
    m = Moments.of_points(POINTS, kind=kind)
    for stranger in (
        Moments.of_points([[90.0, 0.0]], kind=kind),
        Moments.of_points(POINTS * 3, kind=kind).scale(0.5),
        Moments.of_points(POINTS + 1.0, kind=kind),
    ):
        with pytest.raises(ValueError, match="were not part of these: scatter would become negative"):
            m - stranger
    with pytest.raises(ValueError, match="cannot take away more weight than a row has"):
        m - m.scale(2.0)


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_a_wide_feature_hides_no_stranger_in_a_narrow_one(kind):
    wide = np.array([[0.0, 0.0], [1000.0, 0.001], [-1000.0, 0.0]])
    with pytest.raises(ValueError, match="were not part of these"):
        Moments.of_points(wide, kind=kind) - Moments.of_points([[0.0, 0.1]], kind=kind)


# -------------------------------------------------------------------- precision

FAR = [(1e8, 1.0), (-1e8, 1e-3), (0.0, 1e-8), (1.0, 1e-8), (1e8, 1e8), (0.0, 1e8), (1e-8, 1e-12)]


@pytest.mark.parametrize("kind", SCATTERS)
@pytest.mark.parametrize(("origin", "width"), FAR)
def test_precision_of_points(origin, width, kind):
    rng = np.random.default_rng(7)
    points = origin + width * rng.normal(size=(60, 3))
    weights = rng.uniform(0.1, 3.0, size=60)
    # At -1e8 and 1e-3 wide the rounding of the mean itself, squared, is 2e-10 of the variance.
    assert_rows(Moments.of_points(points, weights, kind), [naive.moments(points, weights, kind)], 1e-9)


@pytest.mark.parametrize("kind", ["full", "diagonal", "scalar"])
def test_precision_of_groups_and_mixtures_far_apart(kind):
    rng = np.random.default_rng(8)
    labels = np.arange(90) % 3
    points = rng.normal(size=(90, 2)) + np.array([[0.0, 0.0], [1e8, -1e8], [-1e8, 3e7]])[labels]
    rows = Moments.rows_of_points(points)
    expected = naive.groups(points, labels, 3, kind=kind)
    assert_rows(rows.to_groups(labels, kind=kind), expected, 1e-9)
    assert_rows(rows.mix(np.eye(3)[labels], kind), expected, 1e-9)


def test_a_stranger_very_far_away_does_not_blur_the_others():
    points = np.array([[1e13, -1e13], *np.random.default_rng(11).normal(size=(50, 2))])
    labels = np.array([1] + [0] * 50)
    rows = Moments.rows_of_points(points)
    expected = naive.groups(points, labels, 2)
    assert_rows(rows.to_groups(labels, kind="full"), expected)
    assert_rows(rows.mix(np.eye(2)[labels], "full"), expected)


@pytest.mark.parametrize(("width", "digits"), [(1e3, 1e-9), (1.0, 1e-7)])
def test_precision_of_many_merges_far_from_the_origin(width, digits):
    # A float64 near 1e8 is a multiple of 1.5e-8: means of parts are known no better than that.
    points = 1e8 + width * np.random.default_rng(9).normal(size=(64, 2))
    merged = Moments.rows_of_points(points).to_groups(np.arange(64), kind="full")
    while len(merged) > 1:
        merged = merged[::2] + merged[1::2]
    assert_rows(merged, [naive.moments(points)], digits)


@pytest.mark.parametrize("kind", SCATTERS)
def test_the_kernel_that_merges_one_row_agrees_with_the_sum(kind):
    points = 1e8 + np.random.default_rng(10).normal(size=(30, 2))
    parts = Moments.rows_of_points(points).to_groups(np.arange(30) // 3, kind=kind)
    weight, mean, flat = np.zeros(2), np.full((2, 2), 5.0), np.zeros((2, scatter_width(kind, 2)))
    total = Moments.empty(1, 2, kind)
    for part in (*parts, Moments.empty(1, 2, kind)):
        merge_into(weight, mean, flat, 1, part.weight[0], part.mean[0], part.flat_scatter[0])
        total = total + part
    merged = Moments.from_flat(weight, mean, flat, kind)[1]
    assert_allclose(merged.weight, total.weight)
    assert_allclose(merged.mean, total.mean, rtol=1e-15)
    assert_allclose(merged.scatter, total.scatter, rtol=1e-7, atol=1e-6)
    assert_array_equal(mean[0], [5.0, 5.0])


@pytest.mark.parametrize("kind", ["full", "diagonal", "scalar"])
def test_with_one_feature_all_scatters_are_one(kind):
    points = POINTS[:, :1]
    assert_allclose(Moments.of_points(points, kind=kind).scatter.ravel(), naive.moments(points)[2][0])


# -------------------------------------------------------------------- what is refused, and the sentence


def refused(sentence, call, *arguments, **options):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        call(*arguments, **options)
    assert str(error.value) == sentence


def test_shapes_that_do_not_fit():
    refused(
        "2 rows of 3 features with full scatter need weight (2,) and scatter (2, 3, 3), got (2,) and (2, 3)",
        Moments,
        np.ones(2),
        np.zeros((2, 3)),
        np.zeros((2, 3)),
    )
    refused("points must be a table of rows and columns, got shape (3,)", Moments.of_points, [1.0, 2.0, 3.0])
    refused(
        "2 rows of 1 features with none scatter need weight (2,) and scatter (2, 0), got (1,) and (2, 0)",
        Moments.of_points,
        [[1.0], [2.0]],
        [1.0],
    )
    three, five = Moments.empty(3, 2), Moments.empty(5, 2)
    refused("cannot pair 3 rows with 5", three.__add__, five)
    refused("cannot pair 3 rows with 5", three.__sub__, five)
    assert len(three + Moments.empty(1, 2)) == 3


def test_forms_that_do_not_mix():
    full, flat, wide = Moments.empty(1, 2), Moments.empty(1, 2, "diagonal"), Moments.empty(1, 3)
    kinds = "cannot combine full rows of 2 features with diagonal rows of 2"
    widths = "cannot combine full rows of 2 features with full rows of 3"
    for other, sentence in ((flat, kinds), (wide, widths)):
        refused(sentence, full.__add__, other)
        refused(sentence, full.__sub__, other)
        refused(sentence, Moments.stack, [full, other])
    refused("nothing to stack; use Moments.empty(0, n_features) for no rows at all", Moments.stack, [])


def test_kinds():
    with pytest.raises(ValueError, match="scatter must be one of full, diagonal, scalar, none, got 'round'"):
        scatter_shape("round", 2)
    refused(
        "scatter must be one of full, diagonal, scalar, none, got 'round'", Moments.empty(1, 2).to, "round"
    )
    refused("a scalar scatter does not hold what a full one needs", Moments.empty(1, 2, "scalar").to, "full")
    with pytest.raises(ValueError, match="a diagonal scatter does not hold what a full one needs"):
        Moments.empty(1, 2, "diagonal").to_groups(None, kind="full")
    with pytest.raises(ValueError, match="these rows keep no scatter, so they have no covariance"):
        _ = Moments.empty(1, 2, "none").covariance


@pytest.mark.parametrize("bad", [-1.0, np.nan])
def test_weights_and_scales_below_zero(bad):
    refused(f"weights must not be negative, got {bad}", Moments.of_points, [[1.0], [2.0]], [1.0, bad])
    refused(f"a scale must not be negative, got {bad}", Moments.empty(2, 2).scale, np.array([1.0, bad]))


def test_labels_and_responsibilities_that_do_not_fit():
    rows = Moments.rows_of_points(POINTS)
    refused("labels must be 5 numbers below 2", rows.to_groups, [0, 1, 2, 0, 0], 2)
    refused("labels must be 5 numbers below 1", rows.to_groups, [0, 0])
    sentence = "responsibility must have a row for each of 5 rows, got shape "
    refused(sentence + "(4, 2)", rows.mix, np.ones((4, 2)))
    refused(sentence + "(5,)", rows.mix, np.ones(5))
