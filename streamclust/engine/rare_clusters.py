"""Rare clusters: found and judged among the strays alone, the events outside every large cluster."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.model import Model
from streamclust.engine.newborn import worthwhile
from streamclust.engine.results import Result, chosen, joined, large_rows, weighing
from streamclust.engine.settings import EngineSettings
from streamclust.engine.tuning import TUNING
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import fit_points, free_energy_of


def with_rare(
    settings: EngineSettings, start: Moments, strays: Floats, number: int, evidence: float
) -> Moments:
    """Clusters to start from: the large ones of those given, and what is found among the strays alone.

    Beside all the rest rare clusters weigh too little to be told apart; among themselves they do not. A stray counts
    for `evidence` independent events.
    """
    if evidence * len(strays) < TUNING.min_refit_events:
        return start
    rng, each = np.random.default_rng([settings.seed, number]), np.full(len(strays), evidence)
    found = fit_points(settings.family, strays, each, rng, search="quick").clusters
    found = found[np.flatnonzero(found.weight >= TUNING.min_cluster_events)]
    rare = found.scale(float(TUNING.block_events) / evidence)
    return Moments.stack([start[large_rows(start.weight)], rare])


def keeping_rare(
    settings: EngineSettings,
    found: Result,
    start: Moments,
    strays: Floats,
    weight: Floats,
    evidence: float,
) -> Result:
    """The result of a refit, with the rare clusters it started from if these describe the strays better.

    In a refit a rare cluster counts for a few events, fewer than the prior on covariances does, and that prior is
    learnt from the large clusters: several rare ones may pay as one wide cluster only. Here each stray counts for
    `evidence` independent events, and the prior is learnt from the strays. A rare cluster stays if its strays are
    likelier as a cluster than as members of the nearest large one. `weight` is what each stray stands for.
    """
    rare = start[np.setdiff1d(np.arange(len(start)), large_rows(start.weight))]
    if evidence * len(strays) < TUNING.min_refit_events or not len(rare):
        return found
    large = chosen(found, large_rows(found.clusters.weight))
    before = joined(large, rare)
    made, kept = (owners(result, strays) for result in (found, before))
    change = free_energy_of(settings.family, strays, kept) - free_energy_of(settings.family, strays, made)
    if not evidence * change < -TUNING.margin_nats:
        return found
    own = kept - large.n_clusters
    groups = Moments.rows_of_points(strays[own >= 0]).to_groups(own[own >= 0], len(rare), found.clusters.kind)
    groups = groups[np.flatnonzero(evidence * groups.weight >= TUNING.min_cluster_events)]
    groups = groups[np.flatnonzero(worthwhile(by_itself(large), groups, evidence))]
    return weighing(joined(large, groups.scale(float(weight.mean()))), float(found.clusters.weight.sum()))


def by_itself(result: Result) -> Model:
    """Components as a model, each of them a cluster."""
    return Model(0, 0, result, tuple(range(result.n_clusters)))


def owners(result: Result, points: Floats) -> Ints:
    """The component of least cost of each point."""
    return by_itself(result).nearest(points).component
