"""The search for clusters under a learnt prior: paths down, then splits, merges and θ by turns."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.families import AnyFamily, Gaussian
from streamclust.families.priors import spread_indices
from streamclust.moments import Moments
from streamclust.refit.bkm.collapsed import locked
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.path import (
    agree,
    best_path,
    is_enough,
    learn_prior,
    path_down,
    path_from_seeds,
    settle,
    starts,
)
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.search import Steps, cold, coordinates, iterate, polish, refine, step
from streamclust.refit.partition import Partition
from streamclust.refit.steps import Step

ROUNDS = 3
"""Rounds of splits and merges, ME iterations and θ, at most."""
MIN_GAIN_SHARE = 1e-6
"""A round that lowers F by a smaller share of it is the last."""
FEW_ROWS, REPEATS = 1_000, 4
"""Paths over at most so many points are tried so many times."""
FEW_CUTS = 2, 1
"""Principal and random first cuts of a cluster of a stream that is tried to be split."""
START_ROWS = 2_048
"""Where leaves are too wide to start on, paths start on so many rows of the sample."""
SETTLED_ROWS = 4_096
"""Below so many rows, what a search from nothing and one from given clusters agree on is not refined; from so many on a
search from nothing leaves out starts from few clusters."""
MAX_SHARE_WITHIN_LEAVES = 0.5
"""Leaves that keep more than this share of the variance within themselves, in the metric of clusters, are too wide."""


def cold_points(problem: Problem, rng: np.random.Generator, stage: str, quick: bool = False) -> Steps:
    """From nothing, on points."""
    state = yield from refined((yield from points_path(problem, rng, stage, quick)), rng, stage)
    if problem.family.scatter == "none" and not quick:  # single counts decide where the boundaries are
        state = yield from polish(state, stage)
        state = yield from refined(learn_prior(state), rng, stage)
    return state


def points_path(
    problem: Problem, rng: np.random.Generator, stage: str, quick: bool, known: Labelling | None = None
) -> Steps:
    """The best path on points. Few points have many local optima, and cost little: their paths are repeated.

    Where there are few per dimension, the labels found under a fixed prior are one more candidate.
    """
    repeats = 1 if quick or len(problem.rows) > FEW_ROWS else REPEATS
    best = yield from best_path(problem, rng, stage, repeats=repeats, quick=quick, known=known)
    if quick or len(problem.rows) > START_ROWS or not locked(best):
        return best
    other = yield from found_under_fixed_prior(problem, rng)
    return other if other.free_energy < best.free_energy else best


def found_under_fixed_prior(problem: Problem, rng: np.random.Generator) -> Steps:
    """Labels found under the paper's prior (21) in units of the features' deviations; θ learnt from them.

    Paths begin with a covariance that seeds share, and rows lock themselves into them: where clusters differ by
    covariances more than by means, paths merge what has a lower F apart. η0 = D lets each have its own from the start,
    and `unlock` lets rows go.
    """
    x = coordinates(problem)
    rows = Moments(problem.rows.weight, x, np.zeros((len(x), 0)), "none")
    fixed = replace(problem, family=Gaussian.informed(x), rows=rows, learner=None)
    found = yield from cold(fixed, rng, "fixed prior")
    assert problem.learner is not None
    family = problem.learner.start(problem.group(found.labels, found.n_clusters))
    return learn_prior(Labelling(problem.under(family), found.labels, found.n_clusters))


def cold_tree(leaves: Problem, sample: Problem, rng: np.random.Generator, quick: bool = False) -> Steps:
    """From nothing, on a tree."""
    state = yield from tree_path(leaves, sample, rng, quick)
    return (yield from refined(state, rng, "sample", *FEW_CUTS))


def tree_path(
    leaves: Problem, sample: Problem, rng: np.random.Generator, quick: bool, known: Labelling | None = None
) -> Steps:
    """Paths on the leaves, which see rare clusters; K is decided on the sample.

    In many dimensions the leaves are too wide to tell clusters apart: paths then start on some of the sample. If
    `quick`, a start from more clusters follows only where the sample has more than a third of those begun with, and
    not the `known` ones, found by another search.
    """
    rows, whole, stage = leaves, True, "leaves"
    if too_wide(leaves):
        rows, whole = sample.subset(spread_indices(len(sample.rows), START_ROWS)), False
        stage = "some of the sample"
    if not quick:
        return (yield from sample_path(sample, (yield from best_path(rows, rng, stage, leaves=whole))))
    best: Labelling | None = None
    state: Labelling | None = None
    # of few rows a start more costs little
    n_known = known.n_clusters if known is not None and len(sample.rows) >= SETTLED_ROWS else 0
    for k in starts(len(rows.rows) // 2, n_known):
        found = yield from path_from_seeds(rows, k, rng, stage, whole)
        if best is not None and not found.free_energy < best.free_energy:
            break
        best, state = found, (yield from sample_path(sample, found))
        if is_enough(state, k, known):
            break
    assert state is not None
    return state


def sample_path(sample: Problem, found: Labelling) -> Steps:
    """The sample labelled by the clusters found on other rows, and the path down from there."""
    state = relabelled(sample, found.clusters, found.problem.family)
    yield step("sample", "relabel", state)
    return (yield from path_down(state, "sample", leaves=True))


def warm_tree(sample: Problem, start: Moments | Partition, rng: np.random.Generator) -> Steps:
    """From given clusters."""
    return (yield from refined((yield from warm_start(sample, start)), rng, "sample", *FEW_CUTS))


def warm_start(sample: Problem, start: Moments | Partition) -> Steps:
    """The sample labelled by given clusters and, if they come as a partition of a learnt prior, by its θ."""
    clusters = (start.clusters if isinstance(start, Partition) else start).to(sample.family.scatter)
    assert sample.learner is not None
    if isinstance(start, Partition) and type(start.family) is sample.learner.kind:
        family = sample.learner.carried(start.family)
    else:
        scaled = clusters.scale(sample.weight / float(clusters.weight.sum()))
        family = sample.learner.improved(sample.learner.start(scaled), scaled)
    state = relabelled(sample, clusters, family)
    yield step("sample", "relabel", state)
    return settle(state, 3)


def challenged_tree(
    leaves: Problem,
    sample: Problem,
    start: Moments | Partition,
    rng: np.random.Generator,
    few: bool,
    margin: float,
) -> Steps:
    """From given clusters, and from nothing on the leaves or, where those are `few`, on the sample.

    What is found from nothing must be better by a margin. Where both come to the same, only one is refined or, of few
    rows, none; of few rows only the better one is refined in any case.
    """
    state = yield from warm_start(sample, start)
    if few:
        other = yield from points_path(sample, rng, "sample", quick=True, known=state)
    else:
        other = yield from tree_path(leaves, sample, rng, quick=True, known=state)
    same = yield from same_clusters(state, other)
    better = other if other.free_energy < state.free_energy - margin else state
    if same:
        if len(sample.rows) < SETTLED_ROWS:  # the next search, of twice the events, comes soon
            return better
        return (yield from refined(better, rng, "sample", *FEW_CUTS))
    if sample.rows.n_features < len(sample.rows) < SETTLED_ROWS:  # of fewer, F before refining tells little
        return (yield from refined(better, rng, "sample", *FEW_CUTS))
    state = yield from refined(state, rng, "sample", *FEW_CUTS)
    other = yield from refined(other, rng, "sample", *FEW_CUTS)
    return other if other.free_energy < state.free_energy - margin else state


def same_clusters(one: Labelling, other: Labelling) -> Generator[Step[Partition], None, bool]:
    """Whether ME iterations take two labellings to the same clusters, but for a few rows."""
    if one.n_clusters != other.n_clusters:
        return False
    for state in (one, other):
        yield from iterate(state, "sample")
        learn_prior(state)
    return agree(one, other)


def relabelled(problem: Problem, clusters: Moments, family: AnyFamily) -> Labelling:
    """Rows labelled by given clusters under a given prior."""
    return Labelling.nearest(problem.under(family), clusters)


def refined(
    state: Labelling, rng: np.random.Generator, stage: str, principal: int = 3, random: int = 2
) -> Steps:
    """Splits and merges, ME iterations and θ by turns, while there are any and F falls."""
    yield from iterate(state, stage)
    for _ in range(ROUNDS):
        before, labels = state.free_energy, state.labels
        state = yield from refine(state, rng, stage, principal, random)
        same = state.labels is labels
        yield from iterate(state, stage)
        learn_prior(state)
        yield step(stage, "learn", state)
        if same or not state.free_energy < before - MIN_GAIN_SHARE * abs(before):
            break
    return state


def too_wide(leaves: Problem) -> bool:
    """Whether leaves keep most of the variance inside, measured in the covariance of a typical leaf's surroundings."""
    rows = leaves.rows
    if rows.kind != "full":
        return False
    total: Floats = rows.to_groups(None, kind="full").covariance[0]
    within = rows.scatter.sum(axis=0) / leaves.weight
    assert isinstance(leaves.family, Gaussian)
    blur = np.diag(leaves.family.blur)
    share = np.linalg.solve(total + blur, within + blur)
    return bool(np.trace(share) / len(total) > MAX_SHARE_WITHIN_LEAVES)
