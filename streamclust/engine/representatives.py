"""Representatives: recent events that are typical of a cluster, and those between two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.model import Model
from streamclust.families.cost_form import Quadratic
from streamclust.sketch import Rows
from streamclust.utils.late import issparse, logsumexp

if TYPE_CHECKING:
    from streamclust.engine.projection import Projection


@dataclass(frozen=True, eq=False)
class RecentSample:
    """A sample of the recent events as they came, and the model that tells them apart.

    Holds copies: it can be read while the stream goes on. A missing value makes no event typical, since it counts as
    far off as values are on average, and none a border case, for which it counts as it was filled in.
    """

    model: Model
    rows: Rows
    """In the order in which they came; NaN where a value was missing."""
    number: Ints
    """Number of events learnt before each."""
    filled: Floats | None = None
    """The events with their missing values filled in; None if none is missing, or events are wide."""

    @cached_property
    def cluster(self) -> Ints:
        """Id of the cluster of each event."""
        return self.model.names[self.model.place[self._component]]

    @cached_property
    def distance(self) -> Floats:
        """How far each event is from the centre of its component: small for a typical event."""
        form, points = self.model.form, self._coordinates
        found, means = self._outside_sketch, self.model.active.clusters.mean
        for k in np.unique(self._component):
            own = self._component == k
            if isinstance(form, Quadratic):
                found[own] += quadratic_distance(points[own], form.centre[k], form.root[k])
            else:
                found[own] += count_distance(points[own], means[k])
        return found

    def typical(self, cluster: int, k: int) -> Ints:
        """Places of the k most typical events of a cluster that differ, the most typical first."""
        return self._least(np.flatnonzero(self.cluster == cluster), self.distance, k)

    def between(self, one: int, other: int, k: int) -> Ints:
        """Places of the k events of two clusters that are hardest to tell apart, the hardest first."""
        own = np.flatnonzero(np.isin(self.cluster, (one, other)))
        doubt = np.full(len(self.number), np.inf)
        joint = self._joint(own, self._coordinates if self.filled is None else self.filled)
        columns = [np.flatnonzero(self.model.names == name)[0] for name in (one, other)]
        with np.errstate(invalid="ignore"):  # impossible under both
            odds = joint[:, columns[0]] - joint[:, columns[1]]
        doubt[own] = np.where(np.isnan(odds), np.inf, np.abs(odds))
        return self._least(own, doubt, k)

    def neighbour(self, cluster: int) -> int | None:
        """The cluster to which most of a cluster's events would belong otherwise; None if it is alone."""
        own, names = np.flatnonzero(self.cluster == cluster), self.model.names
        if len(names) < 2 or not len(own):
            return None
        joint = np.median(self._joint(own), axis=0)
        return int(names[np.where(names == cluster, -np.inf, joint).argmax()])

    def probability(self, places: Ints) -> Floats:
        """p(cluster | x) of the cluster that each of some events is in."""
        joint = self._joint(places)
        own = joint[self.cluster[places][:, None] == self.model.names]
        with np.errstate(invalid="ignore"):
            found = np.exp(own - logsumexp(joint, axis=1))
        return np.asarray(
            np.where(np.isnan(found), 1.0, found)
        )  # impossible under every cluster: the nearest has it

    def values(self, place: int) -> Floats:
        """Values of an event, NaN where one was missing."""
        row = self.rows[place : place + 1]
        dense: Floats = np.asarray(row.toarray() if issparse(row) else row, dtype=float)
        return np.asarray(dense[0])

    # ---------------------------------------------------------------- parts

    def _least(self, places: Ints, score: Floats, k: int) -> Ints:
        """The k of these events that differ and score least; of equal ones the latest."""
        order = places[np.lexsort((-self.number[places], score[places]))]
        found: dict[bytes, int] = {}
        for place in order.tolist():
            if len(found) == k:
                break
            found.setdefault(self.values(place).tobytes(), place)
        return np.array(list(found.values()), dtype=np.int64)

    def _joint(self, places: Ints, points: Floats | None = None) -> Floats:
        """log p(x, cluster) of some events, by these coordinates of all or their own."""
        joint = self.model.log_joint((self._coordinates if points is None else points)[places])
        members = [self.model.place == k for k in range(len(self.model.names))]
        return np.stack([logsumexp(joint[:, own], axis=1) for own in members], axis=1)

    @cached_property
    def _component(self) -> Ints:
        return self.model.cheapest(self._coordinates)

    @cached_property
    def _measured(self) -> tuple[Floats, Floats]:
        return self.model.measured(self.rows)

    @property
    def _coordinates(self) -> Floats:
        return self._measured[0][:, : self.model.n_coordinates]

    @property
    def _outside_sketch(self) -> Floats:
        """Addition to the distance of each event by its part that a sketch leaves out."""
        return np.asarray(self._measured[1] + (0.0 if self.model.sketch is None else self._missing / 2))

    @cached_property
    def _missing(self) -> Floats:
        """Number of values that each event lacks."""
        if issparse(self.rows):
            return np.zeros(len(self.number))
        return np.asarray(np.isnan(self.rows[:, : self.model.n_features]).sum(axis=1), dtype=float)


def quadratic_distance(rows: Floats, centre: Floats, root: Floats) -> Floats:
    """‖root (x - centre)‖² of each row: half its squared Mahalanobis distance.

    Of a missing value its mean under the normal distribution, given the other values: 1/2 more than the least.

    >>> rows = np.array([[1.0, 1.0], [1.0, np.nan], [np.nan, np.nan]])
    >>> quadratic_distance(rows, np.zeros(2), np.eye(2) / np.sqrt(2)).round(2)
    array([1., 1., 1.])
    """
    missing = np.isnan(rows)
    whitened = np.where(missing, 0.0, rows - centre) @ root.T
    for i in np.flatnonzero(missing.any(axis=1)).tolist():
        basis = root[:, missing[i]]
        whitened[i] -= basis @ np.linalg.lstsq(basis, whitened[i], rcond=None)[0]
    return np.asarray(np.square(whitened).sum(axis=1) + missing.sum(axis=1) / 2)


def count_distance(rows: Floats, mean: Floats) -> Floats:
    """How little each row of counts has in common with a cluster's mean, from 0 (the mean itself) to 1.

    Σ (√x - √m)², as a part of the most it can be for such totals; half an event in common is assumed, so that an event
    without counts is typical where counts are rare. A missing value counts as 0.

    >>> count_distance(np.array([[4.0, 1.0], [0.0, 0.0], [0.0, 9.0]]), np.array([4.0, 1.0])).round(2)
    array([0.  , 0.83, 0.53])
    """
    x = np.nan_to_num(rows)
    return np.asarray(1.0 - (1.0 + 2.0 * np.sqrt(x * mean).sum(axis=1)) / (1.0 + x.sum(axis=1) + mean.sum()))


def recent_sample(projection: Projection) -> RecentSample | None:
    """The sample that the engine or, if events are wide, the projection keeps; None before the first model."""
    model, recent = projection.engine.shown, projection.engine.shards.recent
    if model is None:
        return None
    if projection.sketch is not None and projection.recent.count:
        return RecentSample(model, projection.recent.latest(), projection.recent.numbers())
    if projection.sketch is not None:  # this process has learnt none of the events
        return RecentSample(model, np.empty((0, model.n_features)), np.zeros(0, dtype=np.int64))
    kept = recent.kept_watched()
    rows = projection.engine.transform.as_they_came(kept.rows)
    if kept.missing is None:
        return RecentSample(model, rows, kept.at)
    return RecentSample(model, np.where(kept.missing, np.nan, rows), kept.at, kept.rows)
