"""Looking: what an engine does at a look, between refits: learn, judge, open and retire clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine import ladder, schedule
from streamclust.engine.births import MIN_BIRTH_EVENTS, newborn
from streamclust.engine.continuity import continuous_pairs
from streamclust.engine.ladder import Findings
from streamclust.engine.model import Model, Seen, joined, reach, weighing
from streamclust.engine.new_features import NewFeatures
from streamclust.engine.outside_alarm import Outside, OutsideAlarm
from streamclust.engine.present import kish
from streamclust.engine.refits import Refit
from streamclust.engine.running import moved, with_latest
from streamclust.engine.shards import LOOK_SAMPLE_EVENTS
from streamclust.engine.watch import BLOCK_EVENTS, WINDOW_EVENTS
from streamclust.families.cost_form import Quadratic
from streamclust.lineage import Lineage
from streamclust.moments import Moments
from streamclust.visits import shares

MIN_PRESENT_EVENTS = 1024
"""The present, the time for which the stream has been as it is, has at least so many events: from fewer a refit would
merge clusters that are far apart."""
MIN_CHANGE_EVENTS = 2.0
"""A change counts if it is seen in so many independent events of each cluster: of fewer the mean wanders anyway."""
MIN_FRESH_SHARE = 1 / 32
"""Clusters learn at a look once the events that they do not know of weigh this share of the present."""
TOLERATED_SHARE = 0.01
"""The stream has changed if a larger share of the latest events is outside every cluster."""
MIN_EXPECTED_EVENTS = 30.0
"""A cluster is judged for retirement if its weight lets expect at least so many of the present's events."""
RETIRED_SHARE = 0.002
"""It is retired if it has a smaller share of them, which chance brings about once in a million, and has not stayed away
so long before."""
MIN_ABSENCE_EVENTS = schedule.LOOK_EVENTS
"""No cluster is retired that was there less than so many events ago."""
MIN_ABSENT_EVENTS = 16.0
"""A cluster of which no event is watched is gone where so many would be expected: chance once in ten million."""
MIN_VISIT_EVENTS = 128
"""Watched events from which it is noted which clusters were there."""
RETURN_EVENTS = 16
"""A retired cluster is active again once it has so many of the present's events."""
YOUNG_EVENTS = 4096
"""A cluster is young for so many events after its birth. Until then new clusters near it are taken for parts of it."""
YOUNG_REACH = 6.0
"""Near a young cluster: within so many times the squared distance that holds nearly all of its events."""


