"""DP-means: clusters within a radius λ, and as many as that takes [MAD-Bayes eq. 3, alg. 2; Kulis & Jordan 2012].

`dp_means_steps` is a generator of steps over points, leaves of a tree, or any rows of Moments; its last one holds the
MeansPartition. `fit_points`, `fit_rows` and `refit` run it to the end.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.bkm import seed_centres
from streamclust._kernels.types import Floats
from streamclust.families.priors import spread_indices
from streamclust.moments import Moments
from streamclust.refit.dp_labelling import DPLabelling, DPProblem
from streamclust.refit.means_partition import MeansPartition
from streamclust.refit.penalties import (
    ROUGH_CLUSTERS,
    check_count,
    check_penalty,
    penalty_for_clusters,
    warn_of_growth,
)

MANY_ROWS = 8_000
"""Restarts run on at most so many rows, spread over all of them; the best is then finished on every row."""
LONGEST = 1000
"""Passes: the objective falls in each, and partitions are finitely many; this is only to be sure."""
MOST_CLUSTERS = 1000
"""The bound on K unless told: reached, it warns."""
SETTLED = 1e-4
"""Over more than MANY_ROWS, passes end when one lowers the objective by less than this share; else with no change."""
HARDLY_SETTLED = 1e-3
"""The same, over any number of rows, while clusters are still being split."""


class DPStep(NamedTuple):
    """Where DP-means stands; the objective falls within a run. The last step has the result."""

    run: str
    move: str
    n_clusters: int
    objective: float
    partition: MeansPartition | None = None


Steps = Generator[DPStep, None, DPLabelling]


class Leaves(Protocol):
    """What DP-means reads of a summary tree."""

    def leaves(self) -> Moments:
        """One row for each leaf."""
        ...


def fit_points(
    points: ArrayLike,
    penalty: float | None = None,
    n_clusters_hint: int | None = None,
    weight: ArrayLike | None = None,
    collapsed: bool = False,
    splits: bool = False,
    restarts: int = 1,
    max_clusters: int = MOST_CLUSTERS,
    rng: np.random.Generator | int | None = 0,
) -> MeansPartition:
    """DP-means of points.

    >>> points = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([0.0, 9.0, 18.0], 100)[:, None]
    >>> fit_points(points, penalty=36.0).n_clusters
    3
    """
    rows = Moments.rows_of_points(points, weight)
    return fit_rows(rows, penalty, n_clusters_hint, None, collapsed, splits, restarts, max_clusters, rng)


def refit(
    tree: Leaves,
    penalty: float | None = None,
    n_clusters_hint: int | None = None,
    start: Floats | MeansPartition | None = None,
    collapsed: bool = False,
    splits: bool = False,
    restarts: int = 1,
    max_clusters: int = MOST_CLUSTERS,
    rng: np.random.Generator | int | None = 0,
) -> MeansPartition:
    """DP-means of a summary tree: each leaf is assigned whole; `start` gives the means to begin from.

    >>> from streamclust.tree import SummaryTree
    >>> tree = SummaryTree(2, max_leaves=64)
    >>> tree.insert(np.random.default_rng(0).normal(size=(5000, 2)) + 20.0 * (np.arange(5000)[:, None] % 3))
    >>> refit(tree, penalty=100.0).n_clusters
    3
    """
    return fit_rows(
        tree.leaves(), penalty, n_clusters_hint, start, collapsed, splits, restarts, max_clusters, rng
    )


def fit_rows(
    rows: Moments,
    penalty: float | None = None,
    n_clusters_hint: int | None = None,
    start: Floats | MeansPartition | None = None,
    collapsed: bool = False,
    splits: bool = False,
    restarts: int = 1,
    max_clusters: int = MOST_CLUSTERS,
    rng: np.random.Generator | int | None = 0,
) -> MeansPartition:
    """DP-means of weighted rows, the scatter within them counted."""
    result = None
    for step in dp_means_steps(
        rows, penalty, n_clusters_hint, start, collapsed, splits, restarts, max_clusters, rng
    ):
        result = step.partition
    assert result is not None
    return result


def dp_means_steps(
    rows: Moments,
    penalty: float | None = None,
    n_clusters_hint: int | None = None,
    start: Floats | MeansPartition | None = None,
    collapsed: bool = False,
    splits: bool = False,
    restarts: int = 1,
    max_clusters: int = MOST_CLUSTERS,
    rng: np.random.Generator | int | None = 0,
) -> Generator[DPStep, None, None]:
    """DP-means, or collapsed DP-means, as a generator of its states.

    A cluster opens only around an event farther than λ from every mean, as in the paper: λ is a radius, and
    K does not grow with the number of events. That is one start. Restarts begin with a few clusters more, open more
    eagerly, and are judged by the objective, as `splits` are, which cut clusters in two wherever it falls: both want a
    λ² that grows with the number of events, since below what a split of a cluster saves, more are always cheaper.
    """
    restarts = check_count("restarts", restarts)
    max_clusters = check_count("max_clusters", max_clusters)
    rng = np.random.default_rng(rng)
    live = np.flatnonzero(rows.weight > 0)
    if len(live) == 0:
        raise ValueError("there are no rows of any weight: there is nothing to cluster")
    some = rows[live].to("none" if rows.kind == "none" else "scalar")
    if not np.isfinite(some.mean).all():
        raise ValueError("rows must be finite numbers; drop or impute the others first")
    if penalty is None:
        hint = ROUGH_CLUSTERS if n_clusters_hint is None else n_clusters_hint
        penalty = penalty_for_clusters(some, hint)
    problem = DPProblem(some, check_penalty(penalty), max_clusters)
    if start is None:
        state = yield from best_run(problem, collapsed, splits, restarts, rng)
    else:
        means = start.means if isinstance(start, MeansPartition) else np.asarray(start, dtype=float)
        if means.ndim != 2 or means.shape[1] != some.n_features or len(means) == 0:
            raise ValueError(f"start must be means of {some.n_features} features, got shape {means.shape}")
        state = yield from descend(DPLabelling(problem, means), "given start", collapsed, splits)
    if problem.full:
        warn_of_growth(max_clusters, problem.penalty)
    yield published(state, rows)


def best_run(
    problem: DPProblem, collapsed: bool, splits: bool, restarts: int, rng: np.random.Generator
) -> Steps:
    """The best of some runs: one from a single cluster, the others from k-means++ seeds.

    Of many rows, some stand for all; the rows that are far from what these find open their clusters in a last run.
    """
    rows, some = problem.rows, problem
    if len(rows) > MANY_ROWS:
        kept = rows[spread_indices(len(rows), MANY_ROWS)]
        kept = kept.scale(float(rows.weight.sum() / kept.weight.sum()))
        some = DPProblem(kept, problem.penalty, problem.max_clusters)
    one = DPLabelling(some, some.rows.to("none").total().mean)
    best = yield from descend(one, "start 0", collapsed, splits)
    fewest = best.n_clusters
    for run in range(1, restarts):
        # One seed more each time: a mean too many finds a boundary that the right number cannot reach.
        n_seeds = 1 + (fewest + run - 1) % min(len(some.points), some.max_clusters)
        trials = 2 + int(np.log(n_seeds))
        seeds = seed_centres(some.points, some.weight, rng.random((n_seeds, trials)), trials)
        if len(seeds):
            start = DPLabelling(some, some.points[seeds], eager=True)
            found = yield from descend(start, f"start {run}", collapsed, splits)
            best = min(best, found, key=lambda state: state.objective)
    if some is problem:
        return best
    every = DPLabelling(problem, best.mean, eager=restarts > 1)
    return (yield from descend(every, "all rows", collapsed, splits=False))


def descend(state: DPLabelling, run: str, collapsed: bool, splits: bool) -> Steps:
    """Passes, merges and, where wanted, splits, by turns, until none lowers the objective."""

    def told(move: str) -> DPStep:
        return DPStep(run, move, state.n_clusters, state.objective)

    least = SETTLED if len(state.problem.points) > MANY_ROWS else 0.0
    settled = HARDLY_SETTLED if splits else least
    for _ in range(LONGEST):
        before, k = np.inf, 0
        while state.step():
            yield told("pass")
            if state.n_clusters == k and before - state.objective < settled * abs(state.objective):
                break
            before, k = state.objective, state.n_clusters
        while collapsed and state.collapsed_step():
            yield told("collapsed pass")
        if splits and state.split():
            yield told("split")
        elif state.merge():
            yield told("merge")
        elif settled > least:
            settled = least
        else:
            break
    return state


def published(state: DPLabelling, rows: Moments) -> DPStep:
    """The last step: clusters from the labels themselves, the heaviest first; rows of no weight to the nearest."""
    problem = state.problem
    clusters = problem.group(state.labels, state.n_clusters)
    order = np.argsort(-clusters.weight, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    clusters, objective = clusters[order], problem.cost(clusters)
    partition = MeansPartition(rank[state.labels], clusters, objective, problem.penalty)
    if len(problem.rows) < len(rows):
        labels = partition.assign(rows.mean)
        labels[rows.weight > 0] = partition.labels
        partition = MeansPartition(labels, clusters, objective, problem.penalty)
    return DPStep("all rows", "publish", state.n_clusters, objective, partition)
