"""Compiled factors and products of small matrices against numpy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from streamclust._kernels import triangular
from streamclust._kernels.families import learnt_prior
from tests.parts import from_python

SIZES = [1, 2, 3, 4, 5, 8, 17]


def symmetric(d):
    a = np.random.default_rng(d).normal(size=(d, d + 2))
    return a @ a.T


def lower(d):
    return np.tril(np.random.default_rng(d).normal(size=(d, d)) + 3.0 * np.eye(d))


@pytest.mark.parametrize("d", SIZES)
def test_factors_stand_below_and_above(d):
    matrix = symmetric(d)
    factor = np.tril(matrix)
    log_det = from_python(triangular.factorise_in_place)(factor, 0.0)
    expected = np.linalg.cholesky(matrix)
    assert_allclose(np.tril(factor), expected, rtol=1e-9, atol=1e-12)
    assert_allclose(np.triu(factor), expected.T, rtol=1e-9, atol=1e-12)
    assert_allclose(log_det, np.linalg.slogdet(matrix)[1], atol=1e-9)


@pytest.mark.parametrize("place", range(5))
def test_a_pivot_that_is_too_small_has_no_factor(place):
    pivots = np.array([4.0, 3.0, 2.0, 5.0, 6.0])
    pivots[place] = 1e-3
    factorise = from_python(triangular.factorise_in_place)
    assert factorise(np.diag(pivots), 1e-3) == np.inf
    assert factorise(np.diag(pivots), 0.9e-3) == pytest.approx(np.log(pivots).sum())


@pytest.mark.parametrize("d", SIZES)
def test_inverses_of_lower_triangles(d):
    L, inverse = lower(d), np.full((d, d), np.nan)
    from_python(triangular.invert_lower)(L + np.triu(np.full((d, d), 7.0), 1), inverse)
    assert_allclose(inverse, np.linalg.inv(L), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("d", SIZES)
def test_grams_are_added(d):
    L, total = lower(d), np.ones((d, d))
    from_python(triangular.add_gram)(L, 2.5, total)
    assert_allclose(np.tril(total), np.tril(1.0 + 2.5 * L.T @ L), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d", SIZES)
def test_tridiagonal_matrices_have_the_eigenvalues_of_the_congruent_ones(d):
    R, A = lower(d), symmetric(d + 1)[:d, :d]
    turned, half, out = np.ascontiguousarray(R.T), np.full((d, d), np.nan), np.full((d, d), np.nan)
    from_python(learnt_prior.congruent)(R, turned, np.tril(A), half, out)
    expected = R @ A @ R.T
    assert_allclose(np.tril(out), np.tril(expected), rtol=1e-12, atol=1e-12)
    diagonal, squared = np.full(d, np.nan), np.full(d, np.nan)
    from_python(learnt_prior.tridiagonalise)(np.tril(expected), diagonal, squared, np.empty(d))
    off = np.sqrt(squared[1:])
    found = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    assert_allclose(found, np.linalg.eigvalsh(expected), rtol=1e-9, atol=1e-9)
