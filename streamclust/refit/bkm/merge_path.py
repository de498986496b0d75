"""Merge path: from many clusters down by merges, to the K of least free energy; the prior is learnt on the way.

Labels and the prior θ are improved by turns. In between neighbouring clusters are merged, also where no merge lowers F,
and the best labelling met is returned: merges that lower F alone would end at the first K where none does.
"""

from __future__ import annotations

import numpy as np

from streamclust._kernels.refit.bkm import seed_centres
from streamclust._kernels.types import Floats, Ints
from streamclust.families.gaussian import FlatGaussian
from streamclust.families.learnt import PriorLearner
from streamclust.families.mixed import Mixed
from streamclust.moments import Moments
from streamclust.refit.bkm.gaussian_merge_path import GaussianMergePath
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.leave_one_out import locked, unlock
from streamclust.refit.bkm.local_moves import Steps, chosen_merges, near_pairs, root_counts, step
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.tuning import TUNING
from streamclust.utils.blas import product
from streamclust.utils.outliers import near_variance


def learn_prior(state: Labelling, rounds: int = TUNING.prior_rounds) -> Labelling:
    """Learn θ from the clusters; the labels stay. A fixed prior stays as it is."""
    learner = state.problem.learner
    if learner is not None:
        state.rescore(learner.improved(state.problem.family, state.clusters, rounds))
    return state


def settle(state: Labelling, iterations: int, turns: int = 1) -> Labelling:
    """ME iterations, then θ, by turns."""
    for _ in range(turns):
        state.converge(iterations)
        learn_prior(state)
    return state


def starts(most: int, known: int = 0) -> list[int]:
    """K_init of each start, at most `most`; starts too small for the `known` number of clusters are left out.

    >>> starts(500), starts(500, known=30), starts(500, known=300)
    ([40, 120, 360], [120, 360], [360])
    """
    sizes = [TUNING.first_start]
    while sizes[-1] * TUNING.start_growth <= most:
        sizes.append(sizes[-1] * TUNING.start_growth)
    sizes = [size for size in sizes if size >= TUNING.min_start_ratio * known] or sizes[-1:]
    return [min(size, max(most, 1)) for size in sizes]


