"""Dependence: how many independent events the events of a stream are worth.

Sensors, sessions and prices wander: an event is much like the one before it from the same source, and the mean of n
such events varies as the mean of n / τ independent ones does. τ, the integrated autocorrelation time, is estimated from
the recent events of each cluster in their order. Means of blocks of B events have the variance τ/B, once B is well
above τ [Flyvbjerg and Petersen 1989]. Variances are taken of second differences of neighbouring blocks: a steady drift
adds nothing to those, so that it is not taken for wandering.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from streamclust._kernels.engine.dependence import block_bends
from streamclust._kernels.types import Floats, Ints
from streamclust.engine.model import Model, Seen
from streamclust.engine.tuning import TUNING


@dataclass(frozen=True, eq=False)
class BlockCurve:
    """Variances of block means by the length of blocks, from second differences.

    >>> rng = np.random.default_rng(0)
    >>> independent = Seen(np.zeros(4000, dtype=np.int64), rng.normal(size=(4000, 2)))
    >>> BlockCurve.of(independent, 1).correlation_time()
    1.0
    >>> repeated = Seen(independent.cell, np.repeat(independent.whitened[:200], 20, axis=0))
    >>> 10 < BlockCurve.of(repeated, 1).correlation_time() < 60
    True
    """

    variance: Floats
    """Of the mean of a block of 1, 2, 4, ... events, less what drift adds; in units of the clusters' variances."""
    n_bends: Floats
    """Number of second differences that each was taken from."""
    within: float
    """Variance of events about the mean of their cell."""
    n_own: float
    """Number of events in the cell of an average event."""
    n_features: int

    @classmethod
    def of(cls, seen: Seen, n_cells: int) -> Self:
        """From events in their order, as a model of `n_cells` components sees them."""
        bend, n_bends, within, n_own = block_bends(*seen, n_cells, TUNING.window_events.bit_length())
        return cls(bend / np.maximum(n_bends, 1.0), n_bends, within, n_own, seen.whitened.shape[1])

    @property
    def length(self) -> Floats:
        """Events of a block."""
        return np.asarray(2.0 ** np.arange(TUNING.window_events.bit_length()))

    @property
    def margin(self) -> Floats:
        """Factor by which chance may raise each variance: a quantile of χ² over its degrees of freedom.

        Overlapping differences depend on each other, and a median tells less than a mean.
        """
        freedom = np.maximum(self.n_features * self.n_bends, 1.0) * np.where(self.length > 1, 1 / 3, 2 / 3)
        spread = 2.0 / (9.0 * freedom)
        return np.asarray((1.0 - spread + TUNING.margin_deviates * np.sqrt(spread)) ** 3)

    @property
    def excess(self) -> Floats:
        """Variance of block means beyond that of independent events which differ as neighbours do."""
        white = self.variance[0] / self.length
        return np.asarray(np.maximum(self.variance - white * self.margin, 0.0))

    def excess_at(self, length: Floats) -> tuple[Floats, Floats]:
        """`excess` at the length nearest to each of these, and the number of differences it was taken from.

        Beyond the longest known it grows as that of a random walk does.
        """
        known = np.flatnonzero(self.n_bends >= TUNING.min_bends / 2)
        if not len(known):
            return np.zeros(len(length)), np.zeros(len(length))
        far = np.abs(np.log2(self.length[known] / length[:, None]))
        nearest = known[far.argmin(axis=1)]
        growth = np.maximum(1.0, length / self.length[nearest])
        return self.excess[nearest] * growth, self.n_bends[nearest] / growth

    def correlation_time(self) -> float:
        """Events of a cluster that tell as much as one independent event, at least: 1 if none is seen to depend.

        The largest that blocks of any length show, or that of an AR(1) process whose neighbours differ as little. Where
        the curve has not levelled off, the geometric mean of that and of half the events of a cluster. No more than the
        events of a cluster: together they tell what one does, at least.
        """
        known = np.flatnonzero(self.n_bends >= TUNING.min_bends)
        if not len(known):
            return 1.0
        curve = self.length * self.variance
        time = max(1.0, float((curve / self.margin)[known].max()), self._neighbours_time())
        last = known[-1]
        if time < TUNING.min_correlation_events:
            return 1.0
        if last > 0 and curve[last] / self.margin[last] > TUNING.rising * curve[last - 1]:
            time = max(time, float(np.sqrt(time * self.n_own / 2)))
        return max(1.0, min(time, self.n_own))

    def _neighbours_time(self) -> float:
        """Autocorrelation time of the AR(1) process whose second differences vary as those of single events do.

        Those have 6 (1 - ρ)(3 - ρ) / 3 times the variance of events.
        """
        bend = self.variance[0] * self.margin[0] / max(self.within, np.finfo(float).tiny)
        rho = 2.0 - np.sqrt(1.0 + 3.0 * min(bend, 1.0))
        return float((1.0 + rho) / max(1.0 - rho, np.finfo(float).eps))


