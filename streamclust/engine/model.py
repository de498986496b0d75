"""Model: what is published. Immutable, versioned, with ids that last; predictions read nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaincinv, logsumexp

from streamclust._kernels.assign import assign_points, cheapest
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.families import FAMILIES
from streamclust.families.cost_form import CostForm, Quadratic
from streamclust.families.gaussian import GaussianParameters
from streamclust.families.linalg import cholesky, log_determinant, whitener
from streamclust.families.marginal import marginal
from streamclust.moments import Moments
from streamclust.refit.covariance import form_of
from streamclust.refit.mixture import Mixture
from streamclust.refit.partition import Partition

Result = Partition | Mixture

INSIDE = 0.9999
"""An event is outside a cluster if it lies beyond the ellipsoid that holds this much of it."""
LARGE = 0.01
"""The share of the weight that makes a cluster a large one."""
NOWHERE: Ints = np.zeros(0, dtype=np.int64)


class Nearest(NamedTuple):
    """For each row, the cluster of least cost and how far the nearest one is."""

    cluster: Ints
    distance: Floats
    """Half the least squared Mahalanobis distance; infinite for families without covariances."""


class Assignment(NamedTuple):
    """For each row the id of its cluster, how probable that is, and how novel the row is: -log p(x)."""

    cluster: Ints
    probability: Floats
    novelty: Floats


@dataclass(frozen=True, eq=False)
class Model:
    """Clusters with their ids.

    result      all clusters the last refit found, and those born since
    ids         one for each
    hidden      ids of clusters that the stream no longer feeds: they explain nothing and are predicted never
    n_seen      how many events had been learnt when it was published
    """

    version: int
    n_seen: int
    result: Result
    ids: tuple[int, ...]
    hidden: frozenset[int] = frozenset()

    @property
    def n_features(self) -> int:
        """How many features the clusters have."""
        return self.result.clusters.n_features

    @cached_property
    def rows(self) -> Ints:
        """Which clusters are on show; all of them, should all be hidden."""
        shown = [k for k, cluster in enumerate(self.ids) if cluster not in self.hidden]
        return np.array(shown or range(len(self.ids)), dtype=np.int64)

    @cached_property
    def names(self) -> Ints:
        """The ids of the clusters on show."""
        return np.array(self.ids, dtype=np.int64)[self.rows]

    @cached_property
    def _named(self) -> list[int]:
        return [int(name) for name in self.names]

    @cached_property
    def shown(self) -> Result:
        """The clusters on show alone."""
        return self.result if len(self.rows) == len(self.ids) else chosen(self.result, self.rows)

    @cached_property
    def large(self) -> Model:
        """The clusters of at least LARGE of the weight alone; they are what the others are rare beside."""
        weight = self.result.clusters.weight
        rows = np.flatnonzero(weight >= LARGE * weight.sum())
        return Model(self.version, self.n_seen, chosen(self.result, rows), tuple(self.ids[k] for k in rows))

    @cached_property
    def form(self) -> CostForm:
        """The costs of the clusters on show, as kernels read them."""
        return cost_form(self.shown)

    # ---------------------------------------------------------------- asking
    # Rows may have more features than the model: those appeared after it was published, at the end. A feature
    # that is missing is NaN.

    def predict_one(self, row: Floats) -> int:
        """The id of the cluster of least cost."""
        vector, root, offset = self._arrays
        if len(row) > vector.shape[1]:
            row = row[: vector.shape[1]]
        k, cost, _ = cheapest(row[None], 0, vector, root, offset)
        return self._named[k] if cost < np.inf else int(self.predict(row[None])[0])

    def predict(self, points: Floats) -> Ints:
        """The id of the cluster of least cost of each point."""
        return self.names[self._cheapest(points)]

    def assign(self, points: Floats) -> Assignment:
        """What `predict`, `probability` (of the cluster predicted) and `novelty` say, for little more than one."""
        k = self._cheapest(points)
        joint = self.log_joint(points)
        evidence = logsumexp(joint, axis=1)
        probability = np.exp(joint[np.arange(len(k)), k] - evidence)
        return Assignment(self.names[k], np.asarray(probability), -np.asarray(evidence))

    def _cheapest(self, points: Floats) -> Ints:
        """The cluster on show of least cost of each point, which may lack features."""
        k = self.nearest(points).cluster
        missing = np.isnan(self._own(points)).any(axis=1)
        if missing.any():
            k[missing] = self.log_joint(points[missing]).argmax(axis=1)
        return k

    def nearest(self, points: Floats) -> Nearest:
        """The cluster on show of least cost for each complete point, and the distance of the nearest."""
        found = np.empty(len(points), dtype=np.int64)
        cost, distance = np.empty(len(points)), np.empty(len(points))
        assign_points(np.ascontiguousarray(self._own(points)), *self._arrays, found, cost, distance)
        return Nearest(found, distance)

    def _own(self, points: Floats) -> Floats:
        """The features that the model knows."""
        return points[:, : self.n_features]

    def outside(self, points: Floats) -> Bools:
        """Points beyond every cluster's ellipsoid or, where clusters have none, likelier under the prior."""
        points = self._own(points)
        if isinstance(self.form, Quadratic):
            return self.nearest(points).distance > reach(points.shape[1])
        assert isinstance(self.shown, Partition)
        family, phi0 = self.shown.family, self.shown.mixture.phi0
        total = float(self.shown.clusters.weight.sum())
        nothing = Moments.empty(1, points.shape[1], family.scatter)
        anew = family.predictive(family.posterior(nothing), points)[:, 0] + np.log(phi0 / (total + phi0))
        return np.asarray(self.shown.log_joint(points).max(axis=1) < anew)

    def log_joint(self, points: Floats) -> Floats:
        """log p(x, cluster) for the clusters on show; missing features are integrated out."""
        points = self._own(points)
        missing = np.isnan(points)
        if not missing.any():
            return self.shown.log_joint(points)
        joint = np.empty((len(points), len(self.rows)))
        patterns, which = np.unique(missing, axis=0, return_inverse=True)
        for i, pattern in enumerate(patterns):
            rows = which == i
            joint[rows] = self._log_joint_of(points[np.ix_(rows, ~pattern)], ~pattern)
        return joint

    def _log_joint_of(self, points: Floats, known: Bools) -> Floats:
        """The same for points of which only the `known` features are given."""
        if known.all():
            return np.asarray(self.shown.log_joint(points))
        if not known.any():
            return np.broadcast_to(self._log_share, (len(points), len(self.rows)))
        parameters = marginal(point_parameters(self.shown), known)
        return np.asarray(log_density(self.shown, parameters, points) + self._log_share)

    @cached_property
    def _log_share(self) -> Floats:
        weight = self.shown.clusters.weight
        return np.asarray(np.log(weight / weight.sum()))

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats | None, Floats]:
        form = self.form
        plain = np.ascontiguousarray
        if isinstance(form, Quadratic):
            return plain(form.centre), plain(form.root), plain(form.offset)
        return plain(form.slope), None, plain(form.offset)

    def probability(self, points: Floats) -> Floats:
        """p(cluster | x), rows x clusters on show."""
        joint = self.log_joint(points)
        return np.asarray(np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))

    def novelty(self, points: Floats) -> Floats:
        """-log p(x) under the clusters on show: high for what fits none."""
        return -np.asarray(logsumexp(self.log_joint(points), axis=1))


