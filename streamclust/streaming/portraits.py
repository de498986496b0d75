"""The clusters of a state of a stream, as they are compared with those of another state."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.lineage import Change
from streamclust.moments import Moments
from streamclust.streaming.descriptions import mixture_of

if TYPE_CHECKING:
    from streamclust.hierarchy.dendrogram import Dendrogram
    from streamclust.streaming.answers import Answers

MAX_EVENTS = 4096
"""Number of recent events of the earlier state whose clusters of now are looked up."""
CHUNK_ROWS = 512
"""Number of events whose distances to all leaves are computed at once."""


class Portrait(NamedTuple):
    """The clusters of a state, and some of its events with their clusters."""

    names: tuple[Hashable, ...]
    """Features."""
    ids: Ints
    """In ascending order."""
    weight: Floats
    mean: Floats
    """(clusters, features)."""
    deviation: Floats
    cluster_names: Mapping[int, str]
    log: tuple[Change, ...]
    """Lifecycle events; none where they are not known: ids are then taken to be those of one stream."""
    points: Floats
    point_weight: Floats
    owners: Ints
    """The id of the cluster of each point."""

    @property
    def share(self) -> Floats:
        """Share of each cluster."""
        return np.asarray(self.weight / self.weight.sum())

    def seen_with(self, names: tuple[Hashable, ...]) -> Floats:
        """Columns of points in the order of these features, NaN for those that it does not have."""
        column = {name: j for j, name in enumerate(self.names)}
        found = np.full((len(self.points), len(names)), np.nan)
        for j, name in enumerate(names):
            if name in column:
                found[:, j] = self.points[:, column[name]]
        return found


def deviations(family: str, mean: Floats, deviation: Floats) -> Floats:
    """Standard deviations in clusters; of counts and yes/no features those that their means imply."""
    if family not in ("multinomial", "bernoulli", "poisson"):
        return deviation
    return np.asarray(np.sqrt(mean * (1.0 - mean) if family == "bernoulli" else mean))


def portrait_of_model(model: Answers, n_events: int = 0) -> Portrait:
    """The clusters of a clusterer now, and about `n_events` of its latest events; ValueError if there are none.

    The means are among the events, with hardly any weight: they stand for clusters without a recent event.
    """
    clusters, names = sorted(model.clusters, key=lambda cluster: cluster.id), model.feature_names
    if not clusters:
        raise ValueError("there is nothing to compare: a clusterer has not learnt any event")
    mixture, rows = clusters[0].mixture, [cluster.place for cluster in clusters]
    mean, std = (part[rows] for part in mixture.in_units())
    ids = np.array([cluster.id for cluster in clusters], dtype=np.int64)
    latest = model.latest(n_events) if n_events else np.empty((0, len(names)))
    padded = np.full((len(mean), latest.shape[1]), np.nan)
    padded[:, : mean.shape[1]] = mean
    owners = model.predict_many(latest) if len(latest) else ids[:0]
    return Portrait(
        names,
        ids,
        np.array([cluster.weight for cluster in clusters]),
        mean,
        deviations(mixture.family, mean, std),
        {cluster.id: cluster.name for cluster in clusters if cluster.name},
        tuple(model.events),
        np.concatenate([latest, padded]),
        np.concatenate([np.ones(len(latest)), np.full(len(mean), 1e-9)]),
        np.concatenate([owners, ids]),
    )


def portrait_of_snapshot(tree: Dendrogram, family: str, names: tuple[Hashable, ...]) -> Portrait:
    """The published clusters of a snapshot; its leaves stand for events."""
    nodes = np.flatnonzero(tree.ids >= 0)
    nodes = nodes[np.argsort(tree.ids[nodes], kind="stable")]
    if not len(nodes):
        raise ValueError("this hierarchy has no published clusters; take it with `model.snapshot()`")
    of_node = tree.ids.copy()
    for t in range(len(tree.children) - 1, -1, -1):
        for child in tree.children[t]:
            of_node[child] = of_node[child] if of_node[child] >= 0 else of_node[tree.n_leaves + t]
    names = names[: tree.leaves.n_features]  # later ones were not known yet
    rows = Moments.stack([tree.moments[nodes]])
    mixture, ids = mixture_of(family, names, rows), tree.ids[nodes]
    inside = np.flatnonzero(of_node[: tree.n_leaves] >= 0)
    leaves = tree.leaves[inside]
    return Portrait(
        names, ids, rows.weight, mixture.mean, deviations(family, mixture.mean, mixture.std), dict(tree.names), (),
        leaves.mean, leaves.weight, of_node[inside],
    )  # fmt: skip


def nearest_clusters(points: Floats, now: Portrait) -> Ints:
    """The cluster of the nearest event or leaf of now for each point, in deviations within clusters.

    Points have the features of now, NaN where they were not known yet; those do not count.
    """
    known = np.flatnonzero(~np.isnan(points[:, : now.mean.shape[1]]).any(axis=0))
    scale = np.sqrt(now.share @ np.square(now.deviation[:, known]))
    scale[~(scale > 0)] = 1.0
    middle = now.mean[:, known].mean(axis=0)  # far from 0 the products below would cancel
    theirs, own = ((rows[:, known] - middle) / scale for rows in (now.points, points))
    half = np.square(theirs).sum(axis=1) / 2
    nearest = [
        (half - own[i : i + CHUNK_ROWS] @ theirs.T).argmin(axis=1) for i in range(0, len(own), CHUNK_ROWS)
    ]
    return np.asarray(now.owners[np.concatenate([*nearest, np.empty(0, dtype=np.int64)])])
