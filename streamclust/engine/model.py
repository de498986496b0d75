"""Model: what is published. Immutable, versioned, with ids that last; predictions read nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from streamclust._kernels.engine.assign import assign_points, cheapest
from streamclust._kernels.engine.windows import see_points
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.families import FAMILIES
from streamclust.families.cost_form import CostForm, Quadratic
from streamclust.families.gaussian import GaussianParameters
from streamclust.families.linalg import cholesky, log_determinant, whitener
from streamclust.families.marginal import PointParameters, marginal
from streamclust.late import gammaincinv, logsumexp
from streamclust.moments import Moments
from streamclust.refit.chunky_em.covariance import form_of
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.refit.partition import Partition
from streamclust.sketch import Rows, Sketch

Result = Partition | Mixture

INSIDE_MASS = 0.9999
"""An event is outside a cluster if it lies beyond the ellipsoid that holds this much of it."""
LARGE_SHARE, LARGE_PART_OF_AVERAGE = 0.01, 0.1
"""A cluster is large if it has this share of the weight or, among many, this part of the average cluster's weight."""
NOWHERE: Ints = np.zeros(0, dtype=np.int64)


class Nearest(NamedTuple):
    """For each row, the cluster whose component has the least cost, and how far the nearest component is."""

    cluster: Ints
    distance: Floats
    """Half the least squared Mahalanobis distance; infinite for families without covariances."""
    component: Ints
    """The component of least cost."""


class Seen(NamedTuple):
    """For each row the component of least cost, or their number if it is outside all, and the whitened deviation."""

    cell: Ints
    whitened: Floats
    """Its deviation from the component's mean, in the component's own units; no columns for families of counts."""

    def some(self, rows: Ints | slice) -> Seen:
        """Some of the rows."""
        return Seen(self.cell[rows], self.whitened[rows])


class Assignment(NamedTuple):
    """For each row the id of its cluster, how probable that is, how novel the row is (-log p(x)), and its component.

    Components have no ids: theirs are the numbers of the rows of `ClusterView.components`, under this model alone.
    """

    cluster: Ints
    probability: Floats
    novelty: Floats
    component: Ints


