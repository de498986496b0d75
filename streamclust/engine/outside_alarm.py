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
from streamclust._kernels.types import Bools, Floats
from streamclust.engine.model import Model, as_arrays, reach
from streamclust.engine.new_features import NEVER
from streamclust.engine.watch import BLOCK_EVENTS, chosen_of
from streamclust.families.cost_form import Quadratic

ALARM_SHARE = 0.5
"""Share of events outside every cluster that is tested against the usual share."""
ALARM_NATS = 20.0
"""Log-likelihood ratio at which the alarm sounds first: six events in a row, where one in a hundred is usual."""
FIRST_EVENT = 1024
"""Number of the first event watched: before it, refits come often, and clusters are known too little."""

NONE_MISSING: Bools = np.zeros(0, dtype=bool)


class OutsideAlarm(NamedTuple):
    """State of the test after some event; immutable."""

    level: float = 0.0
    """The sum, in nats."""
    bar: float = ALARM_NATS
    """Level at which the alarm sounds."""
    since: int = 0
    """Number of the event at which the level left 0."""
    due: int = NEVER
    """Event count at which the alarm sounds, once the level has reached the bar."""

    def silenced(self) -> OutsideAlarm:
        """After a search that opened no cluster: it sounds again at twice the level."""
        return self._replace(bar=max(self.bar, 2.0 * self.level), due=NEVER)


class Outside(NamedTuple):
    """Ellipsoids of a model's clusters, for the kernel: inside are points with ‖root (x - mean)‖² <= `within`."""

    model: Model
    mean: Floats
    root: Floats
    within: float

    @classmethod
    def of(cls, model: Model, penalty: float | None) -> Outside | None:
        """Those within which a cluster has nearly all of its events or, given a penalty, balls of that radius squared.

        None for families of counts, whose clusters have neither.
        """
        if not isinstance(model.form, Quadratic):
            return None
        if penalty is None:
            mean, root, _ = as_arrays(model.form)
            assert root is not None
            return cls(model, mean, root, reach(model.n_coordinates))
        mean = np.ascontiguousarray(model.shown.clusters.mean)
        root = np.broadcast_to(np.eye(mean.shape[1]), (len(mean), mean.shape[1], mean.shape[1])).copy()
        return cls(model, mean, root, penalty)

    def watch(
        self, alarm: OutsideAlarm, rows: Floats, first: int, usual: float, missing: Bools | None = None
    ) -> tuple[int, OutsideAlarm]:
        """How many of these rows come until the alarm sounds, at most all, and its state after them.

        The first row is number `first` of the stream; `usual` is the usual share of rows outside every cluster.
        """
        if alarm.level == 0.0 and len(rows) == 1 and sampled_in(first // BLOCK_EVENTS) != first:
            return 1, alarm  # most single events: nothing to compare
        sampled = chosen_of(first, len(rows), window=0)
        incomplete = NONE_MISSING if missing is None else missing.any(axis=1)
        state = np.array([alarm.level, alarm.bar, 0.0])
        usual = min(usual, ALARM_SHARE / 2)
        gain, loss = np.log(ALARM_SHARE / usual), np.log((1.0 - usual) / (1.0 - ALARM_SHARE))
        n = watch_outside(
            rows, incomplete, sampled[sampled + first >= FIRST_EVENT], self.mean, self.root, self.within,
            gain, loss, ALARM_NATS, state,
        )  # fmt: skip
        level, bar, place = state.tolist()
        since = alarm.since if place < 0 else first + int(place)
        return n, OutsideAlarm(level, bar, since, first + n if level >= bar else NEVER)


def sampled_in(block: int) -> int:
    """`watched_in` of one block, sooner.

    >>> from streamclust.engine.watch import watched_in
    >>> all(sampled_in(block) == watched_in(np.array([block]))[0] for block in range(100))
    True
    """
    return BLOCK_EVENTS * block + (splitmix64_of(block + 1) >> 61)
