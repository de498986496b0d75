"""The path of levels: number of clusters against evidence per event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamclust.levels import Path, default_level, prominence
from streamclust.plots.drawing import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKED_LEVELS = 3
"""Levels that are labelled, the most prominent ones."""


def plot_path(path: Path, ax: Axes | None = None, *, shown: int | None = None) -> Axes:
    """Number of clusters against ζ, the evidence per event; plateaus are levels that persist.

    The levels that stand out most are labelled, and the level on show (by default the one that stands out most) is
    drawn in colour.
    """
    ax = ax or new_axes()
    shown = default_level(path) if shown is None else shown
    least = float(path.zeta.min(initial=1.0)) / 4
    numbers = np.arange(path.n_finest, 0, -1)
    upper = path.bounds[numbers]
    lower = np.maximum(path.bounds[numbers - 1], least)
    ax.step(np.append(upper, least), np.append(numbers, 1), where="post", color="0.6", linewidth=1.0)
    ax.plot(
        [lower[path.n_finest - shown], upper[path.n_finest - shown]], [shown, shown], color="C0", linewidth=4
    )
    marked = {shown, *(1 + np.argsort(-prominence(path), kind="stable")[:MARKED_LEVELS]).tolist()}
    for k in sorted(marked):
        middle = np.sqrt(lower[path.n_finest - k] * upper[path.n_finest - k])
        ax.annotate(str(k), (middle, k), xytext=(0, 4), textcoords="offset points", ha="center")
    ax.set(xscale="log", yscale="log", xlabel="evidence per event, ζ", ylabel="clusters")
    ax.invert_xaxis()
    ax.set_title(f"{shown} clusters on show, {path.n_finest} found")
    return ax
