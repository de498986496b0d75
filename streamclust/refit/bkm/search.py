"""Search for clusters: from nothing (`cold`), from given clusters (`warm`), from both (`challenged`), and on points.

Each search makes a start, then refines it. Starts from nothing are merge paths (`merge_path`), on the leaves of a tree
or on points; `refine` alternates splits and merges (`local_moves`), ME iterations and the prior. Fixed and learnt
priors share this code: `learn_prior` leaves a fixed one as it is.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.families import AnyFamily, Gaussian
from streamclust.families.learnt import PriorLearner
from streamclust.families.mixed import Mixed, columns_of
from streamclust.families.priors import spread_indices
from streamclust.moments import Moments
from streamclust.refit.bkm.boundary_moves import polish
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.leave_one_out import locked
from streamclust.refit.bkm.local_moves import Steps, iterate, rounding, split_and_merge, step
from streamclust.refit.bkm.merge_path import (
    agree,
    best_path,
    coordinates,
    is_enough,
    learn_prior,
    path_down,
    path_from_seeds,
    settle,
    start_sizes,
)
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.row_scales import scale_variance
from streamclust.refit.bkm.tuning import TUNING, FirstCuts
from streamclust.refit.partition import Partition
from streamclust.refit.steps import Step

# ---------------------------------------------------------------- searches of a tree


def cold(leaves: Problem, sample: Problem, rng: np.random.Generator, quick: bool) -> Steps:
    """Search from nothing: on the leaves first or, if they are few, on the sample alone."""
    if has_few_leaves(leaves):
        return (yield from cold_points(sample, rng, "sample", quick))
    state = yield from tree_start(leaves, sample, rng, quick)
    return (yield from refine(state, rng, "sample", TUNING.few_cuts))


def warm(sample: Problem, start: Moments | Partition, rng: np.random.Generator) -> Steps:
    """Search from given clusters."""
    state = yield from warm_start(sample, start)
    return (yield from refine(state, rng, "sample", TUNING.few_cuts))


def challenged(
    leaves: Problem,
    sample: Problem,
    start: Moments | Partition,
    rng: np.random.Generator,
    quick: bool,
    margin: float,
) -> Steps:
    """Search from given clusters and from nothing; the latter must lower F by `margin` nats to be chosen.

    If both starts lead to the same clusters only one is refined or, of few rows, none; of few rows only the better one
    is refined in any case.
    """
    state = yield from warm_start(sample, start)
    if has_few_leaves(leaves):
        other = yield from points_start(sample, rng, "sample", quick, known=state)
    else:
        other = yield from tree_start(leaves, sample, rng, quick, known=state)
    same = yield from same_clusters(state, other)
    better = other if other.free_energy < state.free_energy - margin else state
    few = len(sample.rows) < TUNING.many_rows
    if same and few:  # the next search, of twice the events, comes soon
        return better
    if same or (
        few and sample.rows.n_features < len(sample.rows)
    ):  # of fewer, F before refining tells little
        return (yield from refine(better, rng, "sample", TUNING.few_cuts))
    state = yield from refine(state, rng, "sample", TUNING.few_cuts)
    other = yield from refine(other, rng, "sample", TUNING.few_cuts)
    return other if other.free_energy < state.free_energy - margin else state


# ---------------------------------------------------------------- searches of points


def search_points(problem: Problem, rng: np.random.Generator, quick: bool) -> Steps:
    """Search from nothing; many points are searched by a subset first, then all of them refine the result."""
    d, n = problem.rows.n_features, len(problem.rows)
    most = int(np.clip(TUNING.max_start_numbers / d**2, TUNING.many_rows, TUNING.max_start_rows))
    if n <= most:
        return (yield from cold_points(problem, rng, "points", quick))
    some = problem.subset(spread_indices(n, most))
    if not some.weight > 0:
        some = problem.subset(np.argsort(-problem.rows.weight, kind="stable")[:most])
    started = yield from cold_points(some, rng, "some points", quick=False)
    problem = replace(problem, learner=started.problem.learner)
    state = relabelled(problem, started.clusters, started.problem.family)
    yield step("points", "relabel", state)
    yield from iterate(state, "points")
    return (yield from refine(learn_prior(state), rng, "points", TUNING.few_cuts))


def cold_points(problem: Problem, rng: np.random.Generator, stage: str, quick: bool) -> Steps:
    """Search from nothing on points."""
    state = yield from points_start(problem, rng, stage, quick)
    state = yield from refine(state, rng, stage, TUNING.many_cuts)
    if not quick and needs_polish(problem):
        state = yield from polish(state, stage)
        state = yield from refine(learn_prior(state), rng, stage, TUNING.many_cuts)
    return state if quick else (yield from with_own_covariances(state, rng, stage))


def needs_polish(problem: Problem) -> bool:
    """Whether single rows decide where boundaries are: of counts, and under a fixed prior.

    A learnt covariance is shared by the clusters, so that boundaries of Gaussians depend little on single rows.
    """
    return problem.learner is None or problem.family.scatter == "none"


# ---------------------------------------------------------------- starts


def has_few_leaves(leaves: Problem) -> bool:
    """Whether to start on the sample: that of so few leaves is small."""
    return len(leaves.rows) < TUNING.min_start_leaves


def points_start(
    problem: Problem, rng: np.random.Generator, stage: str, quick: bool, known: Labelling | None = None
) -> Steps:
    """The best merge path on points. Few points have many local optima, and cost little: their paths are repeated.

    If there are few per dimension, the labels found under a fixed prior are one more candidate for a learnt one.
    """
    repeats = 1 if quick or len(problem.rows) > TUNING.few_rows else TUNING.start_repeats
    best = yield from best_path(problem, rng, stage, repeats=repeats, quick=quick, known=known)
    if quick or problem.learner is None or len(problem.rows) > TUNING.start_rows or not locked(best):
        return best
    other = yield from found_under_fixed_prior(problem, rng)
    return other if other.free_energy < best.free_energy else best


def found_under_fixed_prior(problem: Problem, rng: np.random.Generator) -> Steps:
    """Labels found under the paper's prior (21) in units of the features' deviations; θ learnt from them.

    Paths begin with a covariance that seeds share, and rows lock themselves into them: where clusters differ by
    covariances more than by means, paths merge what has a lower F apart. η0 = D lets each have its own from the start,
    and `unlock` lets rows go.
    """
    found = yield from cold_points(under_fixed_prior(problem), rng, "fixed prior", quick=True)
    return learn_prior(labelled_anew(problem, found))


def under_fixed_prior(problem: Problem) -> Problem:
    """The problem under the paper's prior (21), in units of the features' deviations."""
    x = coordinates(problem)
    rows = Moments(problem.rows.weight, x, np.zeros((len(x), 0)), "none")
    return replace(problem, family=Gaussian.informed(x), rows=rows, learner=None)


def labelled_anew(problem: Problem, found: Labelling) -> Labelling:
    """The labels of a search under another prior, under that which a learnt one begins with."""
    assert problem.learner is not None
    family = problem.learner.start(problem.group(found.labels, found.n_clusters))
    return Labelling(problem.under(family), found.labels, found.n_clusters)


def with_own_covariances(state: Labelling, rng: np.random.Generator, stage: str) -> Steps:
    """The clusters found or, if they have a lower F, Gaussian clusters that differ in covariance as much as it takes.

    Of few rows per dimension, the least η0 makes clusters share most of their covariance. A learner that allows more is
    tried by turns: a whole search under a fixed prior, (21) at first, then the prior learnt from its labels, which the
    next search takes as given. It ends where F falls no more, or at once if clusters are not Gaussian.
    """
    problem, learner = state.problem, state.problem.learner
    if not (isinstance(learner, PriorLearner) and isinstance(problem.family, Gaussian) and locked(state)):
        return state
    if not learner.binds(problem.family):
        return state
    own = replace(problem, learner=replace(learner, own=True))
    some = own.subset(spread_indices(len(own.rows), TUNING.start_rows))
    fixed, best = under_fixed_prior(some), None
    for _ in range(TUNING.short_iterations):
        found = yield from cold_points(fixed, rng, "fixed prior", quick=False)
        found = yield from divided(found, rng)
        turn = learn_prior(labelled_anew(some, found), TUNING.max_iterations)
        if not is_gaussian(turn) or not (
            best is None or turn.free_energy < best.free_energy - rounding(best)
        ):
            break
        best = turn
        fixed = replace(some, family=best.problem.family, learner=None)
    if best is None:
        return state
    if len(some.rows) < len(own.rows):
        best = learn_prior(relabelled(own, best.clusters, best.problem.family))
    best = yield from refine(best, rng, stage, TUNING.many_cuts)
    return best if is_gaussian(best) and best.free_energy < state.free_energy else state


def divided(state: Labelling, rng: np.random.Generator) -> Steps:
    """Each cluster searched as if it were all the data, which tells apart what lay together; if F falls by that."""
    labels, k = state.labels.copy(), state.n_clusters
    for c in range(state.n_clusters):
        rows = np.flatnonzero(state.labels == c)
        parts = yield from cold_points(state.problem.subset(rows), rng, "within a cluster", quick=True)
        labels[rows] = np.where(parts.labels > 0, k - 1 + parts.labels, c)
        k += parts.n_clusters - 1
    if k == state.n_clusters:
        return state
    finer = Labelling(state.problem, labels, k)
    yield from iterate(finer, "within a cluster")
    return finer if finer.free_energy < state.free_energy else state


def is_gaussian(state: Labelling) -> bool:
    """Whether rows differ in scale no more than Gaussian clusters let expect, or little more."""
    return scale_variance(state) <= TUNING.max_scale_variance


def tree_start(
    leaves: Problem, sample: Problem, rng: np.random.Generator, quick: bool, known: Labelling | None = None
) -> Steps:
    """Merge paths on the leaves, which see rare clusters, then on the sample, which decides K.

    In many dimensions the leaves are too wide to tell clusters apart: paths then start on some of the sample. If
    `quick`, a larger start follows only if the sample has more than a third of the clusters begun with, and not the
    `known` ones, found by another search.
    """
    rows, whole, stage = leaves, True, "leaves"
    if too_wide(leaves):
        rows, whole = sample.subset(spread_indices(len(sample.rows), TUNING.start_rows)), False
        stage = "some of the sample"
    if not quick:
        found = yield from best_path(rows, rng, stage, leaves=whole, known=None)
        return (yield from sample_path(sample, found))
    best: Labelling | None = None
    state: Labelling | None = None
    # of few rows a start more costs little
    n_known = known.n_clusters if known is not None and len(sample.rows) >= TUNING.many_rows else 0
    for k in start_sizes(rows, n_known):
        found = yield from path_from_seeds(rows, k, rng, stage, whole)
        if best is not None and not found.free_energy < best.free_energy:
            break
        best, state = found, (yield from sample_path(sample, found))
        if is_enough(state, k, known):
            break
    assert state is not None
    return state


def sample_path(sample: Problem, found: Labelling) -> Steps:
    """Label the sample by clusters found on other rows, and follow the merge path from there."""
    state = relabelled(sample, found.clusters, found.problem.family)
    yield step("sample", "relabel", state)
    return (yield from path_down(state, "sample", leaves=True))


def warm_start(sample: Problem, start: Moments | Partition) -> Steps:
    """The sample labelled by given clusters, under their prior if it was learnt."""
    clusters = (start.clusters if isinstance(start, Partition) else start).to(sample.family.scatter)
    state = relabelled(sample, clusters, warm_prior(sample, start, clusters))
    yield step("sample", "relabel", state)
    return settle(state, TUNING.short_iterations)


def warm_prior(sample: Problem, start: Moments | Partition, clusters: Moments) -> AnyFamily:
    """The prior to start with: the fixed one, the one learnt with `start`, or one learnt from its clusters."""
    learner = sample.learner
    if learner is None:
        return sample.family
    if isinstance(start, Partition) and type(start.family) is learner.kind:
        return learner.carried(start.family)
    scaled = clusters.scale(sample.weight / float(clusters.weight.sum()))
    return learner.improved(learner.start(scaled), scaled)


def relabelled(problem: Problem, clusters: Moments, family: AnyFamily) -> Labelling:
    """Rows labelled by given clusters under a given prior."""
    return Labelling.nearest(problem.under(family), clusters)


def too_wide(leaves: Problem) -> bool:
    """Whether leaves keep most of the variance inside, measured in the covariance of a typical leaf's surroundings."""
    rows, whole = leaves.rows, leaves.family
    family = whole.numbers if isinstance(whole, Mixed) else whole
    if isinstance(whole, Mixed):
        rows = columns_of(rows, whole.layout.numbers)
    if rows.kind != "full" or family is None:
        return False
    total: Floats = rows.to_groups(None, kind="full").covariance[0]
    within = rows.scatter.sum(axis=0) / leaves.weight
    assert isinstance(family, Gaussian)
    blur = np.diag(family.blur)
    share = np.linalg.solve(total + blur, within + blur)
    return bool(np.trace(share) / len(total) > TUNING.max_share_within_leaves)


# ---------------------------------------------------------------- refinement


def refine(state: Labelling, rng: np.random.Generator, stage: str, cuts: FirstCuts) -> Steps:
    """Splits and merges, ME iterations and prior by turns, while labels change and F falls."""
    yield from iterate(state, stage)
    for _ in range(TUNING.short_iterations):
        before, labels = state.free_energy, state.labels
        state = yield from split_and_merge(state, rng, stage, cuts)
        same = state.labels is labels
        yield from iterate(state, stage)
        if state.problem.learner is not None:
            learn_prior(state)
            yield step(stage, "learn", state)
        if same or not state.free_energy < before - rounding(state):
            break
    return state


def same_clusters(one: Labelling, other: Labelling) -> Generator[Step[Partition], None, bool]:
    """Whether ME iterations take two labellings to the same clusters, except for a few rows."""
    if one.n_clusters != other.n_clusters:
        return False
    for state in (one, other):
        yield from iterate(state, "sample")
        learn_prior(state)
    return agree(one, other)
