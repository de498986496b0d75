"""The leaves of a summary tree."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from streamclust.plots.drawing import ellipses, name_axes, new_axes
from streamclust.tree import SummaryTree
from streamclust.utils.outliers import outlying

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_tree(
    tree: SummaryTree,
    events: ArrayLike | None = None,
    features: tuple[int, int] = (0, 1),
    ax: Axes | None = None,
    *,
    names: Sequence[Hashable] | None = None,
    **style: Any,
) -> Axes:
    """The leaves of a tree over two features: each an ellipse of two deviations, darker the denser it is.

    `events` are drawn as points below; by default the tree's own sample. names: of the features. Keywords go to the
    ellipses. Events far from all others are left out: the rest would be one dot.
    """
    if tree.n_events == 0:
        raise ValueError("there is nothing to draw: the tree has learnt no events yet")
    ax = ax or new_axes()
    leaves = tree.without_outliers().leaves()
    drawn = ellipses(ax, leaves, features, {"cmap": "viridis_r", "linewidths": 0.9, "zorder": 2} | style)
    points = (tree.sample()[0] if events is None else np.asarray(events, dtype=float))[:, list(features)]
    points = points[~outlying(points)]
    ax.scatter(points[:, 0], points[:, 1], s=1.5, color="0.72", linewidths=0, rasterized=True, zorder=1)
    size = np.column_stack([drawn.get_widths(), drawn.get_heights()])
    area = np.prod(np.maximum(size, 1e-3 * size.max(initial=1e-300)), axis=1)
    drawn.set_array(np.log10(leaves.weight / area))
    ax.figure.colorbar(drawn, ax=ax, label="events per unit area, log10", shrink=0.8)
    name_axes(ax, features, names)
    ax.set_title(f"{tree.n_events:,} events in {tree.n_leaves} leaves")
    return ax
