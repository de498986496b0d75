"""Attempts: looks and refits either take effect whole, or leave the engine as it was."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from streamclust.engine import schedule
from streamclust.engine.model import Model
from streamclust.engine.new_features import NEVER
from streamclust.engine.refits import Refit, reason_of
from streamclust.lineage import Mark

if TYPE_CHECKING:
    from streamclust.engine.flow import Engine

log = logging.getLogger(__name__)


class Savepoint(NamedTuple):
    """State of an engine that looks and refits change."""

    counters: dict[str, Any]
    model: Model | None
    pending_refit: Refit | None
    lineage: Mark
    strays: int

    @classmethod
    def of(cls, engine: Engine) -> Savepoint:
        """The state before an attempt."""
        strays = engine.shards.strays.count
        return cls(engine.counters, engine.model, engine.pending_refit, engine.lineage.mark(), strays)

    def restore(self, engine: Engine) -> None:
        """Undo what was done since."""
        vars(engine).update(self.counters)
        engine.model, engine.pending_refit = self.model, self.pending_refit
        engine.lineage.restore(self.lineage)
        engine.shards.strays.count = self.strays


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
    engine.next_look = max(engine.next_look, engine.n_seen + engine.look_gap)
    gap = min(engine.n_seen, engine.settings.refit_every)
    engine.next_refit = max(engine.next_refit, engine.n_seen + max(gap, schedule.MIN_FIRST_EVENTS))


def is_power_of_two(n: int) -> bool:
    """Whether n is 1, 2, 4, ...: failures that go on are logged ever more rarely."""
    return n & (n - 1) == 0
