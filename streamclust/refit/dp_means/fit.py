"""DP-means: clusters within a radius λ, and as many as that takes [MAD-Bayes eq. 3, alg. 2; Kulis & Jordan 2012].

`dp_means_steps` is a generator of steps over points, leaves of a tree, or any rows of Moments; its last one holds the
MeansPartition. `fit_points`, `fit_rows` and `refit` run it to the end.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.refit.bkm import seed_centres
from streamclust._kernels.refit.dp_means import farthest_first
from streamclust._kernels.types import Floats
from streamclust.families.priors import spread_indices
from streamclust.moments import Moments
from streamclust.refit.dp_means.labelling import DPLabelling, DPProblem
from streamclust.refit.dp_means.means_partition import MeansPartition
from streamclust.refit.penalties import (
    ROUGH_CLUSTERS,
    check_count,
    check_penalty,
    penalty_for_clusters,
    warn_of_growth,
)
from streamclust.refit.steps import Step, last_result
from streamclust.refit.summary import LeafSummary

MAX_RESTART_ROWS = 8_000
"""Rows of a restart, at most, spread over all of them; the best restart is then finished on every row."""
MAX_PASSES = 1000
"""Passes in a row, and rounds of other moves: the objective falls in each, so this is only to be sure."""
MAX_CLUSTERS = 1000
"""The bound on K unless told: reached, it warns."""
SETTLED_SHARE = 1e-4
"""Over more rows, passes of later runs end when one lowers the objective by less than this share."""
ROUGHLY_SETTLED_SHARE = 1e-3
"""Share of the objective for passes over any number of rows, while clusters are still being split."""


Steps = Generator[Step[MeansPartition], None, DPLabelling]


def fit_points(
    points: ArrayLike,
    penalty: float | None = None,
    n_clusters_hint: int | None = None,
    weight: ArrayLike | None = None,
    collapsed: bool = False,
    splits: bool = False,
    restarts: int = 1,
    max_clusters: int = MAX_CLUSTERS,
    rng: np.random.Generator | int | None = 0,
) -> MeansPartition:
    """DP-means of points.

    >>> points = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([0.0, 9.0, 18.0], 100)[:, None]
    >>> fit_points(points, penalty=36.0).n_clusters
    3
    """
    rows = Moments.rows_of_points(points, weight)
    return fit_rows(rows, penalty, n_clusters_hint, None, collapsed, splits, restarts, max_clusters, rng)


def fit_tree(
    tree: LeafSummary,
    penalty: float | None = None,
    n_clusters_hint: int | None = None,
    start: Floats | MeansPartition | None = None,
    collapsed: bool = False,
    splits: bool = False,
    restarts: int = 1,
    max_clusters: int = MAX_CLUSTERS,
    rng: np.random.Generator | int | None = 0,
) -> MeansPartition:
    """DP-means of a summary tree: each leaf is assigned whole; `start` gives the means to begin from.

    >>> from streamclust.tree import SummaryTree
    >>> tree = SummaryTree(2, max_leaves=64)
    >>> tree.insert(np.random.default_rng(0).normal(size=(5000, 2)) + 20.0 * (np.arange(5000)[:, None] % 3))
    >>> fit_tree(tree, penalty=100.0).n_clusters
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
    max_clusters: int = MAX_CLUSTERS,
    rng: np.random.Generator | int | None = 0,
) -> MeansPartition:
    """DP-means of weighted rows, the scatter within them counted."""
    return last_result(
        dp_means_steps(rows, penalty, n_clusters_hint, start, collapsed, splits, restarts, max_clusters, rng)
    )


