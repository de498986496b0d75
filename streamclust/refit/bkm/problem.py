"""Input of a search for clusters: rows to partition, a family and a mixture; and the costs under them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from streamclust._kernels.engine.assign import assign_points
from streamclust._kernels.moments import group_rows
from streamclust._kernels.refit.bkm import quadratic_costs
from streamclust._kernels.types import Floats, Ints
from streamclust.families import AnyFamily, Finite, Gaussian, Mixture
from streamclust.families.base import as_rows
from streamclust.families.cost_form import Quadratic
from streamclust.families.gaussian import NormalWishart, row_cost
from streamclust.families.gaussian_simple import NormalGammas
from streamclust.families.learners import AnyLearner
from streamclust.moments import Moments, scatter_width
from streamclust.refit.bkm.row_tree import Assign, RowTree
from streamclust.refit.bkm.tuning import TUNING
from streamclust.tree.descent import Ownership
from streamclust.utils.blas import product, weighted_sum

MAX_CANCELLED_NATS = 1e-9
"""The most that cancellation may change the cost of a leaf, in nats per event."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows to partition, with the family and the mixture that score a partition.

    With `evidence` above 0 the rows are a stratified sample of a stream, and each counts for `evidence`
    events: for 1, or for less where events repeat each other. Their weights then total the whole sample's effective
    size, and each split or merge is decided at the effective size of the smaller cluster: where the sample is dense,
    its clusters have more evidence than their weight says.
    `assign` says how ME iterations find the cheapest cluster of each row; they find the same.
    """

    family: AnyFamily
    mixture: Mixture
    rows: Moments
    evidence: float = 0.0
    assign: Assign = "auto"
    learner: AnyLearner | None = None
    """Learns the family's prior from the clusters; None where that is given."""

    def under(self, family: AnyFamily) -> Problem:
        """These rows under another prior; keeps the caches that depend on the rows alone."""
        twin = replace(self, family=family)
        kept = ("tree", "columns", "spread", "_triangle", "_lifted", "weight", "grouped")
        twin.__dict__.update({name: self.__dict__[name] for name in kept if name in self.__dict__})
        return twin

    @cached_property
    def prior_cost(self) -> float:
        """-log p(θ): the term of a learnt prior in F; 0 for a fixed one."""
        return 0.0 if self.learner is None else self.learner.cost(self.family)

    @cached_property
    def tree(self) -> RowTree | None:
        """The rows in a tree for ME iterations to descend, where that is asked for; leaves have none."""
        wanted = self.assign == "tree" and self.rows.kind == "none"
        return RowTree(self.rows, self.family.scatter) if wanted else None

    @cached_property
    def columns(self) -> Floats:
        """The points as kernels read them: one contiguous row per feature."""
        return np.ascontiguousarray(self.rows.mean.T, dtype=float)

    @cached_property
    def _triangle(self) -> tuple[Ints, Ints]:
        """Places of a scatter that are read: a matrix's upper half or, of independent features, its diagonal."""
        d = self.rows.n_features
        return (np.arange(d), np.arange(d)) if self.family.scatter == "diagonal" else np.triu_indices(d)

    @cached_property
    def _lifted(self) -> tuple[Floats, Floats, float]:
        """The rows' mean μ, and Σ(x-μ)(x-μ)ᵀ (places of `_triangle`), Σ(x-μ), n of each row, one column per row.

        Any quadratic cost, summed over a row's points, is a product with them. Last, their greatest ‖x-μ‖².
        """
        rows, (i, j) = self.rows, self._triangle
        middle = weighted_sum(rows.weight, rows.mean) / self.weight
        y = rows.mean - middle
        squares = rows.weight[:, None] * y[:, i] * y[:, j]
        if rows.kind != "none":
            squares += rows.scatter if rows.kind == "diagonal" else rows.scatter[:, i, j]
        columns = [squares * np.where(i == j, 1.0, 2.0), rows.weight[:, None] * y, rows.weight[:, None]]
        reach = float(np.einsum("ri,ri->r", y, y).max(initial=0.0))
        return middle, np.ascontiguousarray(np.concatenate(columns, axis=1).T), reach

    @cached_property
    def weight(self) -> float:
        """N."""
        return float(self.rows.weight.sum())

    @property
    def quadratic(self) -> bool:
        """Whether the blocked kernel prices these rows."""
        return isinstance(self.family, Gaussian) and self.rows.n_features <= TUNING.wide_features

    @property
    def compiled(self) -> bool:
        """Whether runs of ME iterations are compiled: full Gaussians under a finite mixture, without a tree."""
        proper = type(self.family) is Gaussian and type(self.mixture) is Finite
        return proper and self.tree is None and self.quadratic and self.rows.kind in ("none", "full")

    @cached_property
    def spread(self) -> Floats:
        """The upper half of each row's scatter, off-diagonals doubled, one row per place; empty for points."""
        if self.rows.kind == "none":
            return np.zeros((0, len(self.rows)))
        i, j = self._triangle
        return np.ascontiguousarray((self.rows.scatter[:, i, j] * np.where(i == j, 1.0, 2.0)).T)

    @cached_property
    def grouped(self) -> tuple[Floats, Floats, Floats, int]:
        """The rows as the kernel that groups them reads them."""
        rows = as_rows(self.rows, self.family.scatter)
        weight, mean = (np.ascontiguousarray(part, dtype=float) for part in (rows.weight, rows.mean))
        return weight, mean, rows.flat_scatter, scatter_width(self.family.scatter, rows.n_features)

    def group(self, labels: Ints, n_clusters: int) -> Moments:
        """Moments of each cluster; rows labelled below 0 are left out."""
        weight, mean, scatter, width = self.grouped
        return Moments.from_flat(
            *group_rows(weight, mean, scatter, labels, n_clusters, width), self.family.scatter
        )

    def terms(self, clusters: Moments) -> Floats:
        """Term of each cluster in F."""
        return self.mixture.cluster_terms(self.family, clusters)

    def normaliser(self, n_clusters: int) -> float:
        """Term of F that depends on the number of clusters alone."""
        return float(self.mixture.normaliser(self.weight, n_clusters))

    def price(self, before: int, after: int, scale: Floats) -> Floats:
        """Change of `normaliser` when K changes, with every event counted `scale` times."""
        if np.all(scale == 1.0):
            return np.full(len(scale), self.normaliser(after) - self.normaliser(before))
        weight = scale * self.weight
        return np.asarray(self.mixture.normaliser(weight, after) - self.mixture.normaliser(weight, before))

    def costs(self, clusters: Moments) -> Floats:
        """Labelling costs (20), (24), (34) with their mixing terms, clusters x rows."""
        posterior = self.family.posterior(clusters)
        mixing = self.mixture.mixing(clusters.weight)
        if self.quadratic:
            assert isinstance(posterior, NormalWishart)
            W, half_eta, constant = posterior.whitener, posterior.eta / 2, posterior.constant - mixing
            if self.rows.kind == "full":
                return self._costs_of_leaves(posterior.mean, W, half_eta, constant)
            return quadratic_costs(self.columns, self.rows.weight, posterior.mean, W, half_eta, constant)
        many = len(self.rows) >= TUNING.few_rows  # of fewer, sums are as fast as preparing products
        if isinstance(posterior, NormalGammas) and self.rows.kind in ("none", "diagonal") and many:
            precision = posterior.eta[:, None] / posterior.B / 2
            constant = posterior.constant - mixing
            if (
                product_cost := self._by_products(posterior.mean, precision, precision, constant)
            ) is not None:
                return product_cost
        cost = self.family.labelling_cost(posterior, self.rows)
        return np.ascontiguousarray(row_cost(self.rows.weight, -mixing, cost).T)

    def nearest(self, clusters: Moments) -> Ints:
        """The cheapest cluster of each row, the first of equals."""
        if not (self.quadratic and self.rows.kind == "none"):
            return np.asarray(self.costs(clusters).argmin(axis=0))
        form = self.family.cost_form(self.family.posterior(clusters), self.mixture.mixing(clusters.weight))
        assert isinstance(form, Quadratic)
        points, centre, root, offset = (
            np.ascontiguousarray(part, dtype=float) for part in (self.rows.mean, *form)
        )
        labels, (cost, distance) = np.empty(len(points), dtype=np.int64), np.empty((2, len(points)))
        assign_points(points, centre, root, offset, form.directions(), labels, cost, distance)
        return labels

    def descend(self, clusters: Moments) -> Ownership | None:
        """The cheapest cluster of each row, by a descent of the tree.

        None where there is no tree, or where costs that are not finite (of clusters that are singular under a flat
        prior) have no bounds to descend by.
        """
        if self.tree is None:
            return None
        form = self.family.cost_form(self.family.posterior(clusters), self.mixture.mixing(clusters.weight))
        return self.tree.descend(form) if all(np.isfinite(part).all() for part in form) else None

    def _costs_of_leaves(self, mean: Floats, W: Floats, half_eta: Floats, constant: Floats) -> Floats:
        """`costs` of leaves, which have scatter of their own; by one matrix product if rounding allows."""
        i, j = self._triangle
        precision = np.matmul(W.transpose(0, 2, 1), half_eta[:, None, None] * W)
        found = self._by_products(mean, precision, precision[:, i, j], constant)
        if found is not None:
            return found
        cost: Floats = quadratic_costs(self.columns, self.rows.weight, mean, W, half_eta, constant)
        return np.asarray(
            cost + product(precision[:, i, j], self.spread)
        )  # (η/2) tr(B⁻¹S): a row's own spread

    def _by_products(
        self, mean: Floats, precision: Floats, places: Floats, constant: Floats
    ) -> Floats | None:
        """Quadratic costs by one matrix product; None where cancellation would be seen.

        `precision` are matrices or diagonals, and `places` of them what `_triangle` reads.
        """
        middle, lifted, reach = self._lifted
        shift = mean - middle
        if precision.ndim == 3:
            slope, trace = np.matmul(precision, shift[:, :, None])[:, :, 0], np.einsum("kii->k", precision)
        else:
            slope, trace = precision * shift, precision.sum(axis=1)
        sizes = trace * (reach + np.einsum("ki,ki->k", shift, shift))
        if not (np.all(sizes * np.finfo(float).eps < MAX_CANCELLED_NATS) and np.all(np.isfinite(constant))):
            return None
        constant = constant + np.einsum("ki,ki->k", shift, slope)
        return product(np.concatenate([places, -2 * slope, constant[:, None]], axis=1), lifted)

    def subset(self, index: Ints) -> Problem:
        """The problem of some of the rows."""
        return replace(self, rows=self.rows[index])
