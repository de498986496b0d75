"""Missing values of tables: drawn from clusters, as in streams, and integrated out of predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine import Engine, EngineSettings, Model
from streamclust.engine.imputation import Gaps, fitted_shares, imputed
from streamclust.engine.projection import Projection
from streamclust.families import FamilyLike
from streamclust.families import family as family_named
from streamclust.refit.partition import Partition


def model_of(partition: Partition) -> Model:
    """The model of a partition's components; the id of each is its number."""
    return Model(0, 0, partition, tuple(range(partition.n_clusters)))


def completed(kind: FamilyLike, points: Floats, weight: Floats | None, seed: int) -> Floats:
    """The points with missing values drawn from the clusters that a stream of them finds."""
    check_values(np.isnan(points))
    family = family_named(kind)
    of_kind: Any = family if family.name == "mixed" else family.name
    settings = EngineSettings(family=of_kind, drift="ignore", background=False, seed=seed, shape="ellipse")
    engine = Engine(0, settings)
    projection = Projection(engine, max_directions=points.shape[1])
    some = slice(None) if weight is None else weight > 0.0
    projection.learn(points[some], np.empty(0) if weight is None else weight[some], np.empty(0))
    projection.begin()
    engine.settle()
    assert engine.model is not None
    return redrawn(engine.model, points, weight, seed)


def redrawn(model: Model, points: Floats, weight: Floats | None, seed: int) -> Floats:
    """The points with missing values drawn from a model."""
    missing, number = np.isnan(points), np.arange(len(points))
    each = np.ones(len(points)) if weight is None else weight
    rows = np.where(missing, 0.0, points)
    return imputed(model, rows, missing, number, seed, fitted_shares(model, Gaps(rows, missing, each)))


def assigned(partition: Partition, points: Floats) -> Ints:
    """The component of each point, which may lack values."""
    gaps = np.isnan(points).any(axis=1)
    if not gaps.any():
        return partition.assign(points)
    return model_of(partition).cheapest(points)


def probabilities(partition: Partition, points: Floats) -> Floats:
    """p(component | x) of points that may lack values."""
    gaps = np.isnan(points).any(axis=1)
    found = np.empty((len(points), partition.n_clusters))
    found[~gaps] = partition.probability(points[~gaps])
    if gaps.any():
        found[gaps] = model_of(partition).probability(points[gaps])
    return found


def log_densities(partition: Partition, points: Floats) -> Floats:
    """log p(x) of points that may lack values."""
    gaps = np.isnan(points).any(axis=1)
    found = np.empty(len(points))
    found[~gaps] = partition.log_predictive(points[~gaps])
    if gaps.any():
        found[gaps] = -model_of(partition).novelty(points[gaps])
    return found


def check_values(missing: Bools) -> None:
    """Raise ValueError for rows and columns without any value."""
    if missing.all(axis=1).any():
        raise ValueError(f"row {missing.all(axis=1).argmax()} has no value: leave it out")
    if missing.all(axis=0).any():
        raise ValueError(f"column {missing.all(axis=0).argmax()} has no value: leave it out")
