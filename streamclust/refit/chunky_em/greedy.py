"""Greedy insertion of the component that raises F most, and removal of the one whose loss lowers F least."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.refit.chunky_em import share_rows, share_with_candidates
from streamclust._kernels.types import Floats, Ints
from streamclust.refit.chunky_em.boxes import Fit
from streamclust.refit.chunky_em.covariance import Components, Space

CANDIDATES = 10
"""Candidates per component: 4 are too few."""
MIN_PARTIAL_STEPS, MAX_PARTIAL_STEPS, PARTIAL_TOLERANCE = 10, 50, 1e-5
"""Steps of partial EM before candidates are compared, at least and at most, and the rise of the best one's F per point
and step that ends them: fresh ones mostly start below the mixture they would join."""
MIN_SHARE_LEFT = 1e-300
"""Share that the other components must hold together for one to be removed."""


def insert(space: Space, fit: Fit, least: float, rng: np.random.Generator) -> Components | None:
    """The mixture with the best candidate in it; None where no candidate keeps a weight of `least`.

    Each component owns the boxes it has the largest responsibility for. Candidates are made from these (3.18,
    3.19) and improved on these alone, beside the mixture, which is kept as it is (3.24-3.29).
    """
    owner = fit.shared.mass.argmax(axis=1)
    rows = [np.flatnonzero((owner == k) & (fit.boxes.weight > 0)) for k in range(fit.components.n_components)]
    parts = [(own, sums) for own in rows if len(sums := first_sums(fit, own, rng))]
    if not parts:
        return None
    n = float(fit.boxes.weight.sum())
    sums = np.concatenate([sums for _, sums in parts])
    owned = [own for own, _ in parts]
    edges = np.cumsum([0] + [len(sums) for _, sums in parts])
    share = sums[:, 0] / n
    for start, own in zip(edges[:-1], owned, strict=True):  # half the share of the parent
        share[start : start + CANDIDATES] = 0.5 * fit.components.weight[owner[own[0]]]
    before = -np.inf
    for i in range(MAX_PARTIAL_STEPS):
        candidates = space.maximise(sums)._replace(weight=share)
        sums, gain = partial_step(space, fit, candidates, owned, edges)
        share = sums[:, 0] / n
        if i >= MIN_PARTIAL_STEPS - 1 and not gain.max() - before > PARTIAL_TOLERANCE * n:
            break
        before = gain.max()
    gain[~(sums[:, 0] >= least)] = -np.inf
    best = int(gain.argmax())
    if gain[best] == -np.inf:
        return None
    return join(fit.components, space.maximise(sums[best : best + 1]), float(share[best]))


def first_sums(fit: Fit, own: Ints, rng: np.random.Generator) -> Floats:
    """Summed lifted rows of candidates: two boxes drawn from a component's own, every other goes to the nearer.

    A coin for each box, the paper's random split, leaves both halves much like their parent, and finds less.
    """
    means = fit.boxes.lifted[own][:, 1 : fit.components.mean.shape[1] + 1]
    weighted = fit.boxes.lifted[own] * fit.boxes.weight[own, None]
    sums: list[Floats] = []
    if len(own) < 2 or np.all(means == means[0]):
        return np.zeros((0, weighted.shape[1]))
    for _ in range(CANDIDATES // 2):
        one, two = rng.choice(len(own), size=2, replace=False)
        across = means[two] - means[one]
        nearer = (means - 0.5 * (means[one] + means[two])) @ across < 0
        sums += [weighted[nearer].sum(axis=0), weighted[~nearer].sum(axis=0)]
    return np.stack(sums)


def partial_step(
    space: Space, fit: Fit, candidates: Components, owned: list[Ints], edges: Ints
) -> tuple[Floats, Floats]:
    """A step of sparse incremental EM for all candidates: their summed lifted rows (3.27-3.29), and gains in F (3.26).

    Candidates edges[i] to edges[i + 1] have responsibilities (3.24) for the boxes owned[i], and for no others.
    """
    boxes = fit.boxes
    n = float(boxes.weight.sum())
    natural = space.natural(candidates)
    log_rest = np.log1p(-np.minimum(candidates.weight, 1.0 - 1e-12))
    sums, gain = np.empty_like(natural), np.empty(len(natural))
    for i, own in enumerate(owned):
        mine = slice(edges[i], edges[i + 1])
        lifted, weight = boxes.lifted[own], boxes.weight[own]
        score = lifted @ natural[mine].T
        gain[mine] = (n - weight.sum()) * log_rest[mine]
        share_with_candidates(score, fit.shared.bound[own], weight, log_rest[mine], gain[mine])
        sums[mine] = score.T @ lifted
    return sums, gain


def join(components: Components, new: Components, share: float) -> Components:
    """The mixture with a new component of that share in it [chunky EM eq. 3.20]."""
    weight = np.append(components.weight * (1.0 - share), share)
    return Components(
        weight,
        np.concatenate([components.mean, new.mean]),
        np.concatenate([components.covariance, new.covariance]),
    )


def without(components: Components, k: int) -> Components:
    """The mixture without its k-th component."""
    weight, mean, covariance = (np.delete(part, k, axis=0) for part in components)
    return Components(weight / weight.sum(), mean, covariance)


def least_missed(space: Space, fit: Fit) -> int:
    """Index of the component whose removal lowers F least."""
    joint = fit.boxes.lifted @ space.natural(fit.components).T
    weight, bound = fit.boxes.weight, np.empty(len(joint))
    missed = np.empty(fit.components.n_components)
    for k in range(len(missed)):
        others = np.ascontiguousarray(np.delete(joint, k, axis=1))
        rest = float(np.delete(fit.components.weight, k).sum())
        if not rest > MIN_SHARE_LEFT:  # it holds everything: without it no mixture would be left
            missed[k] = -np.inf
            continue
        missed[k] = share_rows(others, weight, bound) - weight.sum() * np.log(rest)
    return int(missed.argmax())
