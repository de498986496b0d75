"""Bayesian k-means: how many clusters there are, and which [Kurihara & Welling].

Two ways in, both generators of steps whose last one holds the Partition: `bkm_steps` refits a summary tree,
`point_steps` fits points. `refit` and `fit_points` run them to the end.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.families import AnyFamily, FamilyLike, Mixture, Rule, Summary, Uninformative, scoring
from streamclust.families import family as family_named
from streamclust.families.learners import AnyLearner, learner_of
from streamclust.families.priors import spread_indices
from streamclust.families.resolution import n_independent_rows
from streamclust.moments import Moments, Scatter
from streamclust.outliers import outlying
from streamclust.parameters import MixtureName
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.learnt_search import (
    challenged_tree,
    cold_points,
    cold_tree,
    refined,
    warm_tree,
)
from streamclust.refit.bkm.on_tree import Assign, check_assign
from streamclust.refit.bkm.path import learn_prior
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.search import (
    STARTS,
    Steps,
    best_merges,
    bottom_up,
    cold,
    iterate,
    refine,
    step,
)
from streamclust.refit.bkm.top_down import top_down
from streamclust.refit.partition import Partition
from streamclust.refit.steps import Step, last_result
from streamclust.refit.summary import LeafSummary, weighty_sample, without_outliers

Search = Literal["auto", "quick", "top-down"]
"""How K is searched: "auto" bottom-up, "quick" with fewer starts where data are few, "top-down" as in the paper."""

MIN_START_LEAVES = 4 * STARTS[-1]
"""A tree of fewer leaves has a sample small enough to start on: nothing would be won on the leaves."""
LEAF_ITERATIONS = 3
"""ME iterations after each merge on the leaves: the sample will settle what they leave open."""
LEAF_MERGES = 8
"""Merges at once on the leaves, where so many pay."""
FEW_CUTS = 2, 1
"""Principal and random first cuts of a cluster that a refit tries to split: its start has seen most of them."""
MAX_START_ROWS, MIN_START_ROWS = 20_000, 5_000
"""Searches start on at most MAX_START_ROWS points, fewer where points are wide, never fewer than MIN_START_ROWS."""


Start = Moments | Partition | None
PriorName = Literal["learnt", "bkm", "agglomerative", "nearest"]
"""Where a family's prior comes from: learnt with the clusters, or informed by the data once [see `families.priors`]."""


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
    """Cluster what a tree has learnt: from given clusters (warm), or from nothing (cold).

    With `challenge`, from both: what is found from nothing must have a free energy lower by so many nats.

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
    if search == "top-down":
        state = yield from top_down(sample, "sample")
    elif start is None:
        state = yield from from_nothing(leaves, sample, rng, search)
    elif challenge is None:
        state = yield from warm(sample, start, rng)
    else:
        state = yield from challenged(leaves, sample, start, rng, search, challenge)
    # The sample's moments scaled to N: leaves taken whole score a little lower on hard data.
    clusters = state.clusters.scale(leaves.weight / sample.weight)
    if every is not tree:
        leaves = Problem(family, mixture, every.leaves().to(family.scatter))
    labels = leaves.under(state.problem.family).costs(clusters).argmin(axis=0)
    yield published("sample", state, labels, clusters)


def from_nothing(leaves: Problem, sample: Problem, rng: np.random.Generator, search: Search) -> Steps:
    """On the leaves first or, where they are few, on the sample alone."""
    few, quick = len(leaves.rows) < MIN_START_LEAVES, search == "quick"
    if sample.learner is not None and few:
        return (yield from cold_points(sample, rng, "sample", quick))
    if sample.learner is not None:
        return (yield from cold_tree(leaves, sample, rng, quick))
    if few and not quick:
        return (yield from cold(sample, rng, "sample"))
    return (yield from cold_from_leaves(sample if few else leaves, sample, rng))


def challenged(
    leaves: Problem,
    sample: Problem,
    start: Moments | Partition,
    rng: np.random.Generator,
    search: Search,
    margin: float,
) -> Steps:
    """From given clusters, and from nothing; what is found from nothing must be better by a margin."""
    check_start(sample, start)
    if sample.learner is not None and search == "quick":
        few = len(leaves.rows) < MIN_START_LEAVES
        return (yield from challenged_tree(leaves, sample, start, rng, few, margin))
    state = yield from warm(sample, start, rng)
    other = yield from from_nothing(leaves, sample, rng, search)
    return other if other.free_energy < state.free_energy - margin else state


def sampled_problem(
    family: FamilyLike,
    tree: LeafSummary,
    mixture: MixtureName | Mixture = "finite",
    prior: PriorName | None = None,
    search: Search = "auto",
) -> Problem:
    """The events that a tree has sampled, as rows to partition, under the prior to begin with."""
    points, weight = weighty_sample(tree)
    if not weight.sum() > 0:
        raise ValueError("the tree has no data; learn at least one event first")
    data = Sampled(tree.total, points, weight)
    family, mixture, learner = prepared(family, mixture, data, prior, search)
    size = effective_size(tree, weight)
    evidence = 1.0 if family.scatter == "none" else evidence_of(points)
    evidence *= min(1.0, getattr(tree, "n_independent", np.inf) / size)
    # A sample point stands for many events. Scored at that weight, noise would look significant.
    rows = Moments(weight * (evidence * size / weight.sum()), points, np.zeros((len(points), 0)), "none")
    return Problem(family, mixture, rows, evidence, learner=learner)


def effective_size(tree: LeafSummary, weight: Floats) -> float:
    """Number of events that a tree's sample is worth: Kish's size, or more where the tree knows it better."""
    size = float(weight.sum() ** 2 / (weight**2).sum())
    if hasattr(tree, "sample_size"):
        size = max(size, tree.sample_size())
    return min(size, getattr(tree, "worth", np.inf))


def evidence_of(points: Floats) -> float:
    """Number of events that a sampled event counts for: 1 or, where events repeat others, the share of distinct ones.

    Repeated events tell nothing new: a refit finds no more clusters than distinct events can tell apart. Of one feature
    its resolution sees to that.
    """
    return n_independent_rows(points) / len(points)


def cold_from_leaves(leaves: Problem, sample: Problem, rng: np.random.Generator) -> Steps:
    """Start on the leaves, which see rare clusters; decide K on the sample, which has no straddling leaves."""
    states: list[Labelling] = []
    for k in STARTS:
        state = yield from bottom_up(leaves, k, rng, "leaves", LEAF_ITERATIONS, LEAF_MERGES)
        state = Labelling.nearest(sample, state.clusters)
        yield step("sample", "relabel", state)
        yield from iterate(state, "sample")
        states += [(yield from best_merges(state, "sample"))]
    best = min(states, key=lambda s: s.free_energy)
    return (yield from refine(best, rng, "sample", *FEW_CUTS))


def warm(sample: Problem, start: Moments | Partition, rng: np.random.Generator) -> Steps:
    """From given clusters: converge, merge, split in a few directions."""
    check_start(sample, start)
    if sample.learner is not None:
        return (yield from warm_tree(sample, start, rng))
    clusters = start.clusters if isinstance(start, Partition) else start
    state = Labelling.nearest(sample, clusters.to(sample.family.scatter))
    yield step("sample", "relabel", state)
    yield from iterate(state, "sample")
    state = yield from best_merges(state, "sample")
    return (yield from refine(state, rng, "sample", *FEW_CUTS))


def check_start(sample: Problem, start: Moments | Partition) -> None:
    """Raise ValueError for clusters to start from that have other features than the data, or no weight."""
    clusters = start.clusters if isinstance(start, Partition) else start
    if clusters.n_features != sample.rows.n_features or not clusters.weight.sum() > 0:
        raise ValueError(
            f"start must be clusters of {sample.rows.n_features} features with some weight, got {len(clusters)} "
            f"of {clusters.n_features}; use start=None to begin from nothing"
        )


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
        state = yield from search_points(problem, rng, search)
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


def search_points(problem: Problem, rng: np.random.Generator, search: Search) -> Steps:
    """Starts and refinement; where points are many, on some of them first, and on all of them in the end."""
    few = len(problem.rows) <= MIN_START_ROWS
    if problem.learner is None and search == "quick" and few:
        return (yield from cold_from_leaves(problem, problem, rng))
    d = problem.rows.n_features
    most = int(np.clip(2e7 / d**2, MIN_START_ROWS, MAX_START_ROWS))
    if len(problem.rows) <= most and problem.learner is not None:
        return (yield from cold_points(problem, rng, "points", quick=search == "quick"))
    if len(problem.rows) <= most:
        return (yield from cold(problem, rng, "points"))
    find = cold if problem.learner is None else cold_points
    some = problem.subset(spread_indices(len(problem.rows), most))
    if not some.weight > 0:
        some = problem.subset(np.argsort(-problem.rows.weight, kind="stable")[:most])
    started = yield from find(some, rng, "some points")
    problem = problem.under(started.problem.family)
    state = Labelling.nearest(problem, started.clusters)
    yield step("points", "relabel", state)
    yield from iterate(state, "points")
    if problem.learner is not None:
        learn_prior(state)
        return (yield from refined(state, rng, "points", principal=2, random=0))
    return (yield from refine(state, rng, "points", principal=2, random=0))


# ---------------------------------------------------------------- shared


@dataclass(frozen=True)
class Sampled:
    """A tree as the summary that a prior reads, with the sample already drawn from it."""

    total: Moments
    points: Floats
    weight: Floats

    def sample(self) -> tuple[Floats, Floats]:
        """The sample, as the tree gave it."""
        return self.points, self.weight


class WeightedPoints:
    """Points as the summary that a prior reads: weights count in the totals, rows of weight 0 nowhere."""

    def __init__(self, rows: Moments, kind: Scatter) -> None:
        self._rows = rows[np.flatnonzero(rows.weight > 0)]
        self._kind = kind

    @property
    def total(self) -> Moments:
        """One row: the moments of all points."""
        return self._rows.to_groups(None, kind=self._kind)

    def sample(self) -> tuple[Floats, Floats]:
        """Every point with its weight."""
        return self._rows.mean, self._rows.weight


def check_points(family: FamilyLike, points: Floats) -> None:
    """Raise ValueError for points that the family cannot have produced."""
    family_named(family).check(points)


def scored(
    family: FamilyLike, mixture: MixtureName | Mixture, data: Summary | Floats, rule: Rule = "bkm"
) -> tuple[AnyFamily, Mixture]:
    """The family, its prior informed by the data unless it has one, and the mixture that goes with it."""
    named = family_named(family)
    return scoring(mixture, named.informed(data, rule) if isinstance(named, type) else named, data)


def prepared(
    family: FamilyLike, mixture: MixtureName | Mixture, data: Summary, prior: PriorName | None, search: Search
) -> tuple[AnyFamily, Mixture, AnyLearner | None]:
    """The family and the mixture to begin with, and what learns the family's prior if it is to be learnt."""
    named = family_named(family)
    if learns_prior(family, mixture, prior, search):
        learner = learner_of(named, data)
        assert learner is not None
        found, mixed = scoring(mixture, learner.start(data.total), data)
        return found, mixed, learner
    rule: Rule = "bkm" if prior is None or prior == "learnt" else prior
    return *scored(named, mixture, data, rule), None


def learns_prior(
    family: FamilyLike, mixture: MixtureName | Mixture, prior: PriorName | None, search: Search
) -> bool:
    """Whether the prior is learnt with the clusters. A family object has its own."""
    named = family_named(family)
    if prior not in (None, *get_args(PriorName)):
        raise ValueError(f"prior must be one of {', '.join(get_args(PriorName))}, got {prior!r}")
    fixed = mixture == "uninformative" or isinstance(mixture, Uninformative) or search == "top-down"
    learnt = prior == "learnt" or (prior is None and named.scatter != "none")
    return learnt and not fixed and isinstance(named, type)


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


def check_search(search: str) -> None:
    """Raise ValueError for a search there is not."""
    if search not in get_args(Search):
        raise ValueError(f"search must be one of {', '.join(get_args(Search))}, got {search!r}")
