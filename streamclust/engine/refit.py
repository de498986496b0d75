"""Refits: the search for the clusters of a tree, and the judgement of those found by recent events."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.continuity import sources
from streamclust.engine.dp_means import refit_dp_means
from streamclust.engine.event_evidence import event_evidence
from streamclust.engine.fixed_components import FixedComponents
from streamclust.engine.imputation import Gaps, supported
from streamclust.engine.joining import joined_components
from streamclust.engine.leaf_shares import WithStrays
from streamclust.engine.rare_clusters import by_itself, keeping_rare, owners, with_rare
from streamclust.engine.refit_input import Found, RefitInput
from streamclust.engine.results import (
    NOWHERE,
    Result,
    check_finite,
    chosen,
    event_evidence_of,
    having,
    joined,
    weighing,
)
from streamclust.engine.settings import COVARIANCE, EngineSettings
from streamclust.engine.tuning import TUNING
from streamclust.families import FamilyLike
from streamclust.lineage import majority
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import refit_bkm
from streamclust.refit.bkm.inputs import effective_size
from streamclust.refit.chunky_em.fit import refit_mixture
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.refit.partition import Partition
from streamclust.tree import SummaryTree


def widened(rows: Moments, tree: SummaryTree | WithStrays) -> Moments:
    """Clusters with all features of a tree: in those that have appeared since, they vary about one value."""
    if rows.n_features == tree.n_features:
        return rows
    return rows.widen(tree.total.mean[0, rows.n_features :])


def find(given: RefitInput) -> Found:
    """Refit from given clusters; where `cold`, challenge the result by one from nothing."""
    settings, start = given.settings, given.start
    sampled = settings.refit != "chunky-em"
    tree = WithStrays(given.tree, given.old.large, given.events.strays) if sampled else given.tree
    start = widened(start, tree)
    evidence = given.events.sequence.evidence(given.old)
    of_stray = min(1.0, evidence * TUNING.block_events)
    if given.mode.search_strays and settings.refit == "bkm":
        strays = given.events.strays[given.old.large.outside(given.events.strays)]
        start = with_rare(settings, start, strays, given.number, of_stray)
    start_with_prior = start if given.mode.fresh else with_prior(start, given.old.result)
    best = fit_dependent(given, tree, start_with_prior, evidence)
    if isinstance(tree, WithStrays) and settings.refit == "bkm" and not given.mode.drifted:
        best = keeping_rare(settings, best, start, *tree.outside(), of_stray)
    if given.mode.drifted:
        best = keeping(best, fed(best, given.events.watched))
    if given.events.gaps is not None:
        best = keeping_supported(best, given.events.gaps)
    best, placed = with_fixed(given, best)
    compared = Comparison.of(given, tree, placed)
    component, shared, new_weight = compared.by(best)
    if len(given.events.watched) and best.n_clusters > 1:
        least = events_needed(best.clusters.weight, len(given.events.watched))
        # Strays are kept for long: where the summary has forgotten theirs, they are no reason for a new cluster.
        remembered = best.clusters.weight >= TUNING.min_cluster_events * given.events.weight_of_one
        kept = (
            heirs(shared)
            | fed(best, given.events.watched, least)
            | (fed(best, given.events.strays) & remembered)
        )
        kept[len(kept) - len(placed) :] = True
        if not kept.all():
            best = keeping(best, kept)
            component, shared, new_weight = compared.by(best)
    rows, each = given.events.present, given.events.weight
    strangers = float(each @ by_itself(best).outside(rows) / max(each.sum(), np.finfo(float).tiny))
    if not settings.joins:
        return Found(best, shared, shared.sum(axis=1), new_weight, strangers)
    owner, plateaus = joins(given, best, compared, component, majority(shared, new_weight))
    member = (owner[:, None] == np.arange(owner.max() + 1)).astype(float)
    shared = shared @ member
    return Found(
        best, shared, shared.sum(axis=1), new_weight @ member, strangers, tuple(owner.tolist()), plateaus
    )


def with_whole_ways(result: Result, ways: tuple[Floats, ...]) -> Result:
    """The clusters, with those merged that are parts of the way of one source that wanders."""
    model, d = by_itself(result), result.clusters.n_features
    if result.n_clusters == 1 or model.whitened_features < d:
        return result
    parts = [(model.see(rows).cell, rows[:, :d]) for rows in ways]
    source = sources(parts, result.n_clusters)
    k = int(source.max()) + 1
    return result if k == result.n_clusters else having(result, result.clusters.to_groups(source, k))


def keeping_supported(result: Result, events: Gaps) -> Result:
    """Only the clusters that the known values of events support, dropped one by one."""
    while not (kept := supported(by_itself(result), events)).all():
        result = keeping(result, kept)
    return result


def with_fixed(given: RefitInput, found: Result) -> tuple[Result, FixedComponents]:
    """The result with the fixed components, all together as heavy as the tree; and the fixed ones that are left.

    Left out are those whose mean is nearer to a component that was found: they would be clusters without events.
    """
    fixed = given.fixed
    if not len(fixed):
        return found, fixed
    rows = fixed.moments(given.old)
    if rows.n_features < given.tree.n_features:
        rows = rows.widen(given.tree.total.mean[0, rows.n_features :])
    owner = owners(joined(found, rows), rows.mean)
    lasting = np.flatnonzero(owner == found.n_clusters + np.arange(len(rows)))
    fixed, rows = fixed.some(lasting), rows[lasting]
    total = float(found.clusters.weight.sum())
    found = weighing(
        found,
        max(
            total - fixed.weight[fixed.retired].sum(), TUNING.min_cluster_events * given.events.weight_of_one
        ),
    )
    return joined(found, rows), fixed


class Comparison(NamedTuple):
    """A sample of events, by which the clusters of a refit are compared with those before.

    Each fixed component counts as one event more, which is its own before and after.
    """

    points: Floats
    weight: Floats
    before: Ints
    """The old cluster of each point, -1 for none."""
    fixed: FixedComponents
    n_old: int

    @classmethod
    def of(cls, given: RefitInput, tree: SummaryTree | WithStrays, fixed: FixedComponents) -> Comparison:
        """The sample of a refit's tree."""
        points, weight = tree.sample()
        everyone = given.old.with_retired
        before = np.append(everyone.place, -1)[everyone.see(points).cell]
        if len(fixed):
            means = given.old.current.clusters.mean[fixed.component]
            beyond = np.broadcast_to(
                tree.total.mean[0, means.shape[1] :], (len(means), points.shape[1] - means.shape[1])
            )
            points = np.vstack([points, np.hstack([means, beyond])])
            weight = np.append(weight, fixed.weight)
            before = np.append(before, everyone.membership.owners[fixed.component])
        return cls(points, weight, before, fixed, len(given.old.ids))

    def by(self, found: Result) -> tuple[Ints, Floats, Floats]:
        """The component of each point, the weight that old clusters and components share, and each component's."""
        component, n = owners(found, self.points), len(self.fixed)
        component[len(component) - n :] = np.arange(found.n_clusters - n, found.n_clusters)
        return component, *compare(self.before, component, self.weight, self.n_old, found.n_clusters)


