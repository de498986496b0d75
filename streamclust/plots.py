"""Pictures, by matplotlib (the `plots` extra)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.tree import SummaryTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ELLIPSE_DEVIATIONS = 2.0


def plot_tree(
    tree: SummaryTree,
    events: Floats | None = None,
    features: tuple[int, int] = (0, 1),
    ax: Axes | None = None,
    **ellipse: Any,  # noqa: ANN401
) -> Axes:
    """The leaves of a tree over two features: each an ellipse of two deviations, darker the denser it is.

    `events` are drawn as points below; by default the tree's own sample. Keywords go to the ellipses.
    """
    from matplotlib import pyplot
    from matplotlib.collections import EllipseCollection

    if tree.scatter not in ("full", "diagonal"):
        raise ValueError(f"ellipses need a full or diagonal scatter, this tree keeps {tree.scatter}")
    if tree.n_events == 0:
        raise ValueError("there is nothing to draw: the tree has learnt no events yet")
    ax = ax or pyplot.subplots(figsize=(9, 7), layout="constrained")[1]
    points = tree.sample()[0] if events is None else np.asarray(events)
    first, second = features
    ax.scatter(
        points[:, first], points[:, second], s=1.5, color="0.72", linewidths=0, rasterized=True, zorder=1
    )
    leaves = tree.leaves()
    pair = list(features)
    kept = leaves.covariance[:, pair]
    variance, axes = np.linalg.eigh(
        kept[:, :, pair] if leaves.kind == "full" else kept[:, :, None] * np.eye(2)
    )
    size = 2 * ELLIPSE_DEVIATIONS * np.sqrt(np.maximum(variance, 0.0))
    angle = np.degrees(np.arctan2(axes[:, 1, 1], axes[:, 0, 1]))
    area = np.prod(np.maximum(size, 1e-3 * size.max(initial=1e-300)), axis=1)
    drawn = EllipseCollection(
        size[:, 1],
        size[:, 0],
        angle,
        units="xy",
        offsets=leaves.mean[:, pair],
        offset_transform=ax.transData,
        array=np.log10(leaves.weight / area),
        **{"cmap": "viridis_r", "facecolors": "none", "linewidths": 0.9, "alpha": 0.9, "zorder": 2} | ellipse,
    )
    drawn.set_facecolor("none")
    ax.add_collection(drawn)
    ax.autoscale_view()
    ax.figure.colorbar(drawn, ax=ax, label="events per unit area, log10", shrink=0.8)
    ax.set(
        xlabel=f"feature {first}",
        ylabel=f"feature {second}",
        title=f"{tree.n_events:,} events in {tree.n_leaves} leaves",
    )
    return ax
