"""Births between refits: groups of events that no cluster explains become clusters, provisional until the next."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.model import Model, reach
from streamclust.moments import Moments
from streamclust.refit.partition import Partition

FEWEST = 5
"""So many watched events make a cluster."""
FLATTEST = 1e-6
"""A feature that hardly varies counts as varying by so much of the average."""


def newborn(model: Model, outsiders: Floats, penalty: float | None = None) -> Moments:
    """Clusters to open for watched events outside all others, weighing as many events as were watched.

    Outsiders are led together in turn, as DP-means does: each joins the first group whose leader is within reach,
    or leads a group of its own. Reach is `penalty`, λ², in squared distance or, without one, that of a cluster
    of average variance. A group of at least FEWEST is a birth where, by the infinite mixture's rule, its events
    are likelier as a cluster than as members of the nearest.
    """
    clusters = model.shown.clusters
    d = clusters.n_features
    outsiders = outsiders[:, :d]  # features that the model does not know yet come after those it does
    typical = typical_covariance(clusters)
    if penalty is not None:
        groups = led(outsiders, penalty)
    elif typical is None:
        groups = np.zeros(len(outsiders), dtype=np.int64)
    else:
        variance = np.einsum("ii->i", typical) if typical.ndim == 2 else np.broadcast_to(typical, d)
        groups = led(outsiders / np.sqrt(variance), 4 * reach(d))
    found = Moments.rows_of_points(outsiders).to_groups(groups, kind=clusters.kind)
    found = found[np.flatnonzero(found.weight >= FEWEST)]
    found = found[np.flatnonzero(worthwhile(model, found))]
    if typical is None:
        return found
    # A few events tell little of a covariance: D + 1 more of typical shape keep it sound.
    share = (found.weight / (found.weight + d + 1)).reshape(-1, *[1] * typical.ndim)
    unit = d if clusters.kind == "scalar" else 1
    return Moments(found.weight, found.mean, share * (found.scatter + unit * (d + 1) * typical), found.kind)


def led(points: Floats, radius: float) -> Ints:
    """The group of each point: the first whose leader is within squared distance `radius`, else one of its own."""
    leaders: list[Floats] = []
    groups = np.empty(len(points), dtype=np.int64)
    for i, point in enumerate(points):
        near = (g for g, leader in enumerate(leaders) if ((point - leader) ** 2).sum() <= radius)
        groups[i] = next(near, len(leaders))
        if groups[i] == len(leaders):
            leaders.append(point)
    return groups


def typical_covariance(clusters: Moments) -> Floats | None:
    """The average of the clusters' covariances, in the form they are kept in; None where none is."""
    if clusters.kind == "none":
        return None
    average = np.average(clusters.covariance, axis=0, weights=clusters.weight)
    scale = float(np.trace(average) / len(average) if average.ndim == 2 else np.mean(average)) or 1.0
    floor = FLATTEST * scale
    return np.asarray(average + (floor * np.eye(len(average)) if average.ndim == 2 else floor))


def worthwhile(model: Model, groups: Moments) -> Bools:
    """Whether each group's events gain more as a cluster of their own, by φ0 Γ(n), than in the nearest."""
    if not isinstance(model.shown, Partition) or not len(groups):
        return np.ones(len(groups), dtype=bool)
    family, phi0, clusters = model.shown.family, model.shown.mixture.phi0, model.shown.clusters
    host = clusters[model.nearest(groups.mean).cluster]
    both = host + groups
    alone = family.log_marginal(groups) + np.log(phi0) + gammaln(groups.weight)
    within = (
        family.log_marginal(both) - family.log_marginal(host) + gammaln(both.weight) - gammaln(host.weight)
    )
    return np.asarray(alone > within)
