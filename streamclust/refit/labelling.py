"""Rows and who owns them: the ME iteration of Bayesian k-means [BKM section 6].

A `Problem` is what does not change: rows (points, or leaves that are assigned whole), a family, a mixture. A
`Labelling` is one partition of the rows, with all that the next iteration can use again: clusters that
neither won nor lost a row charge what they charged before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np

from streamclust._kernels.bkm import choose, gain_of_merge
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.moments import Moments
from streamclust.refit.problem import Problem

LONGEST = 200
"""An ME run ends by itself, since F falls and labellings are finitely many; this is only to be sure."""
PAIR_NUMBERS = 4_000_000
"""Merged scatters are scored in batches of about so many numbers."""


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
        self._costs = np.zeros((k, len(labels)))
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
        return cls(problem, problem.costs(scaled).argmin(axis=0), len(scaled))

    def copy(self) -> Self:
        """An independent copy: what is tried on it is not done to this one."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.saved(), _costs=self._costs.copy())
        return twin

    @property
    def n_clusters(self) -> int:
        """K."""
        return len(self.clusters)

    @property
    def free_energy(self) -> float:
        """F of this partition: (19), (23), (32), (39) or (45)."""
        return float(self.terms.sum()) + self.problem.normaliser(self.n_clusters)

    # ---------------------------------------------------------------- the ME iteration

    def step(self) -> bool:
        """One ME iteration: every row goes to its cheapest cluster, then the clusters learn their rows.

        F never rises. Returns False, and changes nothing, where F cannot fall.
        """
        chosen, touched = choose(self.priced(), self.labels)
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

    def lowered_by(self, labels: Ints, touched: Bools) -> bool:
        """Take new labels, of which only the touched clusters' rows differ, if F falls by it; else nothing."""
        before, saved = self.free_energy, self.saved()
        self.relabel(labels, touched)
        if self.free_energy < before:
            return True
        self.__dict__.update(saved)
        return False

    def saved(self) -> dict[str, Any]:
        """What a relabelling changes, to undo it by. (It replaces costs, never writes into them.)"""
        written = {name: getattr(self, name).copy() for name in ("_stale", "split_at", "_pairs", "terms")}
        return self.__dict__ | written

    def converge(self, limit: int = LONGEST) -> Self:
        """ME iterations until nothing changes, or `limit` of them."""
        for _ in range(limit):
            if not self.step():
                break
        return self

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
        """Make scores of the changed clusters, after the end of those that are empty or not viable."""
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
        homeless = np.flatnonzero(~viable[self.labels])
        changed = changed[keep]
        self._keep(keep)
        self.labels = labels
        if len(homeless):
            labels[homeless] = self.problem.subset(homeless).costs(self.clusters).argmin(axis=0)
            won = np.zeros(len(keep), dtype=bool)
            won[labels[homeless]] = True
            learnt = self.problem.group(np.where(won[labels], labels, -1), len(keep))
            self.clusters = _replace(self.clusters, learnt, won)
            changed = changed | won
        self._settle(changed)

    def _keep(self, keep: Ints) -> None:
        """Forget all clusters but these; labels are the caller's to change."""
        self.clusters = self.clusters[keep]
        self._costs, self._stale, self.terms = self._costs[keep], self._stale[keep], self.terms[keep]
        self.split_at, self._pairs = self.split_at[keep], self._pairs[np.ix_(keep, keep)]

    # ---------------------------------------------------------------- changing K

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

    # ---------------------------------------------------------------- what a change of K would change

    @property
    def scales(self) -> Floats:
        """Each cluster's local Kish scale f = max(1, Kish_c / n_c): 1 unless the rows are a sample."""
        if not self.problem.local_kish:
            return np.ones(self.n_clusters)
        w = self.problem.rows.weight
        return np.maximum(1.0, self.clusters.weight / np.bincount(self.labels, w**2, self.n_clusters))

    def merge_changes(self) -> Floats:
        """The closed-form change of F for every merge a < b, (K, K); +∞ elsewhere.

        terms(a+b) - terms(a) - terms(b), and what one cluster less changes in the normaliser. Each is
        worked out at the smaller cluster's scale.
        """
        k = self.n_clusters
        scale = self.scales
        smaller = np.where(self.clusters.weight[:, None] <= self.clusters.weight, scale[:, None], scale)
        unknown = np.argwhere(np.triu(np.isnan(self._pairs), 1))
        width = max(1, int(np.prod(self.clusters.scatter.shape[1:])), self.clusters.n_features)
        for start in range(0, len(unknown), size := max(1, PAIR_NUMBERS // width)):
            a, b = unknown[start : start + size].T
            self._pairs[a, b] = self._merged_terms(a, b, smaller[a, b])
        change = np.full((k, k), np.inf)
        upper = np.triu_indices(k, 1)
        change[upper] = self._pairs[upper] + self.problem.price(k, k - 1, smaller[upper])
        return change

    def gain_after_merge(self, a: int, b: int) -> float:
        """How much labelling costs fall by the first choice after a merge of a and b."""
        merged = self.problem.costs(self.clusters[[a]] + self.clusters[[b]])
        return float(gain_of_merge(self.priced(), self.labels, merged[0], a, b))

    def _merged_terms(self, a: Ints, b: Ints, scale: Floats) -> Floats:
        terms, clusters = self.problem.terms, self.clusters
        merged = clusters[a] + clusters[b]
        if np.all(scale == 1.0):
            apart = self.terms[a] + self.terms[b]
        else:
            apart = terms(clusters[a].scale(scale)) + terms(clusters[b].scale(scale))
            merged = merged.scale(scale)
        return change_of(apart, terms(merged))


def change_of(before: Floats, after: Floats) -> Floats:
    """after - before of terms of F, where a cluster that is singular under the flat prior counts +∞.

    What ends such a cluster is worth everything, and what makes one is never done.
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
