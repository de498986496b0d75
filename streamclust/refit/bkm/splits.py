"""Local splits: many clusters tried at once, each between two halves of its own rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamclust._kernels.refit.changes import split_changes
from streamclust._kernels.refit.halves import iterate_halves
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.families import Finite, Gaussian, Infinite
from streamclust.families.priors import spread_indices
from streamclust.moments import Moments
from streamclust.refit.bkm.labelling import Labelling, change_of
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.tuning import TUNING, FirstCuts
from streamclust.utils.late import eigh


class Halves(NamedTuple):
    """The best split found of each cluster: its change of F, and which of the sorted rows leave."""

    change: Floats
    side: Ints


class SplitScan:
    """Tries to split many clusters at once: their rows stand side by side, sorted by cluster.

    Each cluster is cut in several ways to begin with: what follows has the shape (cuts, clusters).
    """

    def __init__(self, state: Labelling, candidates: Bools) -> None:
        self.state, self.candidates = state, candidates
        self.problem = problem = state.problem
        self.k = state.n_clusters
        mine = np.flatnonzero(candidates[state.labels])
        self.order = mine[np.argsort(state.labels[mine], kind="stable")]
        self.labels = state.labels[self.order]
        self.edges = np.searchsorted(self.labels, np.arange(self.k + 1))
        self.sorted = problem.subset(self.order)
        proper = type(problem.family) is Gaussian and type(problem.mixture) in (Finite, Infinite)
        self.fast = proper and problem.quadratic and problem.rows.kind == "none"

    def best(self, rng: np.random.Generator, cuts: FirstCuts) -> Halves:
        """The best of several first cuts: across principal directions, and between two random rows."""
        principal, random = cuts
        side = np.stack(self._cuts(principal) + [self._bisect(rng) for _ in range(random)])
        change = self._converged(side)
        best = change.argmin(axis=0)
        side = side[best[self.labels], np.arange(len(self.order))]
        change = change.min(axis=0)
        if self.fast:  # halves found by subtraction lack digits: the best are scored once more
            halves, squares = self._grouped(side, self.candidates)
            stands = np.isfinite(change)
            change[stands] = self._change(halves, squares, stands[None])
        return Halves(change, side)

    def _cuts(self, count: int) -> list[Ints]:
        """The side of each cluster's mean that its rows lie on: the nearer of m ± s√λ [BKM D.3]."""
        axes = self._principal_axes(count)
        deviation = self.sorted.rows.mean - self.state.clusters.mean[self.labels]
        return [
            (np.einsum("ri,ri->r", deviation, axes[self.labels, i]) > 0).astype(np.int64)
            for i in range(count)
        ]

    def _principal_axes(self, count: int) -> Floats:
        """(K, count, D): eigenvectors of each cluster's scatter, largest first [BKM D.3]."""
        d = self.state.clusters.n_features
        axes = np.zeros((self.k, count, d))
        if self.state.clusters.kind == "full":
            vectors = np.linalg.eigh(self.state.clusters.scatter[self.candidates])[1]
            axes[self.candidates, : min(count, d)] = vectors[:, :, ::-1][:, :, :count].transpose(0, 2, 1)
            return axes
        for c in np.flatnonzero(self.candidates):
            axes[c, : min(count, d)] = principal_axes(self.state, self.order, self.edges, int(c), count)
        return axes

    def _bisect(self, rng: np.random.Generator) -> Ints:
        """The nearer of two random rows of each cluster."""
        size = np.maximum(np.diff(self.edges), 1)
        first = self.edges[:-1] + (rng.random(self.k) * size).astype(np.int64)
        second = self.edges[:-1] + (rng.random(self.k) * size).astype(np.int64)
        x = self.sorted.rows.mean
        last = len(x) - 1
        a, b = x[np.minimum(first, last)][self.labels], x[np.minimum(second, last)][self.labels]
        return np.asarray(np.einsum("ri,ri->r", x - (a + b) / 2, b - a) > 0, dtype=np.int64)

    def _converged(self, side: Ints) -> Floats:
        """Rewrite `side` by ME iterations within each cluster; the change of F of each split.

        The iterations gain less and less: a split that cannot pay at its present pace is given up.
        """
        moving = np.tile(self.candidates & (np.diff(self.edges) > 1), (len(side), 1))
        change = np.full(moving.shape, np.inf)
        steps = 0
        for left in range(TUNING.trial_iterations, -1, -TUNING.short_iterations):
            halves, squares, moved = self._iterate(side, moving, steps)
            stands = self.problem.mixture.viable(halves) & (halves.weight > 0)
            stands = moving & stands.reshape(*moving.shape, 2).all(axis=2)
            change[moving & ~stands] = np.inf
            if not stands.any():
                break
            before, after = change[stands], self._change(halves, squares, stands)
            change[stands] = after
            known = np.isfinite(before) & np.isfinite(after)  # not so at the first look, which gives none up
            pace = np.subtract(before, after, out=np.zeros_like(after), where=known) / TUNING.short_iterations
            moving = stands & moved
            moving[stands] &= np.isfinite(after) & (~known | (after - pace * left <= 0))
            if not moving.any():
                break
            steps = TUNING.short_iterations
        return change

    def _iterate(self, side: Ints, moving: Bools, steps: int) -> tuple[Moments, Floats, Bools]:
        """ME iterations between halves; their moments, their summed squared weights, and what still moved.

        Cluster c under cut t has the halves 2 (tK + c) and the next.
        """
        if not self.fast:
            return self._iterate_any(side, moving, steps)
        family, mixture, clusters = self.problem.family, self.problem.mixture, self.state.clusters
        assert isinstance(family, Gaussian)
        shift = 0.0 if isinstance(mixture, Infinite) else mixture.phi0
        weight, mean, scatter, squares, moved = iterate_halves(
            self.sorted.columns, self.sorted.rows.weight, self.edges, moving,
            clusters.weight, clusters.mean, clusters.flat_scatter,
            family.xi0, family.m0, family.eta0, family.B0, family.blur, shift, steps, side,
        )  # fmt: skip
        d = clusters.n_features
        halves = Moments.from_flat(weight.ravel(), mean.reshape(-1, d), scatter.reshape(-1, d * d), "full")
        return halves, squares.ravel(), moved

    def _iterate_any(self, side: Ints, moving: Bools, steps: int) -> tuple[Moments, Floats, Bools]:
        """`_iterate` for any family, cluster by cluster."""
        moved = moving.copy()
        parts, squares = [], []
        for t in range(len(side)):
            for left in range(steps, -1, -1):
                halves, square = self._grouped(side[t], moving[t])
                stands = (
                    (self.problem.mixture.viable(halves) & (halves.weight > 0)).reshape(-1, 2).all(axis=1)
                )
                if left > 0:
                    for c in np.flatnonzero(moved[t] & stands):
                        moved[t, c] = self._choose(halves[2 * c : 2 * c + 2], side[t], int(c))
            parts += [halves]
            squares += [square]
        return Moments.stack(parts), np.concatenate(squares), moved

    def _grouped(self, side: Ints, active: Bools) -> tuple[Moments, Floats]:
        """Moments of halves 2c and 2c + 1 of the active clusters, and their summed squared weights."""
        labels = 2 * self.labels + side
        own = active[self.labels]
        squares = np.bincount(labels[own], self.sorted.rows.weight[own] ** 2, 2 * self.k)
        return self.sorted.group(np.where(own, labels, -1), 2 * self.k), np.asarray(squares, dtype=float)

    def _choose(self, halves: Moments, side: Ints, c: int) -> bool:
        """Rewrite `side` for the rows of cluster c: the cheaper half; whether any moved."""
        rows = slice(self.edges[c], self.edges[c + 1])
        part = Problem(self.problem.family, self.problem.mixture, self.sorted.rows[rows])
        first, second = part.costs(halves)
        chosen = np.where(first == second, side[rows], (second < first).astype(np.int64))
        moved = bool(np.any(chosen != side[rows]))
        side[rows] = chosen
        return moved

    def _change(self, halves: Moments, squares: Floats, which: Bools) -> Floats:
        """The closed-form change of F where a cluster becomes its halves, at the smaller one's scale."""
        problem, state = self.problem, self.state
        if not self.fast or isinstance(problem.mixture, Infinite):
            return self._change_any(halves, squares, which)
        assert isinstance(problem.family, Gaussian)
        weight, mean, scatter, xi0, m0, eta0, B0, blur = problem.family.prior_and(state.clusters)
        d, shape = mean.shape[1], (*which.shape, 2)
        return split_changes(
            which, halves.weight.reshape(shape), squares.reshape(shape), halves.mean.reshape(*shape, d),
            halves.flat_scatter.reshape(*shape, d * d), weight, mean, scatter, state.terms,
            xi0, m0, eta0, B0, blur, problem.mixture.phi0, problem.weight, float(problem.evidence),
            TUNING.min_sampled_events,
        )  # fmt: skip

    def _change_any(self, halves: Moments, squares: Floats, which: Bools) -> Floats:
        """`_change` for any family and mixture."""
        c = np.nonzero(which)[1]
        at = 2 * np.flatnonzero(which)
        problem = self.problem
        first, second = halves[at], halves[at + 1]
        whole = self.state.terms[c]
        scale = np.ones(len(c))
        if problem.evidence:
            small = np.where(first.weight <= second.weight, at, at + 1)
            scale = np.maximum(1.0, problem.evidence * halves.weight[small] / squares[small])
            first, second = first.scale(scale), second.scale(scale)
            whole = problem.terms(self.state.clusters[c].scale(scale))
        parts = problem.terms(Moments.stack([first, second])).reshape(2, -1).sum(axis=0)
        change = np.asarray(change_of(whole, parts) + problem.price(self.k, self.k + 1, scale))
        if problem.evidence:
            few = problem.evidence * halves.weight[small] ** 2 < TUNING.min_sampled_events * squares[small]
            change = np.where(few, np.inf, change)
        return change


