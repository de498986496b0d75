"""Refitter: collects the input of refits, starts them, and publishes their results."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine import schedule
from streamclust.engine.background import Refit
from streamclust.engine.cluster_updates import moved
from streamclust.engine.fixed_components import NO_FIXED, FixedComponents, fixed_components, remembered
from streamclust.engine.leaf_shares import kish
from streamclust.engine.model import Model, hidden_components
from streamclust.engine.present_events import PresentEvents
from streamclust.engine.refit import widened
from streamclust.engine.refit_input import RefitEvents, RefitInput, SearchMode
from streamclust.engine.results import NOWHERE, Result, large_rows
from streamclust.engine.retirement import Retirement
from streamclust.engine.settings import COVARIANCE, EngineSettings
from streamclust.engine.shown_level import CommonWeight
from streamclust.engine.stream import Stream
from streamclust.engine.tuning import TUNING
from streamclust.families.resolution import n_independent_rows
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import scored
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.refit.partition import Partition
from streamclust.tree import SummaryTree


class RefitTree(NamedTuple):
    """The tree that a refit reads, and the components it does not read."""

    tree: SummaryTree
    drifted: bool
    """Whether the stream has drifted, so that the tree stands for the latest events."""
    rows: Floats | None = None
    """The present's events, if the tree is made of those alone."""
    fixed: FixedComponents = NO_FIXED
    """Components that the tree holds no events of."""


