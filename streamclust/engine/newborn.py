"""Newborn clusters: groups of events outside all clusters that are likelier as clusters of their own."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.dependence import group_evidence
from streamclust.engine.model import Model
from streamclust.engine.results import reach
from streamclust.engine.tuning import TUNING
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import fit_points
from streamclust.refit.dp_means.online import lead
from streamclust.refit.partition import Partition
from streamclust.utils.late import gammaln

MIN_VARIANCE_SHARE = 1e-6
"""Variance of a new cluster over the average variance, at least: a bound that keeps covariances sound."""


def newborn(model: Model, outsiders: Floats, penalty: float | None = None, evidence: float = 1.0) -> Moments:
    """New clusters for watched events that are outside all others; their weights count watched events.

    Outsiders are grouped by DP-means in a single pass (`lead`). λ² is `penalty` or, without one, that of a cluster of
    average variance; counts, which have no variance, are grouped by a search. A group of enough independent events, of
    measurements distinct ones, is a birth if, by the infinite mixture's rule, its events are likelier as a cluster than
    as members of the nearest. An event counts for `evidence` independent ones, or fewer if the outsiders themselves
    depend on each other.
    """
    clusters = model.active.clusters
    d = clusters.n_features
    outsiders = outsiders[:, :d]  # features that the model does not know yet come after those it does
    typical = None if model.is_mixed else typical_covariance(clusters)
    if penalty is not None:
        groups = lead(outsiders, penalty)
    elif typical is None:
        assert isinstance(model.active, Partition)
        outsiders = outsiders[-TUNING.min_search_events :]
        groups = fit_points(model.active.family, outsiders, search="quick").labels
    else:
        variance = np.einsum("ii->i", typical) if typical.ndim == 2 else np.broadcast_to(typical, d)
        groups = lead(outsiders / np.sqrt(variance), 4 * reach(d, model.event_evidence))
    found = Moments.rows_of_points(outsiders).to_groups(groups, kind=clusters.kind)
    n_events = found.weight if typical is None else n_distinct_by_group(outsiders, groups)
    if typical is not None:
        evidence = min(evidence, group_evidence(outsiders, groups))
    found = found[np.flatnonzero(evidence * n_events >= TUNING.min_cluster_events)]
    found = found[np.flatnonzero(worthwhile(model, found, evidence))]
    if typical is None:
        return found
    # A few events tell little of a covariance: D + 1 more of typical shape keep it sound.
    share = (found.weight / (found.weight + d + 1)).reshape(-1, *[1] * typical.ndim)
    unit = d if clusters.kind == "scalar" else 1
    return Moments(found.weight, found.mean, share * (found.scatter + unit * (d + 1) * typical), found.kind)


def n_distinct_by_group(points: Floats, groups: Ints) -> Ints:
    """Number of distinct rows of each group.

    >>> n_distinct_by_group(np.array([[1.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 0, 1]))
    array([2, 1])
    """
    distinct = np.unique(np.column_stack([groups, points]), axis=0)
    return np.bincount(distinct[:, 0].astype(np.int64))


def typical_covariance(clusters: Moments) -> Floats | None:
    """The average of the clusters' covariances, in the form they are kept in; None where none is."""
    if clusters.kind == "none":
        return None
    average = np.average(clusters.covariance, axis=0, weights=clusters.weight)
    scale = float(np.trace(average) / len(average) if average.ndim == 2 else np.mean(average)) or 1.0
    floor = MIN_VARIANCE_SHARE * scale
    return np.asarray(average + (floor * np.eye(len(average)) if average.ndim == 2 else floor))


def worthwhile(model: Model, groups: Moments, evidence: float = 1.0) -> Bools:
    """Whether each group's events gain more as a cluster of their own, by φ0 Γ(n), than in the nearest.

    An event counts for `evidence` independent ones.
    """
    if not isinstance(model.active, Partition) or not len(groups):
        return np.ones(len(groups), dtype=bool)
    family, phi0, clusters = model.active.family, model.active.mixture.phi0, model.active.clusters
    host = clusters[model.nearest(groups.mean).component].scale(evidence)
    groups = groups.scale(evidence)
    both = host + groups
    alone = family.log_marginal(groups) + np.log(phi0) + gammaln(groups.weight)
    within = (
        family.log_marginal(both) - family.log_marginal(host) + gammaln(both.weight) - gammaln(host.weight)
    )
    return np.asarray(alone > within)
