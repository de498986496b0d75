"""The level on show: clusters that are reported, each of one or more of those that refits find.

Refits, births, drift and retirement work with the finest clusters and their ids. The level on show groups them, and has
ids and lifecycle events of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.model import Model
from streamclust.engine.settings import EngineSettings
from streamclust.engine.tuning import TUNING
from streamclust.levels import Path, chosen_level, prominence
from streamclust.lineage import Change, Lineage, Mark
from streamclust.refit.partition import Partition
from streamclust.shapes.joins import by_first


def as_evidence_allows(settings: EngineSettings, model: Model) -> EngineSettings:
    """Settings by which the level is chosen: "auto" is "fine" where evidence is too little to judge levels.

    So it is with fewer than D + 1 independent events for each cluster, as their covariances are not known: sources that
    wander slowly are told apart by their ways. And where coordinates depend on each other: coarser levels are there
    since clusters that are no Gaussians come in pieces at full evidence, and that of such refits has been lowered by as
    much as events depart from Gaussians.
    """
    if settings.detail != "auto" or settings.n_clusters is not None:
        return settings
    active = model.active
    few = (
        active.clusters.kind == "full"
        and isinstance(active, Partition)
        and active.n_effective < active.n_clusters * (active.clusters.n_features + 1)
    )
    lowered = model.sketch is not None and model.sketch.independent
    return replace(settings, detail="fine") if few or lowered else settings


class LevelMark(NamedTuple):
    """State of a level, to which it can be restored."""

    resolution: float
    n_events: float
    lineage: Mark | None


@dataclass
class ShownLevel:
    """Which level is shown, and the ids of its clusters.

    If the finest clusters have been asked for from the first event on, the level has no lineage of its own.
    """

    lineage: Lineage | None = None
    resolution: float = 0.0
    """Number of events that tell the clusters shown last apart, in the middle of its range; 0 before the first."""
    n_events: float = 0.0
    """Number of events by whose evidence the level was chosen."""

    @classmethod
    def of(cls, settings: EngineSettings, on_event: Callable[[Change], object] | None = None) -> ShownLevel:
        """The level of a new stream."""
        return cls(None if settings.shows_finest else Lineage(on_event))

    def ask(self, settings: EngineSettings, finest: Lineage) -> None:
        """Show another level from now on; `finest` is the lineage of the finest clusters."""
        self.forget()
        if self.lineage is None and not settings.shows_finest:
            self.lineage = Lineage.from_dict(finest.to_dict(), finest.on_event)
            finest.on_event = None

    def forget(self) -> None:
        """Let the next choice be made by the data alone, whatever is on show."""
        self.resolution = 0.0

    def choose(self, settings: EngineSettings, path: Path) -> int:
        """Number of clusters of the level to show."""
        kept = self.kept(settings, path)
        return chosen_level(path, settings.detail, settings.n_clusters) if kept is None else kept

    def kept(self, settings: EngineSettings, path: Path) -> int | None:
        """Number of clusters at the resolution on show; None if another level is to be shown.

        Where the data choose, among all levels or those of a range, the resolution that was shown stays until another
        level stands out clearly more, or until there is far more evidence than it was chosen by.
        """
        asked = settings.n_clusters
        chooses = isinstance(asked, tuple) or (asked is None and settings.detail == "auto")
        binds = path.n_events < TUNING.clear_factor * self.n_events
        if not (chooses and self.resolution and binds):
            return None
        number = path.at(min(self.resolution / path.n_events, 1.0))
        if number == 1 or (isinstance(asked, tuple) and not asked[0] <= number <= asked[1]):
            return None
        stands_out, best = prominence(path), chosen_level(path, settings.detail, asked)
        return number if stands_out[best - 1] < TUNING.clear_factor * stands_out[number - 1] else None

    def differs(self, settings: EngineSettings, model: Model, n_seen: int) -> bool:
        """Whether other clusters are to be shown of a model that has changed since it was published."""
        if self.lineage is None or len(model.names) == 1:
            return False
        settings = as_evidence_allows(settings, model)
        shown = np.array(model.shown_ids or model.ids)[model.membership.active_clusters]
        if settings.shows_finest:
            return len(np.unique(shown)) < len(shown)
        path = model.path_now(n_seen, shown)
        return not np.array_equal(path.clusters(self.choose(settings, path)), by_first(shown))

    def show(
        self,
        settings: EngineSettings,
        before: Model | None,
        model: Model,
        retired: Mapping[int, int],
        shared: CommonWeight | None = None,
    ) -> Model:
        """The model with the ids of the level on show; lifecycle events of the level are noted.

        `retired` has the latest event of each finest cluster that is retired. Without `shared` the finest clusters of
        one id, before and now, are the same.
        """
        if self.lineage is None:
            return model
        settings = as_evidence_allows(settings, model)
        shared = same_ids(before, model) if shared is None else shared
        old = Groups.of(before) if before is not None else NOTHING
        on_show = old.parents(shared.common)[model.membership.active_clusters]
        if settings.shows_finest:  # no path is needed to show it
            model, number = replace(model, kept_path=None), len(on_show)
            self.forget()
        else:
            model = replace(
                model, kept_path=model.path_now(model.n_seen, on_show if self.resolution else None)
            )
            if self.kept(settings, model.path) is None:
                self.n_events = model.path.n_events
            number = self.choose(settings, model.path)
            self.resolution = model.path.resolution(number)
        new = regrouped(model, number, old, shared.common)
        self.lineage.level = number
        ids = named(new, self.lineage, model, old, shared, retired)
        return replace(model, shown_ids=ids)

    def mark(self) -> LevelMark:
        """The state as of now, for `restore`."""
        return LevelMark(
            self.resolution, self.n_events, None if self.lineage is None else self.lineage.mark()
        )

    def restore(self, mark: LevelMark) -> None:
        """Undo all changes since a mark."""
        self.resolution, self.n_events = mark.resolution, mark.n_events
        if self.lineage is not None and mark.lineage is not None:
            self.lineage.restore(mark.lineage)

    def to_values(self) -> dict[str, Any]:
        """Convert to types of JSON."""
        lineage = None if self.lineage is None else self.lineage.to_dict()
        finite = np.isfinite(self.resolution)  # JSON has no infinity
        resolution = self.resolution if finite else None
        return {"resolution": resolution, "n_events": self.n_events, "lineage": lineage}

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> ShownLevel:
        """Read what `to_values` wrote."""
        lineage = values["lineage"]
        resolution = np.inf if values["resolution"] is None else float(values["resolution"])
        return cls(
            None if lineage is None else Lineage.from_dict(lineage), resolution, float(values["n_events"])
        )


@dataclass(frozen=True, eq=False)
class Groups:
    """Finest clusters in groups, each of which is a cluster of the level on show."""

    group: Ints
    """The group of each finest cluster, -1 for retired ones whose group is fed by others."""
    n_groups: int
    retired: frozenset[int] = frozenset()
    """Groups of which every cluster is retired."""
    ids: tuple[int, ...] = field(default=())
    """Id of each group, where it has one."""

    @classmethod
    def of(cls, model: Model) -> Groups:
        """The groups of a model that is on show."""
        shown = np.array(model.shown_ids or model.ids, dtype=np.int64)
        ids = np.unique(shown[shown >= 0])
        group = np.where(shown >= 0, np.searchsorted(ids, shown), -1)
        return cls(group, len(ids), ids=tuple(ids.tolist()))

    def parents(self, common: Floats) -> Ints:
        """For each new finest cluster the group with which it has most weight in common; -1 if none has any."""
        if not self.n_groups:
            return np.full(common.shape[1], -1)
        shared = self.member.T @ common
        return np.where(shared.any(axis=0), shared.argmax(axis=0), -1)

    @property
    def member(self) -> Floats:
        """(finest clusters, groups): 1 where a cluster is of a group."""
        return np.asarray(self.group[:, None] == np.arange(self.n_groups), dtype=float)


NOTHING = Groups(np.zeros(0, dtype=np.int64), 0)


class CommonWeight(NamedTuple):
    """Weight that the finest clusters before and now have in common (old x new), and that of each."""

    common: Floats
    before: Floats
    now: Floats


def same_ids(before: Model | None, model: Model) -> CommonWeight:
    """Weight in common where finest clusters of one id are the same."""
    now = model.membership.weight
    if before is None:
        return CommonWeight(np.zeros((0, len(now))), np.zeros(0), now)
    earlier = before.membership.weight
    same = np.array(before.ids)[:, None] == np.array(model.ids)
    return CommonWeight(np.where(same, np.minimum(earlier[:, None], now), 0.0), earlier, now)


def named(
    new: Groups, lineage: Lineage, model: Model, old: Groups, shared: CommonWeight, retired: Mapping[int, int]
) -> tuple[int, ...]:
    """The id of the group of each finest cluster, by what it shares with the old groups."""
    at, version = model.n_seen, model.version
    weight = shared.now @ new.member
    common = old.member.T @ shared.common @ new.member
    ids = lineage.follow(at, version, old.ids, shared.before @ old.member, weight, common)
    for k, cluster in enumerate(ids):
        if k in new.retired and cluster not in lineage.retired:
            finest = [model.ids[c] for c in np.flatnonzero(new.group == k)]
            last = max((retired[one] for one in finest if one in retired), default=None)
            lineage.retire(at, version, cluster, float(weight[k]), last)
        elif k not in new.retired and cluster in lineage.retired:
            lineage.resume(at, version, cluster, float(weight[k]))
    # a retired part of a group that is fed has no id there; it gets one that is never seen
    pairs = zip(new.group.tolist(), model.ids, strict=True)
    return tuple(ids[k] if k >= 0 else -1 - finest for k, finest in pairs)


def regrouped(model: Model, n_clusters: int, old: Groups, common: Floats) -> Groups:
    """The groups of a model at the level of `n_clusters`.

    A group of which all clusters are retired stays one; a retired part of a group that is fed leaves it.
    """
    group, active = np.full(len(model.ids), -1), model.membership.active_clusters
    group[active] = np.arange(n_clusters) if n_clusters == len(active) else model.path.clusters(n_clusters)
    retired: dict[int, int] = {}
    if len(active) < len(model.ids) and old.n_groups:
        parent = old.parents(common)
        fed = set(parent[active].tolist())
        for c in np.flatnonzero(group < 0).tolist():
            if parent[c] >= 0 and parent[c] not in fed:
                group[c] = retired.setdefault(int(parent[c]), n_clusters + len(retired))
    return Groups(group, n_clusters + len(retired), frozenset(retired.values()))
