import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

from streamclust.families.linalg import (
    cholesky,
    floor_eigenvalues,
    log_determinant,
    multigammaln,
    solve_lower,
    whitener,
)


@pytest.fixture
def stack():
    a = np.random.default_rng(0).normal(size=(5, 3, 4))
    return a @ a.transpose(0, 2, 1)


def test_a_sound_stack_is_factorised_as_it_is(stack):
    factor = cholesky(stack)
    assert_allclose(factor @ factor.transpose(0, 2, 1), stack, rtol=1e-12)
    assert_array_equal(factor, np.triu(factor.transpose(0, 2, 1)).transpose(0, 2, 1))


@pytest.mark.parametrize("scale", [1e-16, 1.0, 1e16])
def test_only_the_singular_matrix_gets_jitter_and_it_is_relative(stack, scale):
    stack[2] = np.ones((3, 3))
    factor = cholesky(scale * stack)
    rebuilt = factor @ factor.transpose(0, 2, 1) / scale
    for i in (0, 1, 3, 4):
        assert_array_equal(factor[i], np.linalg.cholesky(scale * stack[i]))
    assert_allclose(rebuilt[2], np.ones((3, 3)), atol=1e-10)


def test_jitter_grows_by_decades_until_it_suffices():
    matrix = np.diag([1.0, -3e-11])
    factor = cholesky(matrix)  # mean diagonal ½: ridges 5e-13, 5e-12 fail, 5e-11 succeeds
    assert_allclose((factor @ factor.T)[1, 1], 2e-11, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(stack, bad):
    stack[1, 0, 0] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        cholesky(stack)


def test_a_matrix_without_spread_is_refused():
    with pytest.raises(ValueError, match="positive trace"):
        cholesky(np.zeros((1, 2, 2)))


def test_determinant_solve_and_whitener(stack):
    factor = cholesky(stack)
    assert_allclose(log_determinant(factor), np.linalg.slogdet(stack)[1])
    right = np.random.default_rng(1).normal(size=(5, 3, 2))
    assert_allclose(solve_lower(factor, right), np.linalg.solve(factor, right), rtol=1e-9)
    W = whitener(factor)
    assert_allclose(np.einsum("kji,kjl->kil", W, W), np.linalg.inv(stack), rtol=1e-8)


def test_floor_lifts_small_eigenvalues_only():
    vectors = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    matrix = vectors @ np.diag([0.0, 1.0, 5.0]) @ vectors.T
    assert_allclose(np.linalg.eigvalsh(floor_eigenvalues(matrix, 0.01)), [0.02, 1, 5])
    sound = np.diag([1.0, 2.0])
    assert floor_eigenvalues(sound, 0.01) is sound


@pytest.mark.parametrize("d", [1, 2, 5])
def test_multigammaln_takes_arrays_of_real_arguments(d):
    x = np.array([2.1, 3.77, 150.25])
    assert_allclose(multigammaln(x, d), [special.multigammaln(v, d) for v in x])