def joins(
    given: RefitInput, found: Result, compared: Comparison, component: Ints, parents: list[int]
) -> tuple[Ints, tuple[tuple[int, int], ...]]:
    """The cluster of each component, and pairs of components that are one plateau.

    Components of retired clusters are joined as they were, all others by their shapes.
    """
    retired = compared.fixed.component[compared.fixed.retired]
    n, m = found.n_clusters - len(retired), len(compared.points) - len(retired)
    seen = component[:m] < n
    points, weight = compared.points[:m][seen], compared.weight[:m][seen]
    # Until the sample is full, joins that were judged by fewer events bind nobody.
    anew = given.mode.settling or (
        given.mode.cold and not given.mode.drifted and given.tree.n_events < 4 * len(points)
    )
    known = parents[:n] if given.old.version > 0 else [-1] * n
    shown = chosen(found, np.arange(n)) if len(retired) else found
    evidence = min(1.0, given.tree.n_independent / max(given.events.n_events, 1.0))
    owner, plateaus = joined_components(
        shown, points, weight, component[:m][seen], np.array(known), anew, evidence
    )
    _, old = np.unique(given.old.membership.owners[retired], return_inverse=True)
    pairs = tuple((i, j) for i, j in plateaus.tolist())
    return np.concatenate([owner, owner.max() + 1 + old]), pairs


def fed(result: Result, events: Floats, least: Floats | float = TUNING.min_cluster_events) -> Bools:
    """Which clusters have at least `least` of these events."""
    if not len(events):
        return np.zeros(result.n_clusters, dtype=bool)
    return np.asarray(np.bincount(owners(result, events), minlength=result.n_clusters) >= least)


def events_needed(weight: Floats, n_watched: int) -> Floats:
    """Watched events that a new cluster needs: half of what its weight lets expect, from 1 to min_cluster_events.

    >>> events_needed(np.array([4088.0, 5.0, 3.0]), n_watched=4096)
    array([5. , 2.5, 1.5])
    """
    return np.asarray(np.clip(weight / weight.sum() * n_watched / 2, 1.0, float(TUNING.min_cluster_events)))


def heirs(shared: Floats) -> Bools:
    """Which new clusters share the most weight with some old cluster; all others would be new ids."""
    found = np.zeros(shared.shape[1], dtype=bool)
    found[shared.argmax(axis=1)[shared.max(axis=1) > 0]] = True
    return found


