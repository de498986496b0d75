"""The merge tree of components, and its cut: which components are pieces of one cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.moments import Moments, Scatter
from streamclust.shapes.edges import Edges, judged_edges
from streamclust.shapes.tuning import TUNING


class MergeTree(NamedTuple):
    """How components join, the lowest edges first: merge t makes node K + t of the nodes children[t].

    Heights rise from merge to merge. Components that no edge connects are never merged. `clusters()` is the cut at 0.

    >>> x = np.random.default_rng(0).uniform(size=(2000, 2)) * [4.0, 1.0]
    >>> x[1000:, 1] += 3.0
    >>> piece = (x[:, 0] // 1).astype(int) + 4 * (x[:, 1] > 2)
    >>> tree = merge_tree(Moments.rows_of_points(x).to_groups(piece, kind="full"), x)
    >>> tree.clusters()
    array([0, 0, 0, 0, 1, 1, 1, 1])
    """

    children: Ints
    """(merges, 2)."""
    height: Floats
    """(merges,)."""
    error: Floats
    """(merges,): standard errors of the heights."""
    edges: Edges
    twin: Ints
    """(K,): the number that each component has in the edges and merges; those of equal means have one."""

    def clusters(self, threshold: float | Floats = 0.0) -> Ints:
        """The cluster of each component, numbered by first component: joined where an edge is below the threshold.

        The threshold may differ from edge to edge: -2 error is a cautious one.
        """
        found = joined_clusters(self.edges, int(self.twin.max(initial=-1)) + 1, threshold)[self.twin]
        return by_first(found)

    @property
    def plateaus(self) -> Ints:
        """(P, 2): pairs of components i < j whose events are one plateau, however much their peaks differ."""
        first = np.unique(self.twin, return_index=True)[1]
        return np.sort(first[self.edges.pairs[self.edges.height < 0]], axis=1)

    def joined_by(self, caution: float) -> Ints:
        """Clusters joined only by edges whose height plus `caution` standard errors is below 0."""
        return self.clusters(-caution * self.edges.error)


def merge_tree(components: Moments, points: ArrayLike, weight: ArrayLike | None = None) -> MergeTree:
    """The merge tree of components, from sampled events and the weight that each stands for (1).

    The order of the components does not matter, nor whether one of them is given as several with the same mean.
    """
    x = np.asarray(points, dtype=float)
    w = np.ones(len(x)) if weight is None else np.asarray(weight, dtype=float)
    if x.ndim != 2 or x.shape[1] != components.n_features or w.shape != (len(x),):
        raise ValueError(
            f"points must be rows of {components.n_features} features, with a weight each, "
            f"got shapes {x.shape} and {w.shape}"
        )
    if components.kind == "none":
        raise ValueError("components without covariances cannot be joined: count families have no shape")
    own, twin = distinct(components)
    x, w = x[w > 0], w[w > 0]
    edges = judged_edges(own, x, w)
    children, which = kruskal(edges, len(own))
    return MergeTree(children, edges.height[which], edges.error[which], edges, twin)


def gaussian_components(weight: Floats, mean: Floats, covariance: Floats) -> Moments:
    """Gaussians as rows of Moments: covariances (K, D, D), variances (K, D), or one variance each (K,)."""
    kinds: dict[int, Scatter] = {3: "full", 2: "diagonal", 1: "scalar"}
    factor = weight * mean.shape[1] if covariance.ndim == 1 else weight
    scatter = covariance * factor.reshape(-1, *[1] * (covariance.ndim - 1))
    return Moments(weight, mean, scatter, kinds[covariance.ndim])


def distinct(components: Moments) -> tuple[Moments, Ints]:
    """The components in the order of their means, those of equal means as one; and which of these each is."""
    order = np.lexsort(components.mean.T[::-1])
    mean = components.mean[order]
    twin = np.empty(len(mean), dtype=np.int64)
    twin[order] = np.append(0, np.cumsum(np.any(mean[1:] != mean[:-1], axis=1)))
    return components.to_groups(twin), twin


def equals(edges: Edges) -> Bools:
    """Edges between bells whose peaks are within a factor `max_peak_ratio`."""
    return np.asarray(edges.peaks.max(axis=1) <= TUNING.max_peak_ratio * edges.peaks.min(axis=1))


def kruskal(edges: Edges, k: int) -> tuple[Ints, Ints]:
    """Merges by ascending height over edges of equals: the two nodes of each, and its edge."""
    order = np.argsort(edges.height, kind="stable")
    order = order[(equals(edges) & np.isfinite(edges.height))[order]]
    children, which = merges_in_order(edges.pairs[order], k)
    return children, order[which]


def joins_within(tree: MergeTree, owner: Ints) -> tuple[Ints, Floats]:
    """Merges of components into given clusters, by ascending height: the two nodes of each, and its height.

    Components of one cluster that no chain of edges within it connects are merged last.
    """
    first = np.unique(tree.twin, return_index=True)[1]
    pairs, height = first[tree.edges.pairs], tree.edges.height
    within = np.flatnonzero((owner[pairs[:, 0]] == owner[pairs[:, 1]]) & np.isfinite(height))
    order = within[np.argsort(height[within], kind="stable")]
    members = np.argsort(owner, kind="stable")
    chain = np.stack([members[:-1], members[1:]], axis=1)
    chain = chain[owner[chain[:, 0]] == owner[chain[:, 1]]]
    last = np.full(len(chain), height[within].max(initial=0.0))
    children, which = merges_in_order(np.concatenate([pairs[order], chain]), len(owner))
    return children, np.concatenate([height[order], last])[which]


def merges_in_order(pairs: Ints, k: int) -> tuple[Ints, Ints]:
    """The merges that pairs of k nodes bring, one after the other: the two nodes of each, and which pair it was.

    >>> merges_in_order(np.array([[0, 1], [1, 0], [1, 2]]), 3)
    (array([[0, 1],
           [2, 3]]), array([0, 2]))
    """
    root = Roots(k)
    node = list(range(k))
    children: list[list[int]] = []
    which: list[int] = []
    for e, (one, other) in enumerate(pairs.tolist()):
        a, b = root[one], root[other]
        if a != b:
            children.append(sorted((node[a], node[b])))
            node[root.join(a, b)] = k + len(which)
            which.append(e)
    return np.array(children, dtype=np.int64).reshape(-1, 2), np.array(which, dtype=np.int64)


def joined_clusters(edges: Edges, k: int, threshold: float | Floats = 0.0) -> Ints:
    """The cluster of each component: those that edges of equals below the threshold connect.

    A component still alone, that has edges below the threshold only to peaks more than `max_peak_ratio` times its own,
    joins the lowest of those; it never bridges two others.
    """
    below = edges.height < threshold
    root = Roots(k)
    root.join_all(edges.pairs[below & equals(edges)])
    size = np.bincount([root[c] for c in range(k)], minlength=k)
    lower = edges.pairs[np.arange(len(edges.pairs)), edges.peaks.argmin(axis=1)]
    joins = []
    for c in range(k):
        if size[root[c]] == 1:
            mine = np.flatnonzero(below & (edges.pairs == c).any(axis=1))
            if len(mine) and np.all(lower[mine] == c):
                joins.append(edges.pairs[mine[edges.height[mine].argmin()]])
    root.join_all(joins)
    return by_first(np.array([root[c] for c in range(k)], dtype=np.int64))


def heaviest_first(labels: Ints, weight: Floats) -> Ints:
    """Renumber groups by the weight of their members, the heaviest first.

    >>> heaviest_first(np.array([0, 0, 1, 2]), np.array([1.0, 2.0, 5.0, 1.0]))
    array([1, 1, 0, 2])
    """
    total = np.bincount(labels, weight)
    return np.argsort(np.argsort(-total, kind="stable"))[labels]


def by_first(labels: Ints) -> Ints:
    """Renumber groups in the order of their first members."""
    _, first, group = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[group.reshape(-1)]


class Roots:
    """Disjoint sets of numbers below k: `roots[c]` is the representative of c's set."""

    def __init__(self, k: int) -> None:
        self._parent = list(range(k))

    def __getitem__(self, c: int) -> int:
        while self._parent[c] != c:
            self._parent[c] = self._parent[self._parent[c]]
            c = self._parent[c]
        return int(c)

    def join(self, a: int, b: int) -> int:
        """Make one set of two; returns its representative."""
        a, b = sorted((self[a], self[b]))
        self._parent[b] = a
        return a

    def join_all(self, pairs: Iterable[Ints]) -> None:
        """Make one set of each pair's two."""
        for a, b in pairs:
            self.join(int(a), int(b))