def dp_means_steps(
    rows: Moments,
    penalty: float | None = None,
    n_clusters_hint: int | None = None,
    start: Floats | MeansPartition | None = None,
    collapsed: bool = False,
    splits: bool = False,
    restarts: int = 1,
    max_clusters: int = MAX_CLUSTERS,
    rng: np.random.Generator | int | None = 0,
) -> Generator[Step[MeansPartition], None, None]:
    """DP-means, or collapsed DP-means, as a generator of its states.

    A cluster opens only around an event farther than λ from every mean, as in the paper: λ is a radius, and
    K does not grow with the number of events. Passes over the rows in their order come first, as published, then merges
    and swaps that lower the objective further; the same again from rows picked farthest first; the lower one is kept.
    Restarts begin with a few clusters more, and are judged by the objective, as `splits` are, which cut clusters in two
    wherever it falls: both want a λ² that grows with the number of events, since below what a split of a cluster saves,
    more are always cheaper.
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
    """The lowest objective of several runs: rows in their order, farthest rows first, and from k-means++ seeds.

    The first is the algorithm as published, from the mean of all rows, before any other move: the result is never above
    it. Where rows lie at λ up to rounding, it runs both ways, with clusters opened there and without.
    """
    literal = DPLabelling(problem, problem.centre)
    yield from passes(literal, "in order", 0.0)
    found = [(yield from descend(literal, "in order", collapsed, splits))]
    if literal.tied:
        literal = DPLabelling(problem, problem.centre, ties_open=True)
        yield from passes(literal, "in order, ties open", 0.0)
        found += [(yield from descend(literal, "in order, ties open", collapsed, splits))]
    start = DPLabelling(problem, farthest(problem))
    found += [(yield from descend(start, "farthest first", collapsed, splits))]
    if restarts > 1:
        fewest = min(state.n_clusters for state in found)
        found += [(yield from best_seeded(problem, fewest, collapsed, splits, restarts, rng))]
    return min(found, key=lambda state: state.objective)


def farthest(problem: DPProblem) -> Floats:
    """The mean of all, the row farthest from it, the row farthest from both, and so on while one is beyond λ."""
    n_picks = 8
    most = min(len(problem.points), problem.max_clusters - 1)
    while True:
        n_picks = min(n_picks, most)
        chosen, squared = farthest_first(problem.points, problem.centre[0], n_picks)
        picks = int(np.count_nonzero(squared > problem.penalty))
        if picks < n_picks or n_picks == most:
            return np.concatenate([problem.centre, problem.points[chosen[:picks]]])
        n_picks *= 4


def best_seeded(
    problem: DPProblem, fewest: int, collapsed: bool, splits: bool, restarts: int, rng: np.random.Generator
) -> Steps:
    """The lowest objective of runs from k-means++ seeds; of many rows, some stand for all until the last run."""
    rows, some = problem.rows, problem
    if len(rows) > MAX_RESTART_ROWS:
        kept = rows[spread_indices(len(rows), MAX_RESTART_ROWS)]
        kept = kept.scale(float(rows.weight.sum() / kept.weight.sum()))
        some = DPProblem(kept, problem.penalty, problem.max_clusters)
    best = DPLabelling(some, some.centre)
    for run in range(1, restarts):
        # One seed more each time: a mean too many finds a boundary that the right number cannot reach.
        n_seeds = 1 + (fewest + run - 1) % min(len(some.points), some.max_clusters)
        trials = 2 + int(np.log(n_seeds))
        seeds = seed_centres(some.points, some.weight, rng.random((n_seeds, trials)), trials)
        if len(seeds):
            start = DPLabelling(some, some.points[seeds])
            found = yield from descend(start, f"start {run}", collapsed, splits)
            best = min(best, found, key=lambda state: state.objective)
    if some is problem:
        return best
    return (yield from descend(DPLabelling(problem, best.mean), "all rows", collapsed, splits=False))


def passes(state: DPLabelling, run: str, settled: float) -> Steps:
    """Passes until nothing changes, or one lowers the objective by less than the share `settled` at the same K."""
    before, k = np.inf, 0
    for _ in range(MAX_PASSES):
        if not state.step():
            break
        yield Step(run, "pass", state.n_clusters, state.objective)
        if settled > 0 and state.n_clusters == k and before - state.objective < settled * state.objective:
            break
        before, k = state.objective, state.n_clusters
    return state


def descend(state: DPLabelling, run: str, collapsed: bool, splits: bool) -> Steps:
    """Passes, merges, swaps and, where wanted, splits, by turns, until none lowers the objective."""

    def told(move: str) -> Step[MeansPartition]:
        return Step(run, move, state.n_clusters, state.objective)

    least = SETTLED_SHARE if len(state.problem.points) > MAX_RESTART_ROWS else 0.0
    settled = ROUGHLY_SETTLED_SHARE if splits else least
    for _ in range(MAX_PASSES):
        yield from passes(state, run, settled)
        while collapsed and state.collapsed_step():
            yield told("collapsed pass")
        if splits and state.split():
            yield told("split")
        elif state.merge():
            yield told("merge")
        elif state.swap():
            yield told("swap")
        elif settled > least:
            settled = least
        else:
            break
    return state


def published(state: DPLabelling, rows: Moments) -> Step[MeansPartition]:
    """The last step: clusters from the labels themselves, the heaviest first; rows of no weight to the nearest."""
    problem = state.problem
    clusters = problem.group(state.labels, state.n_clusters)
    # Equal weights by their means: rows in another order give the same numbers.
    order = np.lexsort((*clusters.mean.T[::-1], -clusters.weight))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    clusters, objective = clusters[order], problem.cost(clusters)
    partition = MeansPartition(rank[state.labels], clusters, objective, problem.penalty)
    if len(problem.rows) < len(rows):
        labels = partition.assign(rows.mean)
        labels[rows.weight > 0] = partition.labels
        partition = MeansPartition(labels, clusters, objective, problem.penalty)
    return Step("all rows", "publish", state.n_clusters, objective, partition)