# -------------------------------------------------------------------- of results, hard or soft


@lru_cache(maxsize=64)
def reach(n_features: int) -> float:
    """Half the squared Mahalanobis distance, a chi-squared, within which a Gaussian has INSIDE of its mass."""
    return float(gammaincinv(n_features / 2, INSIDE))


def cost_form(result: Result) -> CostForm:
    """What it costs a point to belong to each cluster."""
    if isinstance(result, Partition):
        mixing = result.mixture.mixing(result.clusters.weight)
        form: CostForm = result.family.cost_form(result.posterior, mixing)
        return form
    d = result.means.shape[1]
    factor = cholesky(full_covariances(result))
    offset = (d * np.log(2 * np.pi) + log_determinant(factor)) / 2 - np.log(result.weights)
    return Quadratic(result.means, whitener(factor) / np.sqrt(2), offset)


def full_covariances(result: Mixture) -> Floats:
    """Covariances as matrices, whatever form they are kept in."""
    kept, d = result.covariances, result.means.shape[1]
    return kept if kept.ndim == 3 else kept.reshape(len(kept), -1, 1) * np.eye(d)


def point_parameters(result: Result) -> Any:  # noqa: ANN401
    """The clusters' parameters, as `family.log_density` reads them."""
    if isinstance(result, Partition):
        return result.family.parameters(result.posterior)
    return GaussianParameters(result.means, result.covariances)


def log_density(result: Result, parameters: Any, points: Floats) -> Floats:  # noqa: ANN401
    """log p(x|θ), rows x clusters."""
    if isinstance(result, Partition):
        return np.asarray(result.family.log_density(parameters, points))
    family: Any = FAMILIES[form_of(result.covariance).family]
    # No Gaussian's density reads its prior, so the class, which has none, answers as well as an object.
    return np.asarray(family.log_density(family, parameters, points))


def chosen(result: Result, rows: Ints) -> Result:
    """Some of the clusters alone; leaves are not labelled."""
    if isinstance(result, Partition):
        return replace(result, clusters=result.clusters[rows], labels=NOWHERE)
    share = result.weights[rows]
    return replace(
        result, weights=share / share.sum(), means=result.means[rows], covariances=result.covariances[rows],
        labels=NOWHERE, total=result.total * float(share.sum()),
    )  # fmt: skip


def joined(result: Result, more: Moments) -> Result:
    """The clusters and more of them; leaves are not labelled."""
    clusters = Moments.stack([result.clusters, more.to(result.clusters.kind)])
    if isinstance(result, Partition):
        return replace(result, clusters=clusters, labels=NOWHERE)
    total = float(clusters.weight.sum())
    return replace(
        result, weights=clusters.weight / total, means=clusters.mean, covariances=clusters.covariance,
        labels=NOWHERE, total=total,
    )  # fmt: skip