def keeping(result: Result, kept: Bools) -> Result:
    """Only the clusters `kept`, scaled to the weight of all; all clusters if none is kept.

    The leaves of a stream that has moved keep samples of where it was. A refit finds clusters among those, and a new id
    for what no longer comes would be a false alarm.
    """
    rows = np.flatnonzero(kept)
    if len(rows) in (0, result.n_clusters):
        return result
    return weighing(chosen(result, rows), float(result.clusters.weight.sum()))


def with_prior(start: Moments, old: Result) -> Moments | Partition:
    """Clusters to start from and, where one was found for as many features before, the prior to start from."""
    if isinstance(old, Partition) and old.clusters.n_features == start.n_features:
        return replace(old, clusters=start, labels=NOWHERE)
    return start


def fit_dependent(
    given: RefitInput, tree: SummaryTree | WithStrays, start: Moments | Partition, evidence: float
) -> Result:
    """Refit with as much evidence as the events have under the clusters that are found.

    `evidence` is that under the old ones. Those tell nothing of events that came since at other places, so the refit is
    repeated while those found show that the evidence was less than half of what it took. It is measured over whole ways
    of sources, whose parts are one cluster unless there are D + 1 independent events for each. Events whose
    coordinates depend on each other count less, too.
    """
    events, d, event = given.events, tree.n_features, event_evidence_of(given.old.result)
    for _ in range(TUNING.max_rounds):
        given.tree.n_independent = n_independent(evidence, events.n_events, d)
        if event < 1.0:
            counted = event * effective_size(tree, tree.sample()[1])
            given.tree.n_independent = min(given.tree.n_independent, counted)
        best, before = fit(given.settings, tree, start, given.number, given.mode.cold, given.family), event
        check_finite(best.clusters)
        if given.is_independent and isinstance(best, Partition):
            # More evidence finds more clusters, under which there is less of it: what fits lies between the two.
            event = math.sqrt(event * event_evidence(by_itself(best), *tree.sample()))
            best = replace(best, event_evidence=event)
        whole = with_whole_ways(best, events.ways)
        found = events.sequence.evidence(by_itself(whole))
        if found > evidence / 2 and event > before / 2:
            break
        evidence = found
    few = n_independent(found, events.n_events, d) < best.n_clusters * (d + 1)
    return whole if few else best


def n_independent(evidence: float, n_events: float, n_features: int) -> float:
    """Number of independent events that a refit decides by; infinite if events do not depend on each other.

    Fewer than some for each feature would merge what is far apart.

    >>> n_independent(0.01, 50_000, 2), n_independent(0.01, 100, 2), n_independent(1.0, 100, 2)
    (500.0, 12.0, inf)
    """
    return (
        np.inf
        if evidence >= 1.0
        else max(evidence * n_events, TUNING.min_independent_per_feature * (n_features + 1))
    )


def fit(
    settings: EngineSettings,
    tree: SummaryTree | WithStrays,
    start: Moments | Partition,
    number: int,
    cold: bool,
    family: FamilyLike,
) -> Result:
    """One refit, challenged by one from nothing if `cold`; the same seed and number give the same clusters."""
    rng = np.random.default_rng([settings.seed, number])
    if settings.refit == "bkm":
        margin = TUNING.margin_nats if cold else None
        return refit_bkm(family, tree, start, rng, settings.mixture, "quick", challenge=margin)
    best = fit_other(settings, tree, start, rng)
    if cold:
        challenger = fit_other(settings, tree, None, np.random.default_rng([settings.seed, number]))
        if loss(challenger) < loss(best) - TUNING.margin_nats:
            best = challenger
    return best


def fit_other(
    settings: EngineSettings,
    tree: SummaryTree | WithStrays,
    start: Moments | Partition | None,
    rng: np.random.Generator,
) -> Result:
    """A refit by another algorithm than "bkm"."""
    if settings.refit == "dp-means":
        return refit_dp_means(settings.family, tree, start, settings.penalty, settings.mixture)
    assert isinstance(tree, SummaryTree)
    assert not isinstance(start, Partition)
    return refit_mixture(tree, start, rng, covariance=COVARIANCE[settings.family])


def loss(result: Result) -> float:
    """Objective to minimise, in nats: the free energy of a partition, or minus that of a mixture."""
    return -result.free_energy if isinstance(result, Mixture) else result.free_energy


def compare(before: Ints, after: Ints, weight: Floats, k_old: int, k_new: int) -> tuple[Floats, Floats]:
    """The weight that old and new clusters share of a sample labelled by both, and each new one's; -1 is nobody's."""
    inside = before >= 0
    cell = before[inside] * k_new + after[inside]
    shared = np.asarray(np.bincount(cell, weight[inside], k_old * k_new), dtype=float)
    return shared.reshape(k_old, k_new), np.asarray(np.bincount(after, weight, k_new), dtype=float)
