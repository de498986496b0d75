"""Where BP-means and K-features begin: features drawn from residuals, after a base that all rows share.

Algorithm 1 opens a feature only for a row whose own residual exceeds λ², while a useful λ² grows with the number of
rows: features have to come from here.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from streamclust.refit.bp_means.allocation import Allocation, BPProblem

Init = Literal["greedy", "plus-plus"]
INITS: tuple[Init, ...] = ("greedy", "plus-plus")

DRAWS = 8
"""Residuals drawn for each feature."""
DRAWN_RUNS = 5
"""Runs that begin with features drawn from residuals, before some begin at random."""
REFINEMENTS = 3
"""Steps of K-features for each of them, before the best is kept."""


def base_feature(problem: BPProblem) -> Allocation:
    """One feature that every row has, their mean [MAD-Bayes section 5]."""
    first = problem.X[0]
    mean = first + problem.weight @ (problem.X - first) / problem.weight.sum()
    start = Allocation(problem, np.ones((len(problem.X), 1), dtype=bool), mean[None, :])
    start.fit()
    return start


def next_feature(state: Allocation, init: Init, rng: np.random.Generator) -> Allocation:
    """The allocation with one more feature, drawn from the residuals in proportion to their squares.

    "plus-plus" is the paper's initialisation: one draw, rows that gain by it take it. "greedy" draws several,
    refines each, and keeps the best.
    """
    mass = state.problem.weight * state.squares
    if not mass.sum() > 0:
        return state.with_feature(np.zeros(state.A.shape[1]), np.zeros(len(state.Z), dtype=bool))
    draws = DRAWS if init == "greedy" else 1
    rows = rng.choice(len(mass), size=draws, p=mass / mass.sum())
    best: Allocation | None = None
    for row in dict.fromkeys(rows.tolist()):
        if init == "greedy":
            trial = state.with_residual_of(row)
            for _ in range(REFINEMENTS):
                if not trial.quick_step():
                    break
        else:
            # Only the new feature is chosen here, by the rows that it brings closer [section 5].
            new = state.residual[row]
            members = 2 * (state.residual @ new) > new @ new
            members[row] = True
            trial = state.with_feature(new, members)
        trial.fit()
        if best is None or trial.remainder < best.remainder:
            best = trial
    assert best is not None
    return best


def first_features(problem: BPProblem, init: Init, run: int) -> Allocation:
    """First allocation of a run: the base feature or, in every other greedy run, no feature.

    A base that the data do not have keeps the features from their places.
    """
    return Allocation.nothing(problem) if init == "greedy" and run % 2 else base_feature(problem)


def at_random(init: Init, run: int) -> bool:
    """Whether a run begins at random: where there are many runs, to see what draws from residuals do not."""
    return init == "greedy" and run >= DRAWN_RUNS and run % 2 == 1


def random_features(problem: BPProblem, n_features: int, rng: np.random.Generator) -> Allocation:
    """Rows that have each feature or not, as a coin falls."""
    Z = rng.random((len(problem.X), n_features)) < 0.5
    state = Allocation(problem, Z, np.zeros((n_features, problem.X.shape[1])))
    state.fit()
    return state


def start_with(
    problem: BPProblem, n_features: int, init: Init, rng: np.random.Generator, run: int
) -> Allocation:
    """An allocation of `n_features` features; every other one of the later greedy runs begins at random."""
    if at_random(init, run):
        return random_features(problem, n_features, rng)
    state = first_features(problem, init, run)
    while state.n_features < n_features:
        state = next_feature(state, init, rng)
    return state


def start_while_it_pays(state: Allocation, init: Init, rng: np.random.Generator, most: int) -> Allocation:
    """Features added for as long as that lowers the objective."""
    while state.n_features < most:
        more = next_feature(state, init, rng)
        if not more.objective < state.objective:
            break
        state = more
    return state


def check_init(init: str) -> Init:
    """Refuse an initialisation there is not."""
    for known in INITS:
        if init == known:
            return known
    raise ValueError(f"init must be one of {', '.join(INITS)}, got {init!r}")
