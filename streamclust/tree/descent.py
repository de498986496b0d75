"""Exact ownership of tree nodes by clusters: blacklisting descent [BKM section 9.1].

    form = family.cost_form(posterior, mixture.mixing(clusters.weight))
    ownership = own(tree, form)
    clusters = ownership.moments                # all that the next step of k-means reads

The paper's bounds are corrected (as printed, its lower bound over a box mislabels points: see
tests/tree/test_descent.py) and joined by tighter ones. Every bound gives the same labels, those of scoring
each point against every cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast, get_args

import numpy as np

from streamclust._kernels.tree.arrays import descend_rows
from streamclust._kernels.tree.costs import BALL, DIFFERENCE, PAPER, ROTATED
from streamclust._kernels.tree.descent import find_owners
from streamclust._kernels.tree.gather import gather
from streamclust._kernels.types import Floats, Ints
from streamclust.families.cost_form import CostForm, Quadratic
from streamclust.moments import Moments
from streamclust.tree.label import dims, fastest, kernel_form, label, label_by_blas
from streamclust.tree.layout import Layout, layout
from streamclust.tree.rows import check_rows
from streamclust.tree.summary import SummaryTree

Bound = Literal["paper", "ball", "rotated", "difference"]
BOUNDS: dict[Bound, int] = {"paper": PAPER, "ball": BALL, "rotated": ROTATED, "difference": DIFFERENCE}
Leaf = Literal["sample", "whole"]
Assign = Literal["auto", "tree", "points", "blas"]
LEAVES: tuple[Leaf, ...] = get_args(Leaf)
ASSIGNS: tuple[Assign, ...] = get_args(Assign)
NOTHING: Ints = np.empty(0, dtype=np.int64)


def own(
    tree: SummaryTree,
    form: CostForm,
    bound: Bound = "difference",
    leaf: Leaf | None = None,
    assign: Assign = "tree",
) -> Ownership:
    """Give every event of the tree to the cluster of least cost, whole nodes at a time where one cluster owns them.

    Parameters
    ----------
    tree
        An exact tree (max_leaves=None) makes it exact for every event.
    form
        The clusters' costs: `family.cost_form(posterior, mixing)`.
    bound
        How costs are bounded over a node's box; "difference" prunes most. All give the same labels.
    leaf
        What becomes of a leaf that no cluster owns. "sample": its sampled points decide, each for the weight
        it stands for. "whole": it goes to the cluster of least summed cost. None: "sample" for an exact tree,
        "whole" for a bounded one.
    assign
        "tree" descends. "points" scores every sampled point in a compiled loop, with the same labels; "blas" by
        matrix products, whose rounding may settle a tie otherwise. "auto" takes the one that was measured to be
        `fastest`. Leaves taken whole are always found through the tree.

    Examples
    --------
    >>> from streamclust.families import Gaussian
    >>> events = np.concatenate([np.random.default_rng(k).normal(9 * k, 1, (500, 2)) for k in range(3)])
    >>> tree = SummaryTree(n_features=2, max_leaves=None)
    >>> tree.insert(events)
    >>> family = Gaussian.informed(tree)
    >>> clusters = Moments.rows_of_points(events).to_groups(np.arange(1500) // 500, kind="full")
    >>> ownership = own(tree, family.cost_form(family.posterior(clusters)))
    >>> ownership.moments.weight
    array([500., 500., 500.])
    >>> ownership.predict([[0.5, 1.0], [100.0, 100.0]])
    array([0, 2])
    """
    leaf = leaf or ("sample" if tree.max_leaves is None else "whole")
    for what, value, choices in (
        ("bound", bound, BOUNDS),
        ("leaf", leaf, LEAVES),
        ("assign", assign, ASSIGNS),
    ):
        if value not in choices:
            raise ValueError(f"{what} must be one of {', '.join(choices)}, got {value!r}")
    vector, root, offset = kernel_form(form, tree.n_features)
    nodes = layout(tree)
    if leaf == "sample" and assign != "tree":
        if assign == "auto":
            assign = fastest(len(nodes.points), tree.n_features, len(offset), linear=root is None)
        if assign != "tree":
            labels = (label if assign == "points" else label_by_blas)(nodes.points, form)
            return Ownership(tree, form, nodes, NOTHING, NOTHING, NOTHING, np.arange(len(labels)), labels)
    owned, owner, single, single_owner = find_owners(
        nodes.after, nodes.first, nodes.box, nodes.points, nodes.depth, vector, root, offset,
        BOUNDS[bound], None if bound == "difference" else _extremes(root), leaf == "whole", dims(form),
    )  # fmt: skip
    given = NOTHING
    if leaf == "whole":
        given = np.flatnonzero(owner < 0)
        owner[given] = form.cost(nodes.moments(owned[given])).argmin(axis=1)
    return Ownership(tree, form, nodes, owned, owner, given, single, single_owner)


def _extremes(root: Floats | None) -> Floats:
    """Least and greatest eigenvalue of each rootᵀ root: the λ of the paper's bounds."""
    if root is None:
        return np.empty((0, 2))
    values = np.linalg.eigvalsh(np.einsum("kij,kil->kjl", root, root))
    return cast(Floats, np.maximum(values[:, [0, -1]], 0.0))


@dataclass(frozen=True, eq=False)
class Ownership:
    """Assignment of a tree to clusters: nodes owned whole, and single points of leaves that no cluster owns."""

    tree: SummaryTree
    form: CostForm
    layout: Layout
    owned: Ints
    """Nodes, by their position in the layout; none below another."""
    owner: Ints
    """The cluster of each of them."""
    given: Ints
    """Which of them are leaves that no cluster owned, and went to the cheapest."""
    single: Ints
    """Points of undecided leaves, by their position in the layout."""
    single_owner: Ints

    @cached_property
    def moments(self) -> Moments:
        """One row for each cluster, in the tree's kind of scatter: merged from nodes, and from single points."""
        nodes = self.layout
        if isinstance(self.form, Quadratic):
            reference = np.ascontiguousarray(self.form.centre, dtype=float)
        else:
            reference = np.repeat(nodes.mean[:1] + nodes.origin, len(self.form.offset), axis=0)
        weight, mean, scatter = gather(
            self.owned, self.owner, self.single, self.single_owner, nodes.weight, nodes.mean, nodes.scatter,
            nodes.points, nodes.mass, nodes.origin, reference,
            dims(self.form), (0,) * nodes.scatter.shape[1] if dims(self.form) else (),
        )  # fmt: skip
        moments = Moments.from_flat(weight, mean, scatter, nodes.kind)
        return moments if nodes.present == 1.0 else moments.scale(nodes.present)

    @cached_property
    def cost(self) -> float:
        """The labelling cost summed over all events, each with its owner."""
        return float(np.trace(self.form.cost(self.moments)))

    @cached_property
    def labels(self) -> Ints:
        """The owner of every sampled point, in the order of `tree.sample()`."""
        nodes = self.layout
        labels = np.empty(len(nodes.points), dtype=np.int64)
        _fill(labels, nodes.first[self.owned], nodes.first[nodes.after[self.owned]], self.owner)
        labels[self.single] = self.single_owner
        return nodes.in_sample_order(labels)

    @cached_property
    def _above(self) -> Ints:
        """For each node of the tree, by its number there: which of `owned` it is or lies below, or -1."""
        nodes = self.layout
        above = np.full(len(nodes.node), -1, dtype=np.int64)
        which = np.setdiff1d(np.arange(len(self.owned)), self.given)
        _fill(above, self.owned[which], nodes.after[self.owned[which]], which)
        out = np.full(nodes.node.max() + 1, -1, dtype=np.int64)
        out[nodes.node] = above
        return out

    def predict(self, rows: Floats | list[list[float]]) -> Ints:
        """The cluster of least cost for new rows, at the price of a descent for those within an owned box.

        A node's box bounds the events it has seen, and its owner is sure only there: rows that fall outside are
        scored against every cluster.
        """
        if layout(self.tree) is not self.layout:
            raise ValueError("the tree has learnt since: its nodes may have moved; call own again")
        x, _, _ = check_rows(self.tree.n_features, rows, None, None)
        tree, nodes = self.tree._tree, self.layout
        slots = np.empty(len(x), dtype=np.int64)
        descend_rows(tree.child, tree.axis, tree.direction, tree.threshold, x - tree.origin, len(x), slots)
        above = self._above[tree.node[slots]]
        box = nodes.box[self.owned[above]] if len(self.owned) else np.zeros((len(x), 2, x.shape[1]))
        sure = (above >= 0) & np.all(np.abs(x - box[:, 0]) <= box[:, 1], axis=1)
        labels = np.empty(len(x), dtype=np.int64)
        labels[sure] = self.owner[above[sure]]
        labels[~sure] = label(x[~sure], self.form)
        return labels


def _fill(out: Ints, start: Ints, stop: Ints, value: Ints) -> None:
    """out[start[i] : stop[i]] = value[i] for all i; the ranges are apart, and in order."""
    length = stop - start
    before = np.cumsum(length) - length
    out[np.repeat(start - before, length) + np.arange(length.sum())] = np.repeat(value, length)
