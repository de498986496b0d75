"""Running posteriors: the published clusters learn at each look what has come since, without a search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.model import Model, hidden_components
from streamclust.engine.tuning import TUNING
from streamclust.moments import Moments
from streamclust.refit.chunky_em.mixture import Mixture


def with_latest(
    model: Model, points: Floats, weight: Floats, component: Ints, fresh: float, present: float, total: float
) -> Moments:
    """All components of a model, with what has come since the last look; they weigh `total` together.

    Those of retired clusters stay as they are; where the stream forgets, they lose weight as everything does.
    What they were before counts as events that weigh `present` less `fresh`, but no less than `fresh`. `points`, of
    these weights, stand for all events since, which weigh `fresh`. Partitions learn an event as that of its
    `component`, as `Model.see` gives it, mixtures in the shares of its responsibilities. Events outside every cluster
    change none.
    """
    old, points = model.current.clusters, points[:, : model.n_coordinates]
    inside = component < len(model.rows)
    rows = Moments.rows_of_points(points[inside], weight[inside])
    if not rows.weight.sum() > 0:
        return old.scale(total / old.weight.sum())
    if isinstance(model.active, Mixture):
        new = rows.mix(model.active.probability(rows.mean), old.kind)
    else:
        new = rows.to_groups(component[inside], len(model.rows), old.kind)
    hidden = hidden_components(model)
    away = old[hidden].scale(min(1.0, max(total - fresh, 0.0) / float(old.weight.sum())))
    total = max(total - float(away.weight.sum()), fresh)
    shown = old[model.rows] if len(hidden) else old
    before = shown.scale(max(min(present, total) - fresh, fresh) / float(shown.weight.sum()))
    after = new.scale(fresh / new.weight.sum()) + before
    after = after.scale(total / after.weight.sum())
    if not len(hidden):
        return after
    return Moments.stack([after, away])[np.argsort(np.concatenate([model.rows, hidden]))]


def moved(model: Model, rows: Floats, weight: Floats) -> Model:
    """The model with each cluster moved to where its events of a window are.

    By how much depends on how sure that is [James and Stein]: by 1 - D / (n |g|²), where n events lie g deviations off.
    """
    d = model.n_coordinates
    for _ in range(TUNING.max_rounds):
        cell, whitened = model.see(rows)
        inside = cell < len(model.rows)
        points = Moments.rows_of_points(rows[inside, :d], weight[inside])
        found = points.to_groups(cell[inside], len(model.rows), "none")
        gap = Moments.rows_of_points(whitened[inside], weight[inside]).to_groups(
            cell[inside], len(found), "none"
        )
        n = np.bincount(cell[inside], minlength=len(found))
        sure = 1.0 - d / np.maximum(n * (gap.mean**2).sum(axis=1), 1e-300)
        part = np.where(n >= TUNING.min_cluster_events, np.maximum(sure, 0.0), 0.0)[:, None]
        if not part.any():
            break
        clusters = model.current.clusters
        mean = clusters.mean.copy()
        mean[model.rows] += part * (found.mean - mean[model.rows])
        model = model.learnt(replace(clusters, mean=mean), moved=True)
    return model
