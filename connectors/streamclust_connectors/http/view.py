"""The two-dimensional view: leaves as dots and clusters as ellipses, over two principal axes or two features."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments
from streamclust.streaming import StreamClusterer

DEVIATIONS = 2.0
"""An ellipse reaches so many standard deviations."""
CORNERS = 65
"""Points of an ellipse; the last is the first again."""


class Scene(NamedTuple):
    """All there is to see of a clusterer, apart from it: gathered between two events, it can be drawn at leisure."""

    features: tuple[Hashable, ...]
    clusters: Moments
    """As of now; no rows before the first event."""
    ids: Ints
    """Of the clusters."""
    leaves: Moments
    owners: Ints
    """The id of the cluster that each leaf belongs to."""


@dataclass(frozen=True)
class Curve:
    """A closed line."""

    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Dots:
    """The leaves."""

    x: list[float]
    y: list[float]
    weight: list[float]
    cluster: list[int]


@dataclass(frozen=True)
class Drawn:
    """A cluster: its mean, and its ellipse if its family has covariances."""

    id: int
    share: float
    x: float
    y: float
    ellipse: Curve | None


@dataclass(frozen=True)
class View:
    """What to draw."""

    labels: tuple[str, str]
    """Of the axes; the second is empty where there is but one feature."""
    explained: tuple[float, float] | None
    """The share of the variance along each principal axis; None for chosen features."""
    leaves: Dots
    clusters: list[Drawn]


def scene(clusterer: StreamClusterer) -> Scene:
    """What a clusterer has to show now."""
    clusterer._intake.flush()
    engine, model = clusterer._engine, clusterer.model
    clusters = engine.clusters()
    if model is None:
        nothing = np.zeros(0, dtype=np.int64)
        return Scene(clusterer.feature_names, clusters, nothing, clusters, nothing)
    leaves = engine.shards.present_tree().leaves()
    leaves = leaves[np.flatnonzero(leaves.weight > 0)]  # of late, some may have had nothing
    owners = model.names[model.nearest(leaves.mean).cluster]
    return Scene(clusterer.feature_names, clusters, model.names, leaves, owners)


def view(scene: Scene, x: str | None = None, y: str | None = None) -> View:
    """A scene over two features or, where none are named, over the first two principal axes.

    >>> clusterer = StreamClusterer()
    >>> clusterer.learn_many(np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]))
    >>> found = view(scene(clusterer))
    >>> found.labels, found.explained
    (('principal axis 1', 'principal axis 2'), (1.0, 0.0))
    """
    names = [str(name) for name in scene.features]
    if (x is None) != (y is None):
        raise ValueError("name both features of the view, x and y, or neither")
    if x is not None and y is not None:
        labels, explained = (x, y), None
        axes = np.zeros((len(names), 2))
        axes[_column(names, x), 0] = axes[_column(names, y), 1] = 1.0
    elif len(names) < 2:
        labels, explained = (names[0] if names else "", ""), None
        axes = np.eye(len(names), 2)
    else:
        labels = ("principal axis 1", "principal axis 2")
        axes, explained = principal_axes(scene.leaves)
    dots = scene.leaves.mean @ axes
    return View(
        labels,
        explained,
        Dots(dots[:, 0].tolist(), dots[:, 1].tolist(), scene.leaves.weight.tolist(), scene.owners.tolist()),
        _drawn(scene.clusters, scene.ids, axes),
    )


def _column(names: Sequence[str], name: str) -> int:
    if name not in names:
        raise ValueError(
            f"there is no feature {name!r}; the features are {', '.join(names) or 'not yet known'}"
        )
    return names.index(name)


def _drawn(clusters: Moments, ids: Ints, axes: Floats) -> list[Drawn]:
    held = np.flatnonzero(clusters.weight > 0)  # a cluster that the present holds nothing of is nowhere
    clusters, ids = clusters[held], ids[held]
    means = clusters.mean @ axes
    total = float(clusters.weight.sum())
    curves = [None] * len(ids) if clusters.kind == "none" else [_ellipse(*pair) for pair in
        zip(means, projected_covariance(clusters, axes), strict=True)]  # fmt: skip
    return [
        Drawn(int(name), float(weight) / total if total else 0.0, float(mean[0]), float(mean[1]), curve)
        for name, weight, mean, curve in zip(ids, clusters.weight, means, curves, strict=True)
    ]


def _ellipse(mean: Floats, covariance: Floats) -> Curve:
    """Where a Gaussian's density has fallen as far as DEVIATIONS standard deviations from its mean."""
    variance, directions = np.linalg.eigh(covariance)
    angle = np.linspace(0.0, 2 * np.pi, CORNERS)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    points = mean + DEVIATIONS * circle * np.sqrt(np.maximum(variance, 0.0)) @ directions.T
    return Curve(points[:, 0].tolist(), points[:, 1].tolist())


def projected_covariance(rows: Moments, axes: Floats) -> Floats:
    """Each row's covariance along the axes: (rows, 2, 2)."""
    kept = rows.covariance
    if rows.kind == "full":
        return np.asarray(np.einsum("da,rde,eb->rab", axes, kept, axes, optimize=True))
    if rows.kind == "diagonal":
        return np.asarray(np.einsum("da,rd,db->rab", axes, kept, axes, optimize=True))
    return np.asarray(kept[:, None, None] * (axes.T @ axes))


def principal_axes(rows: Moments) -> tuple[Floats, tuple[float, float]]:
    """The two directions (D, 2) in which all the rows together vary most, and their shares of the variance.

    A direction is as good as its opposite: the one is taken whose largest entry is positive, so that pictures do
    not flip from one moment to the next.
    """
    d = rows.n_features
    total = total_covariance(rows)
    variance, directions = eigh(total, subset_by_index=[d - 2, d - 1])
    axes = directions[:, ::-1]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(2)]
    axes = axes * np.where(largest < 0, -1.0, 1.0)
    whole = float(np.trace(total))
    first, second = (max(float(v), 0.0) / whole if whole > 0 else 0.0 for v in variance[::-1])
    return axes, (first, second)


def total_covariance(rows: Moments) -> Floats:
    """The covariance (D, D) of all events that the rows stand for: between the rows, and within as far as kept."""
    d, weight = rows.n_features, float(rows.weight.sum())
    if weight <= 0:
        return np.eye(d)
    share = rows.weight / weight
    # Taken from one of the means first: far from the origin the average of them would lose digits.
    deviation = rows.mean - rows.mean[0]
    deviation -= share @ deviation
    between = (deviation * share[:, None]).T @ deviation
    if rows.kind == "full":
        return np.asarray(between + rows.scatter.sum(axis=0) / weight)
    if rows.kind == "diagonal":
        return np.asarray(between + np.diag(rows.scatter.sum(axis=0) / weight))
    within = rows.scatter.sum() / (weight * d) if rows.kind == "scalar" else 0.0
    return np.asarray(between + within * np.eye(d))
