"""Where a search begins."""

import numpy as np
import pytest

from streamclust.families import FAMILIES, Finite
from streamclust.moments import Moments
from streamclust.refit.problem import Problem
from streamclust.refit.search import coordinates, nearest_seed


@pytest.mark.parametrize("family", ["multinomial", "poisson"])
def test_counts_a_rounding_below_zero_do_no_harm(family):
    """The mean of a leaf's counts is kept relative to the first event: a zero may come back as -1e-17."""
    counts = np.random.default_rng(0).poisson(2.0, size=(50, 4)).astype(float)
    counts[:10, 0] = -1e-17
    rows = Moments(np.ones(50), counts, np.zeros((50, 0)), "none")
    prior = FAMILIES[family].informed(np.maximum(counts, 0.0))
    problem = Problem(prior, Finite(1.0), rows)
    assert np.isfinite(coordinates(problem)).all()
    labels = nearest_seed(problem, 5, np.random.default_rng(1))
    assert set(labels.tolist()) == set(range(5))
