"""Local splits: many clusters tried at once, each between two halves of its own rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamclust._kernels.bkm import choose_sides
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.moments import Moments
from streamclust.refit.labelling import Labelling, Problem, change_of

LOCAL_STEPS = 12
"""ME iterations between the halves of a cluster, at most."""
LOOK = 3
"""Every so many of them, splits without prospects are given up."""
SCATTERED_ROWS = 500
"""Where a family keeps no full scatter, principal axes come from at most so many of a cluster's rows."""


class Halves(NamedTuple):
    """The best split found of each cluster: its change of F, and which of the sorted rows leave."""

    change: Floats
    side: Ints


class SplitScan:
    """Tries to split many clusters at once: their rows stand side by side, sorted by cluster."""

    def __init__(self, state: Labelling, candidates: Bools) -> None:
        self.state, self.candidates = state, candidates
        self.problem = problem = state.problem
        self.k = state.n_clusters
        mine = np.flatnonzero(candidates[state.labels])
        self.order = mine[np.argsort(state.labels[mine], kind="stable")]
        self.labels = state.labels[self.order]
        self.edges = np.searchsorted(self.labels, np.arange(self.k + 1))
        self.sorted = problem.subset(self.order)
        self.fast = problem.quadratic and problem.rows.kind == "none"

    def best(self, rng: np.random.Generator, principal: int, random: int) -> Halves:
        """The best of several first cuts: across principal directions, and between two random rows."""
        axes = self._principal_axes(principal)
        best = Halves(np.full(self.k, np.inf), np.zeros(len(self.order), dtype=np.int64))
        for i in range(principal + random):
            active = self.candidates & (np.diff(self.edges) > 1)
            side = self._cut(axes[:, i]) if i < principal else self._bisect(rng)
            change = self._converged(side, active)
            better = change < best.change
            taken = better[self.labels]
            best = Halves(np.where(better, change, best.change), np.where(taken, side, best.side))
        return best

    def _principal_axes(self, count: int) -> Floats:
        """(K, count, D): eigenvectors of each cluster's scatter, largest first [BKM D.3]."""
        d = self.state.clusters.n_features
        axes = np.zeros((self.k, count, d))
        for c in np.flatnonzero(self.candidates):
            axes[c, : min(count, d)] = principal_axes(self.state, self.order, self.edges, int(c), count)
        return axes

    def _cut(self, axis: Floats) -> Ints:
        """The side of each cluster's mean that its rows lie on: the nearer of m ± s√λ [BKM D.3]."""
        deviation = self.sorted.rows.mean - self.state.clusters.mean[self.labels]
        return np.asarray(np.einsum("ri,ri->r", deviation, axis[self.labels]) > 0, dtype=np.int64)

    def _bisect(self, rng: np.random.Generator) -> Ints:
        """The nearer of two random rows of each cluster."""
        size = np.maximum(np.diff(self.edges), 1)
        first = self.edges[:-1] + (rng.random(self.k) * size).astype(np.int64)
        second = self.edges[:-1] + (rng.random(self.k) * size).astype(np.int64)
        x = self.sorted.rows.mean
        last = len(x) - 1
        a, b = x[np.minimum(first, last)][self.labels], x[np.minimum(second, last)][self.labels]
        return np.asarray(np.einsum("ri,ri->r", x - (a + b) / 2, b - a) > 0, dtype=np.int64)

    def _converged(self, side: Ints, active: Bools) -> Floats:
        """Rewrite `side` by ME iterations within each cluster; the change of F of each split.

        The iterations gain less and less: a split that cannot pay at its present pace is given up.
        """
        moving = active
        change = np.full(self.k, np.inf)
        for left in range(LOCAL_STEPS, -1, -1):
            halves, viable = self._halves(side, moving)
            change[moving & ~viable] = np.inf
            moving = moving & viable
            if not moving.any():
                break
            if left % LOOK == 0 or left == LOCAL_STEPS:
                moving = moving & self._promising(change, halves, side, moving, left)
            if left == 0 or not moving.any():
                break
            moved = self._choose(halves, side, moving) > 0
            settled = moving & ~moved
            if settled.any():
                change[settled] = self._change(halves, side, settled)
            moving = moving & moved
        return change

    def _promising(self, change: Floats, halves: Moments, side: Ints, moving: Bools, left: int) -> Bools:
        """Write the present change of F of the moving splits; which may yet pay in the iterations left."""
        before, after = change[moving], self._change(halves, side, moving)
        change[moving] = after
        known = np.isfinite(before) & np.isfinite(after)  # not so at the first look, which gives none up
        pace = np.subtract(before, after, out=np.zeros_like(after), where=known) / LOOK
        promising = np.ones_like(moving)
        promising[moving] = np.isfinite(after) & (~known | (after - pace * left <= 0))
        return promising

    def _halves(self, side: Ints, active: Bools) -> tuple[Moments, Bools]:
        """Moments of halves 2c and 2c + 1, and of which clusters both can stand."""
        labels = np.where(active[self.labels], 2 * self.labels + side, -1)
        halves = self.sorted.group(labels, 2 * self.k)
        viable = self.problem.mixture.viable(halves) & (halves.weight > 0)
        return halves, np.asarray(viable.reshape(-1, 2).all(axis=1))

    def _choose(self, halves: Moments, side: Ints, active: Bools) -> Ints:
        """One ME iteration between halves; how many rows of each cluster moved."""
        if self.fast:
            posterior = self.problem.family.posterior(halves)
            constant = np.where(
                np.repeat(active, 2), posterior.constant - self.problem.mixture.mixing(halves.weight), 0.0
            )
            return choose_sides(
                self.sorted.columns, self.edges, active, posterior.mean, posterior.whitener,
                posterior.eta / 2, constant, side,
            )  # fmt: skip
        moved = np.zeros(self.k, dtype=np.int64)
        for c in np.flatnonzero(active):
            rows = slice(self.edges[c], self.edges[c + 1])
            part = Problem(self.problem.family, self.problem.mixture, self.sorted.rows[rows])
            first, second = part.costs(halves[2 * c : 2 * c + 2])
            chosen = np.where(first == second, side[rows], (second < first).astype(np.int64))
            moved[c] = np.count_nonzero(chosen != side[rows])
            side[rows] = chosen
        return moved

    def _change(self, halves: Moments, side: Ints, which: Bools) -> Floats:
        """The closed-form change of F where cluster c becomes halves 2c and 2c + 1, at the smaller's scale."""
        c = np.flatnonzero(which)
        problem, k = self.problem, self.k
        first, second = halves[2 * c], halves[2 * c + 1]
        whole = self.state.terms[c]
        scale = np.ones(len(c))
        if problem.local_kish:
            labels = np.where(which[self.labels], 2 * self.labels + side, 2 * k)
            squares = np.bincount(labels, self.sorted.rows.weight**2, 2 * k + 1)
            small = np.where(first.weight <= second.weight, 2 * c, 2 * c + 1)
            scale = np.maximum(1.0, halves.weight[small] / squares[small])
            first, second = first.scale(scale), second.scale(scale)
            whole = problem.terms(self.state.clusters[c].scale(scale))
        price = np.array([problem.normaliser(k + 1, f) - problem.normaliser(k, f) for f in scale])
        parts = problem.terms(Moments.stack([first, second])).reshape(2, -1).sum(axis=0)
        return np.asarray(change_of(whole, parts) + price)


def principal_axes(state: Labelling, order: Ints, edges: Ints, cluster: int, count: int) -> Floats:
    """Up to `count` leading eigenvectors of one cluster's scatter, fewer in fewer dimensions."""
    count = min(count, state.clusters.n_features)
    if state.clusters.kind == "full":
        return np.asarray(np.linalg.eigh(state.clusters.scatter[cluster])[1][:, ::-1][:, :count].T)
    rows = order[edges[cluster] : edges[cluster + 1]]
    rows = rows[:: max(1, len(rows) // SCATTERED_ROWS)]
    x = state.problem.rows.mean[rows] - state.clusters.mean[cluster]
    axes = np.linalg.svd(x, full_matrices=False)[2][:count]
    return np.concatenate([axes, np.zeros((count - len(axes), x.shape[1]))])
