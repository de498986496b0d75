"""BP-means and collapsed BP-means: features, any number per row, and how many there are [MAD-Bayes eqs. 6, 10].

`bp_means_steps` is a generator of steps whose last one holds the FeatureAllocation; `fit_features` runs it to the end.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.types import Bools, Floats
from streamclust.refit.bp_means.allocation import Allocation, BPProblem
from streamclust.refit.bp_means.feature_allocation import FeatureAllocation
from streamclust.refit.bp_means.start import (
    Init,
    at_random,
    check_init,
    first_features,
    random_features,
    start_while_it_pays,
)
from streamclust.refit.penalties import check_count, check_penalty, penalty_from_noise, warn_of_growth
from streamclust.refit.steps import Step, last_result

MAX_PASSES = 500
"""Passes: the objective falls in each; this is only to be sure."""
MAX_FEATURES = 64
"""The bound on K unless told: reached, it warns."""


Steps = Generator[Step[FeatureAllocation], None, Allocation]


def fit_features(
    points: ArrayLike,
    penalty: float | None = None,
    weight: ArrayLike | None = None,
    collapsed: bool = False,
    restarts: int = 5,
    init: Init = "greedy",
    max_features: int = MAX_FEATURES,
    rng: np.random.Generator | int | None = 0,
) -> FeatureAllocation:
    """BP-means of points.

    >>> rng = np.random.default_rng(0)
    >>> parts = rng.integers(2, size=(200, 3)) @ (4.0 * rng.normal(size=(3, 20)))
    >>> found = fit_features(parts + rng.normal(size=(200, 20)))
    >>> found.n_features
    3
    """
    return last_result(bp_means_steps(points, penalty, weight, collapsed, restarts, init, max_features, rng))


def bp_means_steps(
    points: ArrayLike,
    penalty: float | None = None,
    weight: ArrayLike | None = None,
    collapsed: bool = False,
    restarts: int = 5,
    init: Init = "greedy",
    max_features: int = MAX_FEATURES,
    rng: np.random.Generator | int | None = 0,
) -> Generator[Step[FeatureAllocation], None, None]:
    """BP-means, or collapsed BP-means, as a generator of its states.

    Each run begins with features drawn while they pay, descends, drops what does not pay, and descends again; "greedy"
    ones then replace features. Runs with the same seed begin alike: more restarts never give a higher objective.
    """
    init, restarts = check_init(init), check_count("restarts", restarts)
    most = check_count("max_features", max_features)
    problem, weights = checked(points, weight, penalty)
    rng = np.random.default_rng(rng)
    best = Allocation.nothing(problem)
    for run in range(restarts):
        if at_random(init, run):
            start = random_features(problem, min(best.n_features + run // 2 % 2, most), rng)
        else:
            start = first_features(problem, init, run)
        state = start_while_it_pays(start, init, rng, most)
        state = yield from settle(state, f"run {run}", collapsed, most)
        if init == "greedy":  # "plus-plus" stays the paper's own procedure
            state = yield from replace_features(state, run, collapsed, init, most, rng)
        best = min(best, state, key=lambda s: s.objective)
    if best.n_features >= most:
        warn_of_growth(most, problem.penalty, "features")
    yield published(best, weights, points)


def settle(state: Allocation, run: str, collapsed: bool, most: int) -> Steps:
    """Descend, drop features that do not pay, and again, until nothing changes."""
    descent = collapsed_bp_means if collapsed else bp_means
    for _ in range(MAX_PASSES):
        state = yield from descent(state, run, most)
        less = cheaper_without_one(state)
        if less is None:
            break
        state = less
        yield told(run, "drop", state)
    return state


def replace_features(
    state: Allocation, run: int, collapsed: bool, init: Init, most: int, rng: np.random.Generator
) -> Steps:
    """Each feature in turn taken out, and others drawn from what is left, for as long as the objective falls.

    Two features that share what belongs to one do not come apart by dropping or adding alone.
    """
    tried = attempt = 0
    while tried < state.n_features:
        trial = start_while_it_pays(state.without(tried), init, rng, most)
        stage = f"run {run}, replacement {attempt} (feature {tried})"  # each attempt descends by itself
        trial = yield from settle(trial, stage, collapsed, most)
        attempt += 1
        if trial.objective < state.objective - 1e-9 * abs(state.objective):
            state, tried = trial, 0
        else:
            tried += 1
    return state


def bp_means(state: Allocation, run: str, most: int) -> Steps:
    """Algorithm 1: rows choose, a row whose residual exceeds λ² opens a feature, means follow; until no change.

    One feature opens per pass, at the largest residual, not one for each row: rows alike share it. Features that no
    row has, or that others make up, end.
    """
    for _ in range(MAX_PASSES):
        moved = state.step()
        state = without_redundant(state)
        if moved:
            yield told(run, "pass", state)
        row = state.farthest()
        opened = open_feature(state, row, float(state.squares[row]), most)
        if opened is not None:
            state = opened
            yield told(run, "open", state)
        elif not moved:
            break
    return state


def collapsed_bp_means(state: Allocation, run: str, most: int) -> Steps:
    """Algorithm 3: as algorithm 1, with the means integrated out: a row knows how its choice will move them."""
    state = yield from bp_means(state, run, most)
    for _ in range(MAX_PASSES):
        moved, row, cost = state.collapsed_step()
        state = without_redundant(state)
        if moved:
            yield told(run, "collapsed pass", state)
        opened = open_feature(state, row, cost / state.problem.weight[row], most) if row >= 0 else None
        if opened is not None:
            state = opened
            yield told(run, "open", state)
        elif not moved:
            break
    return state


def open_feature(state: Allocation, row: int, squared: float, most: int) -> Allocation | None:
    """The allocation with what is left of a row as a new feature, if the row's events exceed λ² and it is cheaper.

    A row of many events opens a feature only where one of its events would, as in DP-means.
    """
    if state.n_features >= most or not min(state.problem.weight[row], 1.0) * squared > state.problem.penalty:
        return None
    more = state.with_residual_of(row)
    more.fit()
    more = without_redundant(more)
    return more if more.objective < state.objective - 1e-12 * abs(state.objective) else None


def without_redundant(state: Allocation) -> Allocation:
    """The allocation without features that no row has or that others make up (equal columns, c3 = c1 + c2).

    What rows can be made of is the span of Z, which does not need them: the objective falls by λ² for each.
    """
    z = state.Z.astype(float)
    independent: list[int] = []
    basis = np.zeros((len(z), 0))
    for f in range(state.n_features):
        left = z[:, f] - basis @ (basis.T @ z[:, f])
        left -= basis @ (basis.T @ left)
        norm = float(np.sqrt(left @ left))
        if norm > 1e-6 * np.sqrt(z[:, f].sum()):
            independent.append(f)
            basis = np.column_stack([basis, left / norm])
    if len(independent) == state.n_features:
        return state
    less = Allocation(state.problem, state.Z[:, independent], state.A[independent])
    less.fit()
    return less


def cheaper_without_one(state: Allocation) -> Allocation | None:
    """The best allocation with a feature less, rows and means settled a little, if it is the cheaper one."""
    best: Allocation | None = None
    for f in range(state.n_features):
        trial = state.without(f)
        for _ in range(3):
            if not trial.quick_step():
                break
        if best is None or trial.objective < best.objective:
            best = trial
    margin = 1e-12 * abs(state.objective)
    return best if best is not None and best.objective < state.objective - margin else None


# ---------------------------------------------------------------- shared


def checked(points: ArrayLike, weight: ArrayLike | None, penalty: float | None) -> tuple[BPProblem, Floats]:
    """The problem of the rows that have any weight, and the weights of all rows."""
    x = np.array(points, dtype=float, order="C")
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"points must be a table of rows and columns, got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError("points must be finite numbers; drop or impute the others first")
    w = np.ones(len(x)) if weight is None else np.asarray(weight, dtype=float)
    if w.shape != (len(x),) or not np.all((w >= 0) & (w < np.inf)):
        raise ValueError(f"weight must be {len(x)} finite numbers that are not negative")
    live = w > 0
    if not live.any():
        raise ValueError("there are no rows of any weight: there is nothing to find features in")
    x, heavy = np.ascontiguousarray(x[live]), w[live]
    price = penalty_from_noise(x, heavy) if penalty is None else check_penalty(penalty)
    return BPProblem(x, heavy, price), w


def told(run: str, move: str, state: Allocation) -> Step[FeatureAllocation]:
    """Progress after a move, with its allocation."""
    return Step(run, move, state.n_features, state.objective)


def published(state: Allocation, weights: Floats, points: ArrayLike) -> Step[FeatureAllocation]:
    """The last step: the features that most rows have first; rows of no weight take their nearest."""
    order = np.argsort(-(state.problem.weight @ state.Z), kind="stable")
    Z, A = np.ascontiguousarray(state.Z[:, order]), np.ascontiguousarray(state.A[order])
    found = FeatureAllocation(Z, A, state.objective, state.problem.penalty, state.problem.weight)
    if len(Z) < len(weights):
        every: Bools = found.assign(np.asarray(points, dtype=float))
        every[weights > 0] = Z
        found = FeatureAllocation(every, A, state.objective, state.problem.penalty, weights)
    return Step("best", "publish", state.n_features, state.objective, found)
