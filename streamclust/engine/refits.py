"""Refits beside the stream: started on a copy of the tree at one event count, published at a later one."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from threading import Thread
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.aside import NOTHING_ASIDE, SetAside
from streamclust.engine.births import MIN_BIRTH_EVENTS
from streamclust.engine.continuity import sources
from streamclust.engine.dependence import RecentSequence
from streamclust.engine.dp_means import refit_dp_means
from streamclust.engine.imputing import Gaps, supported
from streamclust.engine.model import NOWHERE, Model, Result, check_finite, chosen, having, joined, weighing
from streamclust.engine.present import WithStrays
from streamclust.engine.settings import COVARIANCE, EngineSettings
from streamclust.engine.shaping import joined_components
from streamclust.engine.strays import by_itself, keeping_rare, owners, with_rare
from streamclust.lineage import majority
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import refit_bkm
from streamclust.refit.chunky_em.fit import refit_mixture
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.refit.partition import Partition
from streamclust.tree import SummaryTree

CHALLENGER_MARGIN_NATS = 5.0
"""Nats by which a search from nothing must be better than the warm one: of equals, the warm one keeps its ids."""


MAX_EVIDENCE_ROUNDS = 3
"""Searches of one refit, at most, each with the evidence that the clusters of the last one show."""
MIN_INDEPENDENT_PER_FEATURE = 4.0
"""Independent events, times D + 1, by which a refit decides at least: fewer merge clusters that are far apart, more
split the ways of sources that wander."""


class Work(NamedTuple):
    """Input of a refit: copies that nothing else writes to."""

    settings: EngineSettings
    tree: SummaryTree
    old: Model
    start: Moments
    present: tuple[Floats, Floats]
    """Events since the stream last changed, and what each weighs."""
    strays: Floats
    search_strays: bool
    cold: bool
    settling: bool
    """Whether it is the last word on what was learnt."""
    number: int
    watched: Floats
    """The latest events; none, if drift is ignored or too few have been watched to judge by."""
    drifted: bool
    each: float = 1.0
    """What one of the latest events weighs."""
    aside: SetAside = NOTHING_ASIDE
    """Components of the old model that `tree` holds no events of: they stay as they are."""
    gaps: Gaps | None = None
    """All events, if they are all known and some of their values were missing."""
    fresh: bool = False
    """Whether to start without the clusters and the prior of the old model: the last refit from those failed."""
    sequence: RecentSequence | None = None
    """Recent events in their order, which tell how many independent events the tree's are worth."""
    n_events: float = 0.0
    """Number of events that the tree stands for."""


@dataclass(frozen=True, eq=False)
class Found:
    """What a refit found, and the weight its clusters share with those before (old x new).

    `owner` is the cluster of each component; empty, if each is a cluster.

    `outside` is the share of the present's events, when it began, that are in none of its clusters.
    """

    result: Result
    shared: Floats
    old_weight: Floats
    new_weight: Floats
    outside: float
    owner: tuple[int, ...] = ()


class RefitError(RuntimeError):
    """A refit failed before it was saved; the message is `reason_of` what it raised then."""


def reason_of(error: Exception) -> str:
    """Why a refit failed, the same before and after it was saved."""
    return str(error) if isinstance(error, RefitError) else f"{type(error).__name__}: {error}"


