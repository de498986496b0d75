"""Moves of a labelling: ME iterations, local splits, and the choice of merges [BKM section 6; the search is our own].

Every move is a generator of `Step`s that returns the labelling it ends with.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from streamclust._kernels.refit.merge_path import choose_merges
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.families import DiagonalGaussian, Gaussian
from streamclust.families.gaussian import FlatGaussian
from streamclust.families.gaussian_simple import AnyGaussian
from streamclust.families.linalg import cholesky
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.splits import SplitScan
from streamclust.refit.bkm.tuning import TUNING, FirstCuts
from streamclust.refit.partition import Partition
from streamclust.refit.steps import Step

Steps = Generator[Step[Partition], None, Labelling]


def step(stage: str, move: str, state: Labelling) -> Step[Partition]:
    """The step that leads to this labelling."""
    return Step(stage, move, state.n_clusters, state.free_energy)


def iterate(state: Labelling, stage: str) -> Steps:
    """ME iterations until nothing changes; iterations that are compiled or use a tree are one step together."""
    for _ in state.iterations():
        yield step(stage, "iterate", state)
    return state


def rounding(state: Labelling) -> float:
    """Rounding error of F: a split and its merge must not follow each other for ever."""
    scale = abs(state.free_energy)
    return 1e-9 * max(1.0, scale if np.isfinite(scale) else 1.0)


def split_and_merge(state: Labelling, rng: np.random.Generator, stage: str, cuts: FirstCuts) -> Steps:
    """Local splits and merges, by turns, until neither lowers F."""
    for _ in range(TUNING.max_iterations):
        before = state.free_energy, state.n_clusters
        state = yield from best_splits(state, rng, stage, cuts)
        state = yield from best_merges(state, stage)
        if (state.free_energy, state.n_clusters) == before:
            break
    return state


# ---------------------------------------------------------------- merges


def best_merges(state: Labelling, stage: str) -> Steps:
    """Merges that lower F: the top pairs by closed form, each judged by where the ME iterations take it."""
    while state.n_clusters > 1 and not state.merges_tried:
        one, other = near_pairs(state)
        change = state.merge_changes_of(one, other)
        top = np.argsort(change, kind="stable")[: TUNING.neighbours]
        for i in top[hopeful(state, one[top], other[top], change[top])]:
            trial = state.copy()
            trial.merge(int(one[i]), int(other[i]))
            if merge_pays(trial, float(change[i])):
                state = trial
                yield step(stage, "merge", state)
                yield from iterate(state, stage)
                break
        else:
            state.merges_tried = True
    return state


def hopeful(state: Labelling, a: Ints, b: Ints, change: Floats) -> Bools:
    """Which merges cost no more than ME iterations after them would gain, were each worth twice the first choice.

    A choice counts before the clusters have learnt from it, which about doubles what it is worth.
    """
    good = np.asarray(change <= 0)
    unsure = np.flatnonzero(~good & (change < np.inf))
    if len(unsure):
        gains = state.gains_after_merges(a[unsure], b[unsure])
        good[unsure] = change[unsure] <= 2 * TUNING.trial_iterations * gains
    return good


def merge_pays(trial: Labelling, change: float) -> bool:
    """Whether ME iterations on the merged labelling bring `change`, the merge's own, below zero.

    The merge counts at its own scale, what the iterations gain after it at the common one. They gain less
    and less: one that cannot get there at its present pace is given up.
    """
    margin = -rounding(trial)
    for left in range(TUNING.trial_iterations, 0, -1):
        if change < margin:
            return True
        before = trial.free_energy
        if not trial.step():
            return False
        gained = trial.free_energy - before
        change += gained
        if change + left * gained > margin:
            return False
    return change < margin


# ---------------------------------------------------------------- splits


def best_splits(state: Labelling, rng: np.random.Generator, stage: str, cuts: FirstCuts) -> Steps:
    """Splits that lower F: each cluster's rows converged between two halves first, then all rows globally.

    Clusters are split at once where it pays: their terms of F do not touch each other.
    """
    weight = state.clusters.weight
    untried = np.abs(weight - state.split_at) > TUNING.unchanged_share * weight
    if not untried.any():
        return state
    scan = SplitScan(state, untried)
    best = scan.best(rng, cuts)
    state.split_at = np.where(untried, weight, state.split_at)
    pays = best.change < -rounding(state)
    if pays.any():
        leaves = scan.order[best.side == 1]
        owner = state.labels[leaves]
        state.split({int(c): leaves[owner == c] for c in np.flatnonzero(pays)})
        yield step(stage, "split", state)
        yield from iterate(state, stage)
    return state


# ---------------------------------------------------------------- pairs to merge


def near_pairs(state: Labelling, neighbours: int = TUNING.neighbours) -> tuple[Ints, Ints]:
    """Pairs a < b of clusters of which one is among the nearest of the other; all pairs of few clusters.

    Nearest by Ward's distance, n_a n_b / (n_a + n_b) times the squared distance, in the metric of the prior's B0.
    A flat prior has no metric: all pairs.
    """
    clusters, k = state.clusters, state.n_clusters
    if k <= neighbours + 1 or isinstance(state.problem.family, FlatGaussian):
        first, second = np.triu_indices(k, 1)
        return first, second
    x = metric(state.problem, clusters.mean)
    squares = (x**2).sum(axis=1)
    n = clusters.weight
    distance = np.maximum(squares[:, None] + squares - 2 * (x @ x.T), 0.0) * (
        n[:, None] * n / (n[:, None] + n)
    )
    np.fill_diagonal(distance, np.inf)
    near = np.argpartition(distance, neighbours, axis=1)[:, :neighbours]
    mine = np.repeat(np.arange(k), neighbours)
    pairs = np.unique(np.minimum(mine, near.ravel()) * k + np.maximum(mine, near.ravel()))
    return pairs // k, pairs % k


def metric(problem: Problem, x: Floats) -> Floats:
    """Points moved and stretched so that the prior's B0 is the unit matrix; counts by their square roots."""
    family = problem.family
    if family.name in ("multinomial", "poisson"):
        return root_counts(family.name, x)
    if not isinstance(family, AnyGaussian):
        return x
    y = x - family.m0
    if isinstance(family, Gaussian):
        return np.asarray(np.linalg.solve(cholesky(family.B0), y.T).T)
    return np.asarray(y / np.sqrt(family.B0)) if isinstance(family, DiagonalGaussian) else y


def chosen_merges(a: Ints, b: Ints, change: Floats, k: int) -> list[tuple[int, int]]:
    """The better half of the merges that lower F, at most K/5; if none does, the best K/6 all the same.

    No cluster is in two of them.
    """
    into = np.empty(k, dtype=np.int64)
    choose_merges(np.column_stack([a, b]), change, k, into)
    return [(int(into[c]), c) for c in range(k) if into[c] != c]


def root_counts(name: str, counts: Floats) -> Floats:
    """Square roots of counts, of variance ¼ for any rate; of proportions if the family is multinomial."""
    x = np.maximum(counts, 0.0)  # the mean of a leaf's counts may be a rounding below
    if name == "multinomial":  # Hellinger distance between proportions
        total = x.sum(axis=1, keepdims=True)
        x = x / np.where(total > 0, total, 1.0)
    return np.sqrt(x)
