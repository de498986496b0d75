"""Projection: the stage before the engine, where wide events wait until a sketch is learnt, and are reduced by it."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from typing import Literal

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.engine import schedule
from streamclust.engine.engine import Engine
from streamclust.engine.event_rows import (
    Row,
    first_width,
    sparse_rows,
    stacked_rows,
    under_each_other,
    widths,
    with_width,
)
from streamclust.engine.incomplete_events import first_completed, until_known
from streamclust.engine.missing_values import completed, zero_filled
from streamclust.engine.sketch_form import suitable_sketch
from streamclust.engine.tuning import TUNING
from streamclust.engine.watched_events import chosen_of
from streamclust.engine.wide_events import RECENT_EVENTS, Block, RecentWideEvents
from streamclust.moments import Moments
from streamclust.parameters import GAUSSIANS, MAX_UNREDUCED_FEATURES, ScaleName
from streamclust.sketch import MAX_DIRECTIONS, Rows, Sketch, identity, learn_sketch, relearn_sketch
from streamclust.utils.interrupts import HeldInterrupts
from streamclust.utils.late import issparse

FIRST_EVENTS = 1024
"""Number of events that a sketch is learnt from."""
JUDGED_EVENTS = 256
"""Sample size of the test that the stream has left the sketch: one in eight of about 2,000 events."""
LOOK_EVENTS = 256
"""Number of events between two such tests."""
MAX_BLOCK_EVENTS = 4096
"""Events projected at once, at most, which bounds the memory that a large batch needs."""

Stage = Literal["new", "incomplete", "plain", "waiting", "sketched"]
"""No event has come; those that have come wait for values that the first lacks; events are learnt as they are; they
wait for a sketch; they are learnt through one."""


class LeftSketch(UserWarning):
    """Warning, given once each time: the stream varies in other directions than its sketch has."""


class Projection:
    """Takes checked rows to the engine: as they are or, if they are wide, through a sketch.

    `zeros`: a missing value is 0. The sketch is learnt from the first 1,024 events, which wait until then. When the
    stream has left it, another 1,024 events wait: from them and from what was learnt, which is carried over, the sketch
    is learnt anew. A member of a group that follows a model lets as many wait, for the leader to learn another from.
    """

    def __init__(
        self,
        engine: Engine,
        max_directions: int | None = None,
        scale: ScaleName = "deviation",
        zeros: bool = False,
    ) -> None:
        self.engine = engine
        self.max_directions = max_directions
        self.unit = scale == "unit"
        self.zeros = zeros
        self.stage: Stage = "new" if engine.is_empty and not engine.n_features else "plain"
        self.waiting: list[Block] = []
        self.recent = RecentWideEvents()
        self.n_learnt = 0
        """Number of events learnt through a sketch."""
        self.judged_from = 0
        """Number of recent events kept when the sketch was learnt: later ones judge it."""
        self.width = 0

    # ---------------------------------------------------------------- reading

    @property
    def sketch(self) -> Sketch | None:
        """The map that wide events are taken through; None before it is learnt, and where events are not wide."""
        return self.engine.sketch

    @property
    def is_plain(self) -> bool:
        """Whether events are learnt as they are, without a sketch."""
        return self.stage == "plain"

    @property
    def n_waiting(self) -> int:
        """Number of events that wait for the sketch."""
        return sum(block.rows.shape[0] for block in self.waiting)

    @property
    def n_seen(self) -> int:
        """Number of events that have come."""
        return self.engine.n_seen + self.n_waiting

    @property
    def n_features(self) -> int:
        """Number of features that events have so far."""
        return self.engine.n_features if self.stage in ("new", "plain") else self.width

    @property
    def only_cluster(self) -> int | None:
        """The id of the cluster of all events while they wait; None before the first, and if ids come with models."""
        return 0 if self.waiting and not self.engine.led else None

    def waiting_moments(self) -> Moments:
        """One row: mean and variance of each feature of the events that wait."""
        rows = stacked_rows([block.rows for block in self.waiting])
        x = rows.toarray() if issparse(rows) else rows
        return Moments.of_points(np.nan_to_num(x, nan=0.0), self._weights(), "diagonal")

    def latest(self, n: int) -> Floats:
        """About n of the latest wide events, the oldest first; missing values are the sketch's centre, or 0."""
        rows = stacked_rows([b.rows for b in self.waiting])[-n:] if self.waiting else self.recent.latest(n)
        x = rows.toarray() if issparse(rows) else rows
        centre = 0.0 if self.sketch is None else with_width(self.sketch.centre[None], x.shape[1], 0.0)
        return np.asarray(np.where(np.isnan(x), centre, x))

    @property
    def until_due(self) -> int:
        """Number of events until the model may change."""
        if self.stage == "incomplete":
            return 1
        if self.gathers:
            return FIRST_EVENTS - self.n_waiting
        until_look = LOOK_EVENTS - self.n_learnt % LOOK_EVENTS
        return self.engine.until_due if self.sketch is None else min(self.engine.until_due, until_look)

    def runs(self, rows: Rows | list[Row]) -> Iterator[slice]:
        """Slices of the next events during which the model does not change; learn each before the next."""
        n = len(rows) if isinstance(rows, list) else rows.shape[0]
        return schedule.runs(n, lambda done: self._until_change(rows[done : done + max(1, self.until_due)]))

    def _until_change(self, rows: Rows | list[Row]) -> int:
        """Number of the next rows, of those until something is due, during which the model does not change."""
        n = len(rows) if isinstance(rows, list) else rows.shape[0]
        if self.stage in ("new", "incomplete") or self.gathers:
            return n
        if self.sketch is not None:
            return self.engine.until_change(self.sketch.project(self._matrix(rows)))
        complete = dense(rows)
        width = self.engine.n_features
        if isinstance(complete, np.ndarray) and not self.zeros:
            complete = self.engine.transformed(complete)
        if self.zeros or isinstance(complete, list):
            return self.engine.until_change(zero_filled(complete, max(width, int(widths(complete)[-1]))))
        return self.engine.until_change(self.engine.without_absent(with_width(complete, width)))

    def n_waiting_by_shard(self) -> dict[Hashable, int]:
        """Number of events of each shard that wait."""
        found: dict[Hashable, int] = {}
        for block in self.waiting:
            found[block.shard] = found.get(block.shard, 0) + block.rows.shape[0]
        return found

    # ---------------------------------------------------------------- learning

    def learn(
        self, rows: Rows | list[Row], w: Floats, t: Floats, shard: Hashable = 0, complete: bool = False
    ) -> None:
        """Learn checked rows: through the sketch if they are wide, else with their missing values filled in.

        Missing values are NaN; `complete` says that there are none. `w` and `t` may be empty.
        """
        if self.stage == "new":
            self.stage = self._decided(rows)
        if self.stage == "incomplete":
            done = self._wait_for_values(rows, w, t, shard)
            rows, w, t = rows[done:], w[done:], t[done:]
            if self.stage == "incomplete":
                return
        if not self.is_plain:
            rows = self._matrix(rows)
            done = self._learn_wide(rows, w, t, shard)
            if done == rows.shape[0]:
                return
            rows, w, t = rows[done:], w[done:], t[done:]  # too few features for a sketch
        whole = dense(rows)
        if isinstance(whole, list) or self.zeros:
            for block in completed(self.engine, whole, w, t, shard, self.zeros, complete):
                self.engine.learn_checked(*block)
            return
        for run in self._runs_of_transform(len(whole)):
            part = self.engine.transformed(whole[run])
            for block in completed(self.engine, part, w[run], t[run], shard, False, complete):
                self.engine.learn_checked(*block)

    def _runs_of_transform(self, n: int) -> Iterator[slice]:
        """Slices of the next n events during which no feature is transformed otherwise; learn each before the next."""
        done = 0
        while done < n:
            self.engine.do_due()  # steps left over from an interrupted call
            end = min(n, done + max(1, self.engine.transforms.due - self.engine.n_seen))
            yield slice(done, end)
            done = end

    def _wait_for_values(self, rows: Rows | list[Row], w: Floats, t: Floats, shard: Hashable) -> int:
        """Let events wait until the values that the first of them lacks have come in others; how many."""
        x = self._matrix(rows)
        n, found = until_known([*(block.rows for block in self.waiting), x])
        done = min(n - self.n_waiting, len(rows))
        self.waiting.append(Block(x[:done].copy(), w[:done].copy(), t[:done].copy(), shard))
        if found:
            self._complete_first()
        return done

    def _complete_first(self) -> None:
        """Learn the events that waited, with values of later ones for those that the first lacks."""
        first = self.waiting[0].rows[:1]
        first[:] = first_completed([block.rows for block in self.waiting])
        with HeldInterrupts():
            self.stage = "plain"
            self._let_in()

    def _learn_wide(self, x: Rows, w: Floats, t: Floats, shard: Hashable) -> int:
        """Learn events through the sketch, or let them wait for it; how many, until they are found not to be wide."""
        done = 0
        while done < x.shape[0] and not self.is_plain:
            most = max(1, self.until_due) if self.gathers else MAX_BLOCK_EVENTS
            run = slice(done, done + most)
            done += self._learn_block(Block(x[run], w[run], t[run], shard))
        return done

    def _learn_block(self, events: Block) -> int:
        """Let events wait or, through the sketch, learn them up to where the stream has left it; how many."""
        if self.gathers:
            self.waiting.append(
                Block(events.rows.copy(), events.weight.copy(), events.time.copy(), events.shard)
            )
            if self.n_waiting >= FIRST_EVENTS:
                self.begin()
            return int(events.rows.shape[0])
        assert self.sketch is not None
        coordinates, residual = self.sketch.measure(events.rows)
        left_at = self._left_at(residual)
        n = len(residual) if left_at is None else left_at
        before = self.engine.n_seen
        try:
            self.engine.learn_checked(coordinates[:n], events.weight[:n], events.time[:n], events.shard)
        finally:  # Ctrl-C may have ended it
            with HeldInterrupts():
                learnt = self.engine.n_seen - before
                self.recent.see(events.rows[:learnt], self.n_learnt, residual[:learnt])
                self.n_learnt += learnt
            if left_at is not None and learnt == n:
                self._leave()
        return n

    def _left_at(self, residual: Floats) -> int | None:
        """The number of the next events, by their residuals, after which the sketch is left; None: it is not.

        A look after each 256 events tells.
        """
        if self.stage == "waiting":
            return None
        assert self.sketch is not None
        chosen = chosen_of(self.n_learnt, len(residual), RECENT_EVENTS)
        before = self.recent.latest_residuals(JUDGED_EVENTS)
        kept = np.concatenate([before, residual[chosen]])
        for end in range(LOOK_EVENTS - self.n_learnt % LOOK_EVENTS, len(residual) + 1, LOOK_EVENTS):
            n = int(np.searchsorted(chosen, end))
            judged = self.recent.count + n >= self.judged_from + JUDGED_EVENTS
            if judged and self.sketch.is_left_by(kept[: len(before) + n][-JUDGED_EVENTS:]):
                return end
        return None

    def _leave(self) -> None:
        """Warn that the stream has left the sketch, and let the next events wait for another."""
        self.stage = "waiting"
        warnings.warn(
            f"after {self.n_learnt:,} events the sketch leaves out {self.residual_growth:.1f} times as much of the "
            f"latest ones as when it was learnt: another is learnt from the next {FIRST_EVENTS:,} events",
            LeftSketch,
            stacklevel=2,
        )

    @property
    def gathers(self) -> bool:
        """Whether the next event waits for a sketch. Where that comes with the model, 1,024 wait at most."""
        return self.stage == "waiting" and not (self._is_given_sketches and self.n_waiting >= FIRST_EVENTS)

    @property
    def _is_given_sketches(self) -> bool:
        """Whether sketches are learnt elsewhere, and come with the model."""
        return self.engine.led and self.sketch is not None

    @property
    def residual_growth(self) -> float:
        """How much the sketch leaves out of the latest events, as a multiple of what it left out when learnt."""
        latest = self.recent.latest_residuals(JUDGED_EVENTS)
        if self.sketch is None or not len(latest) or not self.sketch.level > 0.0:
            return 1.0
        return self.sketch.growth(latest)

    def begin(self) -> None:
        """Learn the sketch from the events that wait, and then the events.

        If there is one that the stream has left, and few events wait, these are learnt through it. Where sketches come
        with the model, they wait for the next one.
        """
        if self.stage == "incomplete":
            self._complete_first()
        if self.stage != "waiting" or not self.waiting or self._is_given_sketches:
            return
        rows = under_each_other([block.rows for block in self.waiting])
        if self.sketch is not None:
            if self.n_waiting < JUDGED_EVENTS:
                self._enter(self.sketch)
                return
            past = self.engine.shards.merged_tree().without_outliers().total
            most = self.max_directions or (
                TUNING.max_directions if self.sketch.independent else MAX_DIRECTIONS
            )
            self._enter(relearn_sketch(self.sketch, past, self._whole(rows), self._weights(), most))
        elif rows.shape[1] > self._most:
            sketch = self._learnt_sketch(rows)
            del rows  # copies of those that wait
            self._enter(sketch)
        elif self.unit:
            self._enter(identity(rows.shape[1], unit=True))
        else:
            with HeldInterrupts():
                self.stage = "plain"
                self._let_in()

    def _learnt_sketch(self, rows: Rows) -> Sketch:
        """The first sketch: of the directions asked for, or of those that suit the events."""
        settings = self.engine.settings
        if self.max_directions is None and settings.family == "gaussian" and settings.refit == "bkm":
            return suitable_sketch(rows, self._weights(), self.unit)
        return learn_sketch(rows, self._weights(), self.max_directions or MAX_DIRECTIONS, self.unit)

    def use_sketch(self, sketch: Sketch) -> None:
        """Take events through a sketch that was learnt elsewhere; what was learnt through another is carried over.

        ValueError if events were learnt as they are.
        """
        if sketch.is_same(self.sketch):
            return
        if self.stage == "plain" and not self.engine.is_empty:
            raise ValueError("events were learnt without a sketch: call use_sketch before the first event")
        if self.engine.settings.family not in GAUSSIANS:
            raise ValueError(f"a sketch is for Gaussians, not for family={self.engine.settings.family!r}")
        if sketch.unit != self.unit:
            raise ValueError('the sketch and this stream must agree on scale="unit"')
        if self.sketch is not None and sketch.independent != self.sketch.independent:
            raise ValueError(
                "the sketch and this stream differ in the covariances of clusters: use it before the first event"
            )
        self._enter(sketch)

    def _enter(self, sketch: Sketch) -> None:
        """Take events through this sketch from now on, first those that waited."""
        with HeldInterrupts():
            if sketch is not self.sketch:
                self.engine.use_sketch(sketch, changed=self.stage == "waiting" and self.sketch is not None)
                self.recent.judge(sketch)
                self.judged_from = self.recent.count
            self.stage, self.width = "sketched", max(self.width, sketch.n_features)
            self._let_in()

    def _let_in(self) -> None:
        """Learn the events that waited, in the order in which they came."""
        self.engine.stream.n_waited = self.n_waiting
        waiting, self.waiting = self.waiting, []
        for block in waiting:
            self.learn(*block)

    def _whole(self, rows: Rows) -> Rows:
        """Rows of all features there are."""
        if issparse(rows):
            rows.resize(rows.shape[0], self.width)
            return rows
        return with_width(rows, self.width, 0.0 if self.zeros else np.nan)

    def hold(self, blocks: Sequence[Block]) -> None:
        """Let events wait that a member of the group found outside the sketch: `begin` learns another from them."""
        self.waiting += blocks
        self.stage = "waiting" if self.waiting else "sketched"

    def let_go(self, shard: Hashable) -> None:
        """Remove the events of a shard that wait."""
        self.waiting = [block for block in self.waiting if block.shard != shard]

    def measured(self, block: Block) -> tuple[Floats, Floats, Floats]:
        """Events from elsewhere in the coordinates of the sketch, with weights and times."""
        assert self.sketch is not None
        return self.sketch.project(block.rows), block.weight, block.time

    def merge(self, other: Projection) -> None:
        """Learn everything that another has learnt, through the same sketch, and the events that wait there."""
        if other.sketch is not None and self.sketch is None and self.stage != "plain":
            self.use_sketch(other.sketch)
        if other.engine.n_seen:
            self.begin()
            if self.stage == "new":
                self.stage = "plain"
                self.engine.shards.begin(other.engine.n_features)
                self.engine.name_columns()
            self.engine.merge(other.engine)
        for block in other.waiting:
            self.learn(*block)

    # ---------------------------------------------------------------- parts

    @property
    def _most(self) -> int:
        """Events of more features than this are reduced."""
        return self.max_directions or MAX_UNREDUCED_FEATURES

    def _decided(self, rows: Rows | list[Row]) -> Stage:
        """Whether events wait, by the first of them."""
        return "waiting" if self._is_wide(rows) else "incomplete" if self._has_gap(rows) else "plain"

    def _is_wide(self, rows: Rows | list[Row]) -> bool:
        """Whether events go through a sketch, by the first of them."""
        growing = self.zeros and self.max_directions is not None
        wide = growing or self.unit or first_width(rows) > self._most
        return wide and self.engine.settings.family in GAUSSIANS

    def _has_gap(self, rows: Rows | list[Row]) -> bool:
        """Whether the first event lacks a feature that has a column, and there is nothing to fill it from."""
        if self.zeros or isinstance(rows, list) or issparse(rows):
            return False
        return bool(np.isnan(rows[0, : first_width(rows)]).any())

    def _matrix(self, rows: Rows | list[Row]) -> Rows:
        """Rows as a matrix: sparse for lists of cells, else dense with NaN, or 0, for what is missing."""
        x: Rows
        if isinstance(rows, list):
            x = sparse_rows(rows)
        elif issparse(rows) or not self.zeros:
            x = rows
        else:
            x = np.nan_to_num(rows, nan=0.0)
        self.width = max(self.width, x.shape[1])
        return self._whole(x) if x.shape[1] < self.width and isinstance(x, np.ndarray) else x

    def _weights(self) -> Floats | None:
        """Weight of each event that waits; None if all weigh 1."""
        if not any(len(block.weight) for block in self.waiting):
            return None
        return np.concatenate(
            [block.weight if len(block.weight) else np.ones(block.rows.shape[0]) for block in self.waiting]
        )


def dense(rows: Rows | list[Row]) -> Floats | list[Row]:
    """Rows in double precision, not sparse; cells as they are."""
    if isinstance(rows, list):
        return rows
    return np.asarray(rows.toarray() if issparse(rows) else rows, dtype=float)
