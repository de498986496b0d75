"""Pictures, by matplotlib (the `plots` extra)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.moments import Moments
from streamclust.tree import SummaryTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import EllipseCollection

DEVIATIONS = 2.0
"""An ellipse reaches so many standard deviations."""


def plot_tree(
    tree: SummaryTree,
    events: Floats | None = None,
    features: tuple[int, int] = (0, 1),
    ax: Axes | None = None,
    **style: Any,  # noqa: ANN401
) -> Axes:
    """The leaves of a tree over two features: each an ellipse of two deviations, darker the denser it is.

    `events` are drawn as points below; by default the tree's own sample. Keywords go to the ellipses.
    """
    if tree.n_events == 0:
        raise ValueError("there is nothing to draw: the tree has learnt no events yet")
    ax = ax or _axes()
    points = tree.sample()[0] if events is None else np.asarray(events)
    first, second = features
    ax.scatter(
        points[:, first], points[:, second], s=1.5, color="0.72", linewidths=0, rasterized=True, zorder=1
    )
    leaves = tree.leaves()
    drawn = _ellipses(ax, leaves, features, {"cmap": "viridis_r", "linewidths": 0.9, "zorder": 2} | style)
    size = np.column_stack([drawn.get_widths(), drawn.get_heights()])
    area = np.prod(np.maximum(size, 1e-3 * size.max(initial=1e-300)), axis=1)
    drawn.set_array(np.log10(leaves.weight / area))
    ax.figure.colorbar(drawn, ax=ax, label="events per unit area, log10", shrink=0.8)
    ax.set(
        xlabel=f"feature {first}",
        ylabel=f"feature {second}",
        title=f"{tree.n_events:,} events in {tree.n_leaves} leaves",
    )
    return ax


def plot_clusters(
    clusters: Moments,
    features: tuple[int, int] = (0, 1),
    ax: Axes | None = None,
    **style: Any,  # noqa: ANN401
) -> Axes:
    """Clusters over two features: each an ellipse of two deviations about its mean."""
    ax = ax or _axes()
    means = clusters.mean[:, list(features)]
    _ellipses(ax, clusters, features, {"edgecolors": "crimson", "linewidths": 1.8, "zorder": 3} | style)
    ax.scatter(means[:, 0], means[:, 1], marker="+", color="crimson", zorder=3)
    return ax


def _axes() -> Axes:
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(9, 7), layout="constrained")[1]


def _ellipses(ax: Axes, rows: Moments, features: tuple[int, int], style: dict[str, Any]) -> EllipseCollection:
    from matplotlib.collections import EllipseCollection

    if rows.kind not in ("full", "diagonal"):
        raise ValueError(f"ellipses need a full or diagonal scatter, these rows keep {rows.kind}")
    pair = list(features)
    kept = rows.covariance[:, pair]
    variance, axes = np.linalg.eigh(kept[:, :, pair] if rows.kind == "full" else kept[:, :, None] * np.eye(2))
    size = 2 * DEVIATIONS * np.sqrt(np.maximum(variance, 0.0))
    angle = np.degrees(np.arctan2(axes[:, 1, 1], axes[:, 0, 1]))
    drawn = EllipseCollection(
        size[:, 1], size[:, 0], angle, units="xy", offsets=rows.mean[:, pair], offset_transform=ax.transData,
        facecolors="none", **style,
    )  # fmt: skip
    ax.add_collection(drawn)
    ax.autoscale_view()
    return drawn
