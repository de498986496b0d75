"""Rollback: looks and refits either take effect whole, or leave the stream as it was."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from streamclust._kernels.types import Floats
from streamclust.engine import schedule
from streamclust.engine.background import Refit, reason_of
from streamclust.engine.model import Model
from streamclust.engine.shards import Shards
from streamclust.engine.shown_level import LevelMark
from streamclust.engine.stream import Counters, Stream
from streamclust.engine.tuning import TUNING
from streamclust.engine.watched_events import WatchedEvents
from streamclust.lineage import Mark
from streamclust.sketch import Transform
from streamclust.tree import SummaryTree

log = logging.getLogger(__name__)


class ShardContents(NamedTuple):
    """Contents of shards that a publication may replace: strays, trees and events with missing values."""

    strays: WatchedEvents
    n_strays: int
    trees: list[SummaryTree]
    rows: list[Floats]

    @classmethod
    def of(cls, shards: Shards) -> ShardContents:
        """The objects themselves: they are replaced, never written to, while something is attempted."""
        parts = shards.values()
        rows = [shards.recent.ring.rows, *(part.watch.rows for part in parts)]
        return cls(shards.recent.strays, shards.recent.strays.count, [part.tree for part in parts], rows)

    def restore(self, shards: Shards) -> None:
        """Put them back."""
        self.strays.count = self.n_strays
        shards.recent.replace_strays(self.strays)
        rings = [shards.recent.ring, *(part.watch for part in shards.values())]
        for ring, rows in zip(rings, self.rows, strict=True):
            ring.replace_rows(rows)
        for part, tree in zip(shards.values(), self.trees, strict=True):
            part.tree = tree


class Savepoint(NamedTuple):
    """State of a stream that looks and refits change."""

    counters: Counters
    model: Model | None
    pending_refit: Refit | None
    lineage: Mark
    level: LevelMark
    contents: ShardContents
    transform: Transform

    @classmethod
    def of(cls, stream: Stream) -> Savepoint:
        """The state before an attempt."""
        contents = ShardContents.of(stream.shards)
        marks = stream.lineage.mark(), stream.level.mark()
        return cls(
            replace(stream.counters), stream.model, stream.pending_refit, *marks, contents, stream.transform
        )

    def restore(self, stream: Stream) -> None:
        """Undo what was done since."""
        stream.counters, stream.model, stream.pending_refit = self.counters, self.model, self.pending_refit
        stream.lineage.restore(self.lineage)
        stream.level.restore(self.level)
        self.contents.restore(stream.shards)
        stream.transform = self.transform


def attempt(stream: Stream, action: Callable[[], None]) -> None:
    """Do something that publishes models; then report lifecycle events.

    If it fails, the last good model stays, and the failure is logged and counted. If it is interrupted (Ctrl-C), it
    remains due.
    """
    before = Savepoint.of(stream)
    try:
        action()
    except Exception as error:
        before.restore(stream)
        give_up(stream, error)
    except BaseException:
        before.restore(stream)
        raise
    stream.lineage.deliver()
    stream.reported.deliver()


def give_up(stream: Stream, error: Exception) -> None:
    """Count a failed look or refit, and go on with the model as the last refit found it.

    The next look comes after the usual number of events, the next refit no sooner than after a successful one; it
    starts from nothing.
    """
    counters = stream.counters
    counters.n_failed_refits += 1
    counters.failures_in_a_row += 1
    counters.last_failure = reason_of(error)
    if is_power_of_two(counters.failures_in_a_row):
        log.error(
            "a refit failed at event %d (%d in a row); the last good model stays, and events are learnt: %s",
            counters.n_seen,
            counters.failures_in_a_row,
            counters.last_failure,
            exc_info=error,
        )
    stream.pending_refit = None
    if stream.model is not None:
        stream.model = stream.model.published
        counters.learnt_until = min(counters.learnt_until, stream.model.n_seen)
    counters.begin, counters.moving, counters.change_due = 0, False, schedule.NEVER
    counters.alarm = counters.alarm.silenced()
    counters.next_look = max(counters.next_look, counters.n_seen + counters.look_gap)
    counters.transform_due = schedule.next_transform(counters.n_seen, counters.transform_due)
    gap = max(min(counters.n_seen, stream.settings.refit_every), TUNING.min_refit_events)
    counters.next_refit = max(counters.next_refit, counters.n_seen + gap)


def is_power_of_two(n: int) -> bool:
    """Whether n is 1, 2, 4, ...: failures that go on are logged ever more rarely."""
    return n & (n - 1) == 0
