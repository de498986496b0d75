"""Births between refits: at a look, events outside all clusters become provisional clusters, or resume retired ones."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.continuity import continuous_pairs
from streamclust.engine.model import Model
from streamclust.engine.model_path import Opened
from streamclust.engine.newborn import newborn
from streamclust.engine.present_events import PresentEvents
from streamclust.engine.results import joined, weighing
from streamclust.engine.retirement import Retirement
from streamclust.engine.stream import Stream
from streamclust.engine.tuning import TUNING
from streamclust.moments import Moments


class Births:
    """Opens clusters between refits."""

    def __init__(self, stream: Stream, present: PresentEvents, retirement: Retirement) -> None:
        self.stream = stream
        self.present = present
        self.retirement = retirement

    def open_new(self, gap: int) -> None:
        """Open clusters for events outside all others. A refit at the next look judges them.

        If there are such events but no cluster to open, it begins at this look. If any of the watched events
        raises the doubt, all events since the last look are judged: of a cluster of 2% only five are watched.
        """
        stream, counters, model = self.stream, self.stream.counters, self.stream.published
        rows, weight, (cell, whitened) = self.present.seen(gap)
        self._add_strays(rows, cell, whitened)
        penalty = stream.settings.penalty
        outside = cell == len(model.rows) if penalty is None else beyond(model, rows, penalty)
        if outside.mean() <= counters.tolerated - TUNING.large_share:
            return
        if len(stream.shards.recent.ring):
            rows, weight = stream.shards.recent.latest(max(gap, TUNING.look_sample_events))
            outside = model.outside(rows) if penalty is None else beyond(model, rows, penalty)
        if outside.mean() <= counters.tolerated:
            return
        outside &= ~self._resume(rows, outside, penalty)
        if outside.mean() <= counters.tolerated:
            return
        apart = self._apart(rows[outside])
        if len(apart):
            born = self._open_among(apart, float(gap * weight.mean() / len(rows)))
            counters.change_due = min(counters.change_due, counters.next_look if born else counters.n_seen)

    def open_latest(self, n: int) -> bool:
        """Open clusters for those of the latest n events that are far outside all others; whether there are any.

        Events just outside may be of a cluster that moves: a look tells, which has seen more of them.
        """
        stream, penalty = self.stream, self.stream.settings.penalty
        recent, model = stream.shards.recent, stream.published
        rows, weight = recent.latest(n)
        if not len(rows):
            rows, weight = recent.watched_rows(n), recent.watched_weights(n)
        outside = model.outside(rows) if penalty is None else beyond(model, rows, penalty)
        outside &= ~self._resume(rows, outside, penalty)
        outside &= model.nearest(rows).distance > TUNING.alarm_reach * model.reach
        return bool(outside.any()) and self._open_among(self._apart(rows[outside]), float(weight.mean()))

    def _open_among(self, outsiders: Floats, each: float) -> bool:
        """Open clusters for events outside all others that weigh `each`; whether there are any, young ones included."""
        penalty, evidence = self.stream.settings.penalty, self.present.evidence
        born = newborn(self.stream.published, outsiders, penalty, evidence)
        apart = born[np.flatnonzero(~self._near_young(born.mean))]
        if len(apart) and each > 0:
            self.open(apart.scale(each), each)
        return len(born) > 0

    def _apart(self, outsiders: Floats) -> Floats:
        """Those of some events outside all clusters that are not of a source that has wandered there from the nearest.

        Clusters learn those at looks: they are no reason for a refit.
        """
        if self.present.evidence == 1.0:
            return outsiders
        model = self.stream.published
        k, d = len(model.rows), model.n_coordinates
        rows = self.stream.shards.recent.latest()[0]
        cell = model.see(rows).cell
        outside = cell == k
        cell[outside] = k + model.nearest(rows[outside]).component
        passed = np.diagonal(continuous_pairs(cell, rows[:, :d], 2 * k), k)
        return outsiders[~passed[model.nearest(outsiders).component]]

    def _add_strays(self, rows: Floats, cell: Ints, whitened: Floats) -> None:
        """Keep events outside every large cluster for the search for rare ones."""
        model = self.stream.published
        own = np.einsum("ij,ij->i", whitened, whitened) / 2 <= model.reach
        suspects = rows[~(model.membership.in_large[cell] & own)]  # all others are inside a large cluster
        if len(suspects):
            self.stream.shards.recent.strays.see(suspects[model.large.outside(suspects)], first=0)

    def _resume(self, rows: Floats, outside: Bools, penalty: float | None) -> Bools:
        """Resume the retired clusters that have enough of these rows outside all others; which rows are theirs."""
        model = self.stream.published
        theirs = np.zeros(len(rows), dtype=bool)
        if not model.hidden:
            return theirs
        everyone, places = model.with_retired, np.flatnonzero(outside)
        if penalty is None:
            cell = everyone.see(rows[places]).cell
        else:
            far = beyond(everyone, rows[places], penalty)
            cell = np.where(far, len(everyone.rows), everyone.nearest(rows[places]).component)
        of = np.append(everyone.place, -1)[cell]
        retired = [k for k, cluster in enumerate(model.ids) if cluster in model.hidden]
        fed = [k for k in retired if (of == k).sum() >= TUNING.min_cluster_events]
        theirs[places] = np.isin(of, fed)
        self.retirement.apply({model.ids[k] for k in fed})
        return theirs

    def _near_young(self, means: Floats) -> Bools:
        """Points near a cluster that was born a short while ago."""
        model, born_at, n_seen = self.stream.published, self.stream.lineage.born_at, self.stream.n_seen
        young = [
            n_seen - born_at[name] < TUNING.settled_events and born_at[name] > 0
            for name in model.names.tolist()
        ]
        found = model.ellipsoids
        if not any(young) or n_seen < TUNING.settled_events or found is None:
            return np.zeros(len(means), dtype=bool)
        rows = np.flatnonzero(np.array(young)[model.place])
        gaps = np.einsum("kij,nkj->nki", found.root[rows], means[:, None, found.columns] - found.centre[rows])
        return np.asarray(((gaps**2).sum(axis=2) < TUNING.young_reach * found.reach).any(axis=1))

    def open(self, clusters: Moments, each: float = 1.0) -> None:
        """Publish clusters of events that weigh `each`, provisional until the next refit confirms or absorbs them."""
        stream, model = self.stream, self.stream.published
        stream.pending_refit = None  # it began before them: its result is no longer wanted
        version = model.version + 1
        born = [stream.lineage.born(stream.n_seen, version, weight) for weight in clusters.weight.tolist()]
        learnt = stream.shards.weight
        ids = (*model.ids, *born)
        stream.publish(
            model.changed(
                version=version,
                n_seen=stream.n_seen,
                result=weighing(joined(model.result, clusters), learnt),
                ids=ids,
                owner=model.owner and (*model.owner, *range(len(model.ids), len(ids))),
                running=weighing(joined(model.current, clusters), learnt).clusters,
                opened=(*model.opened, *(Opened(cluster, stream.n_seen, each) for cluster in born)),
            )
        )


def beyond(model: Model, points: Floats, penalty: float) -> Bools:
    """Points farther from every active cluster's mean than a birth costs."""
    means = model.active.clusters.mean
    known = points[:, : means.shape[1]]
    nearest = np.min([((known - mean) ** 2).sum(axis=1) for mean in means], axis=0)
    return np.asarray(nearest > penalty)
