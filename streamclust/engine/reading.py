"""Reading: what an engine tells of its clusters as of now. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.model import Model, weighing
from streamclust.engine.settings import EngineSettings
from streamclust.engine.shaping import component_joins
from streamclust.engine.shards import Shards
from streamclust.families import family as family_named
from streamclust.moments import Moments
from streamclust.sketch import Rows, Sketch

if TYPE_CHECKING:
    from streamclust.hierarchy.agglomerate import MethodName
    from streamclust.hierarchy.dendrogram import Dendrogram

MIN_KNOWN_TIMES = 20.0
"""Correlation times that the present must last before its own events tell of dependence. Until then it is at least as
strong as it was: a short part of a way looks like events that differ little."""


class Reading:
    """The part of an engine that reads its model and its trees."""

    settings: EngineSettings
    shards: Shards
    model: Model | None
    n_seen: int
    sketch: Sketch | None
    _components: tuple[tuple[int, int], Moments] | None
    _calibration: tuple[tuple[int, int], Floats, Floats] | None
    begin: int
    """Event count of the last change of the stream: the present begins here. It falls only by a merge."""
    known_time: float
    """Events that were worth one independent event at the last look."""
    _evidence: tuple[tuple[int, int], Model, float] | None = None
    """At which event and since which one `evidence` was found last, by which model, and what it was."""

    @property
    def evidence(self) -> float:
        """Independent events that one event is worth in decisions about clusters: 1, or less where events depend."""
        if self.model is None:
            return 1.0
        key, kept = (self.n_seen, self.begin), self._evidence
        if kept is None or kept[0] != key or kept[1] is not self.model:
            kept = self._evidence = key, self.model, self.shards.sequence(self.begin).evidence(self.model)
        short = self.n_seen - self.begin < MIN_KNOWN_TIMES * self.known_time
        return min(kept[2], 1.0 / self.known_time) if short else kept[2]

    def tail(self, scores: Floats, recent: Rows | None = None) -> Floats:
        """For each novelty score the share of the watched events, and itself, that are at least as novel.

        Where drift is ignored, of all events: those that the summary has sampled speak for them. Where events are
        wide, of those that are given as `recent`: the summary does not hold all of an event.
        """
        assert self.model is not None
        if self._calibration is None or self._calibration[0] != self._moment:
            self._calibrate(recent)
        found = self.known_tail(scores)
        assert found is not None
        return found

    def known_tail(self, scores: Floats) -> Floats | None:
        """`tail` by the events of the last call of it; None if there was none."""
        kept = self._calibration
        if kept is None:
            return None
        _, known, below = kept
        return np.asarray((1.0 + below[-1] - below[np.searchsorted(known, scores)]) / (1.0 + below[-1]))

    def _calibrate(self, recent: Rows | None) -> None:
        """Find the novelty of the events that `tail` compares with."""
        assert self.model is not None
        points = self.shards.latest()
        weight = np.ones(len(points))
        if self.sketch is not None and recent is not None:
            points, weight = recent, np.ones(recent.shape[0])
        elif not self.settings.follows:
            points, weight = self.shards.merged_tree().sample()
        novelty = self.model.novelty(points)
        order = np.argsort(novelty, kind="stable")
        self._calibration = self._moment, novelty[order], np.append(0.0, np.cumsum(weight[order]))

    def last_seen(self) -> dict[int, int]:
        """For each cluster on show the latest watched event that was its, or the model's own moment."""
        assert self.model is not None
        latest = dict.fromkeys(self.model.names.tolist(), 0)
        for part in self.shards.values():
            ids = self.model.names[self.model.nearest(part.watch.latest()).cluster]
            for name, number in zip(ids.tolist(), part.watch.numbers().tolist(), strict=True):
                latest[name] = max(latest[name], number + 1)
        return latest

    @property
    def _moment(self) -> tuple[int, int]:
        """Key of what is cached: it changes with whatever is read."""
        return self.n_seen, -1 if self.model is None else self.model.version

    def clusters(self) -> Moments:
        """The clusters on show as of now: what the trees have learnt until this event, labelled by the model."""
        found = self.components()
        if self.model is None or len(self.model.names) == len(found):
            return found
        return found.to_groups(self.model.place, len(self.model.names))

    def components(self) -> Moments:
        """The components of the clusters on show, in the order of `model.place`, as of now."""
        if self.model is None:
            return Moments.empty(0, self.shards.n_features, family_named(self.settings.family).scatter)
        if not len(self.shards):  # all have gone elsewhere: as they were published
            return self.model.shown.clusters
        if self.model.moved:  # the summary still holds where clusters were
            return weighing(self.model.shown, self.shards.weight).clusters
        if self._components is None or self._components[0] != self._moment:
            tree = self.shards.present(self.evidence)[0]
            points, weight = tree.sample()
            rows = Moments.rows_of_points(points, weight)
            groups, k = self.model.nearest(points).component, len(self.model.rows)
            found = rows.to_groups(groups, k, family_named(self.settings.family).scatter)
            if (found.weight == 0).any():
                published = self.model.shown.clusters.widen(tree.total.mean[0, self.model.n_coordinates :])
                seen = np.bincount(self.model.nearest(self.shards.latest()).component, minlength=k)
                found = filled(found, published, seen)
            self._components = self._moment, found
        return self._components[1]

    def snapshot(self, method: MethodName = "rbhc", consistent: bool = True) -> Dendrogram:
        """The hierarchy of everything learnt until now; `consistent`: that passes through the clusters on show."""
        return self.snapshot_search(method, consistent)()

    def snapshot_search(
        self, method: MethodName = "rbhc", consistent: bool = True
    ) -> Callable[[], Dendrogram]:
        """A function that finds the hierarchy of now whenever it is called: it reads copies alone."""
        from streamclust.hierarchy.snapshot import snapshot  # slow to import, and not needed to start

        if self.model is None:
            raise ValueError("there is nothing to take a snapshot of: learn at least one event first")
        tree = self.shards.present(self.evidence)[0]
        points, weight = tree.sample()
        labels = self.model.nearest(tree.leaves().mean).component
        sampled = self.model.nearest(points).component
        family, names, clusters = self.settings.family, self.model.names, self.components()
        joins = component_joins(self.model, points, weight)
        return lambda: snapshot(
            family, tree, labels, names, method, consistent, sampled, clusters, joins=joins
        )


def filled(found: Moments, published: Moments, seen: Ints) -> Moments:
    """Components as found in a sample, where it holds no event of some: newborn ones, say.

    Those have the shape they were published with, and their share of the watched events, of which `seen` are theirs
    (at least that of one event). The weight in all stays.
    """
    total = found.weight.sum()
    share = np.maximum(seen, 1) / max(seen.sum(), 1)
    absent = published.to(found.kind).scale(share * total / published.weight)
    rows = Moments.stack([found, absent])[np.arange(len(found)) + np.where(found.weight == 0, len(found), 0)]
    return rows.scale(total / rows.weight.sum())
