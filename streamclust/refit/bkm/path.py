"""Down from many clusters to the K of least free energy, the prior learnt on the way.

Labels and θ are improved by turns; in between, clusters that are near each other are merged, whether that pays or not.
The best labelling met is returned: a path that only merged where it pays would rest at the first K where none does.
"""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.families.learnt import PriorLearner
from streamclust.refit.bkm.compiled_path import Path
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.near import near_pairs
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.search import Steps, nearest_seed, step

FIRST_START_CLUSTERS = 40
"""Clusters that the first start begins with (K_init)."""
START_GROWTH = 3
"""Each next start begins with so many times the clusters of the one before."""
MIN_START_RATIO = 2
"""Where clusters are known, starts from fewer than so many times as many are left out: too many would be left."""
SAME_SHARE = 0.98
"""Labellings of as many clusters that agree on this share of the weight are taken to lead to the same optimum."""
ROUNDS, PATH_ROUNDS = 2, 1
"""Rounds of EM for θ each time that it is learnt anew; on a compiled path, where the next time comes soon."""
OFFERED_CLUSTERS = 16
"""On a path rows choose among so many clusters nearest to their own, where there are more than twice as many."""
FIRST_TURNS = 3
"""Turns of ME iterations and θ before the first merge."""
ON_POINTS, ON_LEAVES = (5, 0.4), (3, 0.7)
"""ME iterations after each round of merges; and the share of the K of least F so far below which a path ends."""


def learn_prior(state: Labelling, rounds: int = ROUNDS) -> Labelling:
    """θ learnt anew from the clusters; the labels stay."""
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
    """K_init of the starts there may be, at most half as many clusters as rows; fewer where clusters are `known`.

    >>> starts(500), starts(500, known=30), starts(500, known=300)
    ([40, 120, 360], [120, 360], [360])
    """
    sizes = [FIRST_START_CLUSTERS]
    while sizes[-1] * START_GROWTH <= most:
        sizes.append(sizes[-1] * START_GROWTH)
    sizes = [size for size in sizes if size >= MIN_START_RATIO * known] or sizes[-1:]
    return [min(size, max(most, 1)) for size in sizes]


def is_enough(found: Labelling, n_start: int, known: Labelling | None) -> bool:
    """Whether no start from more clusters is needed: few are left, or they are the `known` ones."""
    return found.n_clusters <= n_start / START_GROWTH or (known is not None and agree(known, found))


def agree(one: Labelling, other: Labelling) -> bool:
    """Whether two labellings of the same rows have the same clusters, but for a few rows."""
    k, weight = one.n_clusters, one.problem.rows.weight
    if other.n_clusters != k:
        return False
    shared = np.bincount(one.labels * k + other.labels, weight, k * k).reshape(k, k)
    return len(set(shared.argmax(axis=1))) == k and bool(
        shared.max(axis=1).sum() >= SAME_SHARE * weight.sum()
    )


def best_path(
    problem: Problem, rng: np.random.Generator, stage: str, leaves: bool = False, repeats: int = 1, quick: bool = False,
    known: Labelling | None = None,
) -> Steps:  # fmt: skip
    """The best of several paths down, from ever more clusters while that helps; each start `repeats` times.

    There are two starts at least or, if `quick`, one: a stream tries again when it has learnt more. Where another
    search has found the `known` labels of these rows, starts end as soon as one leads there.
    On leaves a path ends where no merge pays: leaves straddle clusters that overlap, and cannot tell which to join.
    """
    best: Labelling | None = None
    for i, k in enumerate(starts(len(problem.rows) // 2)):
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
    """The path down from rows with the nearest of so many k-means++ centres; θ from what is left within clusters."""
    labels = nearest_seed(problem, n_clusters, rng)
    k = int(labels.max(initial=0)) + 1
    if problem.learner is not None:
        problem = problem.under(problem.learner.start(problem.group(labels, k)))
    if is_compiled(problem):
        best = compiled_path(problem, labels, k, leaves, past_rest=not leaves)
        yield step(stage, "path", best)
        return best
    return (yield from path_down(Labelling(problem, labels), stage, leaves, past_rest=not leaves))


def path_down(state: Labelling, stage: str, leaves: bool, past_rest: bool = True) -> Steps:
    """From this labelling down by merges to few clusters; the labelling of least F on the way.

    Merges go on where none pays, unless `past_rest` is False.
    """
    if is_compiled(state.problem):
        best = compiled_path(state.problem, state.labels, state.n_clusters, leaves, past_rest)
        yield step(stage, "path", best)
        return best
    settling, stop = ON_LEAVES if leaves else ON_POINTS
    settle(state, settling, FIRST_TURNS)
    yield step(stage, "seed", state)
    best = state.copy()
    while state.n_clusters > 1 and state.n_clusters >= stop * best.n_clusters:
        a, b = near_pairs(state)
        change = state.merge_changes_of(a, b)
        if not past_rest and not np.any(change < 0):
            break
        state.merge_pairs(chosen_merges(a, b, change, state.n_clusters))
        settle(state, settling)
        if state.free_energy < best.free_energy:
            best = state.copy()
            yield step(stage, "merge", best)
    settle(best, settling)
    yield step(stage, "iterate", best)
    return best


def is_compiled(problem: Problem) -> bool:
    """Whether there are kernels for the steps of a path of this problem."""
    return problem.compiled and isinstance(problem.learner, PriorLearner)


def compiled_path(
    problem: Problem, labels: Ints, n_clusters: int, leaves: bool, past_rest: bool
) -> Labelling:
    """The same by kernels."""
    iterations, stop = ON_LEAVES if leaves else ON_POINTS
    path = Path(problem, labels, n_clusters)
    return path.descend(PATH_ROUNDS, OFFERED_CLUSTERS, iterations, FIRST_TURNS, stop, past_rest)


def chosen_merges(a: Ints, b: Ints, change: Floats, k: int) -> list[tuple[int, int]]:
    """The better half of the merges that pay, at most K/5; where none pays, the best K/6 all the same.

    No cluster is in two of them.
    """
    paying = int(np.count_nonzero(change < 0))
    count = max(1, min((paying + 1) // 2, k // 5) if paying else k // 6)
    free = np.ones(k, dtype=bool)
    pairs: list[tuple[int, int]] = []
    for i in np.argsort(change, kind="stable"):
        if paying and not change[i] < 0:
            break
        if free[a[i]] and free[b[i]]:
            pairs.append((int(a[i]), int(b[i])))
            free[[a[i], b[i]]] = False
            if len(pairs) == count:
                break
    return pairs
