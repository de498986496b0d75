"""Reprojection of a stream to another sketch: trees, recent events and clusters are mapped, and ids stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamclust.engine.model import Model
from streamclust.engine.results import NOWHERE, Result, having
from streamclust.engine.stream import Stream
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import scored
from streamclust.refit.partition import Partition
from streamclust.sketch import CoordinateMap, Sketch, Transform, TransformChange
from streamclust.tree import SummaryTree


def reproject(stream: Stream, sketch: Sketch) -> None:
    """Map everything that a stream has learnt to the coordinates of another sketch."""
    assert stream.sketch is not None
    change = CoordinateMap.between(stream.sketch, sketch)
    stream.shards.reproject(change)
    stream.sketch = sketch
    if stream.model is not None:
        stream.model = reprojected_model(stream, stream.model, change)


def retransform(stream: Stream, transform: Transform) -> None:
    """Map everything that a stream has learnt to the coordinates of another transform."""
    change = TransformChange(stream.transform, transform, stream.shards.capacity)
    before, weight = stream.shards.recent.watched_rows(), stream.shards.recent.watched_weights()
    stream.shards.retransform(change)
    stream.transform = transform
    model, tree = stream.model, stream.shards.merged_tree()
    if model is not None:
        mapped = change.moments(model.result.clusters)
        if mapped.n_features < tree.n_features:  # of features that have appeared since
            mapped = mapped.widen(tree.total.mean[0, mapped.n_features :])
        groups = Moments.rows_of_points(change.points(before), weight).to_groups(
            model.rows[model.nearest(before).component], len(mapped), mapped.kind
        )
        result = reprojected_result(stream, model.result, better(groups, mapped), tree)
        stream.model = model.changed(
            result=result, running=None, moved=False, transform=transform, kept_path=None
        )


def better(groups: Moments, mapped: Moments) -> Moments:
    """Clusters by their events, of mapped weights; those with too few for a covariance as they were mapped."""
    full = groups.weight > groups.n_features + 1
    scaled = groups.scale(np.where(full, mapped.weight / np.where(full, groups.weight, 1.0), 1.0))
    return Moments.stack([scaled, mapped])[np.where(full, 0, len(mapped)) + np.arange(len(mapped))]


def reprojected_model(stream: Stream, model: Model, change: CoordinateMap) -> Model:
    """The model with its clusters mapped, under the prior of all events until a refit has learnt its own."""
    tree = stream.shards.merged_tree()
    result = reprojected_result(stream, model.result, change.moments(model.result.clusters), tree)
    running = None if model.running is None else change.moments(model.running)
    return model.changed(result=result, running=running, sketch=stream.sketch)


def reprojected_result(stream: Stream, result: Result, clusters: Moments, tree: SummaryTree) -> Result:
    """The result of a refit with its clusters in other coordinates."""
    if not isinstance(result, Partition):
        return having(replace(result, least=None), clusters)  # it is in the old coordinates
    family, mixture = scored(stream.settings.family, stream.settings.mixture, tree)
    return replace(result, family=family, mixture=mixture, clusters=clusters, labels=NOWHERE, radius=None)
