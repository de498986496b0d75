"""The two-dimensional view: leaves as dots and clusters as ellipses, over two principal axes or two features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamclust.plots import feature_axes, outline, principal_axes, projected_covariance, union_outline
from streamclust.streaming import ClusterView

Floats = NDArray[np.float64]


class UnknownFeature(ValueError):  # noqa: N818
    """A feature that the service does not know."""


@dataclass(frozen=True)
class OutlineCurve:
    """A line in the plane."""

    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class LeafDots:
    """Leaves of the summary as dots."""

    x: list[float]
    y: list[float]
    weight: list[float]
    cluster: list[int]


@dataclass(frozen=True)
class DrawnCluster:
    """A cluster: the mean of its heaviest component, and the ellipses of all if its family has covariances.

    `outline`, for a cluster of several components: the parts of the ellipses that no other of them covers.
    """

    id: int
    share: float
    x: float
    y: float
    ellipses: list[OutlineCurve]
    outline: list[OutlineCurve]


@dataclass(frozen=True)
class PlaneView:
    """Leaves and clusters in the plane of two axes."""

    labels: tuple[str, str]
    """Labels of the axes; empty for an axis without a feature: one feature in all, or one was named."""
    explained: tuple[float, float] | None
    """Share of the variance along each principal axis; None for chosen features."""
    leaves: LeafDots
    clusters: list[DrawnCluster]


def view(scene: ClusterView, x: str | None = None, y: str | None = None) -> PlaneView:
    """Clusters and leaves over the named features or, by default, over the first two principal axes.

    If one feature is named, the other axis is empty.

    >>> from streamclust import StreamClusterer
    >>> clusterer = StreamClusterer()
    >>> clusterer.learn_many(np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]))
    >>> found = view(clusterer.view())
    >>> found.labels, found.explained
    (('principal axis 1', 'principal axis 2'), (1.0, 0.0))
    """
    names = [str(name) for name in scene.features]
    if x is not None or y is not None:
        labels, explained = (x or "", y or ""), None
        axes = feature_axes(len(names), _column(names, x), _column(names, y))
    elif len(names) < 2:
        labels, explained = (names[0] if names else "", ""), None
        axes = np.eye(len(names), 2)
    else:
        labels = ("principal axis 1", "principal axis 2")
        axes, explained = principal_axes(scene.leaves)
    dots = scene.leaves.mean @ axes
    return PlaneView(
        labels,
        explained,
        LeafDots(
            dots[:, 0].tolist(), dots[:, 1].tolist(), scene.leaves.weight.tolist(), scene.owners.tolist()
        ),
        _drawn(scene, axes),
    )


def _column(names: Sequence[str], name: str | None) -> int | None:
    if name is None:
        return None
    if name not in names:
        raise UnknownFeature(
            f"there is no feature {name!r}; the features are {', '.join(names) or 'not yet known'}"
        )
    return names.index(name)


def _drawn(scene: ClusterView, axes: Floats) -> list[DrawnCluster]:
    heaviest = np.argsort(-scene.components.weight, kind="stable")
    rows, names = scene.components[heaviest], scene.component_ids[heaviest]
    means = rows.mean @ axes
    spreads = None if rows.kind == "none" else projected_covariance(rows, axes)
    total = float(scene.clusters.weight.sum())
    found = []
    for name, weight in zip(scene.ids, scene.clusters.weight, strict=True):
        mine = np.flatnonzero((names == name) & (rows.weight > 0))
        if not len(mine):  # the cluster has no current weight
            continue
        ellipses, around = [], []
        if spreads is not None:
            ellipses = [_curve(outline(means[i], spreads[i])) for i in mine]
            if len(mine) > 1:
                around = [_curve(line) for line in union_outline(means[mine], spreads[mine])]
        x, y = means[mine[0]].tolist()
        found.append(DrawnCluster(int(name), float(weight) / total, x, y, ellipses, around))
    return found


def _curve(points: Floats) -> OutlineCurve:
    return OutlineCurve(points[:, 0].tolist(), points[:, 1].tolist())
