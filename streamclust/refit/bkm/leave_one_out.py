"""Leave-one-out relabelling: each row is priced as if it were new to its cluster.

An ME iteration prices a row under posteriors that already count it where it is. With few rows per dimension that
locks every row in: its own share of B keeps its distance short. Pricing it without itself, by the exact change of
F, lets it go. All rows move at once, so F may rise on the way; the best labelling met is kept.
"""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Ints
from streamclust.families import Gaussian
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.tuning import TUNING


def locked(state: Labelling) -> bool:
    """Whether rows are points of equal weight, few enough per cluster and dimension to lock themselves in."""
    rows, problem = state.problem.rows, state.problem
    return (
        problem.quadratic
        and problem.family.name == "gaussian"
        and problem.mixture.name != "uninformative"
        and rows.kind == "none"
        and bool(np.ptp(rows.weight) == 0)
        and len(rows) < TUNING.max_rows_per_feature * rows.n_features * state.n_clusters
    )


def unlock(state: Labelling) -> Labelling:
    """Relabel each row as if it did not count in its own cluster; returns the labelling of least F on the way."""
    best, waited = state.copy(), 0
    for _ in range(TUNING.max_iterations):
        if state.n_clusters < 2 or waited == TUNING.patience_iterations:
            break
        labels = collapsed_labels(state)
        moved = labels != state.labels
        if not moved.any():
            break
        touched = np.zeros(state.n_clusters, dtype=bool)
        touched[labels[moved]] = touched[state.labels[moved]] = True
        state.relabel(labels, touched)
        waited += 1
        if state.free_energy < best.free_energy:
            best, waited = state.copy(), 0
    return best


def collapsed_labels(state: Labelling) -> Ints:
    """The cluster that each row would join if it came anew [by the exact change of the evidence, row by row]."""
    problem, n = state.problem, state.clusters.weight
    family, mixture, weight = problem.family, problem.mixture, float(problem.rows.weight[0])
    assert isinstance(family, Gaussian)
    posterior = family.posterior(state.clusters)
    mixing = mixture.mixing(n)
    constant, half_eta = posterior.constant - mixing, posterior.eta / 2
    quadratic = (state.priced() / weight - constant[:, None]) / half_eta[:, None]
    cost = -family.evidence_change(posterior, quadratic, weight) - weight * mixing[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):  # where a cluster does not hold the row
        without = family.evidence_change(posterior, quadratic, -weight)
        left = without - weight * mixture.mixing(n - weight)[:, None]
    own = state.labels, np.arange(len(state.labels))  # in its own cluster, a row is priced without itself
    alone = n[state.labels] <= 1.5 * weight  # alone, it answers for all that the cluster costs
    held = np.where(np.isfinite(left[own]), left[own], np.inf)
    cost[own] = np.where(alone, state.terms[state.labels], held)
    labels: Ints = cost.argmin(axis=0)
    return labels
