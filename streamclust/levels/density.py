"""Peaks and saddles of a mixture's density: is there a valley between two components?

A cluster of any distribution (heavy tails, skew) is several Gaussians, but has one peak. Components are clusters of
their own where the density between them is lower than at either's peak [ToMATo, Chazal et al. 2013].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamclust._kernels.engine.assign import assign_points
from streamclust._kernels.types import Floats, Ints
from streamclust.families.cost_form import Quadratic
from streamclust.families.linalg import cholesky, log_determinant, whitener
from streamclust.levels.tuning import TUNING
from streamclust.moments import Moments
from streamclust.utils.late import logsumexp


class Landscape(NamedTuple):
    """Log density of a mixture: at each component's mean, and at the saddle between two."""

    peak: Floats
    """(K,)."""
    saddle: Floats
    """(K, K): -∞ where it was not looked for."""


class Bells(NamedTuple):
    """Gaussian components about the mean of the data, in units of the deviations within components."""

    weight: Floats
    mean: Floats
    covariance: Floats
    deviation: Floats
    """(D,): the unit of each feature."""

    @classmethod
    def of(cls, components: Moments) -> Bells:
        """With full covariances, whatever form they are kept in, and a ridge."""
        d, full = components.n_features, matrices(components)
        share = components.weight / components.weight.sum()
        centred = components.mean - components.mean[0]
        centred -= share @ centred
        within = share @ np.einsum("kii->ki", full)  # not of all: a far group would make the others points
        variance = np.where(within > 0, within, share @ centred**2)
        deviation = np.sqrt(np.where(variance > 0, variance, 1.0))
        covariance = full / (deviation[:, None] * deviation) + TUNING.ridge_variance * np.eye(d)
        return cls(components.weight, centred / deviation, covariance, deviation)

    def varying(self, observed: Moments) -> Bells:
        """These components with the covariances that their events were observed to have."""
        unit = self.deviation[:, None] * self.deviation
        return self._replace(
            covariance=matrices(observed) / unit + TUNING.ridge_variance * np.eye(len(self.deviation))
        )


def matrices(components: Moments) -> Floats:
    """Full covariances, whatever form they are kept in."""
    kept = components.covariance
    return kept if kept.ndim == 3 else kept.reshape(len(kept), -1, 1) * np.eye(components.n_features)


def landscape(bells: Bells, distance: Floats, plateaus: Ints) -> Landscape:
    """Peaks, and saddles between neighbours by squared `distance`.

    Where the events of a pair are one plateau rather than two bells (`plateaus`) there is no valley, whatever the model
    says: a model of several Gaussians has valleys within a cluster that is not Gaussian.
    """
    k = len(bells.weight)
    factor = cholesky(bells.covariance)
    root = np.ascontiguousarray(whitener(factor) / np.sqrt(2))
    offset = log_determinant(factor) / 2 - np.log(bells.weight)
    apart = bells.mean[:, None] - bells.mean  # of mean i from mean j
    cost = offset + np.einsum("jde,ije->ijd", root, apart, optimize=True).__pow__(2).sum(axis=2)
    peak = np.asarray(logsumexp(-cost, axis=1))
    pairs = neighbours(distance)
    saddle = np.full((k, k), -np.inf)
    i, j = pairs.T
    saddle[i, j] = saddle_heights(bells.mean, root, offset, pairs)
    i, j = plateaus.T
    saddle[i, j] = np.minimum(peak[i], peak[j])
    return Landscape(peak, np.maximum(saddle, saddle.T))


def neighbours(distance: Floats) -> Ints:
    """Pairs i < j of components of which one is among the nearest of the other."""
    k = len(distance)
    near = np.argsort(distance + np.where(np.eye(k, dtype=bool), np.inf, 0.0), axis=1, kind="stable")
    near = near[:, : min(TUNING.neighbours, k - 1)]
    pairs = np.stack([np.repeat(np.arange(k), near.shape[1]), near.ravel()], axis=1)
    return np.unique(np.sort(pairs, axis=1), axis=0)


def saddle_heights(mean: Floats, root: Floats, offset: Floats, pairs: Ints) -> Floats:
    """The least log density on the segment between two means: that of the two and of the likeliest other component."""
    t = np.arange(1, TUNING.segment_points + 1) / (TUNING.segment_points + 1)
    i, j = pairs.T
    step = mean[j] - mean[i]
    from_i = ((root[i] @ step[:, :, None])[:, :, 0] ** 2).sum(axis=1)
    from_j = ((root[j] @ step[:, :, None])[:, :, 0] ** 2).sum(axis=1)
    one = -offset[i, None] - from_i[:, None] * t**2
    other = -offset[j, None] - from_j[:, None] * (1 - t) ** 2
    density = np.logaddexp(one, other)
    points = np.ascontiguousarray((mean[i, None] + t[:, None] * step[:, None]).reshape(-1, mean.shape[1]))
    owner = np.empty(len(points), dtype=np.int64)
    cost, nearest = np.empty(len(points)), np.empty(len(points))
    form = Quadratic(np.ascontiguousarray(mean), root, np.ascontiguousarray(offset))
    assign_points(points, *form, form.directions(), owner, cost, nearest)
    third = (owner.reshape(density.shape) != i[:, None]) & (owner.reshape(density.shape) != j[:, None])
    density = np.where(third, np.logaddexp(density, -cost.reshape(density.shape)), density)
    return np.asarray(density.min(axis=1))
