"""Pictures in two dimensions: axes to look along, what Moments look like along them, and ellipses. No matplotlib."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from streamclust._kernels.types import Floats
from streamclust.moments import Moments

ELLIPSE_DEVIATIONS = 2.0
"""Radius of an ellipse in standard deviations."""
OUTLINE_POINTS = 65
"""Number of points of an outline; the last repeats the first."""
ARC_POINTS = 129
"""Number of points of an outline of which parts are cut out: they end at one of these."""
MIN_VARIANCE_SHARE = 1e-9
"""Variance that ellipses have in any direction, in units of the largest one's."""


def feature_axes(n_features: int, across: int | None, up: int | None) -> Floats:
    """The axes (D, 2) that show two features as they are; an axis without a feature shows 0.

    >>> feature_axes(3, 2, 0)
    array([[0., 1.],
           [0., 0.],
           [1., 0.]])
    """
    axes = np.zeros((n_features, 2))
    for axis, feature in enumerate((across, up)):
        if feature is not None:
            axes[feature, axis] = 1.0
    return axes


def semi_axes(covariance: Floats) -> tuple[Floats, Floats]:
    """Lengths (..., 2), the shorter first, and directions (..., 2, 2), in columns, of the ellipses of covariances."""
    variance, directions = np.linalg.eigh(covariance)
    return ELLIPSE_DEVIATIONS * np.sqrt(np.maximum(variance, 0.0)), directions


def outline(mean: Floats, covariance: Floats, n_points: int = OUTLINE_POINTS) -> Floats:
    """Outline (n_points, 2) of the ellipse of ELLIPSE_DEVIATIONS standard deviations around the mean.

    >>> outline(np.array([5.0, 0.0]), np.diag([4.0, 1.0])).max(axis=0).round(6)
    array([9., 2.])
    """
    length, directions = semi_axes(covariance)
    angle = np.linspace(0.0, 2 * np.pi, n_points)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    return np.asarray(mean + circle * length @ directions.T)


def union_outline(means: Floats, covariances: Floats) -> list[Floats]:
    """The outline of several ellipses together, as lines (points, 2): the parts of theirs that no other covers.

    >>> arcs = union_outline(np.array([[0.0, 0.0], [3.0, 0.0], [9.0, 0.0]]), np.stack([np.eye(2)] * 3))
    >>> [np.ptp(arc, axis=0).round(1).tolist() for arc in arcs]
    [[3.5, 4.0], [3.5, 4.0], [4.0, 4.0]]
    """
    largest = float(np.trace(covariances, axis1=1, axis2=2).max()) or 1.0
    inverse = np.linalg.inv(covariances + MIN_VARIANCE_SHARE * largest * np.eye(2))
    found = []
    for k, (mean, covariance) in enumerate(zip(means, covariances, strict=True)):
        curve = outline(mean, covariance, ARC_POINTS)
        gap = curve - np.delete(means, k, axis=0)[:, None]
        squared = np.einsum("cpa,cab,cpb->cp", gap, np.delete(inverse, k, axis=0), gap)
        covered = (squared < ELLIPSE_DEVIATIONS**2).any(axis=0)[:-1]  # the last point is the first
        if not covered.any():
            found.append(curve)
        elif not covered.all():
            turn = np.roll(curve[:-1], -int(covered.argmax()), axis=0)
            free = ~np.roll(covered, -int(covered.argmax()))
            starts = np.flatnonzero(free & ~np.roll(free, 1))
            ends = np.flatnonzero(free & ~np.roll(free, -1))
            # one point more on either side: neighbouring arcs meet
            found += [
                turn.take(range(a - 1, b + 2), axis=0, mode="wrap") for a, b in zip(starts, ends, strict=True)
            ]
    return found


def projected_covariance(rows: Moments, axes: Floats) -> Floats:
    """Each row's covariance along the axes: (rows, 2, 2)."""
    kept = rows.covariance
    if rows.kind == "full":
        return np.asarray(np.einsum("da,rde,eb->rab", axes, kept, axes, optimize=True))
    if rows.kind == "diagonal":
        return np.asarray(np.einsum("da,rd,db->rab", axes, kept, axes, optimize=True))
    return np.asarray(kept[:, None, None] * (axes.T @ axes))


def principal_axes(rows: Moments) -> tuple[Floats, tuple[float, float]]:
    """The two directions (D, 2) in which all the rows together vary most, and their shares of the variance.

    A direction is as good as its opposite: the one is taken whose largest entry is positive, so that pictures do
    not flip from one moment to the next.
    """
    d = rows.n_features
    total = total_covariance(rows)
    variance, directions = eigh(total, subset_by_index=[d - 2, d - 1])
    axes = directions[:, ::-1]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(2)]
    axes = axes * np.where(largest < 0, -1.0, 1.0)
    whole = float(np.trace(total))
    first, second = (max(float(v), 0.0) / whole if whole > 0 else 0.0 for v in variance[::-1])
    return axes, (first, second)


def total_covariance(rows: Moments) -> Floats:
    """The covariance (D, D) of all events that the rows stand for: between the rows, and within as far as kept."""
    d, weight = rows.n_features, float(rows.weight.sum())
    if weight <= 0:
        return np.eye(d)
    share = rows.weight / weight
    # Taken from one of the means first: far from the origin the average of them would lose digits.
    deviation = rows.mean - rows.mean[0]
    deviation -= share @ deviation
    between = (deviation * share[:, None]).T @ deviation
    if rows.kind == "full":
        return np.asarray(between + rows.scatter.sum(axis=0) / weight)
    if rows.kind == "diagonal":
        return np.asarray(between + np.diag(rows.scatter.sum(axis=0) / weight))
    within = rows.scatter.sum() / (weight * d) if rows.kind == "scalar" else 0.0
    return np.asarray(between + within * np.eye(d))
