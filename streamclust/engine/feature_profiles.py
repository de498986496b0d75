"""Profiles: what each cluster is, feature by feature, against all events together."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.families.hellinger import hellinger
from streamclust.moments import Moments
from streamclust.sketch import Sketch, Transform

if TYPE_CHECKING:
    from streamclust.engine.engine import Engine


@dataclass(frozen=True)
class FeatureProfile:
    """One feature of a cluster against all events: means, standard deviations, and how far they are apart."""

    name: Hashable
    mean: float
    std: float
    """NaN for a cluster so new that no event of it was sampled, where its family has no variance of its own."""
    overall_mean: float
    overall_std: float
    distance: float
    """Squared Hellinger distance of the cluster's values from all values: 0 the same, 1 no overlap."""

    @property
    def shift(self) -> float:
        """Distance of the cluster's mean from that of all events, in standard deviations of all events."""
        gap = self.mean - self.overall_mean
        return gap / self.overall_std if self.overall_std > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Profiles:
    """Means and variances of every cluster (clusters, D), and of all events together (D,).

    Holds copies: it can be read while the stream goes on.
    """

    family: str
    names: tuple[Hashable, ...]
    ids: Ints
    mean: Floats
    variance: Floats
    overall_mean: Floats
    overall_variance: Floats
    transform: Transform = field(default_factory=Transform.none)
    """Of the features whose means and variances are of transformed values."""

    def describe(self, cluster: int) -> list[FeatureProfile]:
        """The features of one cluster, those that set it apart most first.

        >>> one, two = np.array([[5.0, 0.0], [5.0, 0.0]]), np.array([[1.0, 4.0], [1.0, 4.0]])
        >>> profiles = Profiles("gaussian", ("x", "y"), np.array([3, 7]), one, two, np.zeros(2), np.full(2, 4.0))
        >>> [(feature.name, round(feature.distance, 2)) for feature in profiles.describe(7)]
        [('x', 0.74), ('y', 0.0)]
        """
        place = np.flatnonzero(self.ids == cluster)
        if not len(place):
            raise KeyError(f"there is no cluster {cluster} now; the clusters are {self.ids.tolist()}")
        mean, variance = self.mean[place[0]], self.variance[place[0]]
        known = np.where(np.isnan(variance), self.overall_variance, variance)
        distance = hellinger(self.family, mean, known, self.overall_mean, self.overall_variance)
        each = np.stack([mean, self.overall_mean]), np.stack([variance, self.overall_variance])
        found = self.transform.expand_moments(Moments(np.ones(2), *each, "diagonal"))
        std, overall_std = np.sqrt(found.covariance)
        mean, overall_mean = found.mean
        return [
            FeatureProfile(
                self.names[d],
                float(mean[d]),
                float(std[d]),
                float(overall_mean[d]),
                float(overall_std[d]),
                float(distance[d]),
            )
            for d in np.argsort(-distance, kind="stable")
        ]


def profiles(engine: Engine, names: tuple[Hashable, ...], sketch: Sketch | None = None) -> Profiles:
    """The profiles of the active clusters as of now, measured on the summary's sample of events."""
    clusters = engine.queries.clusters()
    d, family = clusters.n_features, engine.settings.family_name
    model = engine.shown
    if model is None:
        nobody = np.zeros(0, dtype=np.int64)
        return Profiles(family, names, nobody, np.zeros((0, d)), np.zeros((0, d)), np.zeros(d), np.zeros(d))
    points, weight = engine.queries.present_tree().sample()
    rows = Moments.rows_of_points(points, weight)
    if sketch is not None:
        clusters, total = (
            sketch.expand_moments(part) for part in (clusters, rows.to_groups(None, kind="full"))
        )
        return Profiles(
            family,
            names,
            model.names,
            clusters.mean,
            clusters.covariance,
            total.mean[0],
            total.covariance[0],
        )
    own = rows.to_groups(model.nearest(points).cluster, len(clusters), "diagonal")
    total = rows.to_groups(None, kind="diagonal")
    variance = np.where(own.weight[:, None] > 0, own.covariance, feature_variances(clusters))
    return Profiles(
        family,
        names,
        model.names,
        clusters.mean,
        variance,
        total.mean[0],
        total.covariance[0],
        model.transform,
    )


def feature_variances(rows: Moments) -> Floats:
    """The variance of each feature (rows, D), as far as the rows' scatter tells: NaN where none is kept."""
    if rows.kind == "none":
        return np.full(rows.mean.shape, np.nan)
    if rows.kind == "scalar":
        return np.broadcast_to(rows.covariance[:, None], rows.mean.shape)
    return rows.to("diagonal").covariance