class Refit:
    """A refit on its way. What it does depends on event counts alone, not on how long it takes.

    It may be pickled, copied or saved on its way: that waits for it. So does a fork; a child process that was forked
    all the same, without the thread, does the work itself.
    """

    def __init__(self, due: int, found: Found | None = None, error: Exception | None = None) -> None:
        self.due = due
        self._found = found
        self._error = error
        self._work: Work | None = None
        self._thread: Thread | None = None

    @classmethod
    def started(cls, work: Work, due: int, background: bool) -> Refit:
        """Begin, in a thread of its own if `background`."""
        refit = cls(due)
        refit._work = work
        if background:
            refit._thread = Thread(target=refit._run, name="streamclust-refit", daemon=True)
            RUNNING.add(refit)
            refit._thread.start()
        else:
            refit._run()
        return refit

    def _run(self) -> None:
        assert self._work is not None
        try:
            self._found = find(self._work)
        except Exception as error:  # handed to whoever asks for the result
            self._error = error
        self._work = None

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the thread, if there is one, has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
            if not self._thread.is_alive():
                RUNNING.discard(self)

    def result(self) -> Found:
        """What was found; waits for it. Raises what the search raised."""
        self.wait()
        if self._found is None and self._error is None:  # forked: the thread stayed behind in the parent
            self._run()
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found

    def outcome(self) -> Found | str:
        """What was found or, if the search failed, the reason; waits for it."""
        try:
            return self.result()
        except Exception as error:
            return reason_of(error)

    def __getstate__(self) -> dict[str, Any]:
        found = self.outcome()
        failed = isinstance(found, str)
        return {
            "due": self.due,
            "_found": None if failed else found,
            "_error": RefitError(found) if failed else None,
            "_work": None,
            "_thread": None,
        }


RUNNING: WeakSet[Refit] = WeakSet()
"""Refits in threads."""
FORK_SECONDS = 30.0
"""A fork waits so long for each running refit, since a child would inherit the locks that its thread holds."""


def wait_before_fork() -> None:
    """Let running refits end."""
    for refit in list(RUNNING):
        refit.wait(FORK_SECONDS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=wait_before_fork)


def widened(rows: Moments, tree: SummaryTree | WithStrays) -> Moments:
    """Clusters with all features of a tree: in those that have appeared since, they vary about one value."""
    if rows.n_features == tree.n_features:
        return rows
    return rows.widen(tree.total.mean[0, rows.n_features :])


def find(work: Work) -> Found:
    """Refit from given clusters; where `cold`, challenge the result by one from nothing."""
    settings, start = work.settings, work.start
    sampled = settings.refit != "chunky-em"
    tree = WithStrays(work.tree, work.old.large, work.strays) if sampled else work.tree
    start = widened(start, tree)
    if work.search_strays and settings.refit == "bkm":
        start = with_rare(settings, start, work.strays[work.old.large.outside(work.strays)], work.number)
    best = fit_dependent(work, tree, start if work.fresh else with_prior(start, work.old.result))
    if isinstance(tree, WithStrays) and settings.refit == "bkm" and not work.drifted:
        best = keeping_rare(settings, best, start, *tree.outside())
    if work.sequence is not None and np.isfinite(work.tree.n_independent):
        best = with_whole_ways(best, work.sequence)
    if work.drifted:
        best = keeping(best, fed(best, work.watched))
    if work.gaps is not None:
        best = keeping_supported(best, work.gaps)
    best, placed = with_aside(work, best)
    compared = Comparison.of(work, tree, placed)
    component, shared, new_weight = compared.by(best)
    if len(work.watched) and best.n_clusters > 1:
        least = events_needed(best.clusters.weight, len(work.watched))
        # Strays are kept for long: where the summary has forgotten theirs, they are no reason for a new cluster.
        remembered = best.clusters.weight >= MIN_BIRTH_EVENTS * work.each
        kept = heirs(shared) | fed(best, work.watched, least) | (fed(best, work.strays) & remembered)
        kept[len(kept) - len(placed) :] = True
        if not kept.all():
            best = keeping(best, kept)
            component, shared, new_weight = compared.by(best)
    rows, each = work.present
    strangers = float(each @ by_itself(best).outside(rows) / max(each.sum(), np.finfo(float).tiny))
    if not settings.joins:
        return Found(best, shared, shared.sum(axis=1), new_weight, strangers)
    owner = joins(work, best, compared, component, majority(shared, new_weight))
    member = (owner[:, None] == np.arange(owner.max() + 1)).astype(float)
    shared = shared @ member
    return Found(best, shared, shared.sum(axis=1), new_weight @ member, strangers, tuple(owner.tolist()))


