"""Edges between adjacent components, and how high the ridge between two bells is: are they two, or one plateau?

For each two adjacent components the events of both are seen along the line that tells the two apart best. Their
height is the log-likelihood per event that two bells gain over one plateau: above 0 the components are apart, below
they are pieces of one shape. Both fits have five parameters [Vuong 1989]; the bells are charged for one more, the
boundary between them, which the refit has chosen by these events.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamclust._kernels.shapes.heights import judge_edges
from streamclust._kernels.shapes.line import best_two
from streamclust._kernels.types import Floats, Ints
from streamclust.families.linalg import cholesky, log_determinant, whitener
from streamclust.moments import Moments
from streamclust.shapes.expected import expected_heights
from streamclust.shapes.plateaus import plateau_grid
from streamclust.shapes.tuning import TUNING
from streamclust.utils.blas import weighted_sum
from streamclust.utils.late import betaincinv
from streamclust.utils.outliers import near_variance


class Edges(NamedTuple):
    """Adjacent components, and what their events look like along the line between them."""

    pairs: Ints
    """(E, 2): components i < j."""
    height: Floats
    """(E,): nats per event by which two bells are expected to fit better than a plateau, given all edges; more where
    there is a narrow gap."""
    error: Floats
    """(E,): the standard error of what was measured on the edge's own events."""
    peaks: Floats
    """(E, 2): mass / σ of the bell of each."""


class Standardised(NamedTuple):
    """Components and sampled events about the events' mean, in units of the deviations of those that are not far."""

    log_weight: Floats
    mean: Floats
    covariance: Floats
    points: Floats
    point_weight: Floats

    @classmethod
    def of(cls, components: Moments, points: Floats, weight: Floats) -> Standardised:
        """With full covariances, whatever form they are kept in, and a ridge."""
        share = weight / weight.sum()
        middle = weighted_sum(share, points - points[0]) + points[0]
        centred = points - middle
        # A group far away would make the ridge as wide as the way between all others.
        deviation = np.sqrt(near_variance(points, weight, weighted_sum(share, centred**2)))
        deviation = np.where(deviation > 0, deviation, 1.0)
        d = len(middle)
        kept = components.covariance
        full = kept if kept.ndim == 3 else kept.reshape(len(kept), -1, 1) * np.eye(d)
        covariance = full / (deviation[:, None] * deviation) + TUNING.ridge_variance * np.eye(d)
        return cls(
            np.log(components.weight),
            (components.mean - middle) / deviation,
            covariance,
            np.ascontiguousarray(centred / deviation),
            weight,
        )

    def best_two(self) -> tuple[Ints, Ints]:
        """The best and the second best component of each event, by log joint density."""
        factor = cholesky(self.covariance)
        offset = log_determinant(factor) / 2 - self.log_weight
        root = np.ascontiguousarray(whitener(factor) / np.sqrt(2))
        first, second = best_two(
            np.ascontiguousarray(self.points.T), np.ascontiguousarray(self.mean), root, offset
        )
        return first, second


def judged_edges(components: Moments, points: Floats, weight: Floats) -> Edges:
    """The edges of components, from the events of a sample and the weight each stands for.

    Components must differ from each other, and have weight.
    """
    k = len(components)
    if k < 2 or not len(points):
        return Edges(np.zeros((0, 2), dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros((0, 2)))
    scene = Standardised.of(components, points, weight)
    first, second = scene.best_two()
    pairs = adjacent(first, second, weight, k)
    gap = scene.mean[pairs[:, 1]] - scene.mean[pairs[:, 0]]
    pairs, gap = pairs[gap.any(axis=1)], gap[gap.any(axis=1)]  # no line leads from a mean to itself
    spread = scene.covariance[pairs[:, 0]] + scene.covariance[pairs[:, 1]]
    direction: Floats = np.asarray(np.linalg.solve(spread, gap[:, :, None])[:, :, 0], dtype=float)
    direction /= np.einsum("ed,ed->e", direction, gap)[:, None]
    start = np.append(0, np.cumsum(np.bincount(first, minlength=k)))
    owned = np.argsort(first, kind="stable")
    grid = plateau_grid()
    height, error, *peaks, valley, peak = judge_edges(
        scene.points, weight, owned, start, pairs, np.ascontiguousarray(scene.mean), direction, *grid
    ).T
    expected = expected_heights(height, error)
    return Edges(pairs, np.maximum(expected, gap_height(valley, peak)), error, np.stack(peaks, axis=1))


def adjacent(first: Ints, second: Ints, weight: Floats, k: int) -> Ints:
    """Pairs i < j of components with events; `adjacent_share` of either's weight has the other as second best."""
    followed = np.bincount(first * k + second, weight, k * k).reshape(k, k)
    owned = followed.sum(axis=1)
    close = (followed >= TUNING.adjacent_share * owned[:, None]) & (followed > 0)
    both = (owned[:, None] > 0) & (owned > 0)
    return np.argwhere(np.triu((close | close.T) & both, 1))


def gap_height(valley: Floats, peak: Floats) -> Floats:
    """Height of a gap of `valley` events between windows of at least `peak` events; -∞ where those are empty.

    0 where the upper bound on the ratio of the two is `max_gap_ratio`, more where it is smaller.
    """
    known = peak > 0
    q = betaincinv(valley + 1, np.where(known, peak, 1.0), TUNING.gap_confidence)
    with np.errstate(divide="ignore"):
        depth = np.log(TUNING.max_gap_ratio) - np.log(q) + np.log1p(-q)
    return np.where(known, TUNING.gap_nats * depth, -np.inf)
