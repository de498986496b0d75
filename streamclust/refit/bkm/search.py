"""The search for K: bottom-up starts, local splits and merges [BKM sections 5, 6; the search is our own].

The paper's own loop, from one cluster by splits, often ends at the first split that does not pay
(`top_down`). Starting from too many clusters and merging finds the true partition's free energy or a lower
one. Everything here is a generator of `Step`s, and returns the labelling it found.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from streamclust._kernels.refit.bkm import choose, seed_centres
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.blas import product
from streamclust.moments import Moments
from streamclust.outliers import near_variance
from streamclust.refit.bkm.collapsed import locked, unlock
from streamclust.refit.bkm.exchange import exchange
from streamclust.refit.bkm.labelling import MAX_ITERATIONS, Labelling
from streamclust.refit.bkm.near import near_pairs, root_counts
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.splits import SplitScan
from streamclust.refit.partition import Partition
from streamclust.refit.steps import Step

STARTS = (20, 40)
"""K_init of the bottom-up starts: at least twice the K to be found."""
SEED_DIRECTIONS = 128
"""k-means++ measures the distances of wide rows along so many random directions."""
PATIENCE_MERGES = 3
"""Merges tried past the minimum of F."""
SETTLING_ITERATIONS = 10
"""ME iterations after each merge on the way down."""
TOP_MERGES = 5
"""Pairs tried, by the closed-form change of F."""
MIN_WEIGHT_CHANGE = 0.02
"""A cluster whose weight changed by less since no split of it paid is not tried again."""
NEAR_NATS = 2.0
"""Rows are exchanged one by one where a second cluster charges at most so many nats more per event."""
NUDGE_NATS = 0.3
"""Nats per event by which a cluster is made cheaper or dearer, to move its boundaries."""
SHAKE_PIECES = 3
"""A shake breaks each cluster into so many."""
ROUNDS = 20
"""Rounds of splits and merges, at most: each must lower F, so this is only to be sure."""


Steps = Generator[Step[Partition], None, Labelling]


def step(stage: str, move: str, state: Labelling) -> Step[Partition]:
    """The step that leads to this labelling."""
    return Step(stage, move, state.n_clusters, state.free_energy)


def iterate(state: Labelling, stage: str, limit: int = MAX_ITERATIONS) -> Steps:
    """ME iterations until nothing changes, each of them a step; those compiled or through a tree are one together."""
    if state.problem.compiled:
        if state.run(limit):
            yield step(stage, "iterate", state)
        return state
    made = state.leap(limit)
    if made:
        yield step(stage, "iterate", state)
    for _ in range(limit - made):
        if not state.step():
            break
        yield step(stage, "iterate", state)
    return state


# ---------------------------------------------------------------- starts


def coordinates(problem: Problem) -> Floats:
    """Rows in the coordinates in which k-means++ measures distances: variances made comparable for the family."""
    x, name = problem.rows.mean, problem.family.name
    if name in ("multinomial", "poisson"):
        return root_counts(name, x)
    if name in ("spherical", "bernoulli"):
        return np.ascontiguousarray(x - x[:1])
    total = Moments(problem.rows.weight, x, np.zeros((len(x), 0)), "none").to_groups(None, kind="diagonal")
    deviation = np.sqrt(near_variance(x, problem.rows.weight, total.covariance[0]))
    return np.ascontiguousarray((x - total.mean) / np.where(deviation > 0, deviation, 1.0))


def seeded(problem: Problem, n_clusters: int, rng: np.random.Generator) -> Labelling:
    """Every row with the nearest of K_init centres drawn by k-means++."""
    return Labelling(problem, nearest_seed(problem, n_clusters, rng))


def nearest_seed(problem: Problem, n_clusters: int, rng: np.random.Generator) -> Ints:
    """The nearest of so many k-means++ centres, for each row; fewer where fewer rows are distinct."""
    x = coordinates(problem)
    trials = 2 + int(np.log(n_clusters))
    centres = x[seed_centres(sketched(x), problem.rows.weight, rng.random((n_clusters, trials)), trials)]
    distance = (centres**2).sum(axis=1) - 2 * product(x, centres.T)
    return distance.argmin(axis=1) if len(centres) else np.zeros(len(x), dtype=np.int64)


def sketched(x: Floats) -> Floats:
    """Rows of more than twice SEED_DIRECTIONS features by as many random directions, the same every time.

    That keeps distances to about a tenth [Johnson & Lindenstrauss], which is all that k-means++ asks for; it took half
    of the time of a fit of a thousand words.
    """
    if x.shape[1] <= 2 * SEED_DIRECTIONS:
        return x
    directions = np.random.default_rng(0).normal(size=(x.shape[1], SEED_DIRECTIONS))
    return np.ascontiguousarray(x @ directions / np.sqrt(SEED_DIRECTIONS))


def bottom_up(
    problem: Problem, n_clusters: int, rng: np.random.Generator, stage: str, settling: int = SETTLING_ITERATIONS,
    at_once: int = 1,
) -> Steps:  # fmt: skip
    """From K_init clusters down to the K of least F."""
    state = seeded(problem, n_clusters, rng)
    yield step(stage, "seed", state)
    state = yield from settled(state, stage)
    return (yield from merge_down(state, stage, settling, at_once))


def settled(state: Labelling, stage: str) -> Steps:
    """Converge a given labelling; rows that lock themselves into small clusters are relabelled first."""
    if locked(state):
        state = unlock(state)
        yield step(stage, "unlock", state)
    return (yield from iterate(state, stage))


def merge_down(state: Labelling, stage: str, settling: int = SETTLING_ITERATIONS, at_once: int = 1) -> Steps:
    """The best merge by closed form, a few ME iterations, and again; on past the minimum of F.

    Where many merges pay, the best of them are done `at_once`, no cluster in two of them.
    """
    best, lowest, worse = state.copy(), state.free_energy, 0
    while state.n_clusters > 1 and worse < PATIENCE_MERGES:
        state.merge_pairs(merges_apart(state.merge_changes(), at_once))
        state.converge(settling)
        # Under a flat prior F may be +∞ at every K but the last, or at all: then one cluster is the answer.
        if state.free_energy < lowest or not np.isfinite(lowest):
            best, lowest, worse = state.copy(), state.free_energy, 0
            yield step(stage, "merge", best)
        else:
            worse += 1
    return (yield from iterate(best, stage))


def merges_apart(change: Floats, count: int) -> list[tuple[int, int]]:
    """The best merge and, of the better half of those that pay, `count` in all that share no cluster.

    At most a fifth of the clusters go at once: the fewer are left, the more each merge changes.
    """
    count = min(count, len(change) // 5)
    order = np.argsort(change, axis=None, kind="stable")[: max(1, np.count_nonzero(change < 0) // 2)]
    pairs: list[tuple[int, int]] = []
    free = np.ones(len(change), dtype=bool)
    for a, b in (divmod(int(flat), len(change)) for flat in order):
        if free[a] and free[b]:
            pairs += [(a, b)]
            free[[a, b]] = False
            if len(pairs) >= count:
                break
    return pairs if change.min() < np.inf else [(0, 1)]


# ---------------------------------------------------------------- merges


def best_merges(state: Labelling, stage: str, tried: int = TOP_MERGES) -> Steps:
    """Merges that lower F: the top pairs by closed form, each judged by where the ME iterations take it."""
    while state.n_clusters > 1 and not state.merges_tried:
        one, other = near_pairs(state)
        change = state.merge_changes_of(one, other)
        top = np.argsort(change, kind="stable")[:tried]
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
        good[unsure] = change[unsure] <= 2 * SETTLING_ITERATIONS * gains
    return good


def merge_pays(trial: Labelling, change: float) -> bool:
    """Whether ME iterations on the merged labelling bring `change`, the merge's own, below zero.

    The merge counts at its own scale, what the iterations gain after it at the common one. They gain less
    and less: one that cannot get there at its present pace is given up.
    """
    margin = -rounding(trial)
    for left in range(SETTLING_ITERATIONS, 0, -1):
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


def rounding(state: Labelling) -> float:
    """Changes of F below this are noise: a split and its merge must not follow each other for ever."""
    scale = abs(state.free_energy)
    return 1e-9 * max(1.0, scale if np.isfinite(scale) else 1.0)


# ---------------------------------------------------------------- splits


def best_splits(state: Labelling, rng: np.random.Generator, stage: str, principal: int, random: int) -> Steps:
    """Splits that lower F: each cluster's rows converged between two halves first, then all rows globally.

    Clusters are split at once where it pays: their terms of F do not touch each other.
    """
    weight = state.clusters.weight
    untried = np.abs(weight - state.split_at) > MIN_WEIGHT_CHANGE * weight
    if not untried.any():
        return state
    scan = SplitScan(state, untried)
    best = scan.best(rng, principal, random)
    state.split_at = np.where(untried, weight, state.split_at)
    pays = best.change < -rounding(state)
    if pays.any():
        leaves = scan.order[best.side == 1]
        owner = state.labels[leaves]
        state.split({int(c): leaves[owner == c] for c in np.flatnonzero(pays)})
        yield step(stage, "split", state)
        yield from iterate(state, stage)
    return state


# ---------------------------------------------------------------- all together


def cold(problem: Problem, rng: np.random.Generator, stage: str) -> Steps:
    """Two bottom-up starts, the better of them refined."""
    states: list[Labelling] = []
    for k in STARTS:
        states += [(yield from bottom_up(problem, k, rng, stage))]
    best = yield from refine(min(states, key=lambda s: s.free_energy), rng, stage)
    best = yield from shake(best, rng, stage)
    return (yield from polish(best, stage))


def refine(
    state: Labelling, rng: np.random.Generator, stage: str, principal: int = 3, random: int = 2
) -> Steps:
    """Local splits and merges, by turns, until neither lowers F."""
    for _ in range(ROUNDS):
        before = state.free_energy, state.n_clusters
        state = yield from best_splits(state, rng, stage, principal, random)
        state = yield from best_merges(state, stage)
        if (state.free_energy, state.n_clusters) == before:
            break
    return state


def shake(state: Labelling, rng: np.random.Generator, stage: str) -> Steps:
    """Split every cluster into a few pieces and merge down again, while F falls.

    A boundary in the wrong place takes a split and a merge at once to move: either alone would raise F.
    """
    for _ in range(ROUNDS):
        trial = broken(state, SHAKE_PIECES, rng)
        yield step(stage, "shake", trial)
        trial = yield from settled(trial, stage)
        trial = yield from merge_down(trial, stage)
        trial = yield from refine(trial, rng, stage)
        if not trial.free_energy < state.free_energy - rounding(state):
            break
        state = trial
    return state


def broken(state: Labelling, pieces: int, rng: np.random.Generator) -> Labelling:
    """Each cluster's rows with the nearest of a few centres drawn among them by k-means++."""
    labels = np.empty_like(state.labels)
    count = 0
    for c in range(state.n_clusters):
        mine = np.flatnonzero(state.labels == c)
        local = nearest_seed(state.problem.subset(mine), pieces, rng)
        labels[mine] = count + local
        count += int(local.max(initial=0)) + 1
    return Labelling(state.problem, labels, count)


def polish(state: Labelling, stage: str) -> Steps:
    """Alternate single-row exchanges, nudges of boundaries and ME iterations."""
    for _ in range(ROUNDS):
        if exchange(state, NEAR_NATS):
            yield step(stage, "exchange", state)
            yield from iterate(state, stage)
            continue
        nudged = nudge(state)
        if nudged is state:
            break
        state = nudged
        yield step(stage, "nudge", state)
    return state


def nudge(state: Labelling) -> Labelling:
    """Make each cluster a little cheaper, then dearer, and run ME iterations; keep the result if F is lower.

    Several rows at a boundary may have to change sides together: none of them would alone.
    """
    for c in range(state.n_clusters):
        for bias in (-NUDGE_NATS, NUDGE_NATS):
            if c >= state.n_clusters:
                return state
            cost = state.priced().copy()
            cost[c] += bias * state.problem.rows.weight
            labels, touched = choose(cost, state.labels)
            if touched.any():
                trial = state.copy()
                trial.relabel(labels, touched)
                trial.converge()
                if trial.free_energy < state.free_energy - rounding(state):
                    state = trial
    return state
