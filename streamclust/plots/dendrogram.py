"""A hierarchy as a tree of brackets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.hierarchy import Dendrogram
from streamclust.plots.drawing import colour, label, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_TICKS = 40
"""Number of branches up to which ticks are labelled."""
SHADE = "0.6"


def plot_dendrogram(
    dendrogram: Dendrogram,
    k: int | None = None,
    cost: float | None = None,
    show: int = 200,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
    **style: Any,
) -> Axes:
    """The top of a hierarchy, its clusters coloured (by their ids where they are published) and the cut dashed.

    k or cost: where to cut; by default where the method stops, if it says. show: how many branches at most;
    what lies below is one branch, marked by its weight. names: of the leaves; clusters have those that people gave them
    in the dendrogram. Keywords go to the lines.
    """
    ax = ax or new_axes()
    n = dendrogram.n_leaves
    known = k is not None or cost is not None or dendrogram.stop is not None
    tops = dendrogram.cut_nodes(k, cost) if known else np.array([2 * n - 2])
    ends = dendrogram.cut_nodes(k=max(1, min(show, n)))
    order = _leaf_order(dendrogram.children, set(ends.tolist()))
    height = np.concatenate([np.zeros(n), dendrogram.drawn_height])
    place = _places(dendrogram.children, order)
    drawn = np.flatnonzero(place >= 0)
    ids = dendrogram.ids[tops]
    named = ids if (ids >= 0).all() else np.arange(len(tops))
    owner = _owners(dendrogram.children, tops, named)
    _draw_brackets(ax, dendrogram.children, height, place, drawn[drawn >= n], order, owner, style)
    if 1 < len(tops) < n:
        level = (height[2 * n - 1 - len(tops)] + height[2 * n - len(tops)]) / 2
        ax.axhline(level, color="0.4", linewidth=0.8, linestyle="--", zorder=1)
    _name_branches(ax, dendrogram, order, place, tops, names)
    ax.set(
        xlim=(-0.5, len(order) - 0.5),
        ylabel="height",
        title=f"{n} leaves of weight {figure(dendrogram.leaves.weight.sum())}, {dendrogram.method}"
        + (f", {len(tops)} clusters" if known else ""),
    )
    ax.set_ylim(bottom=0.0)
    ax.yaxis.set_major_formatter(lambda value, _: figure(value))
    for side in ("top", "right", "bottom"):
        ax.spines[side].set_visible(False)
    return ax


def _leaf_order(children: Ints, ends: set[int]) -> list[int]:
    """The branches that end the drawing, from left to right."""
    n = len(children) + 1
    order: list[int] = []
    stack = [2 * n - 2]
    while stack:
        node = stack.pop()
        if node < n or node in ends:
            order.append(node)
        else:
            stack.extend(int(child) for child in children[node - n])
    return order


def _places(children: Ints, order: list[int]) -> Floats:
    """Horizontal position of each drawn node, a merge midway between its two; -1 for nodes not drawn."""
    n = len(children) + 1
    place = np.full(2 * n - 1, -1.0)
    place[order] = np.arange(len(order))
    for t, (left, right) in enumerate(children):
        if place[left] >= 0 and place[right] >= 0:
            place[n + t] = (place[left] + place[right]) / 2
    return place


def _owners(children: Ints, tops: Ints, named: Ints) -> Ints:
    """Which cluster each node belongs to, by name; -1 above all of them."""
    n = len(children) + 1
    owner = np.full(2 * n - 1, -1)
    owner[tops] = named
    for t in range(n - 2, -1, -1):
        if owner[n + t] >= 0:
            owner[children[t]] = owner[n + t]
    return owner


def _draw_brackets(
    ax: Axes, children: Ints, height: Floats, place: Floats, merges: Ints, order: list[int], owner: Ints,
    style: dict[str, Any],
) -> None:  # fmt: skip
    from matplotlib.collections import LineCollection

    n = len(children) + 1
    ends = np.zeros(2 * n - 1, dtype=bool)
    ends[order] = True
    merges = merges[~ends[merges]]
    left, right = children[merges - n].T
    x = np.column_stack([place[left], place[left], place[right], place[right]])
    foot_left, foot_right = _feet(height, ends, left), _feet(height, ends, right)
    y = np.column_stack([foot_left, height[merges], height[merges], foot_right])
    shades = [colour(c) if c >= 0 else SHADE for c in owner[merges].tolist()]
    options: dict[str, Any] = {"colors": shades, "linewidths": 1.0, "zorder": 2} | style
    ax.add_collection(LineCollection(list(np.stack([x, y], axis=2)), **options))
    ax.set_ylim(0.0, 1.05 * float(height[-1]) if height[-1] > 0 else 1.0)


def _feet(height: Floats, ends: Bools, nodes: Ints) -> Floats:
    """Draw the lowest branches down to zero."""
    return np.where(ends[nodes], 0.0, height[nodes])


def _name_branches(
    ax: Axes, dendrogram: Dendrogram, order: list[int], place: Floats, tops: Ints, names: Sequence[str] | None
) -> None:
    """Leaves by name or number, subtrees by their weight in brackets; published clusters by their ids and names."""
    n = dendrogram.n_leaves
    if len(order) <= MAX_TICKS:
        ticks = [
            (names[node] if names is not None else str(node))
            if node < n
            else f"({figure(dendrogram.weight[node])})"
            for node in order
        ]
        ax.set_xticks(range(len(order)), ticks, rotation=90)
    else:
        ax.set_xticks([])
    published = [node for node in tops if dendrogram.ids[node] >= 0 and place[node] >= 0]
    height = np.concatenate([np.zeros(n), dendrogram.drawn_height])
    last, raised = -np.inf, False
    for node in sorted(published, key=lambda node: place[node]) if len(published) <= MAX_TICKS else []:
        raised = not raised and place[node] - last < 0.03 * len(order)  # above a neighbour that is too near
        last, text = place[node], label(int(dendrogram.ids[node]), dendrogram.names)
        ax.annotate(
            text, (place[node], height[node]), xytext=(0, 18 if raised else 4),
            textcoords="offset points", ha="center", fontsize=8,
            bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "0.7", "lw": 0.5},
        )  # fmt: skip


def figure(value: float) -> str:
    """A number as people write it: whole from a hundred on, three digits below.

    >>> figure(15384.6), figure(0.012345)
    ('15,385', '0.0123')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
