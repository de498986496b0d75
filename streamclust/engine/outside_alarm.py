"""Outside alarm: a sequential test, event by event, of whether more events than usual are outside every cluster.

Looks come every 256 to 2,048 events. A cluster that appears and takes most of the stream need not wait for the next:
the log-likelihood ratio of "half of the events are outside" and "as many as usual" is summed up, never below 0 [Page's
CUSUM]. While the sum is 0, one event in eight, chosen by a hash of its number, is compared with the clusters; above 0
every event is. At a bar the alarm sounds, and the events since the sum left 0 are searched for new clusters. If there
are none, the bar is twice as high until the sum is 0 again: a source that wanders out of its cluster for a while costs
a few searches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamclust._kernels.engine.outside import watch_outside
from streamclust._kernels.hashing import splitmix64_of
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.model import Model
from streamclust.engine.schedule import NEVER
from streamclust.engine.tuning import TUNING
from streamclust.engine.watched_events import chosen_of

AT_ONCE = 32
"""Events of counts that are compared in one call: more or fewer cost time, and change nothing."""
NONE_MISSING: Bools = np.zeros(0, dtype=bool)


class OutsideAlarm(NamedTuple):
    """State of the test after some event; immutable."""

    level: float = 0.0
    """The sum, in nats."""
    bar: float = TUNING.alarm_nats
    """Level at which the alarm sounds."""
    since: int = 0
    """Number of the event at which the level left 0."""
    due: int = NEVER
    """Event count at which the alarm sounds, once the level has reached the bar."""

    def silenced(self) -> OutsideAlarm:
        """After a search that opened no cluster: it sounds again at twice the level."""
        return self._replace(bar=max(self.bar, 2.0 * self.level), due=NEVER)


class Outside:
    """Tells which events are outside every cluster of a model, for the alarm.

    Those are beyond the ellipsoids that hold nearly all of a cluster's events or, given a penalty, beyond balls of that
    radius squared; for families of counts, which have neither, events likelier under the prior.
    """

    def __init__(self, model: Model, penalty: float | None) -> None:
        self.model = model
        self.ellipsoids: tuple[Floats, Floats, float] | None = None
        """Mean and root of each, and the bound of ‖root (x - mean)‖² within."""
        self.columns: Ints | None = None
        """Columns that the ellipsoids are of; None: all."""
        found = model.ellipsoids
        if found is not None:
            mean, root = np.ascontiguousarray(found.centre), np.ascontiguousarray(found.root)
            self.ellipsoids = mean, root, found.reach
            if len(found.columns) < model.n_coordinates:
                self.columns = found.columns
            elif penalty is not None:
                mean = np.ascontiguousarray(model.active.clusters.mean)
                self.ellipsoids = (
                    mean,
                    np.broadcast_to(np.eye(mean.shape[1]), root.shape).copy(),
                    float(penalty),
                )

    def watch(
        self, alarm: OutsideAlarm, rows: Floats, first: int, usual: float, missing: Bools | None = None
    ) -> tuple[int, OutsideAlarm]:
        """How many of these rows come until the alarm sounds, at most all, and its state after them.

        The first row is number `first` of the stream; `usual` is the usual share of rows outside every cluster.
        """
        if alarm.level == 0.0 and len(rows) == 1 and sampled_in(first // TUNING.block_events) != first:
            return 1, alarm  # most single events: nothing to compare
        sampled = chosen_of(first, len(rows), window=0)
        sampled = sampled[sampled + first >= TUNING.min_search_events]
        incomplete: Bools = NONE_MISSING if missing is None else np.asarray(missing.any(axis=1))
        state = np.array([alarm.level, alarm.bar, 0.0], dtype=np.float64)  # checkpoints may hold integers
        usual = min(usual, TUNING.major_share / 2)
        gain, loss = np.log(TUNING.major_share / usual), np.log((1.0 - usual) / (1.0 - TUNING.major_share))
        if self.columns is not None:
            rows = np.ascontiguousarray(rows[:, self.columns])
        if self.ellipsoids is not None:
            n = watch_outside(
                rows, incomplete, sampled, *self.ellipsoids, gain, loss, TUNING.alarm_nats, state
            )
        else:
            n = self._watch_counts(rows, sampled, gain, loss, state)
        level, bar, place = state.tolist()
        since = alarm.since if place < 0 else first + int(place)
        return n, OutsideAlarm(level, bar, since, first + n if level >= bar else NEVER)

    def _watch_counts(self, rows: Floats, sampled: Ints, gain: float, loss: float, state: Floats) -> int:
        """`watch_outside` of events of counts, which are complete."""
        level, bar, since = state[0], state[1], -1.0
        suspects = sampled[self.model.outside(rows[sampled])] if len(sampled) else sampled
        known, start = np.zeros(0, dtype=bool), 0
        p = 0
        while p < len(rows):
            if level == 0.0:
                later = suspects[np.searchsorted(suspects, p) :]
                if not len(later):
                    break
                p = since = int(later[0])
                bar, outside = TUNING.alarm_nats, True
            else:
                if not start <= p < start + len(known):
                    start, known = p, self.model.outside(rows[p : p + AT_ONCE])
                outside = bool(known[p - start])
            level = level + gain if outside else max(0.0, level - loss)
            p += 1
            if level >= bar:
                state[:] = level, bar, since
                return p
        state[:] = level, bar, since
        return len(rows)


def sampled_in(block: int) -> int:
    """`watched_in` of one block, sooner.

    >>> from streamclust.engine.watched_events import watched_in
    >>> all(sampled_in(block) == watched_in(np.array([block]))[0] for block in range(100))
    True
    """
    return TUNING.block_events * block + (splitmix64_of(block + 1) >> 61)
