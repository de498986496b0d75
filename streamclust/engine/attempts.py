"""Attempts: looks and refits either take effect whole, or leave the engine as it was."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from streamclust._kernels.types import Floats
from streamclust.engine import schedule
from streamclust.engine.model import Model
from streamclust.engine.new_features import NEVER
from streamclust.engine.refits import Refit, reason_of
from streamclust.engine.shards import Shards
from streamclust.engine.watch import Watch
from streamclust.lineage import Mark
from streamclust.tree import SummaryTree

if TYPE_CHECKING:
    from streamclust.engine.flow import Engine

log = logging.getLogger(__name__)


class ShardContents(NamedTuple):
    """Contents of shards that a publication may replace: strays, trees and events with missing values."""

    strays: Watch
    n_strays: int
    trees: list[SummaryTree]
    rows: list[Floats]

    @classmethod
    def of(cls, shards: Shards) -> ShardContents:
        """The objects themselves: they are replaced, never written to, while something is attempted."""
        parts = shards.values()
        rows = [shards.whole.rows, *(part.watch.rows for part in parts)]
        return cls(shards.strays, shards.strays.count, [part.tree for part in parts], rows)

    def restore(self, shards: Shards) -> None:
        """Put them back."""
        self.strays.count = self.n_strays
        shards.replace_strays(self.strays)
        for ring, rows in zip(
            [shards.whole, *(part.watch for part in shards.values())], self.rows, strict=True
        ):
            ring.replace_rows(rows)
        for part, tree in zip(shards.values(), self.trees, strict=True):
            part.tree = tree


class Savepoint(NamedTuple):
    """State of an engine that looks and refits change."""

    counters: dict[str, Any]
    model: Model | None
    pending_refit: Refit | None
    lineage: Mark
    kept: ShardContents

    @classmethod
    def of(cls, engine: Engine) -> Savepoint:
        """The state before an attempt."""
        kept = ShardContents.of(engine.shards)
        return cls(engine.counters, engine.model, engine.pending_refit, engine.lineage.mark(), kept)

    def restore(self, engine: Engine) -> None:
        """Undo what was done since."""
        vars(engine).update(self.counters)
        engine.model, engine.pending_refit = self.model, self.pending_refit
        engine.lineage.restore(self.lineage)
        self.kept.restore(engine.shards)


def attempt(engine: Engine, action: Callable[[], None]) -> None:
    """Do something that publishes models; then report lifecycle events.

    If it fails, the last good model stays, and the failure is logged and counted. If it is interrupted (Ctrl-C), it
    remains due.
    """
    before = Savepoint.of(engine)
    try:
        action()
    except Exception as error:
        before.restore(engine)
        give_up(engine, error)
    except BaseException:
        before.restore(engine)
        raise
    engine.lineage.deliver()


def give_up(engine: Engine, error: Exception) -> None:
    """Count a failed look or refit, and go on with the model as the last refit found it.

    The next look comes after the usual number of events, the next refit no sooner than after a successful one; it
    starts from nothing.
    """
    engine.n_failed_refits += 1
    engine.failures_in_a_row += 1
    engine.last_failure = reason_of(error)
    if is_power_of_two(engine.failures_in_a_row):
        log.error(
            "a refit failed at event %d (%d in a row); the last good model stays, and events are learnt: %s",
            engine.n_seen,
            engine.failures_in_a_row,
            engine.last_failure,
            exc_info=error,
        )
    engine.pending_refit = None
    if engine.model is not None:
        engine.model = engine.model.published
        engine.learnt_until = min(engine.learnt_until, engine.model.n_seen)
    engine.begin, engine.moving, engine.change_due = 0, False, NEVER
    engine.alarm = engine.alarm.silenced()
    engine.next_look = max(engine.next_look, engine.n_seen + engine.look_gap)
    gap = min(engine.n_seen, engine.settings.refit_every)
    engine.next_refit = max(engine.next_refit, engine.n_seen + max(gap, schedule.MIN_FIRST_EVENTS))


def is_power_of_two(n: int) -> bool:
    """Whether n is 1, 2, 4, ...: failures that go on are logged ever more rarely."""
    return n & (n - 1) == 0