def with_whole_ways(result: Result, sequence: RecentSequence) -> Result:
    """The clusters, with those merged that are parts of the way of one source that wanders."""
    if result.n_clusters == 1 or not by_itself(result).whitened_features:
        return result
    model = by_itself(result)
    d = result.clusters.n_features
    parts = [(model.see(rows).cell, rows[:, :d]) for rows in (sequence.latest, sequence.watched)]
    source = sources(parts, result.n_clusters)
    k = int(source.max()) + 1
    return result if k == result.n_clusters else having(result, result.clusters.to_groups(source, k))


def keeping_supported(result: Result, events: Gaps) -> Result:
    """Only the clusters that the known values of events support, dropped one by one."""
    while not (kept := supported(by_itself(result), events)).all():
        result = keeping(result, kept)
    return result


def with_aside(work: Work, found: Result) -> tuple[Result, SetAside]:
    """What was found and the components set aside, all together as heavy as the tree; and which those are.

    Left out are those whose mean is nearer to a component that was found: they would be clusters without events.
    """
    aside = work.aside
    if not len(aside):
        return found, aside
    rows = aside.moments(work.old)
    if rows.n_features < work.tree.n_features:
        rows = rows.widen(work.tree.total.mean[0, rows.n_features :])
    owner = owners(joined(found, rows), rows.mean)
    lasting = np.flatnonzero(owner == found.n_clusters + np.arange(len(rows)))
    aside, rows = aside.some(lasting), rows[lasting]
    total = float(found.clusters.weight.sum())
    found = weighing(found, max(total - aside.weight[aside.retired].sum(), MIN_BIRTH_EVENTS * work.each))
    return joined(found, rows), aside


class Comparison(NamedTuple):
    """A sample of events, by which the clusters of a refit are compared with those before.

    Each component set aside counts as one event more, which is its own before and after.
    """

    points: Floats
    weight: Floats
    before: Ints
    """The old cluster of each point, -1 for none."""
    aside: SetAside
    n_old: int

    @classmethod
    def of(cls, work: Work, tree: SummaryTree | WithStrays, aside: SetAside) -> Comparison:
        """The sample of a refit's tree."""
        points, weight = tree.sample()
        everyone = work.old.everyone
        before = np.append(everyone.place, -1)[everyone.see(points).cell]
        if len(aside):
            means = work.old.current.clusters.mean[aside.component]
            beyond = np.broadcast_to(
                tree.total.mean[0, means.shape[1] :], (len(means), points.shape[1] - means.shape[1])
            )
            points = np.vstack([points, np.hstack([means, beyond])])
            weight = np.append(weight, aside.weight)
            before = np.append(before, everyone.owners[aside.component])
        return cls(points, weight, before, aside, len(work.old.ids))

    def by(self, found: Result) -> tuple[Ints, Floats, Floats]:
        """The component of each point, the weight that old clusters and components share, and each component's."""
        component, n = owners(found, self.points), len(self.aside)
        component[len(component) - n :] = np.arange(found.n_clusters - n, found.n_clusters)
        return component, *compare(self.before, component, self.weight, self.n_old, found.n_clusters)


def joins(work: Work, found: Result, compared: Comparison, component: Ints, parents: list[int]) -> Ints:
    """The cluster of each component: those of retired clusters are joined as they were, all others by their shapes."""
    retired = compared.aside.component[compared.aside.retired]
    n, m = found.n_clusters - len(retired), len(compared.points) - len(retired)
    seen = component[:m] < n
    points, weight = compared.points[:m][seen], compared.weight[:m][seen]
    # Until the sample is full, joins that were judged by fewer events bind nobody.
    anew = work.settling or (work.cold and not work.drifted and work.tree.n_events < 4 * len(points))
    known = parents[:n] if work.old.version > 0 else [-1] * n
    shown = chosen(found, np.arange(n)) if len(retired) else found
    owner = joined_components(shown, points, weight, component[:m][seen], np.array(known), anew)
    _, old = np.unique(work.old.owners[retired], return_inverse=True)
    return np.concatenate([owner, owner.max() + 1 + old])