def principal_axes(state: Labelling, order: Ints, edges: Ints, cluster: int, count: int) -> Floats:
    """Up to `count` leading eigenvectors of the scatter of one cluster's rows, fewer in fewer dimensions."""
    count = min(count, state.clusters.n_features)
    rows = order[edges[cluster] : edges[cluster + 1]]
    rows = rows[spread_indices(len(rows), TUNING.few_rows)]
    x = state.problem.rows.mean[rows] - state.clusters.mean[cluster]
    axes = leading_axes(x, count)
    return np.concatenate([axes, np.zeros((count - len(axes), x.shape[1]))])


def leading_axes(x: Floats, count: int) -> Floats:
    """Up to `count` leading right singular vectors, from the smaller of the two Gram matrices."""
    x = x / max(
        float(np.abs(x).max(initial=0.0)), np.finfo(float).tiny
    )  # squares neither overflow nor vanish
    tall = len(x) >= x.shape[1]
    gram = x.T @ x if tall else x @ x.T
    vectors = eigh(gram, subset_by_index=[max(len(gram) - count, 0), len(gram) - 1])[1][:, ::-1].T
    axes = vectors if tall else vectors @ x
    length = np.linalg.norm(axes, axis=1, keepdims=True)
    return np.asarray(axes / np.where(length > 0, length, 1.0))
