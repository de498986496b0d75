"""Bayesian k-means: how many clusters there are, and which [Kurihara & Welling].

Two ways in, both generators of steps whose last one holds the Partition: `bkm_steps` refits a summary tree,
`point_steps` fits points. `refit_bkm` and `fit_points` run them to the end. `inputs` builds the problem from the data,
`search` finds the clusters.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.families import FamilyLike, Mixture
from streamclust.families import family as family_named
from streamclust.families.priors import spread_indices
from streamclust.moments import Moments, Scatter
from streamclust.parameters import MixtureName
from streamclust.refit.bkm.inputs import (
    PriorName,
    Search,
    WeightedPoints,
    check_points,
    check_search,
    check_start,
    learns_prior,
    prepared,
    sampled_problem,
    scored,
)
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.merge_path import learn_prior
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.row_tree import Assign, check_assign
from streamclust.refit.bkm.search import challenged, cold, search_points, warm
from streamclust.refit.bkm.top_down import top_down
from streamclust.refit.bkm.tuning import TUNING
from streamclust.refit.partition import Partition
from streamclust.refit.steps import Step, last_result
from streamclust.refit.summary import LeafSummary, without_outliers
from streamclust.utils.outliers import outlying

__all__ = [
    "PriorName",
    "Search",
    "bkm_steps",
    "check_points",
    "check_search",
    "fit_points",
    "free_energy_of",
    "learns_prior",
    "point_steps",
    "published",
    "refit_bkm",
    "sampled_problem",
    "scored",
]

Start = Moments | Partition | None


def refit_bkm(
    family: FamilyLike,
    tree: LeafSummary,
    start: Start = None,
    rng: np.random.Generator | int | None = 0,
    mixture: MixtureName | Mixture = "finite",
    search: Search = "auto",
    prior: PriorName | None = None,
    challenge: float | None = None,
) -> Partition:
    """Cluster the events of a tree: from given clusters (warm), or from nothing (cold).

    With `challenge`, from both: the clusters found from nothing must lower the free energy by that many nats.

    `family` is a name or a family class, whose prior is then found by `prior`, or a family object. None is "learnt"
    for Gaussians and "bkm" for counts. The uninformative mixture and the top-down search, which is the paper's own,
    know no learnt prior, and get "bkm".

    >>> from streamclust.tree import SummaryTree
    >>> rng = np.random.default_rng(0)
    >>> events = rng.normal(size=(3000, 2)) + 9.0 * rng.integers(3, size=(3000, 1))
    >>> tree = SummaryTree(n_features=2, max_leaves=64)
    >>> tree.insert(events)
    >>> refit_bkm("gaussian", tree).n_clusters
    3
    """
    return last_result(bkm_steps(family, tree, start, rng, mixture, search, prior, challenge))


def bkm_steps(
    family: FamilyLike,
    tree: LeafSummary,
    start: Start = None,
    rng: np.random.Generator | int | None = 0,
    mixture: MixtureName | Mixture = "finite",
    search: Search = "auto",
    prior: PriorName | None = None,
    challenge: float | None = None,
) -> Generator[Step[Partition], None, None]:
    """`refit`, as a generator of its states: who calls it draws the progress, or stops it."""
    check_search(search)
    rng = np.random.default_rng(rng)
    every, tree = tree, without_outliers(tree)
    sample = sampled_problem(family, tree, mixture, prior, search)
    family, mixture, learner = sample.family, sample.mixture, sample.learner
    leaves = Problem(family, mixture, tree.leaves().to(family.scatter), learner=learner)
    quick = search == "quick"
    if start is not None:
        check_start(sample, start)
        sample = affordable(sample, start)
    if search == "top-down":
        state = yield from top_down(sample, "sample")
    elif start is None:
        state = yield from cold(leaves, sample, rng, quick)
    elif challenge is None:
        state = yield from warm(sample, start, rng)
    else:
        state = yield from challenged(leaves, sample, start, rng, quick, challenge)
    # The sample's moments scaled to N: leaves taken whole score a little lower on hard data.
    clusters = state.clusters.scale(leaves.weight / sample.weight)
    if every is not tree:
        leaves = Problem(family, mixture, every.leaves().to(family.scatter))
    labels = leaves.under(state.problem.family).costs(clusters).argmin(axis=0)
    yield published("sample", state, labels, clusters)


def affordable(sample: Problem, start: Moments | Partition) -> Problem:
    """Sample of a size at which this number of clusters can be refitted: some of its rows, if there are too many.

    Summaries grow with the number of clusters, so the cost would grow with its square. Clusters that fewer rows support
    are fewer, which bounds their number too.
    """
    clusters = start.clusters if isinstance(start, Partition) else start
    most = max(TUNING.least_rows, TUNING.row_clusters // len(clusters))
    return sample if len(sample.rows) <= most else sample.subset(spread_indices(len(sample.rows), most))


# ---------------------------------------------------------------- points


def fit_points(
    family: FamilyLike,
    points: Floats,
    weight: Floats | None = None,
    rng: np.random.Generator | int | None = 0,
    mixture: MixtureName | Mixture = "finite",
    search: Search = "auto",
    assign: Assign = "auto",
    prior: PriorName | None = None,
) -> Partition:
    """Cluster points, each counted `weight` times (once). `prior` as for `refit`.

    >>> points = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([0.0, 9.0], 100)[:, None]
    >>> fit_points("gaussian", points).n_clusters
    2
    """
    return last_result(point_steps(family, points, weight, rng, mixture, search, assign, prior))


def free_energy_of(
    family: FamilyLike, points: Floats, labels: Ints, mixture: MixtureName | Mixture = "finite"
) -> float:
    """The free energy of a given partition of points, under the prior learnt from it.

    >>> points = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([0.0, 9.0], 100)[:, None]
    >>> two, one = np.repeat([0, 1], 100), np.zeros(200, dtype=np.int64)
    >>> free_energy_of("gaussian", points, two) < free_energy_of("gaussian", points, one)
    True
    """
    _, labels = np.unique(labels, return_inverse=True)
    rows = Moments.rows_of_points(points)
    data = WeightedPoints(rows, family_named(family).scatter)
    family, mixture, learner = prepared(family, mixture, data, None, "auto")
    problem = Problem(family, mixture, rows, learner=learner)
    if learner is not None:
        problem = problem.under(learner.start(problem.group(labels, int(labels.max()) + 1)))
    return learn_prior(Labelling(problem, labels)).free_energy


def point_steps(
    family: FamilyLike,
    points: Floats,
    weight: Floats | None = None,
    rng: np.random.Generator | int | None = 0,
    mixture: MixtureName | Mixture = "finite",
    search: Search = "auto",
    assign: Assign = "auto",
    prior: PriorName | None = None,
) -> Generator[Step[Partition], None, None]:
    """`fit_points`, as a generator of its states."""
    check_search(search)
    check_assign(assign)
    check_points(family, points)
    rows = Moments.rows_of_points(points, weight)
    if not rows.weight.sum() > 0:
        raise ValueError("every point has weight 0: there is nothing to cluster")
    every, kept = rows, ordinary_rows(rows, family_named(family).scatter)
    rows = rows[kept] if len(kept) < len(rows) else rows
    data = WeightedPoints(rows, family_named(family).scatter)
    family, mixture, learner = prepared(family, mixture, data, prior, search)
    rng = np.random.default_rng(rng)
    problem = Problem(family, mixture, rows, assign=assign, learner=learner)
    if search == "top-down":
        state = yield from top_down(problem, "points")
    else:
        state = yield from search_points(problem, rng, quick=search == "quick")
    labels = state.labels
    if len(kept) < len(every):
        labels = Problem(state.problem.family, mixture, every).costs(state.clusters).argmin(axis=0)
        labels[kept] = state.labels
    yield published("points", state, labels, state.clusters)


def ordinary_rows(rows: Moments, kind: Scatter) -> Ints:
    """Numbers of the points that are no outliers: those get the label of the cheapest cluster, and decide none."""
    found = np.zeros(len(rows), dtype=bool)
    if kind != "none":
        found[rows.weight > 0] = outlying(rows.mean[rows.weight > 0])
    return np.flatnonzero(~found)


def published(stage: str, state: Labelling, labels: Ints, clusters: Moments) -> Step[Partition]:
    """The last step: the partition, with the heaviest cluster first."""
    order = np.argsort(-clusters.weight, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    problem = state.problem
    partition = Partition(
        problem.family, problem.mixture, rank[labels], clusters[order], state.free_energy, problem.weight
    )
    return Step(stage, "publish", state.n_clusters, state.free_energy, partition)
