"""Values far from all others: what counts as far, and that it depends on no unit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from streamclust.batch import (
    AgglomerativeBayesian,
    BayesianHierarchical,
    BayesianKMeans,
    ChunkyGaussianMixture,
)
from streamclust.utils import outliers
from streamclust.utils.outliers import (
    FAR_DEVIATIONS,
    MIN_GROUP_ROWS,
    MIN_ROWS,
    far_values,
    near_variance,
    outlying,
)

CENTRES = np.array([[0, 0], [12, 0], [0, 12], [12, 12], [24, 6]], float)
MAGNITUDES = st.sampled_from([1e7, -1e7, 1e30, -1e100, 1e119])


def clustered(n, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(5, size=n)
    return CENTRES[label] + rng.normal(size=(n, 2)), label


@given(MAGNITUDES, st.integers(0, 99), st.integers(0, 1))
def test_one_wild_value_is_far_and_outlying(value, row, column):
    x, _ = clustered(100)
    x[row, column] = value
    assert_array_equal(np.argwhere(far_values(x)), [[row, column]])
    assert_array_equal(np.flatnonzero(outlying(x)), [row])


@given(st.floats(-9.0, 9.0), st.integers(-5, 5), st.integers(0, 2**32))
def test_units_do_not_matter(power, shift, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_cauchy(size=(500, 2)) ** 3
    scale = 10.0**power
    assert_array_equal(outlying(x * scale + shift * scale), outlying(x + shift))


@given(
    st.integers(0, 2**32),
    st.integers(MIN_ROWS, 200),
    st.sampled_from([1.0, 0.1, 3e5]),
    st.sampled_from([0, 1, 3]),
)
def test_equal_weights_are_none(seed, n, weight, decimals):
    """Also beside rows that weigh nothing; and nearly equal ones, which are sorted with the values, are no others."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.standard_cauchy(size=(n, 3)) ** 3, decimals)
    expected = far_values(x)
    assert_array_equal(far_values(x, np.full(n, weight)), expected)
    nearly = weight * (1.0 + 1e-13 * rng.random(n))
    assert_array_equal(far_values(x, nearly), expected)
    more = np.concatenate([x, np.full((5, 3), 7.0)])
    assert_array_equal(far_values(more, np.append(nearly, np.zeros(5)))[:n], expected)


@pytest.mark.parametrize("count", [1, MIN_GROUP_ROWS - 1, MIN_GROUP_ROWS, 20])
def test_groups_of_five_are_no_outliers(count):
    x = np.random.default_rng(0).normal(size=(1000, 1))
    x[:count] += 1e9
    assert outlying(x).sum() == (count if count < MIN_GROUP_ROWS else 0)
    assert far_values(x).sum() == count
    assert near_variance(x, np.ones(1000), x.var(axis=0))[0] < 2.0


def test_features_of_two_scales_have_no_outliers():
    rng = np.random.default_rng(0)
    x = np.where(rng.random(200) < 0.6, 1e-3 * rng.normal(size=200), 100.0 * rng.random(200))[:, None]
    assert not far_values(x).any()
    assert_allclose(near_variance(x, np.ones(200), x.var(axis=0)), x.var(axis=0))


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((100, 1)),
        np.append(np.zeros(99), 1e9)[:, None],  # of what does not vary, nothing tells a scale
        np.append(np.zeros(90), np.ones(10))[:, None],
        np.append(np.arange(MIN_ROWS - 2.0), 1e9)[:, None],
        np.arange(100.0)[:, None] + 1e8,
    ],
    ids=["constant", "atom and one", "two values", "few", "far from the origin"],
)
def test_no_outliers(x):
    assert not outlying(x).any()


def test_missing_values_are_not_far():
    x = np.random.default_rng(0).normal(size=(100, 1))
    x[:50] = np.nan
    x[99] = 2 * FAR_DEVIATIONS * 10
    assert_array_equal(np.flatnonzero(outlying(x)), [99])


@pytest.mark.compiled
@pytest.mark.parametrize("value", [1e7, 1e119])
@pytest.mark.parametrize(
    ("estimator", "alone"),
    [
        (BayesianKMeans(), 0),
        (BayesianKMeans(family="spherical"), 0),
        (BayesianKMeans(max_leaves=32), 0),
        (ChunkyGaussianMixture(), 0),
        (AgglomerativeBayesian(), 1),
        (BayesianHierarchical(), 1),
    ],
    ids=str,
)
def test_batch_clusters_are_those_of_the_other_points(estimator, alone, value):
    """Hierarchies, of which each point is a leaf, keep an outlier as a cluster of its own."""
    x, truth = clustered(200, seed=3)
    x[7, 0] = value
    labels = np.delete(estimator.fit(x).labels_, 7)
    assert len(set(estimator.labels_)) == 5 + alone
    assert len(set(zip(labels, np.delete(truth, 7), strict=True))) == 5


@settings(max_examples=200)
@given(
    st.integers(0, 10**6),
    st.integers(33, 400),
    st.sampled_from(["normal", "t", "log-normal", "grid", "wild", "constant", "two scales"]),
    st.booleans(),
    st.floats(-300, 300),
)
def test_a_rough_test_spares_the_sort_where_nothing_is_far_and_changes_nothing(
    seed, n, kind, weighted, power
):
    rng = np.random.default_rng(seed)
    x = {
        "normal": lambda: rng.normal(size=n),
        "t": lambda: rng.standard_t(1, size=n),
        "log-normal": lambda: rng.lognormal(sigma=4.0, size=n),
        "grid": lambda: rng.integers(-3, 3, size=n).astype(float),
        "wild": lambda: np.append(rng.normal(size=n - 2), [1e9, -3e3]),
        "constant": lambda: np.append(np.ones(n - 1), 5.0),
        "two scales": lambda: rng.normal(size=n) * np.where(rng.random(n) < 0.6, 1e-3, 1.0),
    }[kind]() * 10.0**power
    weight = rng.exponential(size=n) * (rng.random(n) < 0.9) if weighted else None
    told = outliers.far_reach(x, weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outliers, "none_is_far", lambda *_: False)
        assert told == outliers.far_reach(x, weight)
