"""Clusters as ellipses or, where they have no spread of their own, as a table of their means."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from streamclust.moments import Moments
from streamclust.plots.drawing import colour, ellipses, halo, label, name_axes, new_axes, on, outline_together
from streamclust.utils.outliers import outlying

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LABELLED_CLUSTERS = 60
"""Number of clusters labelled with their ids."""
MAX_NAMED_FEATURES = 40
"""Number of features labelled with their names."""


def plot_clusters(
    clusters: Moments,
    features: tuple[int, int] = (0, 1),
    ax: Axes | None = None,
    *,
    ids: Sequence[int] | None = None,
    events: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    names: Sequence[Hashable] | None = None,
    cluster_names: Mapping[int, str] | None = None,
    **style: Any,
) -> Axes:
    """Clusters over two features: each an ellipse of two deviations about its mean, in the colour of its id.

    ids: by default their numbers; rows of one id are the components of one cluster, whose outline is drawn.
    events: points to draw below, in the colours of `labels`, their ids, or grey, but for those far from all others.
    names: of the features. cluster_names: by id, written below it. Keywords go to the ellipses. Clusters of a family
    without a spread (multinomial, Bernoulli, Poisson) become a table: a row for each cluster, a column for each
    feature, darker where the mean is higher.
    """
    if len(clusters) == 0:
        raise ValueError("there is nothing to draw: there are no clusters")
    ids = list(range(len(clusters))) if ids is None else [int(i) for i in ids]
    if len(ids) != len(clusters):
        raise ValueError(f"{len(clusters)} clusters need as many ids, got {len(ids)}")
    if clusters.kind == "none":
        return _table(ax or new_axes(), clusters, ids, names, cluster_names or {}, style)
    shades = [colour(i) for i in ids]
    ax = ax or new_axes()
    members = {i: np.flatnonzero(np.array(ids) == i) for i in ids}
    width = [1.6 if len(members[i]) == 1 else 0.6 for i in ids]
    ellipses(ax, clusters, features, {"edgecolors": shades, "linewidths": width, "zorder": 3} | style)
    for i, rows in members.items():
        if len(rows) > 1:
            outline_together(ax, clusters[rows], features, colors=[colour(i)], linewidths=1.6, zorder=3)
    heaviest = [rows[clusters.weight[rows].argmax()] for rows in members.values()]
    means = clusters.mean[heaviest][:, list(features)]
    ax.scatter(means[:, 0], means[:, 1], marker="+", color=[shades[k] for k in heaviest], zorder=3)
    for i, mean in zip(members, means, strict=True) if len(members) <= MAX_LABELLED_CLUSTERS else ():
        ax.annotate(
            label(i, cluster_names or {}), mean, xytext=(3, 3), textcoords="offset points", fontsize=11,
            path_effects=halo(), zorder=4,
        )  # fmt: skip
    if events is not None:
        points = np.asarray(events, dtype=float)[:, list(features)]
        shown = ~outlying(points)
        points = points[shown]
        own: Any = "0.75" if labels is None else [colour(int(i)) for i in np.asarray(labels)[shown]]
        ax.scatter(points[:, 0], points[:, 1], s=4, c=own, linewidths=0, alpha=0.5, zorder=1, rasterized=True)
    name_axes(ax, features, names)
    return ax


def _table(
    ax: Axes,
    clusters: Moments,
    ids: list[int],
    names: Sequence[Hashable] | None,
    cluster_names: Mapping[int, str],
    style: dict[str, Any],
) -> Axes:
    """The mean of each cluster in each feature, the heaviest cluster at the top."""
    rows = np.argsort(-clusters.weight, kind="stable")
    share = clusters.weight / clusters.weight.sum()
    n = clusters.n_features
    options: dict[str, Any] = {"cmap": "Blues", "aspect": "auto", "vmin": 0.0}
    shown = ax.imshow(clusters.mean[rows], **(options | style))
    ax.set_yticks(range(len(rows)), [f"{label(ids[k], cluster_names)} ({share[k]:.0%})" for k in rows])
    for tick, k in zip(ax.get_yticklabels(), rows, strict=True):
        tick.set(
            color=on(colour(ids[k])), bbox={"facecolor": colour(ids[k]), "edgecolor": "none", "pad": 2.5}
        )
    if n <= MAX_NAMED_FEATURES:
        ax.set_xticks(range(n), [str(name) for name in names or range(n)], rotation=90 if names else 0)
    ax.set(xlabel="" if names else "feature", ylabel="cluster (share)")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.figure.colorbar(shown, ax=ax, label="mean", shrink=0.8)
    return ax
