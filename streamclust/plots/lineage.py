"""The lives of clusters as a river of bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust._kernels.types import Bools, Floats
from streamclust.lineage import Change, Kind, Lineage
from streamclust.plots.drawing import colour, label, new_axes, on
from streamclust.plots.river import OTHERS, River, entering, leaving, river

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS: dict[Kind, str] = {"born": "o", "returned": ">", "split": "^", "merged": "v", "died": "X"}
"""How a change is marked."""
MIN_LABELLED_SHARE = 0.03
"""Smallest share of a band that is labelled with its id."""


def plot_lineage(lineage: Lineage, ax: Axes | None = None, **style: Any) -> Axes:
    """The clusters of a stream as bands: how wide each was when, where it came from and what became of it.

    The height of a band is its share of the events around then. Marks show births, splits, merges and deaths, an end
    where the band was last to be seen; a line ties a band to the one it split from or merged into. A cluster that
    returns goes on in the colour that it had before the gap. Keywords go to the bands.
    """
    bands = river(lineage)
    ax = ax or new_axes(height=5)
    options: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6, "zorder": 1}
    for k, cluster in enumerate(bands.ids.tolist()):
        own = {
            "label": _name(cluster, lineage),
            "facecolor": colour(cluster),
            "where": _reach(bands.share[k]),
        }
        ax.fill_between(bands.at, bands.below[k], bands.above[k], **(options | own | style))
        _write(ax, bands, k, _name(cluster, lineage))
    _mark(ax, bands, list(lineage))
    ax.set(
        xlim=(bands.at[0], bands.at[-1]), ylim=(0.0, 1.0), xlabel="events seen", ylabel="share of the events",
    )  # fmt: skip
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def _name(cluster: int, lineage: Lineage) -> str:
    """Name of a band."""
    return "others" if cluster == OTHERS else label(cluster, lineage.names)


def _reach(share: Floats) -> Bools:
    """The columns from the one where a band begins to the one where it ends."""
    seen = np.pad(share > 0, 1)
    return np.asarray(seen[1:-1] | seen[2:] | seen[:-2])


def _write(ax: Axes, bands: River, k: int, name: str) -> None:
    """The id and name, once, where the band is wide on all of a label's length."""
    length = 0.03 * (bands.at[-1] - bands.at[0])
    room = np.array([bands.share[k][np.abs(bands.at - at) <= length].min() for at in bands.at])
    room[(bands.at < bands.at[0] + length) | (bands.at > bands.at[-1] - length)] = 0.0
    widest = int(room.argmax())
    if room[widest] >= MIN_LABELLED_SHARE:
        cluster = int(bands.ids[k])
        ax.text(
            bands.at[widest], bands.middle[k, widest], name, color=on(colour(cluster)),
            ha="center", va="center", fontsize=9, zorder=3, clip_on=True,
        )  # fmt: skip


def _mark(ax: Axes, bands: River, changes: list[Change]) -> None:
    """Mark where a band begins or ends, with a line to its parent or heir."""
    rows = {cluster: k for k, cluster in enumerate(bands.ids.tolist())}
    for kind, mark in MARKS.items():
        points = []
        for change in (c for c in changes if c.kind == kind):
            ended = kind in ("died", "merged")
            for cluster in (leaving(change) if ended else entering(change)) & rows.keys():
                column = _column(bands, rows[cluster], change.at, ended)
                at, level = bands.at[column], bands.middle[rows[cluster], column]
                points.append((at, level))
                kin = {"split": change.parents, "merged": change.children}.get(kind, {})
                for other in kin.keys() & rows.keys():
                    there = bands.middle[rows[other], column]
                    ax.plot([at, at], [level, there], color="black", linewidth=0.9, zorder=2)
        if points:
            ax.scatter(
                [x for x, _ in points], [y for _, y in points], marker=mark, s=28, color="black", edgecolors="white",
                linewidths=0.7, zorder=4, label=kind, clip_on=False,
            )  # fmt: skip
    handles = [h for h in ax.collections if h.get_label() in MARKS]
    if handles:
        ax.legend(
            handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles), frameon=False,
            fontsize=9, borderaxespad=0.0, handletextpad=0.1,
        )  # fmt: skip


def _column(bands: River, row: int, at: int, ended: bool) -> int:
    """Column at which a change is marked: after it or, for the end of a visible band, its last column."""
    until = np.flatnonzero(bands.at <= at)
    seen = until[bands.share[row, until] > 0]
    return int(seen[-1]) if ended and len(seen) else int(until[-1])