class Looking(NewFeatures):
    """The part of an engine that compares the stream with its model, at fixed event counts."""

    lineage: Lineage
    last_refit: int
    tolerated: float
    learnt_until: int
    """Event count up to which the clusters have learnt the stream."""
    moving: bool
    """Whether clusters were moving at the last look."""
    pending_refit: Refit | None
    change_due: int
    """Event count from which a look starts a refit because the stream has changed."""
    alarm: OutsideAlarm
    _outside: Outside | None = None
    """Tells which events are outside every cluster of the model."""
    _last_seen: tuple[tuple[int, int], Model, tuple[Floats, Floats, Seen]] | None = None
    """What `_seen` gave last: at which event, of how many events, by which model."""

    def _look(self) -> None:
        """Move and update the clusters; open and retire clusters; start a refit if the stream has changed."""
        assert self.model is not None
        gap = self.look_gap
        self.known_time = 1.0 / self.evidence
        found = self._follow()
        self.look_gap = schedule.next_gap(self.n_seen, gap, None if found.fresh is None else found.fresh.span)
        self.next_look = self.n_seen + self.look_gap
        self._hasten_look()
        self._learn_latest(gap)
        self._open_new(gap)
        self._note_visits()
        self._retire_absent()
        thorough = schedule.thorough(self.n_seen, gap)
        if thorough or self.look_gap < schedule.LOOK_EVENTS:
            self._recall()
        waited = thorough and self.n_seen >= self.last_refit + self.settings.refit_every
        if self.n_seen >= self.feature_due:
            self._search_features()
        elif self.n_seen >= self.change_due or (waited and self._drifts()):
            self._start_refit(lag=schedule.lag_of_change(self.n_seen, self.n_seen - self.begin))

    def _drifts(self) -> bool:
        """Whether the latest events are spread otherwise than all events."""
        return self.shards.changing(self.shards.live_tree(), self.evidence)

    def _follow(self) -> Findings:
        """Move clusters that have moved, and find out since when the stream is as it is."""
        assert self.model is not None
        if not (
            self.settings.follows and self.model.whitened_features
        ):  # counts have no deviations to compare
            return Findings(fits=True)
        found = ladder.look(self.shards, self.model, self.n_seen, self.begin, self.moving, self.tolerated)
        self.moving = found.fresh is not None
        if found.fresh is not None:
            self.model = moved(self.model, found.fresh.rows, found.fresh.weight)
        if found.since is not None and found.since.span * self.evidence >= MIN_CHANGE_EVENTS * len(
            self.model.rows
        ):
            span = found.since.span
            self.begin = max(self.begin, self.n_seen - span)
            self.change_due = min(self.change_due, self.n_seen + schedule.wait_after_change(span, found.fits))
        return found

    def recent(self, gap: int) -> tuple[Floats, Floats]:
        """Events that stand for the last `gap`, and their weights."""
        n = self._sampled(gap)
        if not n:
            return self.shards.near(LOOK_SAMPLE_EVENTS)
        return self.shards.latest(n), self.shards.latest_weights(n)

    def _sampled(self, gap: int) -> int:
        """How many watched events of each shard stand for the last `gap` events; 0, if the latest in a row do."""
        if gap < schedule.LOOK_EVENTS and len(self.shards.whole):
            return 0
        n = min(max(gap // BLOCK_EVENTS, LOOK_SAMPLE_EVENTS), WINDOW_EVENTS)
        return n // max(1, len(self.shards))

    def _seen(self, gap: int) -> tuple[Floats, Floats, Seen]:
        """The events of `recent`, their weights, and how the model sees them; watched ones are labelled once.

        By the model as it was published, until clusters move: what they learn at a look changes few labels.
        """
        assert self.model is not None
        n = self._sampled(gap)
        model = self.model.published if n and not self.model.moved else self.model
        known = self._last_seen
        if known is None or known[0] != (self.n_seen, n) or known[1] is not model:
            rows, weight = self.recent(gap)
            seen = model.see(rows) if model is self.model else self.shards.latest_seen_by(model, n)
            known = self._last_seen = (self.n_seen, n), model, (rows, weight, seen)
        return known[2]

    def present_rows(self) -> tuple[Floats, Floats, bool]:
        """The events kept of the present, at least 1,024 if there are, their weights, and whether they cover it.

        They are the latest events in a row and, of the time before those, the watched ones, each of which stands for
        all events of its block.
        """
        first = self.n_seen - max(self.n_seen - self.begin, MIN_PRESENT_EVENTS)
        rows, weight = self.shards.near()
        start = self.n_seen - len(rows)
        if first >= start:
            return rows[first - self.n_seen :], weight[first - self.n_seen :], True
        older, each, at = self.shards.watched()
        between = (at >= first) & (at < start)
        covered = bool(at[0] <= first)
        older, each = older[between], (each * self.shards.stands_for())[between]
        if not len(rows):
            return older, each, covered
        return np.concatenate([older, rows]), np.concatenate([each, weight]), covered

    def _learn_latest(self, gap: int) -> None:
        """Let the clusters know of the events that have come since they last did, unless those weigh little."""
        assert self.model is not None
        since, still = self.n_seen - self.learnt_until, not self.model.moved
        rows, weight, seen = self._seen(gap)
        total, each = self.shards.weight, float(weight.mean())
        fresh = min(since * each, total)
        present = (
            min(total, max(self.n_seen - self.begin, MIN_PRESENT_EVENTS) * each) if self.begin else total
        )
        if still and 0 < fresh < MIN_FRESH_SHARE * present:
            return
        if fresh > 0:
            if still and schedule.LOOK_EVENTS <= gap < since:
                rows, weight, seen = self._seen(since)
            self.model = self.model.learnt(
                with_latest(self.model, rows, weight, seen.cell, fresh, present, total)
            )
        self.learnt_until = self.n_seen

    def _open_new(self, gap: int) -> None:
        """Open clusters for events outside all others. A refit at the next look judges them.

        If there are such events but no cluster to open, it begins at this look. If any of the watched events
        raises the doubt, all events since the last look are judged: of a cluster of 2% only five are watched.
        """
        assert self.model is not None
        if self._lacks_directions:
            return
        rows, weight, (cell, whitened) = self._seen(gap)
        outside = cell == len(self.model.rows)
        own = np.einsum("ij,ij->i", whitened, whitened) / 2 <= reach(self.model.n_coordinates)
        suspects = rows[~(self.model.in_large[cell] & own)]  # all others are inside a large cluster
        if len(suspects):
            self.shards.strays.see(suspects[self.model.large.outside(suspects)], first=0)
        penalty = self.settings.birth_penalty
        if penalty is not None:
            outside = self._beyond(rows, penalty)
        if outside.mean() <= self.tolerated - TOLERATED_SHARE:
            return
        if len(self.shards.whole):
            rows, weight = self.shards.near(max(gap, LOOK_SAMPLE_EVENTS))
            outside = self.model.outside(rows) if penalty is None else self._beyond(rows, penalty)
        if outside.mean() <= self.tolerated:
            return
        outside &= ~self._resume(rows, outside, penalty)
        if outside.mean() <= self.tolerated:
            return
        born = self._open_among(rows[outside], float(gap * weight.mean() / len(rows)))
        self.change_due = min(self.change_due, self.next_look if born else self.n_seen)

    def _open_among(self, outsiders: Floats, each: float) -> bool:
        """Open clusters for events outside all others that weigh `each`; whether there are any, young ones included."""
        assert self.model is not None
        if self.evidence < 1.0:
            outsiders = outsiders[~self._strayed(outsiders)]
        born = newborn(self.model, outsiders, self.settings.birth_penalty, self.evidence)
        old = born[np.flatnonzero(~self._near_young(born.mean))]
        if len(old) and each > 0:
            self._open(old.scale(each))
        return len(born) > 0

    def _strayed(self, outsiders: Floats) -> Bools:
        """Which of these events, outside all clusters, are of a source that has wandered there from the nearest one."""
        assert self.model is not None
        k, d = len(self.model.rows), self.model.n_coordinates
        rows = self.shards.near()[0]
        cell = self.model.see(rows).cell
        beyond = cell == k
        cell[beyond] = k + self.model.nearest(rows[beyond]).component
        passed = np.diagonal(continuous_pairs(cell, rows[:, :d], 2 * k), k)
        return np.asarray(passed[self.model.nearest(outsiders).component])

    def watch_outside(self, rows: Floats, missing: Bools | None = None) -> tuple[int, OutsideAlarm]:
        """How many of the next rows come until the outside alarm sounds, at most all, and its state after them.

        They are in the clusters' coordinates; those with `missing` values count for nothing.
        """
        if self.model is None or self.led or self._lacks_directions or not len(rows):
            return len(rows), self.alarm
        if self._outside is None or self._outside.model is not self.model:
            self._outside = Outside(self.model, self.settings.birth_penalty)
        return self._outside.watch(self.alarm, rows, self.n_seen, self.tolerated, missing)

    def _search_outside(self) -> None:
        """The outside alarm has sounded: move clusters, then open some for the events outside since its level left 0.

        A look follows soon if clusters were opened, and with it a refit that judges them.
        """
        assert self.model is not None
        n = self.n_seen - self.alarm.since
        self.alarm = self.alarm.silenced()
        self._follow()
        rows, weight = self.shards.near(n)
        penalty = self.settings.birth_penalty
        outside = self.model.outside(rows) if penalty is None else self._beyond(rows, penalty)
        outside &= ~self._resume(rows, outside, penalty)
        if outside.any() and self._open_among(rows[outside], float(weight.mean())):
            soon = max(self.n_seen + schedule.MIN_GAP_EVENTS, self.next_look - self.look_gap + 1)
            self.change_due = min(self.change_due, soon)
            if soon < self.next_look:
                self.look_gap -= self.next_look - soon
                self.next_look = soon

    def _resume(self, rows: Floats, outside: Bools, penalty: float | None) -> Bools:
        """Resume the retired clusters that have enough of these rows outside all others; which rows are theirs."""
        assert self.model is not None
        theirs = np.zeros(len(rows), dtype=bool)
        if not self.model.hidden:
            return theirs
        everyone = self.model.everyone
        places = np.flatnonzero(outside)
        if penalty is None:
            cell = everyone.see(rows[places]).cell
        else:
            cell = np.where(
                self._beyond(rows[places], penalty, everyone),
                len(everyone.rows),
                everyone.nearest(rows[places]).component,
            )
        of = np.append(everyone.place, -1)[cell]
        retired = [k for k, cluster in enumerate(self.model.ids) if cluster in self.model.hidden]
        fed = [k for k in retired if (of == k).sum() >= MIN_BIRTH_EVENTS]
        theirs[places] = np.isin(of, fed)
        self._show({self.model.ids[k] for k in fed}, set())
        return theirs

    def _near_young(self, means: Floats) -> Bools:
        """Which of these points are near a cluster that was born a short while ago."""
        assert self.model is not None
        born_at = self.lineage.born_at
        young = [
            self.n_seen - born_at[name] < YOUNG_EVENTS and born_at[name] > 0
            for name in self.model.names.tolist()
        ]
        form = self.model.form
        if not any(young) or self.n_seen < YOUNG_EVENTS or not isinstance(form, Quadratic):
            return np.zeros(len(means), dtype=bool)
        rows = np.flatnonzero(np.array(young)[self.model.place])
        gaps = np.einsum(
            "kij,nkj->nki", form.root[rows], means[:, None, : self.model.n_coordinates] - form.centre[rows]
        )
        return np.asarray(((gaps**2).sum(axis=2) < YOUNG_REACH * reach(self.model.n_coordinates)).any(axis=1))

    def _open(self, clusters: Moments) -> None:
        """Publish new clusters, provisional until the next refit confirms or absorbs them."""
        assert self.model is not None
        self.pending_refit = None  # it began before them: its result is no longer wanted
        version = self.model.version + 1
        born = [self.lineage.born(self.n_seen, version, weight) for weight in clusters.weight.tolist()]
        learnt = self.shards.weight
        result = weighing(joined(self.model.result, clusters), learnt)
        running = weighing(joined(self.model.current, clusters), learnt).clusters
        ids = (*self.model.ids, *born)
        owner = self.model.owner and (*self.model.owner, *range(len(self.model.ids), len(ids)))
        self.model = replace(
            self.model,
            version=version,
            n_seen=self.n_seen,
            result=result,
            ids=ids,
            owner=owner,
            running=running,
        )

    def _recall(self) -> None:
        """Retire clusters that the stream no longer feeds, and resume those that it has come back to."""
        assert self.model is not None
        if not self.settings.follows:
            return
        of, each = self._present_owners()
        weight = self.model.weight
        count, share = np.bincount(of, minlength=len(weight)), np.bincount(of, each, len(weight)) / each.sum()
        expected = kish(each) * weight / weight.sum()
        fed = share >= RETIRED_SHARE
        retired = np.array([cluster in self.lineage.retired for cluster in self.model.ids])
        back = retired & fed & (count >= RETURN_EVENTS) & self._visited_since_retired
        gone = ~retired & ~fed & (count < RETURN_EVENTS) & (expected >= MIN_EXPECTED_EVENTS)
        gone &= self._absence >= self._patience
        if gone.any():
            gone &= self._independent * expected >= MIN_EXPECTED_EVENTS
        ids = np.array(self.model.ids)
        self._show(set(ids[back].tolist()), set(ids[gone].tolist()))

    def _note_visits(self) -> None:
        """Note which clusters, retired or not, have been there since this was last done, if enough events have come."""
        assert self.model is not None
        rows, _, at = self.shards.watched()
        new = np.flatnonzero(at >= self.lineage.visits.seen)
        if len(new) < MIN_VISIT_EVENTS:
            return
        model = self.model
        if model.hidden or model.moved:
            model = model.everyone
            cell = model.see(rows[new]).cell
        else:
            cell = self.shards.seen_by(model.published).cell[new]
        ids = np.append(np.array(model.ids)[np.append(model.place, 0)][:-1], -1)[cell]
        self.lineage.visits = self.lineage.visits.after(at[new], ids, shares(model.ids, model.weight))

    @property
    def _absence(self) -> Ints:
        """Events since each cluster was last there."""
        assert self.model is not None
        return self.lineage.visits.absence(self.model.ids, self.n_seen)

    @property
    def _patience(self) -> Floats:
        """Events that each cluster must stay away, at least, to be gone."""
        assert self.model is not None
        share = self.model.weight / self.model.weight.sum()
        return self.lineage.visits.patience(self.model.ids, np.maximum(share, np.finfo(float).tiny))

    @property
    def _visited_since_retired(self) -> Bools:
        """Which clusters have been there since they were retired, or never were."""
        assert self.model is not None
        since, records = self.lineage.retired, self.lineage.visits.records
        return np.array(
            [name not in records or records[name].last > since.get(name, -1) for name in self.model.ids]
        )

    def _retire_absent(self) -> None:
        """Retire clusters that stay away longer than they ever have, and longer than chance would have it."""
        assert self.model is not None
        if not self.settings.follows:
            return
        absence = self._absence
        long = absence >= np.maximum(self._patience, MIN_ABSENCE_EVENTS)
        expected = self.model.weight / self.model.weight.sum() * absence / BLOCK_EVENTS
        gone = long & (expected >= MIN_ABSENT_EVENTS)
        gone &= [cluster not in self.lineage.retired for cluster in self.model.ids]
        if gone.any():
            gone &= self._independent * expected >= MIN_ABSENT_EVENTS
            self._show(set(), set(np.array(self.model.ids)[gone].tolist()))

    @property
    def _independent(self) -> float:
        """Independent events that a watched one is worth in decisions about shares."""
        assert self.model is not None
        evidence = self.shards.sequence(self.begin).share_evidence(self.model.everyone)
        return min(1.0, evidence * float(self.shards.stands_for()[-1]))

    def _show(self, back: set[int], gone: set[int]) -> None:
        """Resume and retire clusters, and publish a model of those on show if these have changed."""
        assert self.model is not None
        version = self.model.version + 1
        for cluster, weight in zip(self.model.ids, self.model.weight.tolist(), strict=True):
            if cluster in back:
                self.lineage.resume(self.n_seen, version, cluster, weight)
            elif cluster in gone:
                self.lineage.retire(self.n_seen, version, cluster, weight)
        hidden = frozenset(self.lineage.retired)
        if hidden != self.model.hidden:
            self.model = replace(self.model, version=version, n_seen=self.n_seen, hidden=hidden)

    def _present_owners(self) -> tuple[Ints, Floats]:
        """The cluster, hidden or not, of each of the events kept of the present, and what they weigh.

        If the present is as long as the watched events last, those alone: they are labelled already.
        """
        assert self.model is not None
        model = self.model
        if model.hidden or model.moved or self.n_seen - self.begin < BLOCK_EVENTS * WINDOW_EVENTS:
            rows, each, _ = self.present_rows()
            of = np.append(model.everyone.place, -1)[model.everyone.see(rows).cell]
            alone = np.flatnonzero(of < 0)  # an event outside all clusters says nothing of a retired one
            of[alone] = model.clusters_shown[model.nearest(rows[alone]).cluster]
            return of, each
        rows, each, _ = self.shards.watched()
        cell = self.shards.seen_by(model.published).cell
        return self._owners(rows, cell), each * self.shards.stands_for()

    def _owners(self, rows: Floats, cell: Ints) -> Ints:
        """The cluster on show of each row, given its cell: of those that are in none the one of least cost."""
        assert self.model is not None
        of = np.append(self.model.place, -1)[cell]
        alone = (of < 0).nonzero()[0]
        if len(alone):
            of[alone] = self.model.nearest(rows[alone]).cluster
        return of

    def _note(self) -> None:
        """Keep in the history how the latest events share out among the clusters on show."""
        assert self.model is not None
        if len(self.model.names) == 1:  # at the first event above all: `_seen` would have to load SciPy
            sums = [float(self.recent(self.look_gap)[1].sum())]
        else:
            rows, weight, seen = self._seen(self.look_gap)
            sums = np.bincount(self._owners(rows, seen.cell), weight, len(self.model.names)).tolist()
        self.lineage.history.add(self.n_seen, dict(zip(self.model.names.tolist(), sums, strict=True)))

    def _beyond(self, points: Floats, penalty: float, model: Model | None = None) -> Bools:
        """Which points are farther from every cluster's mean than a birth costs."""
        assert self.model is not None
        means = (model or self.model).shown.clusters.mean
        known = points[:, : means.shape[1]]
        nearest = np.min([((known - mean) ** 2).sum(axis=1) for mean in means], axis=0)
        return np.asarray(nearest > penalty)
