"""Squared distances of one cluster's mean from others, each pair in the covariance within the two."""

import math

import numpy as np

from streamclust._kernels.compile import kernel
from streamclust._kernels.triangular import factorise_in_place
from streamclust._kernels.types import Floats, Ints


@kernel
def squared_distances(mean: Floats, scatter: Floats, weight: Floats, c: int, others: Ints) -> Floats:
    """From the mean of cluster c to those of `others`; infinite where no event of the two varies in some direction."""
    d = mean.shape[1]
    found, factor, step = np.empty(len(others)), np.empty((d, d)), np.empty(d)
    for p in range(len(others)):
        o = others[p]
        n = weight[c] + weight[o]
        for i in range(d):
            for j in range(i + 1):
                factor[i, j] = (scatter[c, i, j] + scatter[o, i, j]) / n
        if factorise_in_place(factor, 0.0) == math.inf:
            found[p] = math.inf
            continue
        found[p] = 0.0
        for i in range(d):
            step[i] = mean[o, i] - mean[c, i]
            for j in range(i):
                step[i] -= factor[i, j] * step[j]
            step[i] /= factor[i, i]
            found[p] += step[i] * step[i]
    return found
