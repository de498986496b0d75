"""Retirement: clusters that the stream no longer feeds are hidden, and shown again when it returns to them."""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.leaf_shares import kish
from streamclust.engine.present_events import PresentEvents
from streamclust.engine.results import NOWHERE
from streamclust.engine.stream import Stream
from streamclust.engine.tuning import TUNING
from streamclust.lineage.visits import shares


class Retirement:
    """Retires and resumes the clusters of a stream."""

    def __init__(self, stream: Stream, present: PresentEvents) -> None:
        self.stream = stream
        self.present = present

    def judge(self) -> None:
        """Retire clusters that the stream no longer feeds, and resume those that it has come back to."""
        if not self.stream.settings.follows:
            return
        model = self.stream.published
        of, each = self.present.all_owners()
        weight = model.membership.weight
        count, share = np.bincount(of, minlength=len(weight)), np.bincount(of, each, len(weight)) / each.sum()
        expected = kish(each) * weight / weight.sum()
        fed = share >= TUNING.retired_share
        retired = np.array([cluster in self.stream.lineage.retired for cluster in model.ids])
        back = retired & fed & (count >= TUNING.presence_events) & self._visited_since_retired()
        gone = ~retired & ~fed & (count < TUNING.presence_events) & (expected >= TUNING.min_expected_events)
        gone &= self._absence() >= self._patience()
        if gone.any():
            gone &= self._independent() * expected >= TUNING.min_expected_events
            gone &= self._known()
        ids = np.array(model.ids)
        self.apply(set(ids[back].tolist()), set(ids[gone].tolist()))

    # ---------------------------------------------------------------- visits

    def note_visits(self) -> None:
        """Note which clusters, retired or not, have been there since this was last done, if enough events have come."""
        model, lineage, recent = self.stream.published, self.stream.lineage, self.stream.shards.recent
        rows, _, at = recent.watched()
        new = np.flatnonzero(at >= lineage.visits.seen)
        if len(new) < TUNING.min_visit_events:
            return
        if model.hidden or model.moved:
            model = model.with_retired
            cell = model.see(rows[new]).cell
        else:
            cell = recent.seen_by(model.published).cell[new]
        ids = np.append(np.array(model.ids)[np.append(model.place, 0)][:-1], -1)[cell]
        lineage.visits = lineage.visits.after(at[new], ids, shares(model.ids, model.membership.weight))

    def retire_absent(self) -> None:
        """Retire clusters that stay away longer than they ever have, and longer than chance would have it."""
        if not self.stream.settings.follows:
            return
        model, absence = self.stream.published, self._absence()
        weight = model.membership.weight
        expected = weight / weight.sum() * absence / TUNING.block_events
        gone = (absence >= np.maximum(self._patience(), TUNING.look_events)) & (
            expected >= TUNING.presence_events
        )
        gone &= [cluster not in self.stream.lineage.retired for cluster in model.ids]
        if gone.any():
            gone &= self._independent() * expected >= TUNING.presence_events
            gone &= self._known()
            self.apply(set(), set(np.array(model.ids)[gone].tolist()))

    def away(self, rows: Floats, first: int) -> Ints:
        """The components of active clusters that have none of these rows, the latest from event number `first` on.

        A refit of those alone would take them for dead.
        """
        if not self.stream.settings.follows:
            return NOWHERE
        model = self.stream.published
        away = self._absence() > self.stream.n_seen - first
        seen = np.bincount(model.see(rows).cell, minlength=len(model.rows) + 1)[:-1]
        away[model.membership.active_clusters[model.place[seen > 0]]] = False
        return np.asarray(model.rows[away[model.membership.owners[model.rows]]])

    def _absence(self) -> Ints:
        """Events since each cluster was last there."""
        return self.stream.lineage.visits.absence(self.stream.published.ids, self.stream.n_seen)

    def _patience(self) -> Floats:
        """Events that each cluster must stay away, at least, to be gone."""
        model = self.stream.published
        weight = model.membership.weight
        share = np.maximum(weight / weight.sum(), np.finfo(float).tiny)
        if self.stream.settings.half_life is None:
            # Its share shrinks as long as it is away, and patience would grow with the absence for ever: of a cluster
            # of which no event is watched any more, half of its share until its last event, if that is more.
            n_seen, absence = self.stream.n_seen, self._absence()
            forgotten = absence > TUNING.window_events * TUNING.block_events
            until_then = share * n_seen / np.maximum(n_seen - absence, 1)
            share = np.where(forgotten, np.clip(until_then / 2, share, 1.0), share)
        return self.stream.lineage.visits.patience(model.ids, share)

    def _visited_since_retired(self) -> Bools:
        """Which clusters have been there since they were retired, or never were."""
        since, records = self.stream.lineage.retired, self.stream.lineage.visits.records
        return np.array(
            [
                name not in records or records[name].last > since.get(name, -1)
                for name in self.stream.published.ids
            ]
        )

    def _independent(self) -> float:
        """Independent events that a watched one is worth in decisions about shares."""
        recent, model = self.stream.shards.recent, self.stream.published
        evidence = recent.sequence(self.stream.counters.begin).share_evidence(model.with_retired)
        return min(1.0, evidence * float(recent.stands_for()[-1]))

    def _known(self) -> Bools:
        """Which clusters are known in all directions: all, or those of D + 1 independent events.

        The source of another may still be there: it wanders in directions that it had not taken before.
        """
        evidence, weight = self.present.evidence, self.stream.published.membership.weight
        n_events = weight / self.present.weight_of_one()
        return np.asarray((evidence == 1.0) | (evidence * n_events > self.stream.published.n_coordinates))

    # ---------------------------------------------------------------- publishing

    def apply(self, back: Set[int], gone: Set[int] = frozenset()) -> None:
        """Resume and retire these clusters; publish a new version of the model if that changes it."""
        model, lineage, n_seen = self.stream.published, self.stream.lineage, self.stream.n_seen
        version = model.version + 1
        for cluster, weight in zip(model.ids, model.membership.weight.tolist(), strict=True):
            if cluster in back:
                lineage.resume(n_seen, version, cluster, weight)
            elif cluster in gone:
                lineage.retire(n_seen, version, cluster, weight)
        hidden = frozenset(lineage.retired)
        if hidden != model.hidden:
            self.stream.publish(model.changed(version=version, n_seen=n_seen, hidden=hidden))
