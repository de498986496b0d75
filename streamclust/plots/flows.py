"""Flows: how the events of the clusters of one state are spread over those of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.types import Floats
from streamclust.plots.drawing import colour, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP = 0.02
"""Space between two bars."""
WIDTH = 0.04
"""Width of a bar, as a part of the way between the two sides."""
MIN_DRAWN_FLOW = 0.002
"""Smallest share that is drawn as a flow."""
MIN_LABELLED_SHARE = 0.01
"""Smallest share of a bar that is labelled."""


def plot_flows(
    flows: ArrayLike,
    before: ArrayLike,
    now: ArrayLike,
    ids: tuple[Sequence[int], Sequence[int]],
    labels: tuple[Sequence[str], Sequence[str]] | Sequence[Sequence[str]] | None = None,
    ax: Axes | None = None,
    **style: Any,
) -> Axes:
    """Clusters as bars, before at the left and now at the right, with bands for the events of one in the other.

    flows: shares of the earlier events (clusters before, clusters now). before, now: shares of the clusters, the
    heights of their bars. ids: of the clusters, which give the colours. labels: by default the ids. At the right, the
    bands that come to a bar fill it; a bar without bands is new. Keywords go to the bands.
    """
    table = np.asarray(flows, dtype=float)
    heights = np.asarray(before, dtype=float), np.asarray(now, dtype=float)
    if table.shape != (len(heights[0]), len(heights[1])) or [len(side) for side in ids] != list(table.shape):
        raise ValueError("flows need a row for each cluster before, and a column for each of now")
    labels = [[str(i) for i in side] for side in ids] if labels is None else labels
    ax = ax or new_axes(height=5)
    bottoms = [stacked(side) for side in heights]
    came = table.sum(axis=0)
    scale = np.divide(heights[1], came, out=np.zeros_like(came), where=came > 0)
    ends = [low + side for low, side in zip(bottoms, heights, strict=True)]  # filled from the top
    for k, j in np.argwhere(table >= MIN_DRAWN_FLOW):
        widths = table[k, j], table[k, j] * scale[j]
        ends[0][k] -= widths[0]
        ends[1][j] -= widths[1]
        _band(ax, (ends[0][k], ends[1][j]), widths, {"facecolor": colour(ids[0][k]), "alpha": 0.45} | style)
    for side in (0, 1):
        _bars(ax, side, bottoms[side], heights[side], ids[side], labels[side])
    ax.set(xlim=(-0.25, 1.25), xticks=[0, 1], xticklabels=["before", "now"], yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(length=0)
    return ax


def stacked(heights: Floats) -> Floats:
    """The bottoms of bars upon each other, the first at the top.

    >>> stacked(np.array([0.5, 0.5])).round(2)
    array([0.52, 0.  ])
    """
    above = np.cumsum((heights + GAP)[::-1])[::-1]
    return np.asarray(above - heights - GAP)


def _band(ax: Axes, bottoms: tuple[float, float], widths: tuple[float, float], style: dict[str, Any]) -> None:
    """A band from one side to the other, level at both ends."""
    x = np.linspace(0.0, 1.0, 40)
    way = 3 * x**2 - 2 * x**3
    low = bottoms[0] + (bottoms[1] - bottoms[0]) * way
    width = widths[0] + (widths[1] - widths[0]) * way
    ax.fill_between(WIDTH + x * (1 - 2 * WIDTH), low, low + width, linewidth=0, **style)


def _bars(
    ax: Axes, side: int, bottoms: Floats, heights: Floats, ids: Sequence[int], labels: Sequence[str]
) -> None:
    left = [0.0, 1.0 - WIDTH][side]
    ax.bar(
        np.full(len(ids), left), heights, WIDTH, bottoms, align="edge", color=[colour(int(i)) for i in ids]
    )
    for bottom, height, text in zip(bottoms, heights, labels, strict=True):
        if height >= MIN_LABELLED_SHARE:
            ax.text(
                [-0.02, 1.02][side], bottom + height / 2, f"{text}  {height:.0%}".replace("$", r"\$"),
                ha=["right", "left"][side], va="center", fontsize=10,
            )  # fmt: skip
