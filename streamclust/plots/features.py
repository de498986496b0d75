"""Features of BP-means as images or bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamclust._kernels.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

MAX_PICTURES_PER_ROW = 6
"""Number of pictures in a row."""


def plot_features(
    features: Floats,
    share: Sequence[float] | Floats | None = None,
    shape: tuple[int, int] | None = None,
    names: Sequence[str] | None = None,
    figure: Figure | SubFigure | None = None,
) -> Figure | SubFigure:
    """Draw the features (K, D): each an image of `shape` (height, width), or a row of bars.

    All share one scale, with zero in the middle: what a feature adds is red, what it takes away blue. `share` is the
    part of the events that has each. `figure` is drawn on, one of pyplot's by default.
    """
    features = np.asarray(features, dtype=float)
    if features.ndim != 2 or len(features) == 0:
        raise ValueError("there is nothing to draw: no features were found")
    if shape is not None and math.prod(shape) != features.shape[1]:
        raise ValueError(f"features of {features.shape[1]} columns are no images of shape {shape}")
    k = len(features)
    for what, given in (("names", names), ("shares", share)):
        if given is not None and len(given) != k:
            raise ValueError(f"{k} features need as many {what}, got {len(given)}")
    across = min(k, MAX_PICTURES_PER_ROW)
    down = math.ceil(k / across)
    figure = figure or _new_figure(2.2 * across, 2.5 * down)
    axes = figure.subplots(down, across, squeeze=False)
    reach = float(np.abs(features).max()) or 1.0
    image = None
    for i, ax in enumerate(axes.flat):
        if i >= k:
            ax.set_axis_off()
            continue
        title = names[i] if names is not None else f"feature {i}"
        ax.set_title(title if share is None else f"{title}\n{share[i]:.0%} of events", fontsize=9)
        if shape is None:
            colours = np.where(features[i] < 0, "#3b6fb6", "#b6403b")
            ax.bar(np.arange(features.shape[1]), features[i], color=colours)
            ax.axhline(0.0, color="0.5", linewidth=0.6)
            ax.set_ylim(-1.05 * reach, 1.05 * reach)
        else:
            image = ax.imshow(features[i].reshape(shape), cmap="RdBu_r", vmin=-reach, vmax=reach)
            ax.set(xticks=[], yticks=[])
    if image is not None:
        figure.colorbar(image, ax=axes, shrink=0.7)
    return figure


def _new_figure(width: float, height: float) -> Figure:
    from matplotlib import pyplot

    return pyplot.figure(figsize=(width, height), layout="constrained")
