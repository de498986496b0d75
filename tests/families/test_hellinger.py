"""How far distributions of one feature are apart, against its slow twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from streamclust.families import FAMILIES
from streamclust.families.hellinger import DISTANCES, hellinger
from tests.naive import hellinger as naive

MEANS = st.floats(-20, 20)
STDS = st.floats(0.1, 10)
RATES = st.floats(0, 200)
SHARES = st.floats(0, 1)


def distance(family, mean, std, other_mean, other_std):
    (found,) = hellinger(family, *(np.array([v]) for v in (mean, std**2, other_mean, other_std**2)))
    return found


def test_every_family_has_one():
    assert set(DISTANCES) == {*FAMILIES, "mixed"}


@given(MEANS, STDS, MEANS, STDS)
def test_gaussians(mean, std, other_mean, other_std):
    expected = naive.gaussian(mean, std, other_mean, other_std)
    assert_allclose(distance("diagonal", mean, std, other_mean, other_std), expected, atol=1e-6)


@given(RATES, RATES)
def test_counts(rate, other):
    assert_allclose(distance("poisson", rate, 1.0, other, 1.0), naive.poisson(rate, other), atol=1e-9)


@given(SHARES, SHARES)
def test_yes_and_no(probability, other):
    expected = naive.bernoulli(probability, other)
    assert_allclose(distance("bernoulli", probability, 0.0, other, 0.0), expected, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
@given(SHARES, st.floats(0, 10), SHARES, st.floats(0, 10))
def test_it_is_symmetric_bounded_and_nothing_for_the_same(family, mean, std, other_mean, other_std):
    found = distance(family, mean, std, other_mean, other_std)
    assert 0 <= found <= 1
    assert found == pytest.approx(distance(family, other_mean, other_std, mean, std))
    assert distance(family, mean, std, mean, std) == pytest.approx(0, abs=1e-12)


@given(MEANS, STDS, MEANS, STDS, st.sampled_from([1e-12, 1e-3, 1e6]), st.floats(-1e3, 1e3))
def test_units_do_not_matter_to_gaussians(mean, std, other_mean, other_std, unit, origin):
    found = distance("gaussian", mean, std, other_mean, other_std)
    moved = distance(
        "gaussian", unit * (mean + origin), unit * std, unit * (other_mean + origin), unit * other_std
    )
    assert_allclose(moved, found, atol=1e-6)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e8 / 3])
def test_a_constant_sets_nobody_apart_though_its_mean_is_rounded(constant):
    rounded = np.nextafter(constant, np.inf)
    assert distance("gaussian", constant, 0.0, rounded, 0.0) < 0.01


def test_what_is_always_the_same_within_a_cluster_sets_it_apart_for_sure():
    assert distance("gaussian", 3.0, 0.0, 3.0, 1.0) == pytest.approx(1.0, abs=1e-6)
