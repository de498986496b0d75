"""Model: what is published. Immutable, versioned, with ids that last; predictions read nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple, Self, cast

import numpy as np

from streamclust._kernels.engine.assign import assign_points, cheapest
from streamclust._kernels.engine.windows import see_points
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.component_owners import ComponentOwners
from streamclust.engine.model_path import Opened, fed_from_the_start, path_of_result
from streamclust.engine.results import (
    NOWHERE,
    Result,
    as_arrays,
    check_finite,
    chosen,
    cost_form,
    directions_of,
    event_evidence_of,
    having,
    large_rows,
    log_density,
    matrices,
    moments_arrays,
    point_parameters,
    reach,
    result_from_state,
    result_state,
)
from streamclust.families.cost_form import CostForm, Quadratic
from streamclust.families.gaussian import GaussianParameters
from streamclust.families.marginal import PointParameters, marginal
from streamclust.families.mixed import Mixed, MixedParameters, MixedPosterior
from streamclust.levels import Path
from streamclust.moments import Moments
from streamclust.parameters import LevelName
from streamclust.refit.partition import Partition
from streamclust.sketch import Rows, Sketch, Transform
from streamclust.utils.late import logsumexp
from streamclust.utils.state import State, fields_state, from_fields, prefixed, under


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


class Ellipsoids(NamedTuple):
    """An ellipsoid of each component, in some of the columns: ‖root (x - centre)‖² is at most `reach`."""

    columns: Ints
    centre: Floats
    root: Floats
    reach: float


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
    hidden      ids of retired clusters, which the stream no longer feeds: they are never predicted
    n_seen      number of events learnt when it was published
    sketch      where events are wide: takes them to the coordinates that the clusters are in
    running     all components as of the last look; None: as they were published
    moved       whether clusters have moved since it was published
    base        the model as it was published, if this is an update of it
    shown_ids   at the level on show, the id of the cluster that each cluster is part of; empty: each is shown itself
    plateaus    pairs of components whose events the last refit saw as one plateau
    opened      clusters that were opened between refits
    kept_path   the path that the level on show was chosen from; None if the finest is shown
    transform   of skewed features, whose clusters are in transformed values
    revision    larger after each update: version and revision together name what decides predictions
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
    base: Model | None = None
    shown_ids: tuple[int, ...] = ()
    plateaus: tuple[tuple[int, int], ...] = ()
    opened: tuple[Opened, ...] = ()
    kept_path: Path | None = None
    revision: int = 0
    transform: Transform = field(default_factory=Transform.none)

    # ---------------------------------------------------------------- versions

    @cached_property
    def published(self) -> Model:
        """The model with its components as they were published."""
        if self.base is not None:
            return self.base
        return self if self.running is None else replace(self, running=None, moved=False)

    def learnt(self, running: Moments, moved: bool = False) -> Model:
        """The model with its components as of a look."""
        check_finite(running)
        return replace(
            self,
            running=running,
            moved=self.moved or moved,
            base=self.published,
            revision=self.revision + 1,
        )

    def changed(self, **fields: Any) -> Model:
        """A model with other fields, published as it is."""
        return replace(self, base=None, revision=self.revision + 1, **fields)

    @property
    def with_retired(self) -> Model:
        """The model with its retired clusters active."""
        return self.changed(hidden=frozenset()) if self.hidden else self

    @cached_property
    def large(self) -> Model:
        """The large components alone, each by itself, where they were published or have moved; the others are rare."""
        if self.base is not None and not self.moved:
            return self.base.large
        result = self.current if self.moved else self.result
        rows = large_rows(self.result.clusters.weight)
        return Model(self.version, self.n_seen, chosen(result, rows), tuple(range(len(rows))))

    # ---------------------------------------------------------------- levels

    @cached_property
    def path(self) -> Path:
        """The path from the active clusters to one: the one that the level on show was chosen from, if one was."""
        if self.base is not None:
            return self.base.path
        if self.kept_path is not None:
            return self.kept_path
        return path_of_result(self.published.active, self.place, self._active_plateaus)

    def path_now(self, n_seen: int, together: Ints | None = None) -> Path:
        """The path from the active clusters as of the last look, young ones at the share of events that they have.

        `together` is the group of each active cluster on show; below 0: of none.
        """
        weight = fed_from_the_start(self.names.tolist(), self.clusters.weight, self.opened, n_seen)
        return path_of_result(self.active, self.place, self._active_plateaus, weight, together)

    @property
    def _active_plateaus(self) -> Ints:
        """Pairs of places, among the active components, that are one plateau."""
        place = np.full(self.result.n_clusters, -1)
        place[self.rows] = np.arange(len(self.rows))
        pairs = place[np.array(self.plateaus, dtype=np.int64).reshape(-1, 2)]
        return pairs[(pairs >= 0).all(axis=1)]

    @cached_property
    def shown(self) -> Model:
        """The model with the clusters of the level on show, and their ids."""
        return self.grouped(self.shown_ids) if self.shown_ids else self

    def summed_by_shown(self, of_finest: Mapping[int, float]) -> dict[int, float]:
        """Numbers of the finest clusters, by id, added up to those of the level on show."""
        shown = dict(zip(self.ids, self.shown_ids or self.ids, strict=True))
        found: dict[int, float] = {}
        for cluster, value in of_finest.items():
            found[shown[cluster]] = found.get(shown[cluster], 0.0) + value
        return found

    def at(self, level: LevelName = None) -> Model:
        """The model with the clusters of a level: a number of clusters, "fine", or (None) the one on show.

        The level on show has its own ids, however it is asked for; at others a cluster has the id of the oldest of the
        finest clusters in it.
        """
        if level == "fine":
            return self.finest
        if level is None or (type(level) is int and level == len(self.shown.names)):
            return self.shown
        finest, path = np.array(self.ids, dtype=np.int64), self.path
        if isinstance(level, bool) or not isinstance(level, Integral) or not 1 <= level <= path.n_finest:
            raise ValueError(f'level must be "fine" or from 1 to {path.n_finest}, got {level!r}')
        active, group = self.membership.active_clusters, path.clusters(int(level))
        oldest = np.full(int(level), np.iinfo(np.int64).max)
        np.minimum.at(oldest, group, finest[active])
        named = finest.copy()
        named[active] = oldest[group]
        return self.grouped(tuple(named.tolist()))

    @property
    def finest(self) -> Model:
        """The model with the finest clusters, and their ids."""
        return self.changed(shown_ids=()) if self.shown_ids else self

    def grouped(self, group_ids: tuple[int, ...]) -> Model:
        """The model with clusters put together, numbered by first component; `group_ids` has an id for each."""
        of_component = [group_ids[k] for k in self.membership.owners.tolist()]
        ids = list(dict.fromkeys(of_component))
        place = {cluster: k for k, cluster in enumerate(ids)}
        owner = tuple(place[cluster] for cluster in of_component)
        hidden = frozenset(g for g, fine in zip(group_ids, self.ids, strict=True) if fine in self.hidden)
        return self.changed(ids=tuple(ids), owner=owner, hidden=hidden, shown_ids=(), kept_path=None)

    # ---------------------------------------------------------------- components and clusters

    @cached_property
    def current(self) -> Result:
        """All components as of the last look."""
        return self.result if self.running is None else having(self.result, self.running)

    @cached_property
    def active(self) -> Result:
        """The components of active clusters, as of the last look: predictions use them."""
        return self.current if len(self.rows) == self.result.n_clusters else chosen(self.current, self.rows)

    @cached_property
    def clusters(self) -> Moments:
        """The active clusters as of the last look, one row each."""
        return self.active.clusters.to_groups(self.place, len(self.names))

    @cached_property
    def _widened(self) -> Result:
        """The active components as events are assigned to them: those that move are wider by the way they have come.

        As long a way may lie ahead: without it the events of a thin cluster that moves sideways would soon be
        another's.
        """
        if not self.moved:
            return self.active
        clusters, start = self.active.clusters, self.result.clusters.mean[self.rows]
        return having(self.active, clusters.spread(clusters.mean - start))

    @cached_property
    def form(self) -> CostForm:
        """The costs of the active components, as kernels read them."""
        return cost_form(self.active)

    @cached_property
    def membership(self) -> ComponentOwners:
        """Which cluster each component belongs to, and which clusters are active."""
        if self.base is not None:
            return self.base.membership
        return ComponentOwners(self.ids, self.hidden, self.owner, self.result.clusters.weight)

    @cached_property
    def rows(self) -> Ints:
        """Components of active clusters."""
        return self.membership.rows

    @cached_property
    def place(self) -> Ints:
        """The cluster of each active component, by its place in `names`."""
        return self.membership.place

    @cached_property
    def names(self) -> Ints:
        """Ids of active clusters."""
        return self.membership.names

    @property
    def n_features(self) -> int:
        """Number of features of events."""
        return self.n_coordinates if self.sketch is None else self.sketch.n_features

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates of the clusters: the features, or the directions of the sketch."""
        return self.result.clusters.n_features

    # ---------------------------------------------------------------- saving

    def to_state(self) -> State:
        """State of the model, without its sketch."""
        result = result_state(self.result)
        running = {} if self.running is None else prefixed("running.", moments_arrays(self.running))
        values = {
            "version": self.version,
            "n_seen": self.n_seen,
            "ids": list(self.ids),
            "hidden": sorted(self.hidden),
            "owner": list(self.owner),
            "moved": self.moved,
            "shown_ids": list(self.shown_ids),
            "plateaus": [list(pair) for pair in self.plateaus],
            "opened": [list(one) for one in self.opened],
            "revision": self.revision,
            "published_revision": self.published.revision,
            "result": result.values,
        }
        path = State({}, {}) if self.kept_path is None else fields_state(self.kept_path)
        return State(result.arrays | running | prefixed("path.", path.arrays), values | {"path": path.values})

    @classmethod
    def from_state(cls, state: State, sketch: Sketch | None = None) -> Self:
        """The model that `to_state` saved."""
        arrays, values = state
        result = result_from_state(State(arrays, values["result"]))
        running = under(arrays, "running.")  # older models have none of what follows
        path = values.get("path", {})
        found = cls(
            values["version"],
            values["n_seen"],
            result,
            tuple(values["ids"]),
            frozenset(values["hidden"]),
            tuple(values.get("owner", ())),
            sketch,
            running=Moments(**running, kind=result.clusters.kind) if running else None,
            moved=values.get("moved", False),
            shown_ids=tuple(values.get("shown_ids", ())),
            plateaus=tuple((int(i), int(j)) for i, j in values.get("plateaus", ())),
            opened=tuple(Opened(*one) for one in values.get("opened", ())),
            kept_path=from_fields(Path, State(under(arrays, "path."), path)) if path else None,
            revision=values.get("revision", 0),
        )
        if found.running is None:
            return found
        revision = values.get("published_revision", 0)
        return replace(found, base=replace(found, running=None, moved=False, revision=revision))

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
        if self.sketch is not None or not self.transform.is_none:
            return int(self.predict(row[None])[0])
        vector, root, offset = self._arrays
        if len(row) > vector.shape[1]:
            row = row[: vector.shape[1]]
        k, cost, _ = cheapest(row[None], 0, vector, root, offset)
        return self.membership.id_of_row[k] if cost < np.inf else int(self.predict(row[None])[0])

    def predict(self, points: Floats) -> Ints:
        """The id of the cluster of least cost of each point."""
        return self.names[self.place[self.cheapest(self.coordinates(points))]]

    def coordinates(self, points: Rows) -> Floats:
        """Events in the clusters' own coordinates."""
        return self.transform.of(points) if self.sketch is None else self.sketch.project(points)

    def measured(self, points: Rows) -> tuple[Floats, Floats]:
        """Coordinates of events, and what the part of each that these leave out adds to its novelty."""
        if self.sketch is None:
            return self.transform.of(points), -self.transform.log_slope(points)
        z, residual = self.sketch.measure(points)
        return z, self.sketch.surprise(residual)

    def assign(self, points: Floats) -> Assignment:
        """Results of `predict`, `probability` (of the cluster predicted) and `novelty`, for little more than one."""
        points, more = self.measured(points)
        if len(points) == 1:  # a product of one row is summed in another order: the last bit would differ
            cluster, probability, novelty, component = self._assign(np.repeat(points, 2, axis=0), more)
            return Assignment(cluster[:1], probability[:1], novelty[:1], component[:1])
        return self._assign(points, more)

    def _assign(self, points: Floats, more: Floats) -> Assignment:
        component = self.cheapest(points)
        k = self.place[component]
        joint = self.log_joint(points)
        evidence = logsumexp(joint, axis=1)
        own = np.where(self.place == k[:, None], joint, -np.inf)
        with np.errstate(invalid="ignore"):
            probability = np.exp(logsumexp(own, axis=1) - evidence)
        probability[np.isnan(probability)] = 1.0  # impossible under every cluster: the nearest has it
        novelty = more - np.asarray(evidence)
        return Assignment(self.names[k], np.asarray(probability), novelty, component)

    def cheapest(self, points: Floats) -> Ints:
        """The component active of least cost of each point, which may lack features."""
        k = self.nearest(points).component
        missing = np.isnan(self._own(points)).any(axis=1)
        if missing.any():
            k[missing] = self.log_joint(points[missing]).argmax(axis=1)
        return k

    def nearest(self, points: Floats) -> Nearest:
        """The component active of least cost for each complete point, its cluster, and the distance of the nearest."""
        found = np.empty(len(points), dtype=np.int64)
        cost, distance = np.empty(len(points)), np.empty(len(points))
        points = np.ascontiguousarray(self._own(points))
        assign_points(points, *self._arrays, self._directions, found, cost, distance)
        return Nearest(self.place[found], distance, found)

    def see(self, points: Floats) -> Seen:
        """The component active of each complete point, and how far it is from that one's mean in its own units."""
        points = np.ascontiguousarray(self._own(points))
        vector, root, offset = as_arrays(self.form)
        if self.is_mixed and self.ellipsoids is not None:
            return self._see_mixed(points, self.ellipsoids)
        if root is None or self.ellipsoids is None:
            cell = np.where(self.outside(points), len(self.rows), self.nearest(points).component)
            return Seen(cell, np.zeros((len(points), 0)))
        seen = Seen(np.empty(len(points), dtype=np.int64), np.empty(points.shape))
        see_points(points, vector, root, offset, self._directions, self.reach, *seen)
        return seen

    def _see_mixed(self, points: Floats, ellipsoids: Ellipsoids) -> Seen:
        """`see` where events have categories: those have no deviations, and numbers alone decide."""
        cell = self.nearest(points).component
        gap = points[:, None, ellipsoids.columns] - ellipsoids.centre
        whitened = np.einsum("kij,nkj->nki", ellipsoids.root, gap)
        inside = (whitened**2).sum(axis=2).min(axis=1) <= ellipsoids.reach
        own = np.sqrt(2.0) * whitened[np.arange(len(points)), cell] * inside[:, None]
        return Seen(np.where(inside, cell, len(self.rows)), own)

    @property
    def is_mixed(self) -> bool:
        """Whether events have categories."""
        return isinstance(self.result, Partition) and isinstance(self.result.family, Mixed)

    @cached_property
    def ellipsoids(self) -> Ellipsoids | None:
        """The ellipsoids of the active components, in the columns that are numbers; None for families of counts."""
        form = self.form
        if not isinstance(form, Quadratic):
            return None
        columns = np.arange(self.n_coordinates)
        if isinstance(self.active, Partition) and isinstance(self.active.family, Mixed):
            family, posterior = self.active.family, cast(MixedPosterior, self.active.posterior)
            if family.numbers is None or posterior.numbers is None:
                return None
            columns, form = family.layout.numbers, family.numbers.cost_form(posterior.numbers)
        return Ellipsoids(columns, form.centre, form.root, reach(len(columns), self.event_evidence))

    @property
    def event_evidence(self) -> float:
        """Evidence of an event, less than 1 if its coordinates depend on each other."""
        return event_evidence_of(self.result)

    @property
    def reach(self) -> float:
        """Half the squared Mahalanobis distance within which nearly all events of a Gaussian cluster are."""
        return reach(self.n_coordinates, self.event_evidence)

    @property
    def whitened_features(self) -> int:
        """Number of columns of deviations that `see` gives: 0 for families of counts."""
        return 0 if self.ellipsoids is None else len(self.ellipsoids.columns)

    def _own(self, points: Floats) -> Floats:
        """The features that the model knows."""
        return points[:, : self.n_coordinates]

    def outside(self, points: Floats) -> Bools:
        """Points beyond every cluster's ellipsoid or, where clusters have none, likelier under the prior."""
        points = self._own(points)
        if self.ellipsoids is not None:
            return np.asarray(self.see(points).cell == len(self.rows))
        assert isinstance(self.active, Partition)
        family, phi0 = self.active.family, self.active.mixture.phi0
        total = float(self.active.clusters.weight.sum())
        nothing = Moments.empty(1, points.shape[1], family.scatter)
        anew = family.predictive(family.posterior(nothing), points)[:, 0] + np.log(phi0 / (total + phi0))
        known = log_density(self.active, self._parameters, points) + self.log_share
        return np.asarray(known.max(axis=1) + family.log_base(points) < anew)

    def log_joint(self, points: Floats) -> Floats:
        """log p(x, component) for the components active; missing features are integrated out."""
        points = self._own(points)
        missing = np.isnan(points)
        if not missing.any():
            return self._widened.log_joint(points)
        joint = np.empty((len(points), len(self.rows)))
        patterns, which = np.unique(missing, axis=0, return_inverse=True)
        for i, pattern in enumerate(patterns):
            rows = which == i
            joint[rows] = self._log_joint_of(points[np.ix_(rows, ~pattern)], ~pattern)
        return joint

    def _log_joint_of(self, points: Floats, known: Bools) -> Floats:
        """log p(x, component) of points with only the `known` features."""
        if known.all():
            return np.asarray(self._widened.log_joint(points))
        if not known.any():
            return np.broadcast_to(self.log_share, (len(points), len(self.rows)))
        found = point_parameters(self._widened)
        if isinstance(found, MixedParameters):
            family = cast(Mixed, cast(Partition, self._widened).family)
            return np.asarray(family.log_density_of(found, points, known) + self.log_share)
        parameters = marginal(found, known)
        return np.asarray(log_density(self._widened, parameters, points) + self.log_share)

    @cached_property
    def _parameters(self) -> PointParameters:
        """Parameters of the active components: densities under them cost less than those under posteriors."""
        return point_parameters(self.active)

    @cached_property
    def log_share(self) -> Floats:
        """Log share of the weight that each component active has."""
        weight = self._widened.clusters.weight
        return np.asarray(np.log(weight / weight.sum()))

    @property
    def costs(self) -> tuple[Floats, Floats | None, Floats]:
        """Centre, root and offset of each component active, as kernels take them."""
        return self._arrays

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats | None, Floats]:
        """The costs by which events are assigned."""
        return as_arrays(cost_form(self._widened) if self.moved else self.form)

    @cached_property
    def _directions(self) -> Floats:
        """Directions in which the components active lie apart."""
        return directions_of(self.form)

    @cached_property
    def gaussians(self) -> tuple[Floats, Floats]:
        """Means and covariance matrices of the components active, which are Gaussians."""
        found = point_parameters(self.active)
        if isinstance(found, MixedParameters):
            found = found.numbers
        assert isinstance(found, GaussianParameters)
        covariance = matrices(found.covariance, found.mean.shape[1])
        return np.ascontiguousarray(found.mean), np.ascontiguousarray(covariance)

    def probability(self, points: Floats) -> Floats:
        """p(cluster | x), rows x clusters active."""
        joint = self.log_joint(self.coordinates(points))
        each = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        if len(self.names) == len(self.rows):
            return np.asarray(each)
        return np.asarray(each @ (self.place[:, None] == np.arange(len(self.names))).astype(float))

    def novelty(self, points: Floats) -> Floats:
        """-log p(x) under the clusters active: high for what fits none."""
        points, more = self.measured(points)
        return np.asarray(more - logsumexp(self.log_joint(points), axis=1))


def hidden_components(model: Model) -> Ints:
    """The components of retired clusters."""
    if not model.hidden:
        return NOWHERE
    return np.setdiff1d(np.arange(len(model.membership.owners)), model.rows)
