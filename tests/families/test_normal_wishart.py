"""The compiled normal-Wishart against the same algebra by arrays."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import digamma as scipy_digamma

from streamclust._kernels.families import normal_wishart as kernels
from streamclust.families import Gaussian
from streamclust.families.linalg import cholesky, log_determinant, whitener
from streamclust.moments import Moments
from tests.parts import from_python

digamma, factorise = from_python(kernels.digamma), from_python(kernels.factorise)


def factorised(matrix):
    factor = np.zeros_like(matrix)
    log_det = factorise(matrix, factor)
    return np.tril(factor), log_det


@pytest.mark.parametrize("x", [1e-6, 0.3, 1.0, 1.4616321449683622, 7.99, 8.0, 50.5, 1e9])
def test_digamma(x):
    assert_allclose(digamma(x), scipy_digamma(x), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("d", [1, 2, 5, 17])
def test_factors_and_whiteners(d):
    rng = np.random.default_rng(d)
    a = rng.normal(size=(3, d, d + 1))
    stack = a @ a.transpose(0, 2, 1)
    for matrix in stack:
        factor, log_det = factorised(matrix)
        assert_allclose(factor, cholesky(matrix), rtol=1e-9, atol=1e-12)
        assert_allclose(log_det, np.linalg.slogdet(matrix)[1], rtol=1e-9, atol=1e-9)
    family = Gaussian(0.3, np.arange(d, dtype=float), d + 1.0, np.eye(d))
    posterior = family.posterior(Moments(np.arange(3.0), rng.normal(size=(3, d)), stack))
    assert_allclose(posterior.whitener, whitener(cholesky(posterior.B)), rtol=1e-8, atol=1e-12)
    assert_allclose(posterior.log_det, log_determinant(cholesky(posterior.B)))
    assert_allclose(posterior.B, posterior.B.transpose(0, 2, 1), rtol=0)


def test_the_jitter_is_that_of_the_stacks():
    """Singular in its two last features: ridges grow by decades until one suffices."""
    matrix = np.diag([1.0, -3e-11])
    assert_allclose(factorised(matrix)[0], cholesky(matrix), rtol=1e-6)
    assert_allclose(factorised(np.ones((3, 3)))[0], cholesky(np.ones((3, 3))), rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "NaN or infinity"), (np.inf, "NaN or infinity"), (0.0, "positive trace")]
)
def test_what_has_no_factor_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        factorised(np.diag([value, value]))


def test_priors_of_any_layout_are_copied():
    B0 = np.asfortranarray([[2.0, 0.5], [0.5, 1.0]])
    family = Gaussian(0.1, np.arange(4.0)[::2], 2.0, B0)
    twin = Gaussian(0.1, np.array([0.0, 2.0]), 2.0, B0.copy(order="C"))
    B0[:] = np.nan
    rows = Moments.of_points([[0.0, 1.0], [2.0, 5.0]])
    assert_allclose(family.log_marginal(rows), twin.log_marginal(rows), rtol=0)