@dataclass(frozen=True, eq=False)
class Model:
    """Clusters with their ids, each of one component or, where shapes are joined, of several.

    result      all components the last refit found, and those born since
    ids         one for each cluster
    owner       which cluster, by its place in `ids`, each component belongs to; empty: each is a cluster of its own
    hidden      ids of clusters that the stream no longer feeds: they explain nothing and are predicted never
    n_seen      how many events had been learnt when it was published
    sketch      where events are wide: takes them to the coordinates that the clusters are in
    running     all components as of the last look; None: as they were published
    moved       whether clusters have moved since it was published
    """

    version: int
    n_seen: int
    result: Result
    ids: tuple[int, ...]
    hidden: frozenset[int] = frozenset()
    owner: tuple[int, ...] = ()
    sketch: Sketch | None = None
    running: Moments | None = None
    moved: bool = False

    @cached_property
    def current(self) -> Result:
        """The components as of the last look: what predictions use."""
        return self.result if self.running is None else having(self.result, self.running)

    @cached_property
    def published(self) -> Model:
        """The model with its components as they were published."""
        return self if self.running is None else replace(self, running=None, moved=False)

    def learnt(self, running: Moments, moved: bool = False) -> Model:
        """The model with its components as of a look."""
        check_finite(running)
        model = replace(self, running=running, moved=self.moved or moved)
        if not model.moved:  # what depends on what was published alone
            kept = {"published": self.published, "large": self.large}
            names = ("owners", "weight", "rows", "clusters_shown", "place", "names", "_named", "in_large")
            vars(model).update(kept | {name: getattr(self, name) for name in names})
        return model

    @cached_property
    def owners(self) -> Ints:
        """The cluster of each component, by its place in `ids`."""
        return np.array(self.owner or range(self.result.n_clusters), dtype=np.int64)

    @cached_property
    def weight(self) -> Floats:
        """The weight of each cluster, on show or not, when it was published."""
        return np.asarray(np.bincount(self.owners, self.result.clusters.weight, len(self.ids)), dtype=float)

    @property
    def n_features(self) -> int:
        """How many features events have."""
        return self.n_coordinates if self.sketch is None else self.sketch.n_features

    @property
    def n_coordinates(self) -> int:
        """How many coordinates the clusters have: the features, or the directions of the sketch."""
        return self.result.clusters.n_features

    @cached_property
    def rows(self) -> Ints:
        """Which components are on show: those of clusters that are."""
        if not self.hidden:
            return np.arange(len(self.owners))
        return np.flatnonzero(np.isin(self.owners, self.clusters_shown))

    @cached_property
    def clusters_shown(self) -> Ints:
        """Which clusters are on show; all of them, should all be hidden."""
        shown = [k for k, cluster in enumerate(self.ids) if cluster not in self.hidden]
        return np.array(shown or range(len(self.ids)), dtype=np.int64)

    @cached_property
    def place(self) -> Ints:
        """The cluster of each component on show, by its place in `names`."""
        return np.searchsorted(self.clusters_shown, self.owners[self.rows])

    @cached_property
    def names(self) -> Ints:
        """The ids of the clusters on show."""
        return np.array(self.ids, dtype=np.int64)[self.clusters_shown]

    @cached_property
    def _named(self) -> list[int]:
        """The id that each component on show belongs to."""
        return [int(name) for name in self.names[self.place]]

    @cached_property
    def shown(self) -> Result:
        """The components of the clusters on show alone."""
        return self.current if len(self.rows) == self.result.n_clusters else chosen(self.current, self.rows)

    @cached_property
    def expected(self) -> Result:
        """The components on show as events are assigned to them: those that move are wider by the way they have come.

        As long a way may lie ahead: without it the events of a thin cluster that moves sideways would soon be
        another's.
        """
        if not self.moved:
            return self.shown
        clusters, start = self.shown.clusters, self.result.clusters.mean[self.rows]
        return having(self.shown, clusters.spread(clusters.mean - start))

    @cached_property
    def clusters(self) -> Moments:
        """The clusters on show as of the last look, one row each."""
        return self.shown.clusters.to_groups(self.place, len(self.names))

    @property
    def everyone(self) -> Model:
        """The model with all of its clusters on show."""
        return replace(self, hidden=frozenset()) if self.hidden else self

    @cached_property
    def large(self) -> Model:
        """The large components alone, each by itself, where they were published or have moved; the others are rare."""
        result = self.current if self.moved else self.result
        rows = large_rows(self.result.clusters.weight)
        return Model(self.version, self.n_seen, chosen(result, rows), tuple(range(len(rows))))

    @cached_property
    def in_large(self) -> Bools:
        """Which components on show, and with them what is outside all of them, are large."""
        return np.append(np.isin(self.rows, large_rows(self.result.clusters.weight)), False)

    @cached_property
    def form(self) -> CostForm:
        """The costs of the components on show, as kernels read them."""
        return cost_form(self.shown)

    # ---------------------------------------------------------------- asking
    # Rows may have more features than the model: those appeared after it was published, at the end. A feature
    # that is missing is NaN. `predict_one`, `predict`, `assign`, `probability` and `novelty` take events, the other
    # methods take rows in the clusters' own coordinates; both are the same where there is no sketch.

    def check(self, points: Floats) -> None:
        """Raise ValueError for points that the clusters' family cannot have produced: negative counts, say."""
        if isinstance(self.result, Partition):
            self.result.family.check(points)

    def predict_one(self, row: Floats) -> int:
        """The id of the cluster of least cost."""
        if self.sketch is not None:
            return int(self.predict(row[None])[0])
        vector, root, offset = self._arrays
        if len(row) > vector.shape[1]:
            row = row[: vector.shape[1]]
        k, cost, _ = cheapest(row[None], 0, vector, root, offset)
        return self._named[k] if cost < np.inf else int(self.predict(row[None])[0])

    def predict(self, points: Floats) -> Ints:
        """The id of the cluster of least cost of each point."""
        return self.names[self.place[self._cheapest(self.coordinates(points))]]

    def coordinates(self, points: Rows) -> Floats:
        """Events in the clusters' own coordinates."""
        return points if self.sketch is None else self.sketch.project(points)

    def _measured(self, points: Rows) -> tuple[Floats, Floats]:
        """Coordinates of events, and what the part of each that these leave out adds to its novelty."""
        if self.sketch is None:
            return points, np.zeros(points.shape[0])
        z, residual = self.sketch.measure(points)
        return z, self.sketch.surprise(residual)

    def assign(self, points: Floats) -> Assignment:
        """What `predict`, `probability` (of the cluster predicted) and `novelty` say, for little more than one."""
        points, more = self._measured(points)
        component = self._cheapest(points)
        k = self.place[component]
        joint = self.log_joint(points)
        evidence = logsumexp(joint, axis=1)
        own = np.where(self.place == k[:, None], joint, -np.inf)
        with np.errstate(invalid="ignore"):
            probability = np.exp(logsumexp(own, axis=1) - evidence)
        probability[np.isnan(probability)] = 1.0  # impossible under every cluster: the nearest has it
        novelty = more - np.asarray(evidence)
        return Assignment(self.names[k], np.asarray(probability), novelty, component)

    def _cheapest(self, points: Floats) -> Ints:
        """The component on show of least cost of each point, which may lack features."""
        k = self.nearest(points).component
        missing = np.isnan(self._own(points)).any(axis=1)
        if missing.any():
            k[missing] = self.log_joint(points[missing]).argmax(axis=1)
        return k

    def nearest(self, points: Floats) -> Nearest:
        """The component on show of least cost for each complete point, its cluster, and the distance of the nearest."""
        found = np.empty(len(points), dtype=np.int64)
        cost, distance = np.empty(len(points)), np.empty(len(points))
        assign_points(np.ascontiguousarray(self._own(points)), *self._arrays, found, cost, distance)
        return Nearest(self.place[found], distance, found)

    def see(self, points: Floats) -> Seen:
        """The component on show of each complete point, and how far it is from that one's mean in its own units."""
        points = np.ascontiguousarray(self._own(points))
        vector, root, offset = as_arrays(self.form)
        if root is None:
            cell = np.where(self.outside(points), len(self.rows), self.nearest(points).component)
            return Seen(cell, np.zeros((len(points), 0)))
        seen = Seen(np.empty(len(points), dtype=np.int64), np.empty(points.shape))
        see_points(points, vector, root, offset, reach(points.shape[1]), *seen)
        return seen

    @property
    def whitened_features(self) -> int:
        """How many columns `see` gives deviations in: none for families of counts."""
        return self.n_coordinates if isinstance(self.form, Quadratic) else 0

    def _own(self, points: Floats) -> Floats:
        """The features that the model knows."""
        return points[:, : self.n_coordinates]

    def outside(self, points: Floats) -> Bools:
        """Points beyond every cluster's ellipsoid or, where clusters have none, likelier under the prior."""
        points = self._own(points)
        if isinstance(self.form, Quadratic):
            return np.asarray(self.see(points).cell == len(self.rows))
        assert isinstance(self.shown, Partition)
        family, phi0 = self.shown.family, self.shown.mixture.phi0
        total = float(self.shown.clusters.weight.sum())
        nothing = Moments.empty(1, points.shape[1], family.scatter)
        anew = family.predictive(family.posterior(nothing), points)[:, 0] + np.log(phi0 / (total + phi0))
        known = log_density(self.shown, self._parameters, points) + self.log_share
        return np.asarray(known.max(axis=1) + family.log_base(points) < anew)

    def log_joint(self, points: Floats) -> Floats:
        """log p(x, component) for the components on show; missing features are integrated out."""
        points = self._own(points)
        missing = np.isnan(points)
        if not missing.any():
            return self.expected.log_joint(points)
        joint = np.empty((len(points), len(self.rows)))
        patterns, which = np.unique(missing, axis=0, return_inverse=True)
        for i, pattern in enumerate(patterns):
            rows = which == i
            joint[rows] = self._log_joint_of(points[np.ix_(rows, ~pattern)], ~pattern)
        return joint

    def _log_joint_of(self, points: Floats, known: Bools) -> Floats:
        """The same for points of which only the `known` features are given."""
        if known.all():
            return np.asarray(self.expected.log_joint(points))
        if not known.any():
            return np.broadcast_to(self.log_share, (len(points), len(self.rows)))
        parameters = marginal(point_parameters(self.expected), known)
        return np.asarray(log_density(self.expected, parameters, points) + self.log_share)

    @cached_property
    def _parameters(self) -> PointParameters:
        """Those of the components on show: densities under them cost less than those under posteriors."""
        return point_parameters(self.shown)

    @cached_property
    def log_share(self) -> Floats:
        """Log share of the weight that each component on show has."""
        weight = self.expected.clusters.weight
        return np.asarray(np.log(weight / weight.sum()))

    @property
    def costs(self) -> tuple[Floats, Floats | None, Floats]:
        """Centre, root and offset of each component on show, as kernels take them."""
        return self._arrays

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats | None, Floats]:
        """The costs by which events are assigned."""
        return as_arrays(cost_form(self.expected) if self.moved else self.form)

    @cached_property
    def gaussians(self) -> tuple[Floats, Floats]:
        """Means and covariance matrices of the components on show, which are Gaussians."""
        found = point_parameters(self.shown)
        assert isinstance(found, GaussianParameters)
        covariance = matrices(found.covariance, found.mean.shape[1])
        return np.ascontiguousarray(found.mean), np.ascontiguousarray(covariance)

    def probability(self, points: Floats) -> Floats:
        """p(cluster | x), rows x clusters on show."""
        joint = self.log_joint(self.coordinates(points))
        each = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        if len(self.names) == len(self.rows):
            return np.asarray(each)
        return np.asarray(each @ (self.place[:, None] == np.arange(len(self.names))).astype(float))

    def novelty(self, points: Floats) -> Floats:
        """-log p(x) under the clusters on show: high for what fits none."""
        points, more = self._measured(points)
        return np.asarray(more - logsumexp(self.log_joint(points), axis=1))


