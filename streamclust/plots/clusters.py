"""Clusters as ellipses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamclust.moments import Moments
from streamclust.plots.drawing import ellipses, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_clusters(
    clusters: Moments,
    features: tuple[int, int] = (0, 1),
    ax: Axes | None = None,
    **style: Any,  # noqa: ANN401
) -> Axes:
    """Clusters over two features: each an ellipse of two deviations about its mean."""
    ax = ax or new_axes()
    means = clusters.mean[:, list(features)]
    ellipses(ax, clusters, features, {"edgecolors": "crimson", "linewidths": 1.8, "zorder": 3} | style)
    ax.scatter(means[:, 0], means[:, 1], marker="+", color="crimson", zorder=3)
    return ax
