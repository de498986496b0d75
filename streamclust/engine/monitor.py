"""Monitor: compares the stream with its model at fixed event counts, called looks, between refits."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Bools, Floats
from streamclust.engine import drift, schedule
from streamclust.engine.births import Births
from streamclust.engine.cluster_updates import moved, with_latest
from streamclust.engine.drift import Findings
from streamclust.engine.new_features import FeatureSearch
from streamclust.engine.outside_alarm import Outside, OutsideAlarm
from streamclust.engine.present_events import PresentEvents
from streamclust.engine.retirement import Retirement
from streamclust.engine.schedule import RefitRequest
from streamclust.engine.stream import Stream
from streamclust.engine.tuning import TUNING


class Monitor:
    """Moves and updates clusters, opens and retires them, and asks for a refit if the stream has changed."""

    def __init__(
        self, stream: Stream, present: PresentEvents, retirement: Retirement, features: FeatureSearch
    ) -> None:
        self.stream = stream
        self.present = present
        self.retirement = retirement
        self.features = features
        self.births = Births(stream, present, retirement)
        self._outside: Outside | None = None
        """Tells which events are outside every cluster of the model."""

    def look(self) -> RefitRequest | None:
        """Bring the model up to date; the refit that should follow, if any."""
        counters = self.stream.counters
        gap = counters.look_gap
        found = self._follow()
        span = None if found.fresh is None else found.fresh.span
        counters.look_gap = schedule.next_gap(counters.n_seen, gap, span)
        counters.next_look = counters.n_seen + counters.look_gap
        self.features.hasten_look()
        self._learn_latest(gap)
        if not self.features.lacks_directions:
            self.births.open_new(gap)
        self.retirement.note_visits()
        self.retirement.retire_absent()
        thorough = schedule.thorough(counters.n_seen, gap)
        if thorough or counters.look_gap < TUNING.look_events:
            self.retirement.judge()
        if thorough or self._opened_since_refit:
            self.stream.show_as_of_now()
        return self._refit_request(thorough)

    @property
    def _opened_since_refit(self) -> bool:
        """Whether there are clusters that no refit has judged."""
        opened = self.stream.published.opened
        return bool(opened) and opened[-1].at > self.stream.counters.last_refit

    def _refit_request(self, thorough: bool) -> RefitRequest | None:
        """The refit that new features, a change or, at a thorough look, drift ask for."""
        counters = self.stream.counters
        waited = thorough and counters.n_seen >= counters.last_refit + self.stream.settings.refit_every
        if counters.n_seen >= counters.feature_due:
            return self.features.search()
        if counters.n_seen >= counters.change_due or (waited and self._drifts()):
            return RefitRequest(schedule.lag_of_change(counters.n_seen, counters.n_seen - counters.begin))
        return None

    # ---------------------------------------------------------------- between looks

    def watch(self, rows: Floats, missing: Bools | None = None) -> tuple[int, OutsideAlarm]:
        """How many of the next rows come until the outside alarm sounds, at most all, and its state after them.

        They are in the clusters' coordinates; those with `missing` values count for nothing.
        """
        stream, counters = self.stream, self.stream.counters
        if stream.model is None or stream.led or self.features.lacks_directions or not len(rows):
            return len(rows), counters.alarm
        if self._outside is None or self._outside.model is not stream.model:
            self._outside = Outside(stream.model, stream.settings.penalty)
        return self._outside.watch(counters.alarm, rows, counters.n_seen, counters.tolerated, missing)

    def search_outside(self) -> None:
        """The outside alarm has sounded: move clusters, then open some for the events outside since its level left 0.

        A look follows soon if clusters were opened, and with it a refit that judges them.
        """
        counters = self.stream.counters
        n = counters.n_seen - counters.alarm.since
        counters.alarm = counters.alarm.silenced()
        self._follow()
        if self.births.open_latest(n):
            soon = max(
                counters.n_seen + TUNING.look_sample_events, counters.next_look - counters.look_gap + 1
            )
            counters.change_due = min(counters.change_due, soon)
            if soon < counters.next_look:
                counters.look_gap -= counters.next_look - soon
                counters.next_look = soon

    # ---------------------------------------------------------------- parts of a look

    def _drifts(self) -> bool:
        """Whether the latest events are spread otherwise than all events."""
        return self.present.drifts_from(self.stream.shards.live_tree())

    def _follow(self) -> Findings:
        """Move clusters that have moved, and find out since when the stream is as it is."""
        counters, model = self.stream.counters, self.stream.published
        if not (self.stream.settings.follows and model.whitened_features):  # counts have no deviations
            return Findings(fits=True)
        found = drift.look(self.stream.shards, model, counters)
        counters.moving = found.fresh is not None
        if found.fresh is not None:
            self.stream.model = moved(model, found.fresh.rows, found.fresh.weight)
        if found.since is not None and self._is_certain(found.since.span):
            span = found.since.span
            counters.begin = max(counters.begin, counters.n_seen - span)
            due = counters.n_seen + schedule.wait_after_change(span, found.fits)
            counters.change_due = min(counters.change_due, due)
        return found

    def _is_certain(self, span: int) -> bool:
        """Whether a change was seen in enough independent events; notes how dependent they are, as the past ends."""
        counters = self.stream.counters
        counters.known_time = 1.0 / self.present.evidence
        return span >= TUNING.min_change_events * len(self.stream.published.rows) * counters.known_time

    def _learn_latest(self, gap: int) -> None:
        """Update the clusters with the events since their last update, unless those weigh little."""
        counters, model = self.stream.counters, self.stream.published
        since, still = counters.n_seen - counters.learnt_until, not model.moved
        rows, weight, seen = self.present.seen(gap)
        total, each = self.stream.shards.weight, float(weight.mean())
        fresh, present = min(since * each, total), total
        if counters.begin:
            present = min(total, max(counters.n_seen - counters.begin, TUNING.min_search_events) * each)
        if still and 0 < fresh < TUNING.min_fresh_share * present:
            return
        if fresh > 0:
            if still and TUNING.look_events <= gap < since:
                rows, weight, seen = self.present.seen(since)
            self.stream.model = model.learnt(
                with_latest(model, rows, weight, seen.cell, fresh, present, total)
            )
        counters.learnt_until = counters.n_seen

    def add_to_history(self) -> None:
        """Record how the latest events are shared among the active clusters."""
        model, gap = self.stream.published, self.stream.counters.look_gap
        if len(model.names) == 1:  # at the first event above all: `seen` would have to load SciPy
            sums = [float(self.present.recent(gap)[1].sum())]
        else:
            rows, weight, seen = self.present.seen(gap)
            sums = np.bincount(self.present.owners(rows, seen.cell), weight, len(model.names)).tolist()
        stream, of_finest = self.stream, dict(zip(model.names.tolist(), sums, strict=True))
        stream.lineage.history.add(stream.n_seen, of_finest)
        if stream.level.lineage is not None:
            stream.level.lineage.history.add(stream.n_seen, model.summed_by_shown(of_finest))
