"""Engine: events go into trees, refits make models of the trees, and a model is published by swapping it in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine import schedule
from streamclust.engine.aside import NOTHING_ASIDE, SetAside, remembered, set_aside
from streamclust.engine.attempts import attempt
from streamclust.engine.births import MIN_BIRTH_EVENTS
from streamclust.engine.carrying import carry_over
from streamclust.engine.imputing import imputed
from streamclust.engine.incomplete import Row, learn_filled, learn_with_zeros
from streamclust.engine.looking import MIN_EXPECTED_EVENTS, TOLERATED_SHARE, Looking
from streamclust.engine.model import NOWHERE, Model, Result, hidden_components, large_rows
from streamclust.engine.new_features import NEVER
from streamclust.engine.outside_alarm import OutsideAlarm
from streamclust.engine.present import kish
from streamclust.engine.refits import Refit, Work, widened
from streamclust.engine.running import moved
from streamclust.engine.settings import COVARIANCE, EngineSettings
from streamclust.engine.shards import WHOLE_EVENTS, Shard, Shards
from streamclust.engine.watch import WINDOW_EVENTS, Ring
from streamclust.families.resolution import n_independent_rows
from streamclust.interrupts import HeldInterrupts
from streamclust.lineage import Change, Lineage
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import check_points, scored
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.refit.partition import Partition
from streamclust.sketch import Sketch
from streamclust.tree import SummaryTree
from streamclust.tree.rows import check_rows

CATCH_UP_EVENTS = 512
"""Clusters that were refitted in the background are moved to where their latest events are, of so many in all."""
MIN_DISTINCT_EVENTS = 256
"""A present of fewer distinct events, or worth fewer independent ones, is not refitted alone: repeats of some events,
or a short way of a source that wanders, do not show where clusters are."""
STRAY_GROWTH = 1.5
"""Strays are searched for rare clusters again once there are so many times as many as at the last search."""


class Engine(Looking):
    """Learns rows of numbers, keeps a published model of them, and says what changed."""

    COUNTERS = (
        "n_seen", "n_refits", "next_refit", "next_look", "last_refit", "last_challenge", "strays_searched",
        "tolerated", "learnt_until", "look_gap", "begin", "moving", "change_due", "ids_changed", "n_failed_refits",
        "failures_in_a_row", "last_failure", "known_features", "feature_due", "feature_gap",
        "features_since", "n_filled",
        "alarm", "known_time",
    )  # fmt: skip
    """Names of the counters that checkpoints hold: how far the stream has come, and what is due next."""

    def __init__(
        self,
        n_features: int,
        settings: EngineSettings | None = None,
        on_event: Callable[[Change], object] | None = None,
    ) -> None:
        self.settings = settings or EngineSettings()
        self.shards = Shards(n_features, self.settings)
        self.sketch: Sketch | None = None
        """Maps wide events to the coordinates of trees and models; None if those are the features."""
        self.model: Model | None = None
        self.lineage = Lineage(on_event)
        self.n_seen = 0
        self.n_refits = 0
        self.n_failed_refits = self.failures_in_a_row = 0
        self.last_failure = ""
        """Why the latest look or refit that failed did so; empty if none has failed."""
        self.next_refit = 1
        self.last_refit = 0
        self.last_challenge = 0.0
        self.next_look = self.look_gap = schedule.LOOK_EVENTS // 2
        self.tolerated = TOLERATED_SHARE
        self.learnt_until = self.begin = 0
        self.moving = self.ids_changed = False
        self.change_due = self.feature_due = NEVER
        self.feature_gap = self.known_features = self.features_since = self.n_filled = 0
        self.alarm = OutsideAlarm()
        self.known_time = 1.0
        self.pending_refit: Refit | None = None
        self.led = False
        """Whether models come from elsewhere (`follow`): then nothing is refitted here."""
        self.n_waited = 0
        """How many events waited for a sketch. Nobody sees a model of fewer, so the first refit comes after them."""
        self.strays_searched = 0
        self._components: tuple[tuple[int, int], Moments] | None = None
        self._calibration: tuple[tuple[int, int], Floats, Floats] | None = None

    @classmethod
    def restored(
        cls,
        shards: Shards,
        counters: Mapping[str, Any],
        lineage: Lineage,
        model: Model | None = None,
        pending_refit: Refit | None = None,
    ) -> Self:
        """An engine that continues from saved trees, model and counters."""
        engine = cls(shards.n_features, shards.settings)
        engine.shards, engine.lineage, engine.model, engine.pending_refit = (
            shards,
            lineage,
            model,
            pending_refit,
        )
        engine.known_features = shards.n_features  # older checkpoints do not tell
        vars(engine).update({name: counters[name] for name in cls.COUNTERS if name in counters})
        engine.alarm = OutsideAlarm(*engine.alarm)
        return engine

    @property
    def counters(self) -> dict[str, Any]:
        """The numbers that `restored` needs, by name."""
        return {name: getattr(self, name) for name in self.COUNTERS}

    # ---------------------------------------------------------------- learning

    def learn(
        self,
        rows: ArrayLike,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> None:
        """Check complete rows and learn them, all of them or none."""
        x, w, t = check_rows(self.shards.n_features, rows, weight, time)
        check_points(self.settings.family, x)
        self.learn_checked(x, w, t, shard)

    def learn_checked(
        self, x: Floats, w: Floats, t: Floats, shard: Hashable = 0, missing: Bools | None = None
    ) -> None:
        """Learn checked rows into the summary of their shard, then do what is due; `w` and `t` may be empty.

        `missing` are values that were filled in.
        """
        x = np.require(
            self.shards.with_spare(x), requirements=["C", "A", "W"]
        )  # what kernels are compiled for
        part = self.shards[shard]
        self.notice_features()
        self.do_due()  # what was due before, if that was interrupted
        done = 0
        while done < len(x):
            end = min(len(x), done + max(1, self.until_due))
            n, alarm = self.watch_outside(x[done:end], None if missing is None else missing[done:end])
            run = slice(done, done + n)
            filled = None if missing is None else missing[run]
            with HeldInterrupts():
                part.learn(x[run], w[run], t[run], self.n_seen, filled)
                self.shards.keep(x[run], w[run] if len(w) else None, self.n_seen, filled)
                self.n_seen += n
                self.alarm = alarm
            self.do_due()
            done += n

    def runs(self, n: int, rows: Floats | None = None) -> Iterator[slice]:
        """Slices of the next n events, each up to the event at which a look, a refit or a publication is due.

        Each must be learnt before the next is asked for. Given the `rows` (in the clusters' coordinates, NaN where a
        value is missing), the model does not change within a slice; else it may, where the outside alarm sounds.
        """
        done = 0
        while done < n:
            end = min(n, done + max(1, self.until_due))
            if rows is not None:
                end = done + self.watch_outside(rows[done:end], np.isnan(rows[done:end]))[0]
            yield slice(done, end)
            done = end

    def learn_incomplete(
        self, rows: Floats | list[Row], w: Floats, t: Floats, shard: Hashable = 0, zeros: bool = False
    ) -> None:
        """Learn checked rows that may lack features or bring new ones.

        What is missing (NaN) is 0 with `zeros`, else it is drawn from the model or, before the first refit, taken from
        the nearest leaf.
        """
        if zeros:
            learn_with_zeros(self, rows, w, t, shard)
        else:
            assert not isinstance(rows, list)  # cells are for events whose missing values are 0
            learn_filled(self, rows, w, t, shard)

    def learn_tree(self, shard: Hashable, tree: SummaryTree) -> None:
        """Learn everything that a tree of the same features has learnt, and refit at once."""
        with HeldInterrupts():
            self.shards.merge_tree(shard, tree, self.n_seen)
            self.n_seen += tree.n_events
        self.begin = 0
        self.next_look = self.n_seen + self.look_gap
        self.settle()

    def use_sketch(self, sketch: Sketch, changed: bool = False) -> None:
        """Learn rows in the coordinates of a sketch from now on; what was learnt through another is carried over.

        `changed`: the stream has changed, which is why there is another.
        """
        if self.sketch is None:
            self.sketch = sketch
            self.shards.begin(sketch.n_directions)
            return
        carry_over(self, sketch)
        self.pending_refit = self._components = self._calibration = None
        self.begin, self.moving = 0, False
        if self.model is not None and not self.led:
            self._refit_now()
        self.known_features = self.n_features
        if changed and self.settings.follows:
            self.begin = self.features_since = self.n_seen
            self.n_filled = 0
            if not self.led:
                self._await_search()

    def redate(self, shard: Hashable, by: float) -> None:
        """Move the times of all that a shard has learnt."""
        self.shards[shard].tree.redate(by)

    def release(self, shard: Hashable) -> Shard:
        """Let a shard go, to be adopted elsewhere: refits no longer read it. The count of events goes on."""
        part = self.shards.pop(shard)
        self.shards.whole = Ring(0, WHOLE_EVENTS)  # it holds events of all shards
        self.begin, self.moving = 0, False
        return part

    def follow(self, model: Model | None) -> None:
        """Assign by this model, made elsewhere, and refit no more; None if there is no model yet."""
        self.led, self.model, self.pending_refit = True, model, None
        if model is not None:
            self.shards.make_room(model.result.n_clusters)
            self.shards.impute(model)

    def replace(self, shard: Hashable, part: Shard, n_features: int, zeros: bool = False) -> None:
        """Replace a shard by a later summary of it; `catch_up` then does what has become due."""
        self.shards.make_alike(part, n_features, zeros, self.means)
        self.shards[shard] = part
        self.shards.make_room()

    def catch_up(self) -> None:
        """Do at once what has become due since shards were replaced: a look, a refit, and its publication."""
        before = self.n_seen
        self.n_seen = max(before, sum(part.n_seen for part in self.shards.values()))
        if self.n_seen == before:
            return
        for part in self.shards.values():
            part.watch.renumber(self.n_seen)
        if self.model is None:
            self.next_look = self.n_seen + self.look_gap
            self.settle()
            return
        if self.n_seen >= self.next_look:
            self.look_gap += self.n_seen - self.next_look  # so many events since the last look
        self.do_due()
        if self.pending_refit is not None:
            attempt(self, self._publish_pending)

    def adopt(self, shard: Hashable, part: Shard, n_features: int | None = None, zeros: bool = False) -> None:
        """Take over a shard that was released elsewhere; the next event brings a refit that reads it.

        It has so many features, by default those of its tree. What one side lacks is 0 with `zeros`, else the other
        side's mean.
        """
        if shard in self.shards:
            raise ValueError(f"shard {shard!r} is here already")
        n_features = part.tree.n_features if n_features is None else n_features
        self.shards.make_alike(part, n_features, zeros, self.means)
        part.watch.renumber(self.n_seen)
        self.shards[shard] = part
        self.shards.make_room()
        self.begin = 0
        self.next_refit = self.n_seen + 1

    def merge(self, other: Engine) -> None:
        """Learn everything another engine has learnt, and refit at once from the clusters of both."""
        self.check_settings(other)
        if self.n_features != other.n_features:
            raise ValueError(
                "only engines of the same features can be merged: "
                f"one has {self.n_features}, the other {other.n_features}"
            )
        if not same_sketch(self.sketch, other.sketch):
            raise ValueError(
                "only what was learnt through one sketch can be merged: let one use the other's (use_sketch)"
            )
        if other.model is None:
            return
        with HeldInterrupts():
            self.shards.merge(other.shards, self.n_seen, other.n_seen)
            self.n_seen += other.n_seen
        self.begin = 0
        self.next_look = self.n_seen + self.look_gap
        self._refit_now(more=other.model.current.clusters)

    def check_settings(self, other: Engine) -> None:
        """Raise ValueError if another engine has other settings, so that it cannot be merged."""
        if self.settings != other.settings:
            ours, theirs = vars(self.settings), vars(other.settings)
            differ = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
            raise ValueError(f"only streams of the same settings can be merged: they differ in {differ}")

    @property
    def n_features(self) -> int:
        """How many features events have so far."""
        return self.shards.n_features

    @property
    def is_empty(self) -> bool:
        """Whether there is neither an event nor a model from which missing values could be filled in."""
        return not (self.led and self.model) and not self._holds_events

    @property
    def _holds_events(self) -> bool:
        return any(part.tree.n_events for part in self.shards.values())

    def means(self) -> Floats:
        """The mean of all events known: of the shards or, where they hold none, of the model."""
        if self.n_features == 0:
            return np.zeros(0)
        if self._holds_events or self.model is None:
            return np.asarray(self.shards.merged_tree().total.mean[0])
        known = self.model.clusters.total().mean[0]
        return np.concatenate([known, np.zeros(max(0, self.n_features - len(known)))])

    @property
    def n_imputable(self) -> int:
        """Number of features, the first ones, whose missing values are drawn from the model: 0 before a refit."""
        refitted = self.model is not None and (self.led or self.n_refits > 0)
        return self.model.n_coordinates if self.model is not None and refitted else 0

    def impute(self, rows: Floats, missing: Bools) -> Floats:
        """Rows of the next events, with the missing values of features that the model knows drawn from it."""
        if self.model is None or not missing[:, : self.n_imputable].any():
            return rows
        known = slice(0, self.n_imputable)
        number = self.n_seen + np.arange(len(rows))
        drawn = imputed(self.model, rows[:, known], missing[:, known], number, self.settings.seed)
        return np.concatenate([drawn, rows[:, known.stop :]], axis=1)

    def fill(self, row: Floats, shard: Hashable) -> Floats:
        """A row with its missing values taken from the nearest leaf; 0 before the first event."""
        return self.shards.fill(row, shard) if self._holds_events else np.nan_to_num(row)

    def settle(self) -> None:
        """Refit at once, whatever the schedule says; the schedule continues from here."""
        if self.n_seen and not self.led:
            if self.model is None:
                attempt(self, self._start_refit)
            self.last_challenge = 0.0  # the last word on all that was learnt: begin from nothing, too
            self.feature_due, self.feature_gap = NEVER, 0
            self._refit_now()

    @property
    def until_due(self) -> int:
        """Number of events until something is due; the model does not change before."""
        if self.led:
            return sys.maxsize
        return (
            min(
                self.next_refit,
                self.next_look,
                self.alarm.due,
                self.pending_refit.due if self.pending_refit else sys.maxsize,
            )
            - self.n_seen
        )

    def do_due(self) -> None:
        """Do what is due at this event count: publish, look, refit, in this order; then add to the history."""
        if not self.led and self.until_due <= 0:
            attempt(self, self._do_due)

    def _do_due(self) -> None:
        """The steps of `do_due`; may fail half-way."""
        before, looks = self.model, self.n_seen >= self.next_look
        if self.pending_refit is not None and self.n_seen >= self.pending_refit.due:
            self._publish(self.pending_refit)
        if self.n_seen >= self.alarm.due:
            self._search_outside()
        if self.n_refits == 0 and self.n_seen >= self.next_refit:  # one cluster of all is nothing to look by
            self._start_refit()
        if looks and self.model is not None:
            self._look()
        if self.n_seen >= self.next_refit:
            self._start_refit()
        if self.model is not before or looks:
            self._note()

    def _refit_now(self, more: Moments | None = None) -> None:
        """Refit at once, from the present clusters and `more`."""

        def refit() -> None:
            self._start_refit(lag=0, more=more)
            self._note()

        attempt(self, refit)

    def _publish_pending(self) -> None:
        """Publish the refit under way, whenever it was due."""
        assert self.pending_refit is not None
        self._publish(self.pending_refit)
        self._note()

    # ---------------------------------------------------------------- refits

    def _start_refit(self, lag: int | None = None, more: Moments | None = None, search: bool = False) -> None:
        """Start a refit from the present clusters and `more`; a refit that is still running is dropped.

        `search`: it is challenged by one from nothing.
        """
        self.pending_refit = None
        self.change_due = NEVER
        if self.model is not None:
            self._recall()  # before a refit that sees nothing of clusters that have gone
        tree, drifted, rows, aside = self._to_refit()
        s, first = self.settings, self.model is None
        evidence = float(tree.total.weight[0])
        self.last_refit = self.n_seen
        warmup = s.warmup
        if warmup is None:
            warmup = max(schedule.first_refit(self.n_features), self.n_waited)
        n_clusters = 1 if self.model is None else len(self.model.ids)
        quiet = schedule.quiet(self.n_seen, n_clusters, self.ids_changed)
        enough = schedule.FULL_SAMPLE * tree.sample_capacity
        full = s.half_life is None and tree.n_events >= enough  # what forgets has a new sample ever again
        self.next_refit = schedule.next_refit(
            self.n_seen, evidence, warmup, s.refit_every, quiet and not drifted, full
        )
        if self.model is None:
            self.model = self._first_model(tree)
        if first and more is None:
            return
        self.n_refits += 1
        fresh = self.failures_in_a_row > 0
        if fresh:
            aside = NOTHING_ASIDE
        start = tree.total if fresh else self._start(tree, drifted, aside)
        start = start if more is None else Moments.stack([widened(start, tree), widened(more, tree)])
        lag = schedule.lag(self.n_seen, self.next_refit) if lag is None else lag
        settling = self.last_challenge == 0.0
        # events at the last challenge
        searched = tree.n_events * self.last_challenge / evidence
        # Soon after a change a search from nothing would find where clusters were beside where they are.
        settled = not self.ids_changed and (drifted or searched >= enough)
        challenged = schedule.challenged(evidence, self.last_challenge, quiet, settled)
        cold = search or challenged or fresh or (drifted and self.ids_changed)
        if cold:
            self.last_challenge = evidence
        more_strays = settling or self.shards.strays.count >= STRAY_GROWTH * self.strays_searched
        if more_strays and rows is None:
            self.strays_searched = self.shards.strays.count
        work = Work(
            s,
            tree.capped(self.shards.most_weight),
            self.model,
            start,
            self.present_rows()[:2],
            self._strays(drifted) if rows is None else self.shards.latest(0),
            more_strays and rows is None,
            cold,
            settling,
            self.n_refits,
            self._judges(drifted) if rows is None else rows,
            drifted,
            self._weight_of_one(),
            aside,
            self.shards.gaps() if rows is None and self.shards.is_replayable else None,
            fresh,
            self.shards.sequence(self.begin),
            float(tree.n_events if rows is None else max(self.n_seen - self.begin, len(rows))),
        )
        self.pending_refit = Refit.started(work, due=self.n_seen + lag, background=s.background and lag > 0)
        if lag == 0:
            self._publish(self.pending_refit)

    def _start(self, tree: SummaryTree, drifted: bool, aside: SetAside) -> Moments:
        """The components that a refit starts from: without those set aside, and retired ones of no weight."""
        assert self.model is not None
        left_out = np.union1d(aside.component, hidden_components(self.model))
        if not drifted and self.model.hidden:
            known, _ = remembered(self.model, hidden_components(self.model), tree, self._weight_of_one())
            left_out = np.setdiff1d(left_out, known)
        clusters = self.model.current.clusters
        rest = np.setdiff1d(np.arange(len(clusters)), left_out)
        return clusters[rest] if len(rest) else clusters

    def _to_refit(self) -> tuple[SummaryTree, bool, Floats | None, SetAside]:
        """Input of a refit: a tree, whether the stream has drifted, the events that show it, components to set aside.

        Soon after a change the tree is made of the present's events alone, since the leaves of the summary hold samples
        of what was before. Components too rare to be judged by those events are set aside, with their events. Rare
        components that have lost their weight are not: they are judged like all others. Retired clusters, and those
        that are away, are set aside wherever the tree holds the latest events alone.
        """
        if self.model is None or not self.begin:
            return self._whole_to_refit()
        rows, weight, covered = self.present_rows()
        n_present = max(self.n_seen - self.begin, len(rows))
        if not covered or min(n_independent_rows(rows), self.evidence * n_present) < MIN_DISTINCT_EVENTS:
            return self._whole_to_refit()
        share = self.model.result.clusters.weight / self.model.result.clusters.weight.sum()
        each = self._weight_of_one()
        alive = self.model.current.clusters.weight >= MIN_BIRTH_EVENTS * each
        rare = np.setdiff1d(
            np.flatnonzero(alive & (share * kish(weight) < MIN_EXPECTED_EVENTS)), large_rows(share)
        )
        away = self._away(rows, self.n_seen - n_present)
        aside = set_aside(self.model, rare, self.shards.live_tree(), each, away)
        everyone = self.model.everyone
        own = np.isin(everyone.nearest(rows).component, aside.component[~aside.retired])
        own |= np.isin(everyone.see(rows).cell, aside.component[aside.retired])  # what is outside may be new
        if own.all():
            return self._whole_to_refit()
        return self.shards.tree_of_rows(rows[~own], weight[~own]), True, rows[~own], aside

    def _whole_to_refit(self) -> tuple[SummaryTree, bool, None, SetAside]:
        """The same of all shards, in the shares of the latest events if the stream has drifted."""
        tree, drifted = self.shards.present(self.evidence)
        if self.model is None or not drifted:
            return tree, drifted, None, NOTHING_ASIDE
        rows, _, at = self.shards.watched()
        away = self._away(rows, int(at[0]))
        aside = set_aside(self.model, NOWHERE, self.shards.live_tree(), self._weight_of_one(), away)
        return tree, True, None, aside

    def _away(self, rows: Floats, first: int) -> Ints:
        """The components of clusters on show that have none of these rows, the latest from event number `first` on.

        A refit of those alone would take them for dead.
        """
        assert self.model is not None
        if not self.settings.follows:
            return NOWHERE
        model = self.model
        away = self._absence > self.n_seen - first
        seen = np.bincount(model.see(rows).cell, minlength=len(model.rows) + 1)[:-1]
        away[model.clusters_shown[model.place[seen > 0]]] = False
        return model.rows[away[model.owners[model.rows]]]

    def _weight_of_one(self) -> float:
        """Average weight of one of the latest events."""
        return float(self.recent(self.look_gap)[1].mean())

    def _judges(self, drifted: bool) -> Floats:
        """The latest events, by which clusters are judged; none if drift is ignored, or too few were watched."""
        latest = self.shards.latest()
        return latest if drifted or (self.settings.follows and len(latest) >= WINDOW_EVENTS) else latest[:0]

    def _strays(self, drifted: bool) -> Floats:
        """Events outside every large cluster: all that are kept or, in a stream that has drifted, the latest."""
        assert self.model is not None
        if not drifted:
            return self.shards.strays.latest()
        latest = self.shards.latest()
        return latest[self.model.large.outside(latest)]

    def _first_model(self, tree: SummaryTree) -> Model:
        """The model before the first refit: one cluster of all events."""
        born = self.lineage.born(self.n_seen, 0, float(tree.total.weight[0]))
        self.learnt_until = self.n_seen
        return Model(0, self.n_seen, single(self.settings, tree), (born,), sketch=self.sketch)

    def _publish(self, refit: Refit) -> None:
        """Publish what a refit found; clusters keep their ids, and lifecycle events are reported."""
        found = refit.result()
        self.pending_refit, self.failures_in_a_row = None, 0
        assert (
            self.model is not None
        )  # with the clusters that the refit began from, though some may have new ids
        self._recall()  # by the weights before the refit, which has seen less of clusters that were vanishing
        version = self.model.version + 1
        ids = self.lineage.follow(
            self.n_seen, version, self.model.ids, found.old_weight, found.new_weight, found.shared
        )
        hidden = frozenset(self.lineage.retired)
        self.ids_changed = set(ids) != set(self.model.ids)
        self.model = Model(version, self.n_seen, found.result, ids, hidden, found.owner, self.sketch)
        if self.moving and len(self.shards.whole):  # it began some time ago
            self.model = moved(self.model, *(part[-CATCH_UP_EVENTS:] for part in self.shards.near()))
        self.learnt_until = self.last_refit
        self.shards.make_room(found.result.n_clusters)
        self.shards.impute(self.model)
        self._recall()
        self.tolerated = max(TOLERATED_SHARE, 2 * found.outside)


def same_sketch(ours: Sketch | None, theirs: Sketch | None) -> bool:
    """Whether both have none, or the same."""
    return theirs is None if ours is None else ours.is_same(theirs)


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
