"""Expected heights of edges: each is measured with an error, and all of them together tell what heights there are.

Of a ring in twenty pieces of fifty events each, some edge looks like two bells by chance; that it is a plateau as the
others are is likelier. Of many clusters that overlap, some two look like a plateau; that they are two, as the others
are, is likelier. So the distribution of true heights is estimated from all edges (empirical Bayes): of all
distributions the one under which the measured heights are likeliest [Kiefer and Wolfowitz 1956]. A single edge keeps
its height.
"""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.shapes.tuning import TUNING
from streamclust.utils.blas import weighted_sum


def expected_heights(height: Floats, error: Floats) -> Floats:
    """The expected true height of each edge, given what was measured of all; infinite ones stay so.

    >>> expected_heights(np.array([-0.05, -0.04, 0.01, 0.5]), np.full(4, 0.03)).round(2)
    array([-0.04, -0.04, -0.02,  0.5 ])
    """
    known = np.isfinite(height)
    h, se = height[known], np.maximum(error[known], TUNING.min_error_nats)
    if len(h) < 2:
        return height
    atoms = (
        np.sort(h)
        if len(h) <= TUNING.max_heights
        else np.quantile(h, np.linspace(0.0, 1.0, TUNING.max_heights))
    )
    log = -0.5 * ((h[:, None] - atoms) / se[:, None]) ** 2
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    share = np.full(len(atoms), 1.0 / len(atoms))
    for _ in range(TUNING.em_iterations):
        share *= weighted_sum(1.0 / weighted_sum(share, likelihood.T), likelihood) / len(h)
    expected = height.copy()
    expected[known] = weighted_sum(share * atoms, likelihood.T) / weighted_sum(share, likelihood.T)
    return expected
