"""Representatives, slowly: distances by marginal covariances, and counts in common one feature at a time."""

import math

import numpy as np


def half_distance(x, mean, covariance):
    """Half the squared Mahalanobis distance of the values that are there, and 1/2 for each that is not."""
    there = ~np.isnan(x)
    gap = (x - mean)[there]
    inverse = np.linalg.inv(covariance[np.ix_(there, there)])
    return gap @ inverse @ gap / 2 + np.count_nonzero(~there) / 2


def least_in_common(x, mean):
    """The squared Hellinger distance of counts as a part of the largest, with half an event in both."""
    pairs = [(0.0 if math.isnan(a) else a, b) for a, b in zip([*x, 0.5], [*mean, 0.5], strict=True)]
    apart = sum((math.sqrt(a) - math.sqrt(b)) ** 2 for a, b in pairs)
    return apart / sum(a + b for a, b in pairs)