# -------------------------------------------------------------------- of results, hard or soft


def check_finite(clusters: Moments) -> None:
    """Raise FloatingPointError for clusters that no event could be assigned to."""
    if not all(np.isfinite(part).all() for part in (clusters.weight, clusters.mean, clusters.scatter)):
        raise FloatingPointError("clusters hold NaN or infinity")


def hidden_components(model: Model) -> Ints:
    """The components of retired clusters."""
    if not model.hidden:
        return NOWHERE
    return np.setdiff1d(np.arange(len(model.owners)), model.rows)


def large_rows(weight: Floats) -> Ints:
    """The large ones of clusters of these weights.

    >>> large_rows(np.array([0.5, 0.495, 0.005]))
    array([0, 1])
    >>> len(large_rows(np.ones(300)))
    300
    """
    share = min(LARGE_SHARE, LARGE_PART_OF_AVERAGE / max(len(weight), 1))
    return np.flatnonzero(weight >= share * weight.sum())


@lru_cache(maxsize=64)
def reach(n_features: int) -> float:
    """Half the squared Mahalanobis distance, a chi-squared, within which a Gaussian has INSIDE_MASS of its mass."""
    return float(gammaincinv(n_features / 2, INSIDE_MASS))


def cost_form(result: Result) -> CostForm:
    """What it costs a point to belong to each cluster."""
    if isinstance(result, Partition):
        mixing = result.mixture.mixing(result.clusters.weight) if result.n_clusters > 1 else np.zeros(1)
        return result.family.cost_form(result.posterior, mixing)
    d = result.means.shape[1]
    factor = cholesky(full_covariances(result))
    offset = (d * np.log(2 * np.pi) + log_determinant(factor)) / 2 - np.log(result.weights)
    return Quadratic(result.means, whitener(factor) / np.sqrt(2), offset)