def fed(result: Result, events: Floats, least: Floats | float = MIN_BIRTH_EVENTS) -> Bools:
    """Which clusters have at least `least` of these events."""
    if not len(events):
        return np.zeros(result.n_clusters, dtype=bool)
    return np.asarray(np.bincount(owners(result, events), minlength=result.n_clusters) >= least)


def events_needed(weight: Floats, n_watched: int) -> Floats:
    """Watched events that a new cluster needs: half of what its weight lets expect, from 1 to MIN_BIRTH_EVENTS.

    >>> events_needed(np.array([4088.0, 5.0, 3.0]), n_watched=4096)
    array([5. , 2.5, 1.5])
    """
    return np.asarray(np.clip(weight / weight.sum() * n_watched / 2, 1.0, float(MIN_BIRTH_EVENTS)))


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


def fit_dependent(work: Work, tree: SummaryTree | WithStrays, start: Moments | Partition) -> Result:
    """Refit with as much evidence as the events have under the clusters that are found.

    How far events depend on each other shows within clusters. The old ones tell nothing of events that came since at
    other places, so the refit is repeated while those found show that the evidence was less than half of what it took.
    """
    evidence = 1.0 if work.sequence is None else work.sequence.evidence(work.old)
    for _ in range(MAX_EVIDENCE_ROUNDS):
        work.tree.n_independent = n_independent(evidence, work.n_events, tree.n_features)
        best = fit(work.settings, tree, start, work.number, work.cold)
        check_finite(best.clusters)
        found = 1.0 if work.sequence is None else work.sequence.evidence(by_itself(best))
        if found > evidence / 2:
            break
        evidence = found
    return best


def n_independent(evidence: float, n_events: float, n_features: int) -> float:
    """Number of independent events that a refit decides by; infinite if events do not depend on each other.

    Fewer than some for each feature would merge what is far apart.

    >>> n_independent(0.01, 50_000, 2), n_independent(0.01, 100, 2), n_independent(1.0, 100, 2)
    (500.0, 12.0, inf)
    """
    return (
        np.inf
        if evidence >= 1.0
        else max(evidence * n_events, MIN_INDEPENDENT_PER_FEATURE * (n_features + 1))
    )


def fit(
    settings: EngineSettings,
    tree: SummaryTree | WithStrays,
    start: Moments | Partition,
    number: int,
    cold: bool,
) -> Result:
    """One refit, challenged by one from nothing if `cold`; the same seed and number give the same clusters."""
    rng = np.random.default_rng([settings.seed, number])
    if settings.refit == "bkm":
        margin = CHALLENGER_MARGIN_NATS if cold else None
        return refit_bkm(settings.family, tree, start, rng, settings.mixture, "quick", challenge=margin)
    best = fit_other(settings, tree, start, rng)
    if cold:
        challenger = fit_other(settings, tree, None, np.random.default_rng([settings.seed, number]))
        if loss(challenger) < loss(best) - CHALLENGER_MARGIN_NATS:
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
        return refit_dp_means(settings.family, tree, start, settings.birth_penalty, settings.mixture)
    assert isinstance(tree, SummaryTree)
    assert not isinstance(start, Partition)
    return refit_mixture(tree, start, rng, covariance=COVARIANCE[settings.family])


def loss(result: Result) -> float:
    """What is to be small, in nats of the events K was decided on: F falls for partitions and rises for mixtures."""
    return -result.free_energy if isinstance(result, Mixture) else result.free_energy


def compare(before: Ints, after: Ints, weight: Floats, k_old: int, k_new: int) -> tuple[Floats, Floats]:
    """The weight that old and new clusters share of a sample labelled by both, and each new one's; -1 is nobody's."""
    inside = before >= 0
    cell = before[inside] * k_new + after[inside]
    shared = np.asarray(np.bincount(cell, weight[inside], k_old * k_new), dtype=float)
    return shared.reshape(k_old, k_new), np.asarray(np.bincount(after, weight, k_new), dtype=float)
