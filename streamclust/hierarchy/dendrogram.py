"""Dendrogram: a finished hierarchy, to cut, to store, to draw and to hand to other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.hierarchy.tree import cut_tree, lift_heights, purity_sums, sum_tree
from streamclust._kernels.types import Floats, Ints
from streamclust.hierarchy import export
from streamclust.moments import Moments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from networkx import DiGraph

NO_ID = -1


def renumber(pairs: Ints, order: Ints, n: int) -> tuple[Ints, Ints]:
    """Merges brought into another order, and the new number of every node."""
    rank = np.arange(n + len(order))
    rank[n + order] = n + np.arange(len(order))
    return np.sort(rank[pairs[order]], axis=1), rank


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """A binary tree over n leaves: nodes 0..n-1 are the leaves, merge t makes node n + t.

    children  (n-1, 2)  the two nodes of each merge
    cost      (n-1,)    what each merge cost, as it was
    height    (n-1,)    the same made monotone, so that a cut by height is a cut by the number of clusters
    leaves    Moments of the leaves
    stop      how many clusters the method itself would leave, or None where it does not say
    ids       (2n-1,)   ids of the published clusters that nodes are; -1 for the others
    source    (n,)      which row of the input each leaf is, or is a part of; -1 if of none
    method    what the costs are: "rbhc", "abc" or "bhc"
    names     names that people gave to published clusters, by id

    >>> from streamclust.hierarchy import agglomerate
    >>> tree = agglomerate("spherical", Moments.rows_of_points([[0.0], [1.0], [10.0], [12.0]]))
    >>> tree.cut(k=2)
    array([0, 0, 1, 1])
    >>> tree.to_newick()
    '((0:0.25,1:0.25):54.875,(2:1,3:1):54.125);'
    """

    children: Ints
    cost: Floats
    height: Floats
    leaves: Moments
    stop: int | None
    ids: Ints
    source: Ints
    method: str
    names: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of_merges(
        cls,
        pairs: Ints,
        cost: Floats,
        leaves: Moments,
        method: str,
        greedy: bool,
        first_storey: int | None = None,
    ) -> Dendrogram:
        """From merges as they were made, in the order of their heights.

        Greedy merges stay in the order they were made, with the running maximum of their costs as heights.
        Merges from `first_storey` on stay above the others.
        """
        n = len(leaves)
        if greedy:
            height, order = np.maximum.accumulate(cost), np.arange(n - 1)
        else:
            height = lift_heights(pairs, cost, n - 1 if first_storey is None else first_storey)
            order = np.argsort(height, kind="stable")
        children, _ = renumber(pairs, order, n)
        nobody = np.full(2 * n - 1, NO_ID)
        return cls(children, cost[order], height[order], leaves, None, nobody, np.arange(n), method)

    def stopping_at(self, stop: int | None) -> Dendrogram:
        """A copy of the tree with another stopping level."""
        return replace(self, stop=stop)

    # ---------------------------------------------------------------- reading

    @property
    def n_leaves(self) -> int:
        """n."""
        return len(self.leaves)

    @cached_property
    def moments(self) -> Moments:
        """Moments of every node."""
        n, leaves = self.n_leaves, self.leaves
        flat = leaves.flat_scatter
        weight = np.concatenate([leaves.weight, np.zeros(n - 1)])
        mean = np.concatenate([leaves.mean, np.zeros((n - 1, leaves.n_features))])
        scatter = np.concatenate([flat, np.zeros((n - 1, flat.shape[1]))])
        sum_tree(self.children, weight, mean, scatter)
        return Moments.from_flat(weight, mean, scatter, leaves.kind)

    @cached_property
    def weight(self) -> Floats:
        """Weight of every node."""
        return self._sums(self.leaves.weight)

    @cached_property
    def count(self) -> Ints:
        """Leaves below every node."""
        return self._sums(np.ones(self.n_leaves)).astype(np.int64)

    def _sums(self, values: Floats) -> Floats:
        n = self.n_leaves
        sums = np.concatenate([values, np.zeros(n - 1)])
        sum_tree(self.children, sums, np.empty((2 * n - 1, 0)), np.empty((2 * n - 1, 0)))
        return cast(Floats, sums)

    # ---------------------------------------------------------------- cutting

    def cut(self, k: int | None = None, cost: float | None = None) -> Ints:
        """The cluster of each leaf, numbered in the order of their first leaves.

        k: into k clusters. cost: undoing every merge from the first that cost more. Neither: where
        the method stops.
        """
        return cut_tree(self.children, self._clusters(k, cost))[0]

    def cut_nodes(self, k: int | None = None, cost: float | None = None) -> Ints:
        """The nodes that a cut's clusters are, in the order of its labels; `ids[nodes]` are their ids."""
        return cut_tree(self.children, self._clusters(k, cost))[1]

    def best_cut(self) -> Ints:
        """The cut where the method stops."""
        return self.cut()

    def _clusters(self, k: int | None, cost: float | None) -> int:
        if k is not None and cost is not None:
            raise ValueError("cut by k or by cost, not by both")
        if cost is not None:
            if np.isnan(cost):
                raise ValueError("cannot cut at a cost of NaN")
            return self.n_leaves - int(np.searchsorted(self.height, cost, side="right"))
        if k is None:
            if self.stop is None:
                raise ValueError("nothing says where to stop: give k, a cost, or build it with a threshold")
            return self.stop
        if k != int(k) or not 1 <= k <= self.n_leaves:
            raise ValueError(f"k must be a whole number from 1 to the {self.n_leaves} leaves, got {k}")
        return int(k)

    # ---------------------------------------------------------------- judging

    def purity(self, labels: ArrayLike) -> float:
        """Dendrogram purity [BKM section 11.2], in time linear in the tree.

        Two events of one class are drawn at random; purity is the expected share of that class in the smallest
        subtree that holds both. `labels` gives the class of each leaf, or the mass that each leaf has in each
        class (leaves, classes). Pairs within a leaf have that leaf as their smallest subtree.
        """
        given = np.asarray(labels)
        n = self.n_leaves
        if given.ndim not in (1, 2) or len(given) != n:
            raise ValueError(
                f"labels must be {n} classes, or masses of shape ({n}, classes), got {given.shape}"
            )
        if given.ndim == 1:
            classes = np.unique(given, return_inverse=True)[1]
            mass = np.zeros((n, int(classes.max()) + 1))
            mass[np.arange(n), classes] = self.leaves.weight
        else:
            mass = given.astype(float)
            if not np.all(mass >= 0):
                raise ValueError("masses must not be negative or NaN")
        total = np.concatenate([mass.sum(axis=1), np.zeros(n - 1)])
        pure, pairs = purity_sums(self.children, np.vstack([mass, np.zeros((n - 1, mass.shape[1]))]), total)
        if not pairs > 0:
            raise ValueError("purity needs two events of one class; every class here has one")
        return float(pure / pairs)

    # ---------------------------------------------------------------- handing on

    @property
    def drawn_height(self) -> Floats:
        """Heights that are not negative: where merges have negative costs, all are raised alike."""
        return self.height - min(float(self.height[0]), 0.0) if len(self.height) else self.height

    def to_linkage(self) -> Floats:
        """SciPy's linkage matrix: two nodes, height, number of leaves."""
        if self.n_leaves < 2:
            raise ValueError("a linkage matrix needs at least two leaves, this tree has one")
        return np.column_stack([self.children, self.drawn_height, self.count[self.n_leaves :]])

    def to_newick(self, names: Sequence[str] | None = None) -> str:
        """Newick's format, for tools that draw trees; leaves are called by number unless named."""
        return export.newick(self.children, self.drawn_height, export.leaf_names(names, self.n_leaves))

    def to_networkx(self) -> DiGraph:
        """A directed graph from parents to children, with weights, heights, ids and names; needs networkx."""
        height = np.concatenate([np.zeros(self.n_leaves), self.drawn_height])
        return export.networkx_graph(self.children, height, self.weight, self.ids, self.names)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers; `from_dict` gives the same tree back, bit for bit."""
        return {
            "method": self.method,
            "stop": self.stop,
            "kind": self.leaves.kind,
            "names": [[i, name] for i, name in sorted(self.names.items())],
            **{name: array.tolist() for name, array in self.to_arrays().items()},
        }

    def to_arrays(self) -> dict[str, Any]:
        """The arrays of `to_dict`."""
        return {
            "children": self.children,
            "cost": self.cost,
            "height": self.height,
            "weight": self.leaves.weight,
            "mean": self.leaves.mean,
            "scatter": self.leaves.flat_scatter,
            "ids": self.ids,
            "source": self.source,
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Dendrogram:
        """The tree that `to_dict` stored."""
        return cls(**export.read(stored))

    def plot(self, **options: Any) -> Axes:
        """A picture: see `streamclust.plots.plot_dendrogram`."""
        from streamclust.plots import plot_dendrogram

        return plot_dendrogram(self, **options)

    def __repr__(self) -> str:
        stop = "" if self.stop is None else f", {self.stop} clusters"
        return (
            f"Dendrogram({self.n_leaves} leaves of weight {self.leaves.weight.sum():g}, {self.method}{stop})"
        )

    def _repr_html_(self) -> str:
        top = range(len(self.cost) - 1, max(len(self.cost) - 11, -1), -1)
        rows = "".join(
            f"<tr><td>{self.n_leaves - t}</td><td>{self.cost[t]:.6g}</td>"
            f"<td>{self.weight[self.children[t, 0]]:.6g}</td><td>{self.weight[self.children[t, 1]]:.6g}</td></tr>"
            for t in top
        )
        head = "<tr><th>clusters<th>cost of merging<th>weight<th>with weight</tr>"
        return f"<table><caption>{self!r}</caption>{head}{rows}</table>"
