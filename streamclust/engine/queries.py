"""Queries: clusters, novelty and hierarchy of a stream as of now. They change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.joining import component_joins
from streamclust.engine.model import Model
from streamclust.engine.present_events import PresentEvents
from streamclust.engine.results import weighing
from streamclust.engine.stream import Stream
from streamclust.families import family as family_named
from streamclust.moments import Moments
from streamclust.sketch import Rows
from streamclust.tree import SummaryTree

if TYPE_CHECKING:
    from streamclust.hierarchy.agglomerate import MethodName
    from streamclust.hierarchy.dendrogram import Dendrogram

Moment = tuple[int, int]
"""Event count and model version: cache key of what depends on both."""


class Queries:
    """Reads the model and the trees of a stream; answers are kept until the stream goes on."""

    def __init__(self, stream: Stream, present: PresentEvents) -> None:
        self.stream = stream
        self.present = present
        self._components: tuple[Moment, Moments] | None = None
        self._calibration: tuple[Moment, Floats, Floats] | None = None

    def forget(self) -> None:
        """Drop the answers kept: they are in other coordinates."""
        self._components = self._calibration = None

    @property
    def _shown(self) -> Model | None:
        """The published model with the clusters of the level on show."""
        return None if self.stream.model is None else self.stream.model.shown

    @property
    def _moment(self) -> Moment:
        model = self.stream.model
        return self.stream.n_seen, -1 if model is None else model.version

    def present_tree(self) -> SummaryTree:
        """The tree of all shards, in the shares of the latest events if the stream has drifted."""
        return self.present.tree()[0]

    # ---------------------------------------------------------------- clusters

    def clusters(self) -> Moments:
        """The active clusters as of now: everything the trees have learnt until this event, labelled by the model."""
        found, model = self.components(), self._shown
        if model is None or len(model.names) == len(found):
            return found
        return found.to_groups(model.place, len(model.names))

    def components(self) -> Moments:
        """The components of the active clusters, in the order of `model.place`, as of now."""
        model, shards = self.stream.model, self.stream.shards
        scatter = family_named(self.stream.settings.family).scatter
        if model is None:
            return Moments.empty(0, shards.n_features, scatter)
        if not len(shards):  # all have gone elsewhere: as they were published
            return model.active.clusters
        if model.moved:  # the summary still holds where clusters were
            return weighing(model.active, shards.weight).clusters
        if self._components is None or self._components[0] != self._moment:
            tree = self.present_tree()
            points, weight = tree.sample()
            rows, k = Moments.rows_of_points(points, weight), len(model.rows)
            found = rows.to_groups(model.nearest(points).component, k, scatter)
            if (found.weight == 0).any():
                published = model.active.clusters.widen(tree.total.mean[0, model.n_coordinates :])
                seen = np.bincount(model.nearest(shards.recent.watched_rows()).component, minlength=k)
                found = filled(found, published, seen)
            self._components = self._moment, found
        return self._components[1]

    def last_seen(self) -> dict[int, int]:
        """Number of the latest watched event of each active cluster, counted from 1; 0 if none was watched."""
        model = self.stream.published.shown
        latest = dict.fromkeys(model.names.tolist(), 0)
        for part in self.stream.shards.values():
            ids = model.names[model.nearest(part.watch.latest()).cluster]
            for name, number in zip(ids.tolist(), part.watch.numbers().tolist(), strict=True):
                latest[name] = max(latest[name], number + 1)
        return latest

    # ---------------------------------------------------------------- novelty

    def tail(self, scores: Floats, recent: Rows | None = None) -> Floats:
        """For each novelty score the share of the watched events, and itself, that are at least as novel.

        If drift is ignored, the share of all events, by the summary's sample. If events are wide, the share of
        `recent`: the summary does not hold all of an event.
        """
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
        points = self.stream.shards.recent.watched_rows()
        weight = np.ones(len(points))
        if self.stream.sketch is not None and recent is not None:
            points, weight = recent, np.ones(recent.shape[0])
        elif not self.stream.settings.follows:
            points, weight = self.stream.shards.merged_tree().sample()
        if self.stream.sketch is None:
            points = self.stream.transform.back(points)
        novelty = self.stream.published.novelty(points)
        order = np.argsort(novelty, kind="stable")
        self._calibration = self._moment, novelty[order], np.append(0.0, np.cumsum(weight[order]))

    # ---------------------------------------------------------------- hierarchy

    def snapshot(self, method: MethodName = "rbhc", consistent: bool = True) -> Dendrogram:
        """The hierarchy of everything learnt until now; `consistent`: it passes through the active clusters."""
        return self.snapshot_search(method, consistent)()

    def snapshot_search(
        self, method: MethodName = "rbhc", consistent: bool = True
    ) -> Callable[[], Dendrogram]:
        """A function that finds the hierarchy of now whenever it is called: it reads copies alone."""
        from streamclust.hierarchy.snapshot import snapshot  # slow to import, and not needed to start

        model, family = self._shown, self.stream.settings.family
        if self.stream.settings.is_mixed:
            family = "diagonal"  # hierarchies know no categories: their columns count as numbers
        if model is None:
            raise ValueError("there is nothing to take a snapshot of: learn at least one event first")
        tree = self.present_tree()
        points, weight = tree.sample()
        labels = model.nearest(tree.leaves().mean).component
        sampled = model.nearest(points).component
        names, clusters = model.names, self.components()
        joins = component_joins(model, points, weight)
        return lambda: snapshot(
            family, tree, labels, names, method, consistent, sampled, clusters, joins=joins
        )


def filled(found: Moments, published: Moments, seen: Ints) -> Moments:
    """Components found in a sample; those without sampled events, newborn ones for instance, as published.

    Those have the shape they were published with, and their share of the watched events, of which `seen` are theirs
    (at least that of one event). The weight in all stays.
    """
    total = found.weight.sum()
    share = np.maximum(seen, 1) / max(seen.sum(), 1)
    absent = published.to(found.kind).scale(share * total / published.weight)
    rows = Moments.stack([found, absent])[np.arange(len(found)) + np.where(found.weight == 0, len(found), 0)]
    return rows.scale(total / rows.weight.sum())
