"""Labels of rows, and the ME iteration of Bayesian k-means [BKM section 6].

A `Problem` holds what does not change: rows (points, or leaves that are assigned whole), a family, a mixture. A
`Labelling` is one partition of the rows, with the costs that the next iteration can use again: those of clusters that
neither won nor lost a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np

from streamclust._kernels.refit.bkm import choose, gain_of_merge
from streamclust._kernels.refit.changes import merge_changes
from streamclust._kernels.refit.iterations import iterate_rows
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.families import AnyFamily, Gaussian
from streamclust.moments import Moments
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.tuning import TUNING

ROUNDING = 1e-12
"""Moments of whole nodes give F to about this share of it."""

NO_CHOICE: Ints = np.zeros((0, 0), dtype=np.int64)


class Labelling:
    """One partition of a problem's rows.

    >>> from streamclust.families import Gaussian, scoring
    >>> points = np.array([[0.0], [0.1], [0.2], [7.0], [7.1], [7.2]])
    >>> family, mixture = scoring("finite", Gaussian.informed(points), points)
    >>> state = Labelling(Problem(family, mixture, Moments.rows_of_points(points)), np.array([0, 0, 1, 1, 1, 1]))
    >>> before = state.free_energy
    >>> state.step(), state.labels, state.free_energy < before
    (True, array([0, 0, 0, 1, 1, 1]), True)
    """

    def __init__(self, problem: Problem, labels: Ints, n_clusters: int | None = None) -> None:
        labels = np.asarray(labels, dtype=np.int64)
        k = int(labels.max(initial=0)) + 1 if n_clusters is None else n_clusters
        self.problem = problem
        self.labels = labels
        self.clusters = problem.group(labels, k)
        self._costs = np.empty((k, len(labels)))
        self._stale = np.ones(k, dtype=bool)
        self.split_at = np.zeros(k)
        """The weight a cluster had when no split of it paid; 0 where none was tried."""
        self.merges_tried = False
        """Whether these very labels are known to be worth no merge."""
        self._pairs = np.full((k, k), np.nan)
        self.terms = np.zeros(k)
        self._settle(np.ones(k, dtype=bool))

    @classmethod
    def nearest(cls, problem: Problem, clusters: Moments) -> Self:
        """Rows labelled by the given clusters, whose weights count relative to each other alone."""
        scaled = clusters.scale(problem.weight / float(clusters.weight.sum()))
        viable = problem.mixture.viable(scaled)
        scaled = scaled[np.flatnonzero(viable)] if viable.any() else scaled
        return cls(problem, problem.nearest(scaled), len(scaled))

    def copy(self) -> Self:
        """An independent copy, to try changes on."""
        twin = object.__new__(type(self))
        costs = np.empty_like(self._costs) if self._stale.all() else self._costs.copy()
        twin.__dict__.update(self.saved(), _costs=costs)
        return twin

    @property
    def n_clusters(self) -> int:
        """K."""
        return len(self.clusters)

    @property
    def free_energy(self) -> float:
        """F of this partition: (19), (23), (32), (39) or (45); where the prior is learnt, of the prior too."""
        return self._total(self.terms)

    def _total(self, terms: Floats) -> float:
        """F from what each cluster adds to it."""
        return float(terms.sum()) + self.problem.normaliser(len(terms)) + self.problem.prior_cost

    def rescore(self, family: AnyFamily) -> None:
        """Take another prior; the labels stay."""
        if family is not self.problem.family:
            self.problem = self.problem.under(family)
            self.merges_tried = False
            self.split_at[:] = 0.0
            self._settle(np.ones(self.n_clusters, dtype=bool))

    # ---------------------------------------------------------------- the ME iteration

    def step(self) -> bool:
        """One ME iteration: every row goes to its cheapest cluster, then the clusters learn their rows.

        F never rises. Returns False, and changes nothing, where F cannot fall.
        """
        chosen, touched = self._cheapest()
        if not touched.any():
            return False
        if self.lowered_by(chosen, touched):
            return True
        # F_new <= F_old is proved for given clusters; an infinite or a flat mixture may pay for a cluster's
        # end. So the clusters that ended keep their rows: the bound holds for such a labelling as well.
        weight = np.asarray(np.bincount(chosen, self.problem.rows.weight, len(touched)), dtype=float)
        ended = ~self.problem.mixture.viable(replace(self.clusters, weight=weight))
        if not ended.any():
            return False  # the fall is below what F's digits show
        chosen = np.where(ended[self.labels], self.labels, chosen)
        touched = np.isin(np.arange(len(touched)), np.stack([chosen, self.labels])[:, chosen != self.labels])
        return self.lowered_by(chosen, touched)

    def _cheapest(self) -> tuple[Ints, Bools]:
        """The cheapest cluster of each row, its own one among equals; and which clusters lose or gain rows.

        By a descent if the problem has a tree; rows that would move are then priced exactly.
        """
        problem, k = self.problem, self.n_clusters
        ownership = problem.descend(self.clusters)
        if problem.tree is None or ownership is None:
            return choose(self.priced(), self.labels)
        chosen = problem.tree.labels(ownership, self.labels)
        moving = np.flatnonzero(chosen != self.labels)
        chosen[moving] = choose(problem.subset(moving).costs(self.clusters), self.labels[moving])[0]
        moving = moving[chosen[moving] != self.labels[moving]]
        return chosen, np.isin(np.arange(k), [chosen[moving], self.labels[moving]])

    def tree_iterations(self, limit: int) -> int:
        """ME iterations by the moments of whole nodes, if the problem has a tree; returns their number.

        They end where F stops falling or a cluster would end; `step` does the rest. Only the labels of the last one
        are written out, which takes most of the time.
        """
        problem, clusters, found = self.problem, self.clusters, None
        lowest, made = self.free_energy, 0
        while problem.tree is not None and made < limit and (ownership := problem.descend(clusters)):
            clusters = ownership.moments
            if not problem.mixture.viable(clusters).all():
                break
            free_energy = self._total(problem.terms(clusters))
            if not free_energy < lowest - ROUNDING * abs(lowest):
                break
            lowest, found, made = free_energy, ownership, made + 1
        if problem.tree is None or found is None:
            return 0
        labels = problem.tree.labels(found, self.labels)
        moved = labels != self.labels
        touched = np.isin(np.arange(self.n_clusters), [labels[moved], self.labels[moved]])
        return made if self.lowered_by(labels, touched) else 0

    def lowered_by(self, labels: Ints, touched: Bools) -> bool:
        """Take new labels if they lower F, and say whether they do; only rows of touched clusters may differ."""
        before, saved = self.free_energy, self.saved()
        self.relabel(labels, touched)
        if self.free_energy < before:
            return True
        self.__dict__.update(saved)
        return False

    def saved(self) -> dict[str, Any]:
        """State before a relabelling, to undo it. (A relabelling replaces costs, and never writes into them.)"""
        written = {name: getattr(self, name).copy() for name in ("_stale", "split_at", "_pairs", "terms")}
        return self.__dict__ | written

    def converge(self, limit: int = TUNING.max_iterations) -> Self:
        """ME iterations until nothing changes, or `limit` of them."""
        for _ in self.iterations(limit):
            pass
        return self

    def iterations(self, limit: int = TUNING.max_iterations) -> Iterator[None]:
        """ME iterations one by one, until nothing changes; those that are compiled or use a tree count as one."""
        if self.problem.compiled:
            if self.compiled_iterations(limit):
                yield
            return
        made = self.tree_iterations(limit)
        if made:
            yield
        for _ in range(limit - made):
            if not self.step():
                return
            yield

    def compiled_iterations(self, limit: int = TUNING.max_iterations) -> int:
        """Compiled ME iterations, for problems that are `compiled`; returns their number."""
        problem, clusters, labels = self.problem, self.clusters, self.labels.copy()
        assert isinstance(problem.family, Gaussian)
        weight, mean, scatter, xi0, m0, eta0, B0, blur = problem.family.prior_and(clusters)
        weight, mean, scatter = weight.copy(), mean.copy(), scatter.copy()
        row_weight, row_mean, row_scatter, _ = problem.grouped
        alive, changed, made = iterate_rows(
            problem.columns, problem.spread, row_weight, row_mean, row_scatter, labels,
            weight, mean, scatter, self.terms, self._costs, self._stale,
            xi0, m0, eta0, B0, blur, problem.mixture.phi0, limit, NO_CHOICE,
        )  # fmt: skip
        if made:
            self.labels, self.merges_tried = labels, False
            self.clusters = Moments.from_flat(weight, mean, scatter, "full")
            self._pairs[changed] = self._pairs[:, changed] = np.nan
            if not alive.all():
                self.labels = (np.cumsum(alive) - 1)[labels]
                self._keep(np.flatnonzero(alive))
        return int(made)

    def priced(self) -> Floats:
        """The costs, clusters x rows, with those of changed clusters worked out anew."""
        if self._stale.any():
            stale = np.flatnonzero(self._stale)
            self._costs[stale] = self.problem.costs(self.clusters[stale])
            self._stale[:] = False
        return self._costs

    def relabel(self, labels: Ints, touched: Bools) -> None:
        """Take new labels, of which only the touched clusters' rows differ."""
        k = self.n_clusters
        self.labels = labels
        self.merges_tried = False
        learnt = self.problem.group(np.where(touched[labels], labels, -1), k)
        self.clusters = _replace(self.clusters, learnt, touched)
        self._settle(touched)

    def _settle(self, changed: Bools) -> None:
        """Drop the clusters that are empty or not viable, then score those that changed."""
        viable = self.problem.mixture.viable(self.clusters)
        if not viable.all() and self.n_clusters > 1:
            self._dissolve(viable, changed)
            return
        changed = changed | ~viable
        where = np.flatnonzero(changed)
        self.terms[where] = self.problem.terms(self.clusters[where])
        self._stale |= changed
        self._pairs[where] = np.nan
        self._pairs[:, where] = np.nan

    def _dissolve(self, viable: Bools, changed: Bools) -> None:
        """Drop the clusters not viable. Rows they still have go to the cheapest of the others."""
        if not viable.any():
            viable = np.arange(self.n_clusters) == self.clusters.weight.argmax()
        keep = np.flatnonzero(viable)
        labels = (np.cumsum(viable) - 1)[self.labels]
        orphans = np.flatnonzero(~viable[self.labels])
        changed = changed[keep]
        self._keep(keep)
        self.labels = labels
        if len(orphans):
            labels[orphans] = self.problem.subset(orphans).costs(self.clusters).argmin(axis=0)
            won = np.zeros(len(keep), dtype=bool)
            won[labels[orphans]] = True
            learnt = self.problem.group(np.where(won[labels], labels, -1), len(keep))
            self.clusters = _replace(self.clusters, learnt, won)
            changed = changed | won
        self._settle(changed)

    def _keep(self, keep: Ints) -> None:
        """Forget all clusters but these; labels are the caller's to change."""
        self.clusters = self.clusters[keep]
        self._costs, self._stale, self.terms = self._costs[keep], self._stale[keep], self.terms[keep]
        self.split_at, self._pairs = self.split_at[keep], self._pairs[np.ix_(keep, keep)]

    # ---------------------------------------------------------------- changes of K

    def merge(self, a: int, b: int) -> None:
        """Join clusters a < b under a; the clusters after b move up by one."""
        self.merge_pairs([(a, b)])

    def merge_pairs(self, pairs: list[tuple[int, int]]) -> None:
        """Join each pair a < b under a, no cluster in two of them; the others close up."""
        into = np.arange(self.n_clusters)
        for a, b in pairs:
            into[b] = a
        keep = np.flatnonzero(into == np.arange(self.n_clusters))
        place = np.cumsum(into == np.arange(self.n_clusters)) - 1
        joined = place[[a for a, _ in pairs]]
        self._keep(keep)
        self.split_at[joined] = 0.0
        self.relabel(place[into][self.labels], np.isin(np.arange(self.n_clusters), joined))

    def split(self, parts: dict[int, Ints]) -> None:
        """Give the rows `parts[c]` of each cluster c to a new cluster of their own."""
        k, new = self.n_clusters, len(parts)
        labels = self.labels.copy()
        touched = np.zeros(k + new, dtype=bool)
        touched[k:] = True
        for i, (c, rows) in enumerate(parts.items()):
            labels[rows] = k + i
            touched[c] = True
        empty = Moments.empty(new, self.clusters.n_features, self.clusters.kind)
        self.clusters = Moments.stack([self.clusters, empty])
        self._costs = np.concatenate([self._costs, np.zeros((new, len(labels)))])
        self._stale = np.concatenate([self._stale, np.ones(new, dtype=bool)])
        self.terms = np.concatenate([self.terms, np.zeros(new)])
        self.split_at = np.concatenate([self.split_at, np.zeros(new)])
        self.split_at[list(parts)] = 0.0
        pairs = np.full((k + new, k + new), np.nan)
        pairs[:k, :k] = self._pairs
        self._pairs = pairs
        self.relabel(labels, touched)

    # ---------------------------------------------------------------- F after a change of K

    @property
    def scales(self) -> Floats:
        """Each cluster's local scale f = max(1, evidence · Kish_c / n_c): 1 unless the rows are a sample."""
        if not self.problem.evidence:
            return np.ones(self.n_clusters)
        w = self.problem.rows.weight
        squares = np.bincount(self.labels, w**2, self.n_clusters)
        return np.maximum(1.0, self.problem.evidence * self.clusters.weight / squares)

    def merge_changes(self) -> Floats:
        """The closed-form change of F for every merge a < b, (K, K); +∞ elsewhere.

        terms(a+b) - terms(a) - terms(b), and what one cluster less changes in the normaliser. Each is
        worked out at the smaller cluster's scale.
        """
        k = self.n_clusters
        change = np.full((k, k), np.inf)
        upper = np.triu_indices(k, 1)
        change[upper] = self.merge_changes_of(*upper)
        return change

    def merge_changes_of(self, a: Ints, b: Ints) -> Floats:
        """`merge_changes` of the given pairs alone."""
        k, scale = self.n_clusters, self.scales
        smaller = np.where(self.clusters.weight[a] <= self.clusters.weight[b], scale[a], scale[b])
        unknown = np.flatnonzero(np.isnan(self._pairs[a, b]))
        width = max(1, int(np.prod(self.clusters.scatter.shape[1:])), self.clusters.n_features)
        for start in range(0, len(unknown), size := max(1, TUNING.pair_numbers // width)):
            i = unknown[start : start + size]
            self._pairs[a[i], b[i]] = self._merged_terms(a[i], b[i], smaller[i])
        return np.asarray(self._pairs[a, b] + self.problem.price(k, k - 1, smaller))

    def gains_after_merges(self, a: Ints, b: Ints) -> Floats:
        """Fall of the labelling costs by the first ME iteration after each merge."""
        merged, cost = self.problem.costs(self.clusters[a] + self.clusters[b]), self.priced()
        gains = [
            gain_of_merge(cost, self.labels, *each)
            for each in zip(merged, a.tolist(), b.tolist(), strict=True)
        ]
        return np.array(gains, dtype=float)

    def _merged_terms(self, a: Ints, b: Ints, scale: Floats) -> Floats:
        """Change of the clusters' terms by each merge, at its own scale."""
        problem = self.problem
        if not problem.compiled:
            return self._merged_terms_any(a, b, scale)
        assert isinstance(problem.family, Gaussian)
        weight, mean, scatter, xi0, m0, eta0, B0, blur = problem.family.prior_and(self.clusters)
        return merge_changes(
            a, b, scale, weight, mean, scatter, self.terms, xi0, m0, eta0, B0, blur, problem.mixture.phi0
        )

    def _merged_terms_any(self, a: Ints, b: Ints, scale: Floats) -> Floats:
        """`_merged_terms` for any family."""
        terms, clusters = self.problem.terms, self.clusters
        merged = clusters[a] + clusters[b]
        apart = self.terms[a] + self.terms[b]
        scaled = np.flatnonzero(scale != 1.0)
        if len(scaled):
            merged = merged.scale(scale)
            a, b, scale = a[scaled], b[scaled], scale[scaled]
            small, large = np.where(clusters.weight[a] <= clusters.weight[b], (a, b), (b, a))
            # a pair's scale is that of its smaller cluster, whatever the other
            own = terms(clusters.scale(self.scales))
            apart[scaled] = own[small] + terms(clusters[large].scale(scale))
        return change_of(apart, terms(merged))


def change_of(before: Floats, after: Floats) -> Floats:
    """after - before of terms of F, where a cluster that is singular under the flat prior counts +∞.

    So a change that ends such a cluster counts -∞, and one that makes one +∞.
    """
    limit = np.where(np.isfinite(after), -np.inf, np.inf)
    return np.subtract(after, before, out=limit, where=np.isfinite(after) & np.isfinite(before))


def _replace(old: Moments, new: Moments, where: Bools) -> Moments:
    """The rows of `new` where told, those of `old` elsewhere."""
    spread = where.reshape(-1, *[1] * (old.scatter.ndim - 1))
    return Moments(
        np.where(where, new.weight, old.weight),
        np.where(where[:, None], new.mean, old.mean),
        np.where(spread, new.scatter, old.scatter),
        old.kind,
    )
