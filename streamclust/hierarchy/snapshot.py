"""Snapshots: the hierarchy of what a summary tree has learnt, in time that its leaves decide, not its events.

Two storeys. Inside each published cluster its leaves merge first (spherical RBHC); then the clusters merge with
each other by the chosen cost. So the cut at K is exactly the published clusters. Thresholds and free energies of
raw leaves mean little: the cells of one Gaussian look like different Gaussians.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.hierarchy_tree import lift_heights
from streamclust._kernels.types import Floats, Ints
from streamclust.families import SphericalGaussian, Summary
from streamclust.hierarchy.agglomerate import MethodName, RowSummary, agglomerate, informed
from streamclust.hierarchy.dendrogram import NO_ID, Dendrogram, renumber
from streamclust.hierarchy.problem import Merges, Problem, check_rows
from streamclust.hierarchy.rbhc import Relaxed
from streamclust.hierarchy.ward import ward_merges
from streamclust.moments import Moments
from streamclust.tree import SummaryTree

GROUND = 0.2
"""Leaves within clusters are drawn at least so high, relative to the merges of clusters."""


def snapshot(
    family: Any,  # noqa: ANN401
    tree: SummaryTree | Moments,
    labels: ArrayLike,
    ids: ArrayLike | None = None,
    method: MethodName = "rbhc",
    consistent: bool = True,
    sample_labels: ArrayLike | None = None,
    clusters: Moments | None = None,
    phi0: float | None = None,
    alpha: float = 1.0,
) -> Dendrogram:
    """The hierarchy over a tree's leaves that passes through the published clusters.

    Parameters
    ----------
    family
        What a cluster is. A prior still to be informed is informed by the tree.
    tree
        A SummaryTree, or its leaves as Moments.
    labels
        The cluster of each leaf, 0..K-1.
    ids
        The id of each cluster; by default its number.
    method
        How clusters merge with each other: "rbhc", "abc" or "bhc".
    consistent
        False gives the raw tree instead: leaves merge by `method` alone, whatever their clusters.
    sample_labels
        The cluster of each point of `tree.sample()`. Leaves that straddle clusters are then divided among
        them, as their samples are; weights and means are kept exactly, scatter as the sample has it.
    clusters
        The published clusters' own Moments, for the upper storey; by default the sums of their leaves. A
        cluster that owns no leaf is then a leaf of its own.
    phi0, alpha
        As for `agglomerate`.

    >>> tree = SummaryTree(n_features=1, max_leaves=8, leaf_size=2)
    >>> tree.insert([[0.0], [1.0], [2.0], [50.0], [51.0], [90.0]])
    >>> nearest = np.abs(tree.leaves().mean - [1.0, 50.0, 90.0]).argmin(axis=1)
    >>> dendrogram = snapshot("gaussian", tree, nearest, ids=[7, 3, 12])
    >>> sorted(dendrogram.ids[dendrogram.cut_nodes(k=3)].tolist())
    [3, 7, 12]
    """
    rows = tree if isinstance(tree, Moments) else tree.leaves()
    check_rows(rows)
    data: Summary = RowSummary(rows) if isinstance(tree, Moments) else tree
    family = informed(family, data, method)
    if not consistent:
        return agglomerate(family, rows, method, phi0=phi0, alpha=alpha).stopping_at(None)
    owner, names = _checked(rows, labels, ids)
    parts = Parts(rows, owner, np.arange(len(rows)))
    if sample_labels is not None:
        if isinstance(tree, Moments):
            raise ValueError("sample_labels are of a tree's sample: give the tree, not its leaves")
        parts = divide(parts, *tree.sample(), _sample_labels(tree, sample_labels, len(names)))
    upper_rows = parts.rows.to_groups(parts.labels, len(names)) if clusters is None else clusters
    if len(upper_rows) != len(names):
        raise ValueError(f"{len(names)} ids need as many clusters, got {len(upper_rows)}")
    parts = _with_homeless(parts, upper_rows, names)
    upper = agglomerate(family, upper_rows, method, phi0=phi0, alpha=alpha)
    return _stack_storeys(parts, upper, names)


class Parts(NamedTuple):
    """Leaves or pieces of them, the cluster of each, and which leaf each comes from."""

    rows: Moments
    labels: Ints
    source: Ints


def _checked(rows: Moments, labels: ArrayLike, ids: ArrayLike | None) -> tuple[Ints, Ints]:
    owner = np.asarray(labels)
    if owner.shape != rows.weight.shape or not np.issubdtype(owner.dtype, np.integer) or owner.min() < 0:
        raise ValueError(f"labels must be {len(rows)} whole numbers from 0, one for each leaf")
    names = np.arange(owner.max() + 1) if ids is None else np.asarray(ids)
    if names.ndim != 1 or not np.issubdtype(names.dtype, np.integer) or names.min(initial=0) < 0:
        raise ValueError("ids must be whole numbers of at least 0, one for each cluster")
    if owner.max() >= len(names) or len(np.unique(names)) < len(names):
        raise ValueError(f"labels up to {owner.max()} need that many ids and one more, all different")
    return owner.astype(np.int64), names.astype(np.int64)


def _sample_labels(tree: SummaryTree, labels: ArrayLike, k: int) -> Ints:
    given = np.asarray(labels)
    n = len(tree.sample()[1])
    if given.shape != (n,) or not np.issubdtype(given.dtype, np.integer):
        raise ValueError(f"sample_labels must be {n} whole numbers, one for each point of tree.sample()")
    if given.min() < 0 or given.max() >= k:
        raise ValueError(f"sample_labels must lie in 0..{k - 1}, got {given.min()} to {given.max()}")
    return given.astype(np.int64)


def divide(parts: Parts, points: Floats, mass: Floats, labels: Ints) -> Parts:
    """Divide the leaves whose samples belong to several clusters among these.

    A sample stands leaf by leaf, each leaf's points having the leaf's weight together.
    """
    rows = parts.rows
    edges = np.cumsum(rows.weight)
    leaf = np.searchsorted(edges, np.cumsum(mass) - mass / 2)
    k = int(max(labels.max(), parts.labels.max())) + 1
    piece, of_point = np.unique(leaf * k + labels, return_inverse=True)
    straddling = np.bincount(piece // k, minlength=len(rows)) > 1
    sampled = np.isin(np.arange(len(rows)), leaf)
    whole = np.flatnonzero(~straddling)
    owner = parts.labels.copy()
    owner[piece // k] = piece % k
    owner = np.where(sampled, owner, parts.labels)
    cut = np.flatnonzero(straddling[piece // k])
    pieces = Moments.rows_of_points(points, mass).to_groups(of_point, len(piece), kind=rows.kind)[cut]
    home = piece[cut] // k
    centre = Moments(pieces.weight, pieces.mean, np.zeros((len(cut), 0)), "none").to_groups(home, len(rows))
    pieces = pieces.shift((rows.mean - centre.mean)[home])
    return Parts(
        Moments.stack([rows[whole], pieces]),
        np.concatenate([owner[whole], piece[cut] % k]),
        np.concatenate([whole, home]),
    )


def _with_homeless(parts: Parts, clusters: Moments, names: Ints) -> Parts:
    """Clusters that own nothing become leaves of their own: their ids must not be lost."""
    homeless = np.flatnonzero(np.bincount(parts.labels, minlength=len(names)) == 0)
    if len(homeless) == 0:
        return parts
    if not np.all(clusters.weight[homeless] > 0):
        raise ValueError(
            f"cluster {names[homeless[0]]} owns no leaf; give `clusters`, or the labels of the sample"
        )
    return Parts(
        Moments.stack([parts.rows, clusters[homeless].to(parts.rows.kind)]),
        np.concatenate([parts.labels, homeless]),
        np.concatenate([parts.source, np.full(len(homeless), NO_ID)]),
    )


def _within(rows: Moments) -> Merges:
    """Ward's merges of one cluster's leaves."""
    family = SphericalGaussian(1.0, rows.mean[0], 1.0, 1.0)
    merges = Merges(len(rows))
    for _ in ward_merges(Problem.of(Relaxed(), family, rows), merges):
        pass
    return merges


def _stack_storeys(parts: Parts, upper: Dendrogram, names: Ints) -> Dendrogram:
    """Trees of leaves within clusters below, the tree of clusters above."""
    n, k = len(parts.rows), len(names)
    pairs, costs, heights = [], [], []
    top = np.empty(k, dtype=np.int64)
    done = 0
    for c in range(k):
        mine = np.flatnonzero(parts.labels == c)
        merges = _within(parts.rows[mine])
        nodes = np.concatenate([mine, n + done + np.arange(len(mine) - 1)])
        pairs.append(nodes[merges.pairs])
        costs.append(merges.costs)
        heights.append(lift_heights(merges.pairs, merges.costs, len(merges.costs)))
        done += len(mine) - 1
        top[c] = nodes[-1]
    height = np.concatenate(heights)
    order = np.argsort(height, kind="stable")
    children, rank = renumber(np.concatenate(pairs), order, n)
    nodes = np.concatenate([rank[top], n + done + np.arange(k - 1)])
    known = np.full(2 * n - 1, NO_ID)
    known[rank[top]] = names
    return Dendrogram(
        np.concatenate([children, np.sort(nodes[upper.children], axis=1)]),
        np.concatenate([np.concatenate(costs)[order], upper.cost]),
        _fit_heights(height[order], upper.drawn_height),
        parts.rows, k, known, parts.source, upper.method,
    )  # fmt: skip


def _fit_heights(lower: Floats, upper: Floats) -> Floats:
    """Heights of both storeys in one drawing: costs of different kinds do not compare.

    The lower storey is scaled to be seen, and not to reach the first merge of clusters; where that is too low
    for it, the upper storey is raised.
    """
    if len(upper) == 0 or len(lower) == 0 or not lower[-1] > 0:
        return np.concatenate([lower, upper])
    span = float(upper[-1])
    ground = max(float(upper[0]) / 2, GROUND * span if span > 0 else 1.0)
    raised = upper + max(ground - float(upper[0]), 0.0)
    return np.concatenate([lower * (ground / lower[-1]), raised])
