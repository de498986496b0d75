"""Snapshots: the hierarchy of what a summary tree has learnt, in time that its leaves decide, not its events.

Two storeys. Inside each published cluster its leaves merge first (spherical RBHC); then the clusters merge with
each other by the chosen cost. So the cut at K is exactly the published clusters. Clusters that were joined from several
components have a storey between: leaves merge inside components, and components as they were joined. Thresholds and
free energies of raw leaves mean little: the cells of one Gaussian look like different Gaussians.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.hierarchy.tree import lift_heights
from streamclust._kernels.types import Floats, Ints
from streamclust.families import FamilyLike, SphericalGaussian, Summary
from streamclust.hierarchy.agglomerate import MethodName, RowSummary, agglomerate, informed
from streamclust.hierarchy.dendrogram import NO_ID, Dendrogram, renumber
from streamclust.hierarchy.problem import MergeProblem, Merges, check_rows
from streamclust.hierarchy.rbhc import Relaxed
from streamclust.hierarchy.ward import ward_merges
from streamclust.moments import Moments
from streamclust.tree import SummaryTree

LEAF_HEIGHT_SHARE = 0.2
"""Height of the merges within clusters in a drawing, relative to the merges of clusters."""


def snapshot(
    family: FamilyLike,
    tree: SummaryTree | Moments,
    labels: ArrayLike,
    ids: ArrayLike | None = None,
    method: MethodName = "rbhc",
    consistent: bool = True,
    sample_labels: ArrayLike | None = None,
    clusters: Moments | None = None,
    phi0: float | None = None,
    alpha: float = 1.0,
    joins: ComponentJoins | None = None,
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
    joins
        Where clusters are joined from several components: how. `labels`, `sample_labels` and `clusters` are then of
        components, `ids` of clusters.

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
    owner, names = _checked(rows, labels, ids, joins)
    joins = ComponentJoins.of_none(len(names)) if joins is None else joins
    k = len(joins.owner)
    parts = Parts(rows, owner, np.arange(len(rows)))
    if sample_labels is not None:
        if isinstance(tree, Moments):
            raise ValueError("sample_labels are of a tree's sample: give the tree, not its leaves")
        parts = divide(parts, *tree.sample(), _sample_labels(tree, sample_labels, k))
    own = parts.rows.to_groups(parts.labels, k) if clusters is None else clusters
    if len(own) != k:
        raise ValueError(f"{k} ids need as many clusters, got {len(own)}")
    parts = _with_homeless(parts, own, names[joins.owner])
    upper_rows = own if k == len(names) else own.to_groups(joins.owner, len(names))
    upper = agglomerate(family, upper_rows, method, phi0=phi0, alpha=alpha)
    return _stack_storeys(parts, joins, upper, names)


class ComponentJoins(NamedTuple):
    """How components merge into the published clusters.

    >>> none = ComponentJoins.of_none(2)
    >>> none.owner, len(none.pairs)
    (array([0, 1]), 0)
    """

    owner: Ints
    """The cluster of each component."""
    pairs: Ints
    """(joins, 2): nodes that merge; components come first, then joins in their order."""
    height: Floats
    """(joins,): rising."""

    @classmethod
    def of_none(cls, k: int) -> ComponentJoins:
        """Each of k clusters is one component."""
        return cls(np.arange(k), np.zeros((0, 2), dtype=np.int64), np.zeros(0))


class Parts(NamedTuple):
    """Leaves or pieces of them, the cluster of each, and which leaf each comes from."""

    rows: Moments
    labels: Ints
    source: Ints


def _checked(
    rows: Moments, labels: ArrayLike, ids: ArrayLike | None, joins: ComponentJoins | None
) -> tuple[Ints, Ints]:
    owner = np.asarray(labels)
    if owner.shape != rows.weight.shape or not np.issubdtype(owner.dtype, np.integer) or owner.min() < 0:
        raise ValueError(f"labels must be {len(rows)} whole numbers from 0, one for each leaf")
    names = np.arange(owner.max() + 1) if ids is None else np.asarray(ids)
    if names.ndim != 1 or not np.issubdtype(names.dtype, np.integer) or names.min(initial=0) < 0:
        raise ValueError("ids must be whole numbers of at least 0, one for each cluster")
    k = len(names) if joins is None else len(joins.owner)
    if owner.max() >= k or len(np.unique(names)) < len(names):
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
    """Add clusters without leaves as leaves of their own, so that their ids are kept."""
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
    for _ in ward_merges(MergeProblem.of(Relaxed(), family, rows), merges):
        pass
    return merges


def _stack_storeys(parts: Parts, joins: ComponentJoins, upper: Dendrogram, names: Ints) -> Dendrogram:
    """Trees of leaves within components below, joins of components above them, the tree of clusters on top."""
    n, k = len(parts.rows), len(joins.owner)
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
    nodes = np.concatenate([rank[top], n + done + np.arange(len(joins.pairs))])
    known = np.full(2 * n - 1, NO_ID)
    owner = np.concatenate([joins.owner, np.zeros(len(joins.pairs), dtype=np.int64)])
    for join, pair in enumerate(joins.pairs, start=k):
        owner[join] = owner[pair[0]]
    crown = np.zeros(len(names), dtype=np.int64)
    crown[owner] = nodes  # the last of a cluster's nodes is its top
    known[crown] = names
    tops = np.concatenate([crown, n + done + len(joins.pairs) + np.arange(len(names) - 1)])
    between = joins.height - joins.height.min(initial=0.0)
    drawn = _fit_heights(_fit_heights(height[order], between), upper.drawn_height)
    return Dendrogram(
        np.concatenate([children, *(np.sort(of[made], axis=1) for of, made in
            ((nodes, joins.pairs), (tops, upper.children)))]),
        np.concatenate([np.concatenate(costs)[order], joins.height, upper.cost]),
        drawn, parts.rows, len(names), known, parts.source, upper.method,
    )  # fmt: skip


def _fit_heights(lower: Floats, upper: Floats) -> Floats:
    """Heights of both storeys in one drawing: costs of different kinds do not compare.

    The lower storey is scaled to be seen, and not to reach the first merge of clusters; where that is too low
    for it, the upper storey is raised.
    """
    if len(upper) == 0 or len(lower) == 0 or not lower[-1] > 0:
        return np.concatenate([lower, upper])
    span = float(upper[-1])
    ground = max(float(upper[0]) / 2, LEAF_HEIGHT_SHARE * span if span > 0 else 1.0)
    raised = upper + max(ground - float(upper[0]), 0.0)
    return np.concatenate([lower * (ground / lower[-1]), raised])