def start_sizes(problem: Problem, known: int = 0) -> list[int]:
    """K_init of each start on these rows, at most half as many.

    A flat prior gets the first start alone: it is improper, so F has no lower bound for tiny clusters that happen to
    lie in a plane, and larger starts find those.
    """
    sizes = starts(len(problem.rows) // 2, known)
    return sizes[:1] if isinstance(problem.family, FlatGaussian) else sizes


def is_enough(found: Labelling, n_start: int, known: Labelling | None) -> bool:
    """Whether no larger start is needed: few clusters are left, or they are the `known` ones."""
    return found.n_clusters <= n_start / TUNING.start_growth or (known is not None and agree(known, found))


def agree(one: Labelling, other: Labelling) -> bool:
    """Whether two labellings of the same rows have the same clusters, except for a few rows."""
    k, weight = one.n_clusters, one.problem.rows.weight
    if other.n_clusters != k:
        return False
    shared = np.bincount(one.labels * k + other.labels, weight, k * k).reshape(k, k)
    return len(set(shared.argmax(axis=1))) == k and bool(
        shared.max(axis=1).sum() >= (1.0 - TUNING.unchanged_share) * weight.sum()
    )


def best_path(
    problem: Problem, rng: np.random.Generator, stage: str, leaves: bool = False, repeats: int = 1, quick: bool = False,
    known: Labelling | None = None,
) -> Steps:  # fmt: skip
    """The best of several merge paths, from more and more clusters while that helps; each start `repeats` times.

    At least two starts are made or, if `quick`, one: a stream searches again when it has learnt more. Starts end as
    soon as one leads to the `known` labels, which another search has found.
    On leaves a path ends where no merge lowers F: leaves straddle overlapping clusters, and cannot tell which to join.
    """
    best: Labelling | None = None
    for i, k in enumerate(start_sizes(problem)):
        before = best
        for _ in range(repeats):
            found = yield from path_from_seeds(problem, k, rng, stage, leaves)
            if best is None or found.free_energy < best.free_energy:
                best = found
        assert best is not None
        if (i > 0 or quick) and (best is before or is_enough(best, k, known)):
            break
    assert best is not None
    return best


def path_from_seeds(
    problem: Problem, n_clusters: int, rng: np.random.Generator, stage: str, leaves: bool
) -> Steps:
    """Merge path from k-means++ seeds, the best of one for each kind of coordinates that seeds are chosen in."""
    best: Labelling | None = None
    for x in seed_coordinates(problem):
        found = yield from path_from(problem, nearest_seed(problem, x, n_clusters, rng), stage, leaves)
        if best is None or found.free_energy < best.free_energy:
            best = found
    assert best is not None
    return best


def path_from(problem: Problem, labels: Ints, stage: str, leaves: bool) -> Steps:
    """Merge path from given labels; a learnt prior begins with the scatter within their clusters."""
    k = int(labels.max(initial=0)) + 1
    if problem.learner is not None:
        problem = problem.under(problem.learner.start(problem.group(labels, k)))
    if is_compiled(problem):
        best = compiled_path(problem, labels, k, leaves, past_rest=not leaves)
        yield step(stage, "path", best)
        return best
    return (yield from path_down(Labelling(problem, labels), stage, leaves, past_rest=not leaves))


def path_down(state: Labelling, stage: str, leaves: bool, past_rest: bool = True) -> Steps:
    """Merge path from this labelling; returns the labelling of least F on the way.

    Merges go on where none lowers F, unless `past_rest` is False.
    """
    if is_compiled(state.problem):
        best = compiled_path(state.problem, state.labels, state.n_clusters, leaves, past_rest)
        yield step(stage, "path", best)
        return best
    iterations, end = path_limits(leaves)
    if state.problem.learner is None and locked(
        state
    ):  # a learnt prior shares a covariance, which lets rows go
        state = unlock(state)
    settle(state, iterations, TUNING.short_iterations)
    yield step(stage, "seed", state)
    best = state.copy()
    while state.n_clusters > 1 and state.n_clusters >= end * best.n_clusters:
        a, b = near_pairs(state)
        change = state.merge_changes_of(a, b)
        if not past_rest and not np.any(change < 0):
            break
        state.merge_pairs(chosen_merges(a, b, change, state.n_clusters))
        settle(state, iterations)
        # Under a flat prior F may be +∞ at every K but the last, or at all: then one cluster is the answer.
        if state.free_energy < best.free_energy or not np.isfinite(best.free_energy):
            best = state.copy()
            yield step(stage, "merge", best)
    settle(best, iterations)
    yield step(stage, "iterate", best)
    return best


def path_limits(leaves: bool) -> tuple[int, float]:
    """ME iterations after each round of merges, and the share of the best K below which a path ends."""
    if leaves:
        return TUNING.short_iterations, TUNING.leaf_path_end
    return TUNING.point_iterations, TUNING.point_path_end


def is_compiled(problem: Problem) -> bool:
    """Whether merge paths of this problem are compiled: full Gaussians under a learnt prior."""
    return problem.compiled and isinstance(problem.learner, PriorLearner)


def compiled_path(
    problem: Problem, labels: Ints, n_clusters: int, leaves: bool, past_rest: bool
) -> Labelling:
    """`path_down` by kernels."""
    iterations, end = path_limits(leaves)
    return GaussianMergePath(problem, labels, n_clusters).descend(iterations, end, past_rest)


# ---------------------------------------------------------------- seeds


def nearest_seed(problem: Problem, x: Floats, n_clusters: int, rng: np.random.Generator) -> Ints:
    """Index of the nearest of `n_clusters` k-means++ centres, for each row; fewer if fewer rows are distinct."""
    trials = 2 + int(np.log(n_clusters))
    centres = x[seed_centres(projected(x), problem.rows.weight, rng.random((n_clusters, trials)), trials)]
    if not len(centres):
        return np.zeros(len(x), dtype=np.int64)
    labels = nearest_centre(x, centres)
    if problem.family.name == "diagonal" and len(x) < len(centres) * x.shape[1]:
        for _ in range(TUNING.point_iterations):  # else most of these few rows' clusters would end at once
            _, labels = np.unique(labels, return_inverse=True)
            k = int(labels.max()) + 1
            means = Moments.rows_of_points(x, problem.rows.weight).to_groups(labels, k, kind="none").mean
            labels = nearest_centre(x, means)
    return labels


def nearest_centre(x: Floats, centres: Floats) -> Ints:
    """Index of the nearest centre of each row."""
    distance = (centres**2).sum(axis=1) - 2 * product(x, centres.T)
    return np.asarray(distance.argmin(axis=1))


def seed_coordinates(problem: Problem) -> list[Floats]:
    """Coordinates in which seeds are chosen: of mixed tables all columns and, apart from them, the numbers alone.

    Many categories that have nothing to do with the clusters hide what the numbers tell.
    """
    x = coordinates(problem)
    if not isinstance(problem.family, Mixed):
        return [x]
    numbers = problem.family.layout.numbers
    return [x, np.ascontiguousarray(x[:, numbers])] if 0 < len(numbers) < x.shape[1] else [x]


def coordinates(problem: Problem) -> Floats:
    """Rows in the coordinates in which k-means++ measures distances: variances made comparable for the family."""
    x, name = problem.rows.mean, problem.family.name
    if name in ("multinomial", "poisson"):
        return root_counts(name, x)
    if name in ("spherical", "bernoulli"):
        return np.ascontiguousarray(x - x[:1])
    if isinstance(problem.family, Mixed):
        return mixed_coordinates(problem.family, x, problem.rows.weight)
    total = Moments(problem.rows.weight, x, np.zeros((len(x), 0)), "none").to_groups(None, kind="diagonal")
    deviation = np.sqrt(near_variance(x, problem.rows.weight, total.covariance[0]))
    return np.ascontiguousarray((x - total.mean) / np.where(deviation > 0, deviation, 1.0))


def mixed_coordinates(family: Mixed, x: Floats, weight: Floats) -> Floats:
    """Numbers in their deviations; the columns of a category together vary as much as one number."""
    rows = Moments(weight, x, np.zeros((len(x), 0)), "none")
    variance = rows.to_groups(None, kind="diagonal").covariance[0]
    numbers = family.layout.numbers
    variance[numbers] = near_variance(x[:, numbers], weight, variance[numbers])
    for group in family.layout.groups:
        variance[group] = variance[group].sum()
    return np.ascontiguousarray((x - x.mean(axis=0)) / np.sqrt(np.where(variance > 0, variance, 1.0)))


def projected(x: Floats) -> Floats:
    """Wide rows in fixed random directions: distances to about a tenth, enough for k-means++ [Johnson & Lindenstrauss].

    Rows of at most twice `seed_directions` features are returned as they are.
    """
    directions = TUNING.seed_directions
    if x.shape[1] <= 2 * directions:
        return x
    axes = np.random.default_rng(0).normal(size=(x.shape[1], directions))
    return np.ascontiguousarray(x @ axes / np.sqrt(directions))
