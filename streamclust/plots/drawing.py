"""What the pictures share: axes and ellipses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust.moments import Moments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import EllipseCollection

DEVIATIONS = 2.0
"""An ellipse reaches so many standard deviations."""


def new_axes() -> Axes:
    """Axes of a new figure."""
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(9, 7), layout="constrained")[1]


def ellipses(ax: Axes, rows: Moments, features: tuple[int, int], style: dict[str, Any]) -> EllipseCollection:
    """Each row's ellipse over two features."""
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
