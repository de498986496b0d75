"""Parts of all pictures: axes, colours and ellipses."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust.moments import Moments
from streamclust.plots.palette import hex_colour
from streamclust.plots.projection import feature_axes, projected_covariance, semi_axes, union_outline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import EllipseCollection

GREY = "#bbbbbb"

Colour = tuple[float, float, float]


def new_axes(width: float = 9.0, height: float = 7.0) -> Axes:
    """Axes of a new figure of pyplot's."""
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def colour(cluster: int) -> Colour:
    """The colour of a cluster by its id, as in every picture and the dashboard; grey for events without one."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(GREY if cluster < 0 else hex_colour(cluster))
    return red, green, blue


def label(cluster: int, names: Mapping[int, str]) -> str:
    """The id of a cluster and, in the next line, its name."""
    if cluster not in names:
        return str(cluster)
    return f"{cluster}\n" + names[cluster].replace("$", r"\$")  # else a formula


def on(ground: Colour) -> str:
    """Black or white, whichever is easier to read on a ground (relative luminance, WCAG 2.1)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in ground]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if luminance < 0.179 else "black"


def halo() -> list[Any]:
    """Text with a white rim, legible on anything."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.5, foreground="white")]


def name_axes(ax: Axes, features: tuple[int, int], names: Sequence[Hashable] | None = None) -> None:
    """Write which features the axes are."""
    first, second = ((f if names is None else names[f]) for f in features)
    ax.set(xlabel=_spoken(first), ylabel=_spoken(second))
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _spoken(name: Hashable) -> str:
    """A feature's name; one that is but a number needs a word."""
    return f"feature {name}" if isinstance(name, int) else str(name)


def ellipses(ax: Axes, rows: Moments, features: tuple[int, int], style: dict[str, Any]) -> EllipseCollection:
    """Each row's ellipse over two features."""
    from matplotlib.collections import EllipseCollection

    if rows.kind == "none":
        raise ValueError("ellipses need rows that keep a scatter, these keep none")
    pair = check_features(features, rows.n_features)
    length, directions = semi_axes(projected_covariance(rows, feature_axes(rows.n_features, *pair)))
    size = 2 * length
    angle = np.degrees(np.arctan2(directions[:, 1, 1], directions[:, 0, 1]))
    drawn = EllipseCollection(
        size[:, 1], size[:, 0], angle, units="xy", offsets=rows.mean[:, pair], offset_transform=ax.transData,
        **({"facecolors": "none"} | style),
    )  # fmt: skip
    ax.add_collection(drawn)
    ax.autoscale_view()
    return drawn


def outline_together(ax: Axes, rows: Moments, features: tuple[int, int], **style: Any) -> None:
    """The outline of all the rows' ellipses together, over two features."""
    from matplotlib.collections import LineCollection

    axes = feature_axes(rows.n_features, *check_features(features, rows.n_features))
    ax.add_collection(
        LineCollection(union_outline(rows.mean @ axes, projected_covariance(rows, axes)), **style)
    )


def check_features(features: tuple[int, int], n_features: int) -> list[int]:
    """Two columns that there are."""
    pair = [int(f) for f in features]
    if len(pair) != 2 or not all(-n_features <= f < n_features for f in pair):
        raise ValueError(f"a picture needs two of the {n_features} features, got {tuple(features)}")
    return pair
