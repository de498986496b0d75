"""The paper's own search: from one cluster, by splits and merges ranked by heuristics [BKM section 6, D].

Kept to the letter, to be compared with. It stops at the first K where no single split pays, which may be
well short of the truth: `search="auto"` is the better default.
"""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.local_moves import Steps, iterate, rounding, step
from streamclust.refit.bkm.problem import Problem
from streamclust.utils.late import logsumexp


def log_responsibilities(state: Labelling) -> tuple[Floats, Floats]:
    """log p(c|x_n, θ̄) and log p(x_n|c, θ̄), rows x clusters, at the mean parameters (49)."""
    problem, clusters = state.problem, state.clusters
    parameters = problem.family.parameters(problem.family.posterior(clusters))
    density = problem.family.log_density(parameters, problem.rows)
    shares = clusters.weight + problem.mixture.phi0
    joint = density + np.log(shares / shares.sum())
    return joint - logsumexp(joint, axis=1, keepdims=True), density


def split_criterion(state: Labelling) -> Floats:
    """J_split (47) of each cluster: how badly its density fits the rows around it.

    Σ_n f_n log(f_n / p(x_n|c)) with f_n the mass that (48) gives row n: between point masses and a density the
    integral has no other value.
    """
    log_r, density = log_responsibilities(state)
    w = state.problem.rows.weight[:, None]
    f = w * np.exp(log_r)
    f = f / f.sum(axis=0)
    log_f = np.log(f, out=np.zeros_like(f), where=f > 0)
    return np.asarray(np.where(f > 0, f * (log_f - density), 0.0).sum(axis=0))


def merge_criterion(state: Labelling) -> Floats:
    """J_merge (50) of every pair: the cosine between vectors of responsibilities (51)."""
    p = np.exp(log_responsibilities(state)[0])
    weighted = p * state.problem.rows.weight[:, None]
    norm = np.sqrt((weighted * p).sum(axis=0))
    return np.asarray(weighted.T @ p / np.maximum(np.outer(norm, norm), np.finfo(float).tiny))


def top_down(problem: Problem, stage: str) -> Steps:
    """All rows in one cluster; splits until none pays, then merges, and splits again after each merge."""
    state = Labelling(problem, np.zeros(len(problem.rows), dtype=np.int64))
    yield step(stage, "seed", state)
    while True:
        state = yield from _split_all(state, stage)
        merged = yield from _merge_one(state, stage)
        if merged is state:
            return state
        state = merged


def _split_all(state: Labelling, stage: str) -> Steps:
    """Steps 2i-2iv: the highest-ranked split that lowers F is accepted, then the ranking starts anew."""
    accepted = True
    while accepted:
        accepted = False
        for c in np.argsort(-split_criterion(state), kind="stable"):
            trial = _halved(state, int(c))
            if trial is None:
                continue
            trial.converge()
            if trial.free_energy < state.free_energy - rounding(state):
                state, accepted = trial, True
                yield step(stage, "split", state)
                break
    return state


def _halved(state: Labelling, cluster: int) -> Labelling | None:
    """D.3: one iteration of k-means with centroids m ± s√λ, which is the side of m along s."""
    rows = np.flatnonzero(state.labels == cluster)
    deviation = state.problem.rows.mean[rows] - state.clusters.mean[cluster]
    if state.clusters.kind == "full":
        axis = np.linalg.eigh(state.clusters.scatter[cluster])[1][:, -1]
    else:
        share = np.sqrt(state.problem.rows.weight[rows, None])
        axis = np.linalg.svd(share * deviation, full_matrices=False)[2][0]
    leaving = rows[deviation @ axis > 0]
    if len(leaving) in (0, len(rows)):
        return None
    trial = state.copy()
    trial.split({cluster: leaving})
    return trial


def _merge_one(state: Labelling, stage: str) -> Steps:
    """Steps 3i-3iv: the highest-ranked merge that lowers F, or the state as it is."""
    if state.n_clusters < 2:
        return state
    criterion = merge_criterion(state)
    first, second = np.triu_indices(state.n_clusters, 1)
    for i in np.argsort(-criterion[first, second], kind="stable"):
        trial = state.copy()
        trial.merge(int(first[i]), int(second[i]))
        trial.converge()
        if trial.free_energy < state.free_energy - rounding(state):
            yield step(stage, "merge", trial)
            return (yield from iterate(trial, stage))
    return state
