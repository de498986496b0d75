"""A search for the features of a sample, from those there are and from nothing."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.refit.bp_means.allocation import Allocation, BPProblem
from streamclust.refit.bp_means.fit import settle
from streamclust.refit.bp_means.start import first_features, start_while_it_pays

MIN_ROWS = 3
"""Rows of the sample that must have a feature: what one or two have are wild events."""


def search(
    problem: BPProblem, present: Allocation | None, cold_runs: int, most: int, rng: np.random.Generator
) -> Allocation:
    """The best of a search from the present features, which never leaves its optimum, and of others from nothing."""
    best = Allocation.nothing(problem)
    starts = [first_features(problem, "greedy", run) for run in range(cold_runs)]
    for start in starts if present is None else [present, *starts]:
        found = settled(start_while_it_pays(start, "greedy", rng, most), most)
        best = min(best, found, key=lambda state: state.objective)
    return without_wild(best)


def without_wild(found: Allocation) -> Allocation:
    """The allocation without features of one or two rows."""
    while (rare := found.Z.sum(axis=0) < MIN_ROWS).any():
        found = found.without(int(np.flatnonzero(rare)[0]))
    return found


def settled(state: Allocation, most: int) -> Allocation:
    """Descend until nothing changes."""
    steps = settle(state, "refit", False, most)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Allocation = end.value
            return found


def same_features(found: Allocation, A: Floats, Z: Bools, match: Ints) -> bool:
    """Whether a search found what there was: then the whole stream's statistics are worth more than the sample."""
    if found.n_features != len(A) or len(A) == 0 or (match < 0).any():
        return False
    present = Allocation(found.problem, Z, A)
    # The sample's own means fit it better than true ones would, by about K rows' worth.
    return present.remainder <= found.remainder * (1.0 + 2.0 * len(A) / len(Z))


def filled(rows: Floats, A: Floats, Z: Bools) -> Floats:
    """Rows with missing values as their features have them; in columns that no feature knows, as the column's mean."""
    missing = np.isnan(rows)
    if not missing.any():
        return rows
    seen = np.maximum((~missing).sum(axis=0), 1)
    mean = np.where(missing, 0.0, rows).sum(axis=0) / seen
    unknown = (A == 0).all(
        axis=0
    )  # all columns before there are features, or one that came after the last refit
    return np.where(missing, np.where(unknown, mean, Z.astype(float) @ A), rows)