def as_arrays(form: CostForm) -> tuple[Floats, Floats | None, Floats]:
    """The numbers of a cost form as kernels take them."""
    plain = np.ascontiguousarray
    if isinstance(form, Quadratic):
        return plain(form.centre), plain(form.root), plain(form.offset)
    return plain(form.slope), None, plain(form.offset)


def full_covariances(result: Mixture) -> Floats:
    """Covariances as matrices, whatever form they are kept in."""
    return matrices(result.covariances, result.means.shape[1])


def matrices(covariance: Floats, d: int) -> Floats:
    """Covariances of d features as matrices: kept whole, by their diagonals or as one number each."""
    return covariance if covariance.ndim == 3 else covariance.reshape(len(covariance), -1, 1) * np.eye(d)


def point_parameters(result: Result) -> PointParameters:
    """The clusters' parameters, as `family.log_density` reads them."""
    if isinstance(result, Partition):
        parameters: PointParameters = result.family.parameters(result.posterior)
        return parameters
    return GaussianParameters(result.means, result.covariances)


def log_density(result: Result, parameters: PointParameters, points: Floats) -> Floats:
    """log p(x|θ), rows x clusters."""
    if isinstance(result, Partition):
        return np.asarray(result.family.log_density(parameters, points))
    return np.asarray(FAMILIES[form_of(result.covariance).family].log_density(parameters, points))


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
    return having(result, Moments.stack([result.clusters, more.to(result.clusters.kind)]))


def having(result: Result, clusters: Moments) -> Result:
    """The same clusters with other moments; leaves are not labelled."""
    if isinstance(result, Partition):
        return replace(result, clusters=clusters, labels=NOWHERE)
    total = float(clusters.weight.sum())
    return replace(
        result, weights=clusters.weight / total, means=clusters.mean, covariances=clusters.covariance,
        labels=NOWHERE, total=total,
    )  # fmt: skip


def weighing(result: Result, total: float) -> Result:
    """The clusters with weights that add up to `total`."""
    if isinstance(result, Partition):
        return replace(result, clusters=result.clusters.scale(total / result.clusters.weight.sum()))
    return replace(result, total=total)
