"""K-features and stepwise K-features [MAD-Bayes alg. 4, section 5]."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import ArrayLike

from streamclust.refit.bp_means.allocation import Allocation, BPProblem
from streamclust.refit.bp_means.feature_allocation import FeatureAllocation
from streamclust.refit.bp_means.fit import MAX_FEATURES, MAX_PASSES, Steps, checked, published, told
from streamclust.refit.bp_means.start import Init, check_init, next_feature, start_with
from streamclust.refit.penalties import check_count, warn_of_growth
from streamclust.refit.steps import Step, last_result


def fit_k_features(
    points: ArrayLike,
    n_features: int | None = None,
    penalty: float | None = None,
    weight: ArrayLike | None = None,
    restarts: int = 5,
    init: Init = "greedy",
    max_features: int = MAX_FEATURES,
    rng: np.random.Generator | int | None = 0,
) -> FeatureAllocation:
    """K features of points; with None, as many as the penalty makes worth their price (stepwise K-features).

    >>> rng = np.random.default_rng(0)
    >>> parts = rng.integers(2, size=(100, 2)) @ np.array([[5.0, 0.0, 0.0], [0.0, 7.0, 7.0]])
    >>> found = fit_k_features(parts, 2)
    >>> bool(np.allclose(found.reconstruct(), parts))
    True
    """
    return last_result(
        k_features_steps(points, n_features, penalty, weight, restarts, init, max_features, rng)
    )


def k_features_steps(
    points: ArrayLike,
    n_features: int | None = None,
    penalty: float | None = None,
    weight: ArrayLike | None = None,
    restarts: int = 5,
    init: Init = "greedy",
    max_features: int = MAX_FEATURES,
    rng: np.random.Generator | int | None = 0,
) -> Generator[Step[FeatureAllocation], None, None]:
    """K-features, or stepwise K-features, as a generator of its states."""
    init, restarts = check_init(init), check_count("restarts", restarts)
    most = check_count("max_features", max_features)
    if n_features is not None:
        n_features = check_count("n_features", n_features)
    problem, weights = checked(points, weight, penalty)
    rng = np.random.default_rng(rng)
    if n_features is not None:
        best = yield from best_of(problem, n_features, restarts, init, rng)
        yield published(best, weights, points)
        return
    best = Allocation.nothing(problem)
    # The objective falls, then rises with K, if each feature explains less than the one before [section 5].
    for k in range(1, most + 1):
        found = yield from best_of(problem, k, restarts, init, rng)
        if k > 1 and not found.objective < best.objective:
            break
        best = min(best, found, key=lambda s: s.objective)
    else:
        warn_of_growth(most, problem.penalty, "features")
    yield published(best, weights, points)


def best_of(problem: BPProblem, k: int, restarts: int, init: Init, rng: np.random.Generator) -> Steps:
    """K-features from several starts; of the best, each feature replaced for as long as that helps."""
    best: Allocation | None = None
    for run in range(restarts):
        state = yield from k_features(start_with(problem, k, init, rng, run), f"K = {k}, run {run}")
        if best is None or state.objective < best.objective:
            best = state
    assert best is not None
    tried, run = 0, 0
    while init == "greedy" and tried < k:  # "plus-plus" stays the paper's own procedure
        # Two features that share what belongs to one do not come apart by passes: one goes, another is drawn.
        trial = next_feature(best.without(tried), init, rng)
        trial = yield from k_features(trial, f"K = {k}, replacement {run}")
        run += 1
        better = trial.remainder < best.remainder * (1.0 - 1e-9)
        best, tried = (trial, 0) if better else (best, tried + 1)
    return best


def k_features(state: Allocation, run: str) -> Steps:
    """Algorithm 4: rows choose, means follow, until no change. A feature that no row has takes the largest residual."""
    yield told(run, "start", state)
    for _ in range(MAX_PASSES):
        moved = state.step()
        for feature in state.unused():
            row = state.farthest()
            if not state.squares[row] > 0:
                break
            state.A[feature] = state.residual[row]
            state.Z[row, feature] = True
            before = state.remainder
            state.fit()
            moved = moved or state.remainder < before * (1 - 1e-12)
        if not moved:
            break
        yield told(run, "pass", state)
    return state
