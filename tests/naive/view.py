"""The two-dimensional view from the events themselves."""

import numpy as np


def covariance(points, weight):
    share = weight / weight.sum()
    deviation = points - share @ points
    return sum(s * np.outer(d, d) for s, d in zip(share, deviation, strict=True))


def principal_axes(points, weight):
    """All directions, those of most variance first, and the share of each."""
    variance, directions = np.linalg.eigh(covariance(points, weight))
    return directions[:, ::-1], variance[::-1] / variance.sum()


def mahalanobis(point, mean, covariance):
    deviation = np.asarray(point) - mean
    return np.sqrt(deviation @ np.linalg.solve(covariance, deviation))