class Refitter:
    """Refits a stream: the refit under way is `stream.pending_refit`."""

    def __init__(self, stream: Stream, present: PresentEvents, retirement: Retirement) -> None:
        self.stream = stream
        self.present = present
        self.retirement = retirement

    # ---------------------------------------------------------------- starting

    def start(self, lag: int | None = None, more: Moments | None = None, search: bool = False) -> None:
        """Start a refit from the present clusters and `more`; a refit that is still running is dropped.

        `lag` is the number of events until it is published, by default as the schedule has it. `search`: it also
        searches from nothing. The first call only makes the model of one cluster, unless there is `more`.
        """
        stream, counters = self.stream, self.stream.counters
        stream.pending_refit = None
        counters.change_due = schedule.NEVER
        if stream.model is not None:
            self.retirement.judge()  # before a refit that sees nothing of clusters that have gone
        summary = self._summary()
        counters.known_time = 1.0 / self.present.evidence
        counters.last_refit = counters.n_seen
        quiet, full = self._is_quiet(), self._is_full(summary.tree)
        self._schedule_next(summary, quiet, full)
        first = stream.model is None
        if first:
            stream.publish(self._first_model(summary.tree))
        if first and more is None:
            return
        counters.n_refits += 1
        given = self._input(summary, more, search, quiet)
        if lag is None:
            lag = schedule.lag(counters.n_seen, counters.next_refit)
        background = stream.settings.background and lag > 0
        stream.pending_refit = Refit.started(given, counters.n_seen + lag, background)
        if lag == 0:
            self.publish(stream.pending_refit)

    def _is_quiet(self) -> bool:
        model, counters = self.stream.model, self.stream.counters
        return schedule.quiet(counters.n_seen, 1 if model is None else len(model.ids), counters.ids_changed)

    def _is_full(self, tree: SummaryTree) -> bool:
        """Whether the tree's sample is full; one that forgets has a new sample ever again."""
        full = tree.n_events >= TUNING.clear_factor * tree.sample_capacity
        return self.stream.settings.half_life is None and full

    def _schedule_next(self, summary: RefitTree, quiet: bool, full: bool) -> None:
        """Set the event count of the refit after this one."""
        settings, counters, evidence = self.stream.settings, self.stream.counters, weight_of(summary.tree)
        warmup = settings.warmup
        if warmup is None:
            warmup = max(schedule.first_refit(self.stream.shards.n_features), self.stream.n_waited)
        counters.next_refit = schedule.next_refit(
            counters.n_seen, evidence, warmup, settings.refit_every, quiet and not summary.drifted, full
        )

    def _input(self, summary: RefitTree, more: Moments | None, search: bool, quiet: bool) -> RefitInput:
        """Copies of everything that a refit reads."""
        stream, counters, tree = self.stream, self.stream.counters, summary.tree
        fresh = counters.failures_in_a_row > 0
        fixed = NO_FIXED if fresh else summary.fixed
        start = tree.total if fresh else self._start(summary, fixed)
        if more is not None:
            start = Moments.stack([widened(start, tree), widened(more, tree)])
        settling = counters.last_challenge == 0.0
        cold = search or fresh or self._is_challenged(summary, quiet)
        if cold:
            counters.last_challenge = weight_of(tree)
        whole = summary.rows is None
        strays = stream.shards.recent.strays.count
        search_strays = whole and (settling or strays >= (1 + TUNING.major_share) * counters.strays_searched)
        if search_strays:
            counters.strays_searched = strays
        return RefitInput(
            settings=stream.settings,
            number=counters.n_refits,
            tree=tree.capped(self.present.most_weight),
            old=stream.published,
            start=start,
            fixed=fixed,
            events=self._events(summary),
            mode=SearchMode(
                cold=cold,
                settling=settling,
                fresh=fresh,
                drifted=summary.drifted,
                search_strays=search_strays,
            ),
        )

    def _is_challenged(self, summary: RefitTree, quiet: bool) -> bool:
        """Whether the refit is challenged by a search from nothing, by the schedule or after a change of ids."""
        counters, tree, evidence = self.stream.counters, summary.tree, weight_of(summary.tree)
        n_searched = tree.n_events * counters.last_challenge / evidence
        # Soon after a change a search from nothing would find where clusters were beside where they are.
        searched = n_searched >= TUNING.clear_factor * tree.sample_capacity
        settled = not counters.ids_changed and (summary.drifted or searched)
        by_schedule = schedule.challenged(evidence, counters.last_challenge, quiet, settled)
        return by_schedule or (summary.drifted and counters.ids_changed)

    def _events(self, summary: RefitTree) -> RefitEvents:
        """Recent events by which the refit judges its clusters."""
        stream, shards, rows = self.stream, self.stream.shards, summary.rows
        whole = rows is None
        present, weight, _ = self.present.rows()
        n_present = stream.n_seen - stream.counters.begin
        return RefitEvents(
            present=present,
            weight=weight,
            strays=self._strays(summary.drifted) if whole else shards.recent.watched_rows(0),
            watched=self._watched(summary.drifted) if rows is None else rows,
            weight_of_one=self.present.weight_of_one(),
            gaps=shards.recent.gaps() if whole and shards.is_replayable else None,
            sequence=shards.recent.sequence(stream.counters.begin),
            ways=(shards.recent.latest()[0], shards.recent.watched()[0]),
            n_events=float(summary.tree.n_events if rows is None else max(n_present, len(rows))),
        )

    def _start(self, summary: RefitTree, fixed: FixedComponents) -> Moments:
        """The components that a refit starts from: without the fixed ones, and retired ones of no weight."""
        model = self.stream.published
        left_out = np.union1d(fixed.component, hidden_components(model))
        if not summary.drifted and model.hidden:
            hidden, each = hidden_components(model), self.present.weight_of_one()
            known = remembered(model, hidden, summary.tree, each)[0]
            left_out = np.setdiff1d(left_out, known)
        clusters = model.current.clusters
        rest = np.setdiff1d(np.arange(len(clusters)), left_out)
        return clusters[rest] if len(rest) else clusters

    def _summary(self) -> RefitTree:
        """The tree to refit.

        Soon after a change the tree is made of the present's events alone, since the leaves of the summary hold samples
        of what was before. Components too rare to be judged by those events stay fixed, without their events. Rare
        components that have lost their weight do not: they are judged like all others. Retired clusters, and those
        that are away, stay fixed wherever the tree holds the latest events alone.
        """
        stream, model, begin = self.stream, self.stream.model, self.stream.counters.begin
        if model is None or not begin:
            return self._whole_summary()
        rows, weight, covered = self.present.rows()
        n_present = max(stream.n_seen - begin, len(rows))
        n_independent = min(n_independent_rows(rows), self.present.evidence * n_present)
        if not covered or n_independent < TUNING.look_sample_events:
            return self._whole_summary()
        each = self.present.weight_of_one()
        away = self.retirement.away(rows, stream.n_seen - n_present)
        rare = self._rare(model, weight, each)
        fixed = fixed_components(model, rare, stream.shards.live_tree(), each, away)
        everyone = model.with_retired
        theirs = np.isin(everyone.nearest(rows).component, fixed.component[~fixed.retired])
        theirs |= np.isin(
            everyone.see(rows).cell, fixed.component[fixed.retired]
        )  # events outside may be new
        if theirs.all():
            return self._whole_summary()
        tree = self.present.tree_of_rows(rows[~theirs], weight[~theirs])
        return RefitTree(tree, True, rows[~theirs], fixed)

    def _rare(self, model: Model, weight: Floats, each: float) -> Ints:
        """Components that have weight, but too little to be judged by the present's events."""
        share = model.result.clusters.weight / model.result.clusters.weight.sum()
        alive = model.current.clusters.weight >= TUNING.min_cluster_events * each
        rare = np.flatnonzero(alive & (share * kish(weight) < TUNING.min_expected_events))
        return np.setdiff1d(rare, large_rows(share))

    def _whole_summary(self) -> RefitTree:
        """The tree of all shards, in the shares of the latest events if the stream has drifted."""
        shards, model = self.stream.shards, self.stream.model
        tree, drifted = self.present.tree()
        if model is None or not drifted:
            return RefitTree(tree, drifted)
        rows, _, at = shards.recent.watched()
        away, each = self.retirement.away(rows, int(at[0])), self.present.weight_of_one()
        return RefitTree(tree, True, fixed=fixed_components(model, NOWHERE, shards.live_tree(), each, away))

    def _watched(self, drifted: bool) -> Floats:
        """The latest events, by which clusters are judged; none if drift is ignored, or too few were watched."""
        latest = self.stream.shards.recent.watched_rows()
        judged = drifted or (self.stream.settings.follows and len(latest) >= TUNING.window_events)
        return latest if judged else latest[:0]

    def _strays(self, drifted: bool) -> Floats:
        """Events outside every large cluster: all that are kept or, in a stream that has drifted, the latest."""
        if not drifted:
            return self.stream.shards.recent.strays.latest()
        latest = self.stream.shards.recent.watched_rows()
        return latest[self.stream.published.large.outside(latest)]

    def _first_model(self, tree: SummaryTree) -> Model:
        """The model before the first refit: one cluster of all events."""
        stream = self.stream
        born = stream.lineage.born(stream.n_seen, 0, weight_of(tree))
        stream.counters.learnt_until = stream.n_seen
        return Model(
            0,
            stream.n_seen,
            single(stream.settings, tree),
            (born,),
            sketch=stream.sketch,
            transform=stream.transform,
        )

    # ---------------------------------------------------------------- publishing

    def publish(self, refit: Refit) -> None:
        """Publish the result of a refit; clusters keep their ids, and lifecycle events are reported."""
        stream, counters, shards = self.stream, self.stream.counters, self.stream.shards
        found = refit.result()
        stream.pending_refit, counters.failures_in_a_row = None, 0
        self.retirement.judge()  # by the weights before the refit, which has seen less of clusters that were vanishing
        old = stream.published  # with the clusters that the refit began from, though some may have new ids
        version = old.version + 1
        ids = stream.lineage.follow(
            stream.n_seen, version, old.ids, found.old_weight, found.new_weight, found.shared
        )
        hidden = frozenset(stream.lineage.retired)
        counters.ids_changed = set(ids) != set(old.ids)
        model = Model(
            version,
            stream.n_seen,
            found.result,
            ids,
            hidden,
            found.owner,
            stream.sketch,
            plateaus=found.plateaus,
            opened=tuple(one for one in old.opened if one.cluster in ids),
            transform=stream.transform,
        )
        stream.publish(model, CommonWeight(found.shared, found.old_weight, found.new_weight))
        model = stream.published
        if counters.moving and len(shards.recent.ring):  # the refit began some time ago
            model = moved(model, *(part[-2 * TUNING.look_sample_events :] for part in shards.recent.latest()))
        stream.model = model
        counters.learnt_until = counters.last_refit
        shards.make_room(found.result.n_clusters)
        shards.impute(model)
        self.retirement.judge()
        counters.tolerated = max(TUNING.large_share, 2 * found.outside)


def weight_of(tree: SummaryTree) -> float:
    """Weight of everything a tree has learnt."""
    return float(tree.total.weight[0])


def single(settings: EngineSettings, tree: SummaryTree) -> Result:
    """One cluster of everything a tree has learnt."""
    family, mixture = scored(settings.family, settings.mixture, tree)
    total = tree.total
    whole = Partition(family, mixture, NOWHERE, total, 0.0, float(total.weight[0]))
    if settings.refit != "chunky-em":
        return whole
    spread = whole.family.parameters(whole.posterior)
    return Mixture(
        COVARIANCE[settings.family],
        np.ones(1),
        spread.mean,
        spread.covariance,
        NOWHERE,
        float(total.weight[0]),
        0.0,
    )
