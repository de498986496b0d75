"""Where a search begins."""

import numpy as np
import pytest

from streamclust.families import FAMILIES, Finite
from streamclust.moments import Moments
from streamclust.refit.bkm.merge_path import coordinates, nearest_seed
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.splits import leading_axes


@pytest.mark.parametrize("family", ["multinomial", "poisson"])
def test_counts_a_rounding_below_zero_do_no_harm(family):
    """The mean of a leaf's counts is kept relative to the first event: a zero may come back as -1e-17."""
    counts = np.random.default_rng(0).poisson(2.0, size=(50, 4)).astype(float)
    counts[:10, 0] = -1e-17
    rows = Moments(np.ones(50), counts, np.zeros((50, 0)), "none")
    prior = FAMILIES[family].informed(np.maximum(counts, 0.0))
    problem = Problem(prior, Finite(1.0), rows)
    assert np.isfinite(coordinates(problem)).all()
    labels = nearest_seed(problem, coordinates(problem), 5, np.random.default_rng(1))
    assert set(labels.tolist()) == set(range(5))


@pytest.mark.parametrize("shape", [(90, 300), (300, 90), (80, 80), (10, 300), (70, 70)])
def test_the_leading_axes_of_a_wide_table_are_its_singular_vectors(shape):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape) + 9.0 * rng.normal(size=(shape[0], 1)) * rng.normal(size=shape[1])
    x += 3.0 * rng.normal(size=(shape[0], 1)) * rng.normal(size=shape[1])
    both = leading_axes(x, 2) @ np.linalg.svd(x)[2][:2].T
    np.testing.assert_allclose(np.abs(both), np.eye(2), atol=1e-8)
    assert np.isfinite(leading_axes(np.zeros(shape), 2)).all()


@pytest.mark.parametrize("n_rows", [1, 2])
def test_a_wide_table_of_few_rows_has_as_many_axes(n_rows):
    x = np.random.default_rng(0).normal(size=(n_rows, 100))
    axes = leading_axes(x, 3)
    assert axes.shape == (n_rows, 100)
    np.testing.assert_allclose(axes @ axes.T, np.eye(n_rows), atol=1e-9)