class RecentSequence(NamedTuple):
    """Recent events in their order, by which dependence is measured."""

    watched: Floats
    """A sample over a long time."""
    stride: float
    """Number of events that each of the sample stands for."""
    latest: Floats
    """The latest events, all of them."""

    def evidence(self, model: Model) -> float:
        """Independent events that one event is worth in decisions about clusters, above 0 and at most 1."""
        if not model.whitened_features or not len(self.latest):
            return 1.0
        k = len(model.rows)
        return self._combined(lambda rows: BlockCurve.of(model.see(rows), k).correlation_time())

    def share_evidence(self, model: Model) -> float:
        """Independent events that one event is worth in decisions about clusters' shares: less if they come in runs."""
        if not len(self.latest):
            return 1.0
        return self._combined(lambda rows: run_time(np.append(model.place, -1)[model.see(rows).cell]))

    def _combined(self, time: Callable[[Floats], float]) -> float:
        """One over the longer of the times that the latest events and those watched over a longer time show."""
        near, far = time(self.latest), time(self.watched)
        return 1.0 / max(near, far * self.stride if far > 1.0 else 1.0)


def run_time(labels: Ints) -> float:
    """Events of a run of equal labels, as a multiple of those that independent labels of the same shares have.

    1 if no label comes back after others: then the stream has changed, for all that is known.

    >>> run_time(np.repeat([0, 1, 0, 1, 0, 1], 100)) > 20
    True
    >>> run_time(np.repeat([0, 1, 2], 200)), run_time(np.random.default_rng(0).integers(3, size=1000))
    (1.0, 1.0)
    """
    n_changes = int(np.count_nonzero(labels[1:] != labels[:-1]))
    share = np.unique(labels, return_counts=True)[1] / max(len(labels), 1)
    if n_changes < max(1, len(share)):
        return 1.0
    expected = (len(labels) - 1) * (1.0 - float((share**2).sum()))
    margin = 1.0 + TUNING.margin_deviates / np.sqrt(n_changes)
    return max(1.0, float(expected / (n_changes * margin)))


def group_evidence(points: Floats, groups: Ints) -> float:
    """`RecentSequence.evidence` of events in their order within groups, each measured in its own deviations."""
    n_groups = int(groups.max(initial=-1)) + 1
    count: Floats = np.maximum(np.bincount(groups, minlength=n_groups), 1.0)[:, None]
    mean = np.zeros((n_groups, points.shape[1]))
    np.add.at(mean, groups, points)
    deviation = points - (mean / count)[groups]
    squares = np.zeros_like(mean)
    np.add.at(squares, groups, deviation**2)
    scale: Floats = np.sqrt(squares / count)[groups]
    whitened = deviation / np.where(scale > 0, scale, 1.0)
    return 1.0 / BlockCurve.of(Seen(groups, whitened), n_groups).correlation_time()
