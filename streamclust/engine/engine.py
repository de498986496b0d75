"""Engine: learns a stream, monitors it, refits its clusters, and publishes a model of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.types import Bools, Floats
from streamclust.engine import schedule
from streamclust.engine.imputer import Imputer
from streamclust.engine.model import Model
from streamclust.engine.monitor import Monitor
from streamclust.engine.new_features import FeatureSearch
from streamclust.engine.present_events import PresentEvents
from streamclust.engine.queries import Queries
from streamclust.engine.refitter import Refitter
from streamclust.engine.reproject import reproject
from streamclust.engine.retirement import Retirement
from streamclust.engine.rollback import attempt
from streamclust.engine.settings import EngineSettings
from streamclust.engine.shard import Shard
from streamclust.engine.shards import Shards
from streamclust.engine.shown_level import ShownLevel
from streamclust.engine.stream import Counters, Stream
from streamclust.engine.transform_search import TransformSearch
from streamclust.families.mixed import NUMBER
from streamclust.lineage import Change, Lineage
from streamclust.moments import Moments
from streamclust.parameters import Detail, NumberOfClusters
from streamclust.refit.bkm.fit import check_points
from streamclust.sketch import Sketch, Transform
from streamclust.tree import SummaryTree
from streamclust.tree.rows import check_rows
from streamclust.utils.interrupts import HeldInterrupts


class Engine:
    """Learns rows of numbers, keeps a published model of them, and says what changed."""

    def __init__(
        self,
        n_features: int,
        settings: EngineSettings | None = None,
        on_event: Callable[[Change], object] | None = None,
    ) -> None:
        settings = settings or EngineSettings()
        level = ShownLevel.of(settings, on_event)
        lineage = Lineage(on_event if level.lineage is None else None)
        self._build(Stream(settings, Shards(n_features, settings), lineage, level=level))

    @classmethod
    def of(cls, stream: Stream) -> Self:
        """An engine that goes on with a stream."""
        engine = cls.__new__(cls)
        engine._build(stream)
        return engine

    def _build(self, stream: Stream) -> None:
        """Make the parts that share the stream."""
        self.stream = stream
        self.present = PresentEvents(stream)
        self.features = FeatureSearch(stream)
        self.imputer = Imputer(stream)
        self.queries = Queries(stream, self.present)
        retirement = Retirement(stream, self.present)
        self.monitor = Monitor(stream, self.present, retirement, self.features)
        self.refitter = Refitter(stream, self.present, retirement)
        self.transforms = TransformSearch(stream, self.present)
        self.layout = stream.settings.columns
        """Of each column, and of some that no event has yet: a number, or which category it is a value of."""

    # ---------------------------------------------------------------- learn, monitor, refit, publish

    def learn_checked(
        self, x: Floats, w: Floats, t: Floats, shard: Hashable = 0, missing: Bools | None = None
    ) -> None:
        """Learn checked rows into the summary of their shard, then do what is due; `w` and `t` may be empty.

        `missing` are values that were filled in.
        """
        stream = self.stream
        # arrays as kernels are compiled for them
        x = np.require(stream.shards.with_spare(x), requirements=["C", "A", "W"])
        part = stream.shards[shard]
        self.features.notice()
        self.do_due()  # work that was due before, if it was interrupted
        done = 0
        while done < len(x):
            end = min(len(x), done + max(1, self.until_due))
            n, alarm = self.monitor.watch(x[done:end], None if missing is None else missing[done:end])
            run = slice(done, done + n)
            filled = None if missing is None else missing[run]
            with HeldInterrupts():
                part.learn(x[run], w[run], t[run], stream.n_seen, filled)
                stream.shards.recent.add(x[run], w[run] if len(w) else None, stream.n_seen, filled)
                stream.counters.n_seen += n
                stream.counters.alarm = alarm
                if filled is not None:
                    stream.counters.n_filled += int(np.count_nonzero(filled.any(axis=1)))
            self.do_due()
            done += n

    def runs(self, n: int, rows: Callable[[slice], Floats]) -> Iterator[slice]:
        """Slices of the next n events during which the model does not change; learn each before the next.

        `rows` gives some of them as `until_change` takes them.
        """
        return schedule.runs(
            n, lambda done: self.until_change(rows(slice(done, done + max(1, self.until_due))))
        )

    def until_change(self, rows: Floats) -> int:
        """Number of these next rows during which the model does not change: until a look or another step is due.

        They are in the clusters' coordinates, NaN where a value is missing.
        """
        rows = np.ascontiguousarray(rows[: max(1, self.until_due)])
        return self.monitor.watch(rows, np.isnan(rows))[0]

    @property
    def until_due(self) -> int:
        """Number of events until something is due; the model does not change before."""
        if self.stream.led:
            return sys.maxsize
        counters, refit = self.stream.counters, self.stream.pending_refit
        due = min(counters.next_refit, counters.next_look, counters.alarm.due, self.transforms.due)
        return (due if refit is None else min(due, refit.due)) - counters.n_seen

    def do_due(self) -> None:
        """Do what is due at this event count: publish, look, refit, in this order; then add to the history."""
        if not self.stream.led and self.until_due <= 0:
            attempt(self.stream, self._do_due)

    def _do_due(self) -> None:
        """The steps of `do_due`; may fail half-way."""
        stream = self.stream
        before, looks = stream.model, stream.n_seen >= stream.counters.next_look
        if stream.pending_refit is not None and stream.n_seen >= stream.pending_refit.due:
            self.refitter.publish(stream.pending_refit)
        if stream.n_seen >= self.transforms.due:
            self._decide_transform()
        if stream.n_seen >= stream.counters.alarm.due:
            self.monitor.search_outside()
        if stream.counters.n_refits == 0 and stream.n_seen >= stream.counters.next_refit:
            self.refitter.start()  # before the look: one cluster of all is nothing to look by
        if looks and stream.model is not None:
            request = self.monitor.look()
            if request is not None:
                self.refitter.start(request.lag, search=request.search)
        if stream.n_seen >= stream.counters.next_refit:
            self.refitter.start()
        if stream.model is not before or looks:
            self.monitor.add_to_history()

    def _decide_transform(self) -> None:
        """Decide which features are transformed, and refit if that has changed."""
        if self.transforms.decide():
            self.queries.forget()
            if self.stream.counters.n_refits:
                self.refitter.start(lag=0)

    def transformed(self, rows: Floats) -> Floats:
        """Rows in the coordinates of trees and clusters, where those are features or transformed features."""
        return self.stream.transform.of(rows)

    @property
    def transform(self) -> Transform:
        """Transform of skewed features."""
        return self.stream.transform

    def use_transform(self, transform: Transform) -> None:
        """Transform features by this from now on: it was decided elsewhere."""
        self.transforms.use(transform)
        self.queries.forget()

    # ---------------------------------------------------------------- other ways to learn

    def learn(
        self,
        rows: ArrayLike,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> None:
        """Check complete rows and learn them, all of them or none."""
        x, w, t = check_rows(self.n_features, rows, weight, time)
        check_points(self.settings.family, x)
        self.learn_checked(x, w, t, shard)

    def learn_tree(self, shard: Hashable, tree: SummaryTree) -> None:
        """Learn everything that a tree of the same features has learnt, and refit at once."""
        with HeldInterrupts():
            self.shards.merge_tree(shard, tree, self.n_seen)
            self.stream.counters.n_seen += tree.n_events
        self._begin_anew()
        self.settle()

    def merge(self, other: Engine) -> None:
        """Learn everything another engine has learnt, and refit at once from the clusters of both."""
        self.check_settings(other)
        if self.n_features != other.n_features:
            raise ValueError(
                "only engines of the same features can be merged: "
                f"one has {self.n_features}, the other {other.n_features}"
            )
        if not same_sketch(self.sketch, other.sketch):
            raise ValueError(
                "only streams learnt through one sketch can be merged: let one use the other's (use_sketch)"
            )
        if other.model is None:
            return
        with HeldInterrupts():
            self.shards.merge(other.shards, self.n_seen, other.n_seen)
            self.stream.counters.n_seen += other.n_seen
        self._begin_anew()
        self._refit_now(more=other.model.current.clusters)

    def _begin_anew(self) -> None:
        """Forget when the stream last changed, and look again after as many events as between the last looks."""
        counters = self.stream.counters
        counters.begin = 0
        counters.next_look = counters.n_seen + counters.look_gap

    def settle(self) -> None:
        """Refit at once, whatever the schedule says; the schedule continues from here."""
        if self.n_seen and not self.led:
            if self.model is None:
                attempt(self.stream, self.refitter.start)
            if self.transforms.due < schedule.NEVER:
                attempt(self.stream, self._decide_transform)
            self.stream.counters.last_challenge = 0.0  # search from nothing, too
            self.features.stop()
            self.stream.level.forget()
            self._refit_now()

    def _refit_now(self, more: Moments | None = None) -> None:
        """Refit at once, from the present clusters and `more`."""

        def refit() -> None:
            self.refitter.start(lag=0, more=more)
            self.monitor.add_to_history()

        attempt(self.stream, refit)

    def use_sketch(self, sketch: Sketch, changed: bool = False) -> None:
        """Learn rows in the coordinates of a sketch from now on; everything learnt through another is mapped.

        `changed`: the stream has changed, which is why there is another.
        """
        stream, counters = self.stream, self.stream.counters
        if stream.sketch is None:
            stream.sketch = sketch
            if sketch.independent:
                stream.settings = self.shards.settings = replace(stream.settings, family="diagonal")
            self.shards.begin(sketch.n_directions)
            return
        reproject(stream, sketch)
        stream.pending_refit = None
        self.queries.forget()
        counters.begin, counters.moving = 0, False
        if stream.model is not None and not stream.led:
            self._refit_now()
        counters = stream.counters
        counters.known_features = self.n_features
        if changed and self.settings.follows:
            counters.begin = counters.features_since = counters.n_seen
            counters.n_filled = 0
            if not stream.led:
                self.features.schedule_search()

    # ---------------------------------------------------------------- shards that come and go

    def redate(self, shard: Hashable, by: float) -> None:
        """Move the times of everything that a shard has learnt."""
        self.shards[shard].tree.redate(by)

    def release(self, shard: Hashable) -> Shard:
        """Remove a shard, to be adopted elsewhere: refits no longer read it. The count of events goes on."""
        part = self.shards.pop(shard)
        self.shards.recent.forget_latest()
        self.stream.counters.begin, self.stream.counters.moving = 0, False
        return part

    def adopt(self, shard: Hashable, part: Shard, n_features: int | None = None, zeros: bool = False) -> None:
        """Take over a shard that was released elsewhere; the next event brings a refit that reads it.

        `n_features` is its number of features, by default that of its tree. Features that one side lacks are 0 with
        `zeros`, else the other side's mean.
        """
        if shard in self.shards:
            raise ValueError(f"shard {shard!r} is here already")
        n_features = part.tree.n_features if n_features is None else n_features
        self.shards.make_alike(part, n_features, zeros, self.means)
        part.watch.renumber(self.n_seen)
        self.shards[shard] = part
        self.shards.make_room()
        self.stream.counters.begin = 0
        self.stream.counters.next_refit = self.n_seen + 1

    def replace(self, shard: Hashable, part: Shard, n_features: int, zeros: bool = False) -> None:
        """Replace a shard by a later summary of it; `catch_up` then does what has become due."""
        self.shards.make_alike(part, n_features, zeros, self.means)
        self.shards[shard] = part
        self.shards.make_room()

    def catch_up(self) -> None:
        """Do at once what has become due since shards were replaced: a look, a refit, and its publication."""
        counters, before = self.stream.counters, self.n_seen
        counters.n_seen = max(before, sum(part.n_seen for part in self.shards.values()))
        if counters.n_seen == before:
            return
        for part in self.shards.values():
            part.watch.renumber(counters.n_seen)
        if self.model is None:
            counters.next_look = counters.n_seen + counters.look_gap
            self.settle()
            return
        if counters.n_seen >= counters.next_look:
            counters.look_gap += counters.n_seen - counters.next_look  # all events since the last look
        self.do_due()
        if self.stream.pending_refit is not None:
            attempt(self.stream, self._publish_pending)

    def _publish_pending(self) -> None:
        """Publish the refit under way, whenever it was due."""
        assert self.stream.pending_refit is not None
        self.refitter.publish(self.stream.pending_refit)
        self.monitor.add_to_history()

    def follow(self, model: Model | None) -> None:
        """Assign by this model, made elsewhere, and refit no more; None if there is no model yet."""
        self.stream.led, self.stream.model, self.stream.pending_refit = True, model, None
        if model is not None:
            self.shards.make_room(model.result.n_clusters)
            self.shards.impute(model)

    def check_settings(self, other: Engine) -> None:
        """Raise ValueError if another engine has other settings, so that it cannot be merged."""
        ours, theirs = vars(self.settings), vars(other.settings)
        names = ours.keys() - {"detail", "n_clusters"}  # of what is shown, not of what is learnt
        if self.settings.is_mixed or other.settings.is_mixed:
            names -= {"family"}  # it tells the columns, and those are compared by name
        if any(sketch is not None and sketch.independent for sketch in (self.sketch, other.sketch)):
            names -= {"family"}  # it comes with the sketch, and sketches are compared
        differ = {name: (ours[name], theirs[name]) for name in sorted(names) if ours[name] != theirs[name]}
        if differ:
            raise ValueError(f"only streams of the same settings can be merged: they differ in {differ}")

    # ---------------------------------------------------------------- the stream

    @property
    def settings(self) -> EngineSettings:
        """Parameters of the engine."""
        return self.stream.settings

    @property
    def shards(self) -> Shards:
        """Trees and recent events, by shard."""
        return self.stream.shards

    @property
    def counters(self) -> Counters:
        """Counts of events and refits, and event counts of what is due next."""
        return self.stream.counters

    @property
    def lineage(self) -> Lineage:
        """Ids and lifecycle events of the level on show."""
        return self.stream.reported

    @property
    def sketch(self) -> Sketch | None:
        """Maps wide events to the coordinates of trees and models; None if those are the features."""
        return self.stream.sketch

    @property
    def model(self) -> Model | None:
        """The published model; None before the first event."""
        return self.stream.model

    @property
    def shown(self) -> Model | None:
        """The published model with the clusters of the level on show."""
        return None if self.stream.model is None else self.stream.model.shown

    def show(self, detail: Detail = "auto", n_clusters: NumberOfClusters = None) -> None:
        """Show another level at once; nothing is learnt again."""
        stream = self.stream
        stream.settings = replace(stream.settings, detail=detail, n_clusters=n_clusters)
        stream.level.ask(stream.settings, stream.lineage)
        if stream.model is not None and not stream.led:
            version = stream.model.version + 1
            attempt(
                stream,
                lambda: stream.publish(stream.published.changed(version=version, n_seen=stream.n_seen)),
            )

    @property
    def led(self) -> bool:
        """Whether models come from elsewhere (`follow`)."""
        return self.stream.led

    @property
    def n_seen(self) -> int:
        """Number of events learnt."""
        return self.stream.counters.n_seen

    @property
    def n_features(self) -> int:
        """Number of features of the events so far."""
        return self.stream.shards.n_features

    # ---------------------------------------------------------------- categories

    def name_columns(self) -> None:
        """Have the settings tell the family of as many columns as there are."""
        columns = self.layout[: self.n_features]
        if self.settings.is_mixed or any(group != NUMBER for group in columns):
            self.stream.settings = self.settings.of_columns(columns)

    def is_number(self, column: int) -> bool:
        """Whether a column is a number; else it is a value of a category."""
        return column >= len(self.layout) or self.layout[column] == NUMBER

    def without_absent(self, rows: Floats) -> Floats:
        """Rows of the features so far, with 0 for values of categories that an event does not have."""
        if not self.layout:
            return rows
        category = np.array(self.layout[: rows.shape[1]], dtype=np.int64) != NUMBER
        rows = np.array(rows, dtype=float)
        rows[:, : len(category)][np.isnan(rows[:, : len(category)]) & category] = 0.0
        return rows

    # ---------------------------------------------------------------- missing values

    @property
    def is_empty(self) -> bool:
        """Whether there is neither an event nor a model from which missing values could be filled in."""
        return self.imputer.is_empty

    def means(self) -> Floats:
        """The mean of all events known: of the shards or, where they hold none, of the model."""
        return self.imputer.means()


def same_sketch(ours: Sketch | None, theirs: Sketch | None) -> bool:
    """Whether both have none, or the same."""
    return theirs is None if ours is None else ours.is_same(theirs)
