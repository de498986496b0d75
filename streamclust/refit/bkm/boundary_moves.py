"""Moves of rows at the boundaries of clusters: single rows, and small shifts of a whole boundary.

An ME iteration prices a row under posteriors that count it in its own cluster, and in no other. At the boundary of
small clusters the difference is worth a row or two: `exchange` moves rows one by one, by the exact change of F [as
Hartigan does for k-means].
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamclust._kernels.refit.bkm import choose
from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments
from streamclust.refit.bkm.labelling import Labelling, change_of
from streamclust.refit.bkm.local_moves import Steps, iterate, rounding, step
from streamclust.refit.bkm.tuning import TUNING


def polish(state: Labelling, stage: str) -> Steps:
    """Alternate single-row exchanges, nudges of boundaries and ME iterations."""
    for _ in range(TUNING.max_iterations):
        if exchange(state, TUNING.near_nats):
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
        for bias in (-TUNING.nudge_nats, TUNING.nudge_nats):
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


def exchange(state: Labelling, margin: float) -> int:
    """Move rows to their second cheapest cluster where the exact change of F is negative; how many moved.

    Only rows for which that costs at most `margin` more per event are tried.
    """
    if state.n_clusters < 2 or not np.isfinite(state.free_energy):
        return 0
    rows = np.arange(len(state.labels))
    cost = state.priced().copy()
    own = cost[state.labels, rows]
    cost[state.labels, rows] = np.inf
    other = cost.argmin(axis=0)
    weight = state.problem.rows.weight
    near = np.flatnonzero((weight > 0) & (cost[other, rows] <= own + margin * weight))
    near = near[exchange_changes(state, near, other[near]) < 0]
    moved = 0
    for row in near.tolist():  # each move changes two clusters, and so what the next ones are worth
        if exchange_changes(state, np.array([row]), other[row : row + 1])[0] < 0:
            labels = state.labels.copy()
            labels[row] = other[row]
            pair = np.isin(np.arange(state.n_clusters), [state.labels[row], other[row]])
            moved += state.lowered_by(labels, pair)
    return moved


def exchange_changes(state: Labelling, rows: Ints, other: Ints) -> Floats:
    """The change of F where each of the rows, alone, goes to another cluster; +∞ where its own would end."""
    clusters, problem = state.clusters, state.problem
    own = state.labels[rows]
    left = clusters.weight[own] - problem.rows.weight[rows]
    enough = left > 1e-9 * clusters.weight[own]
    stays = np.flatnonzero(enough & problem.mixture.viable(replace(clusters[own], weight=left)))
    change = np.full(len(rows), np.inf)
    if len(stays):
        moved, own, other = problem.rows[rows[stays]], own[stays], other[stays]
        if moved.kind == "none":
            scatter = np.zeros((len(moved), *clusters.scatter.shape[1:]))
            moved = Moments(moved.weight, moved.mean, scatter, clusters.kind)
        after = problem.terms(clusters[own] - moved) + problem.terms(clusters[other] + moved)
        change[stays] = change_of(state.terms[own] + state.terms[other], after)
    return change
