"""Slow twin of the blacklisting descent: every point against every cluster; and the paper's bounds as printed."""

import numpy as np


def quadratic_costs(points, centre, root, offset):
    """offset + ‖root (x - centre)‖², for points x clusters, summed feature by feature."""
    costs = np.empty((len(points), len(offset)))
    for c in range(len(offset)):
        total = np.zeros(len(points))
        for i in range(points.shape[1]):
            y = np.zeros(len(points))
            for j in range(i + 1):
                y = y + root[c, i, j] * (points[:, j] - centre[c, j])
            total = total + y * y
        costs[:, c] = total + offset[c]
    return costs


def linear_costs(points, slope, offset):
    """offset + slope · x, for points x clusters, summed feature by feature."""
    costs = np.empty((len(points), len(offset)))
    for c in range(len(offset)):
        total = np.zeros(len(points))
        for j in range(points.shape[1]):
            total = total + slope[c, j] * points[:, j]
        costs[:, c] = total + offset[c]
    return costs


def costs(points, arrays):
    """From (centre, root, offset) or from (slope, offset)."""
    return quadratic_costs(points, *arrays) if len(arrays) == 3 else linear_costs(points, *arrays)


def labels(points, arrays):
    """The cluster of least cost of each point, the first of equals."""
    return costs(points, arrays).argmin(axis=1)


def cluster_moments(points, weights, labels, n_clusters):
    """(weight, mean, scatter) of each cluster, in long doubles, about one of its own points."""
    out = []
    for c in range(n_clusters):
        x, w = points[labels == c].astype(np.longdouble), weights[labels == c].astype(np.longdouble)
        if w.sum() == 0:
            d = points.shape[1]
            out.append((0.0, np.zeros(d), np.zeros((d, d))))
            continue
        moved = x - x[0]
        mean = (w[:, None] * moved).sum(axis=0) / w.sum()
        out.append((w.sum(), x[0] + mean, (w[:, None] * (moved - mean)).T @ (moved - mean)))
    return out


def printed_lower_bound(lo, hi, mean, eigenvalue, constant):
    """The least cost over a box as section 9.1 prints it: the nearer side in every feature, or the constant."""
    if np.all((lo <= mean) & (mean <= hi)):
        return constant
    return eigenvalue * np.minimum((hi - mean) ** 2, (lo - mean) ** 2).sum() + constant


def printed_upper_bound(lo, hi, mean, eigenvalue, constant):
    """The greatest cost over a box, as printed, and right."""
    return eigenvalue * np.maximum((hi - mean) ** 2, (lo - mean) ** 2).sum() + constant
