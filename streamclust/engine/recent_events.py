"""Recent events of all shards of a stream: the latest in a row, the watched ones, and the strays."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from streamclust._kernels.engine.windows import block_sums
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.dependence import RecentSequence
from streamclust.engine.event_ring import EventRing, KeptEvents, in_order, side_by_side
from streamclust.engine.imputation import Gaps
from streamclust.engine.model import Model, Seen
from streamclust.engine.tuning import TUNING
from streamclust.engine.watched_events import WatchedEvents, watched_in
from streamclust.families import is_discrete
from streamclust.sketch import CoordinateMap, TransformChange
from streamclust.utils.state import State, prefixed, under

if TYPE_CHECKING:
    from streamclust.engine.shards import Shards


class RecentEvents:
    """Holds the latest events in a row and the strays, and reads the watched events of every shard.

    Watched events are a sample over a longer time. Strays are watched events outside every large cluster, kept longer
    than the others: rare clusters are made of them.
    """

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._strays: WatchedEvents | None = None
        self.ring = EventRing(0, TUNING.look_events)
        """The latest events in a row; counts of very many features are not kept."""

    # ---------------------------------------------------------------- changing

    def add(self, rows: Floats, weight: Floats | None, at: int, missing: Bools | None = None) -> None:
        """Keep the latest events in a row, the first of which is number `at` of the stream."""
        if is_discrete(self._shards.settings.family) and self._shards.capacity > TUNING.max_whole_counts:
            self.forget_latest()
            return
        self._open_ring()
        first = max(0, len(rows) - TUNING.look_events)
        self.ring.count += first  # earlier rows would be gone by now
        self.ring.add(
            rows[first:],
            None if weight is None else weight[first:],
            np.arange(at + first, at + len(rows)),
            None if missing is None else missing[first:],
        )

    def _open_ring(self) -> None:
        if not self.ring.count:
            self.ring = EventRing(self._shards.capacity, TUNING.look_events)

    def forget_latest(self) -> None:
        """Drop the latest events in a row, which are of all shards."""
        self.ring = EventRing(0, TUNING.look_events)

    def widen(self, values: Floats, unknown: bool = False) -> None:
        """Add columns to the latest events in a row; `unknown`: the values are filled in."""
        if self.ring.count:
            self.ring.widen(values, unknown)

    def reorder(self, columns: Ints) -> None:
        """Put the features in another order: the new column j is the old columns[j]."""
        self.strays.reorder(columns)
        if self.ring.count:
            self.ring.reorder(np.concatenate([columns, np.arange(len(columns), self.ring.rows.shape[1])]))

    def reproject(self, change: CoordinateMap) -> None:
        """Map the events to other coordinates."""
        self.strays.reproject(change)
        if self.ring.count:
            self.ring.reproject(change)

    def retransform(self, change: TransformChange) -> None:
        """Map the events to the coordinates of another transform."""
        strays = copy(self.strays)
        strays.replace_rows(change.points(strays.rows))
        self._strays = strays
        if self.ring.count:
            self.ring.replace_rows(change.points(self.ring.rows))

    def merge(self, other: RecentEvents, n: int, n_other: int) -> None:
        """Add the events of another stream, of `n_other` events, as if it had run beside this one, of n events."""
        if other.ring.count:
            latest = other.ring.kept()
            more = ((0, 0), (0, self._shards.capacity - latest.rows.shape[1]))
            missing = None if latest.missing is None else np.pad(latest.missing, more)
            self.merge_latest(latest._replace(rows=np.pad(latest.rows, more), missing=missing), n, n_other)
        rings = self.strays, other.strays
        ours, theirs = (EventRing.kept(ring).ranked(ring.count) for ring in rings)
        both = side_by_side(ours, self.strays.count, theirs, other.strays.count)
        self.strays.refill(both, self.strays.count + other.strays.count)

    def merge_latest(self, latest: KeptEvents, n: int, n_other: int) -> None:
        """Add the latest events in a row of another stream."""
        self._open_ring()
        both = side_by_side(self.ring.kept(), n, latest, n_other)
        self.ring.refill(both, self.ring.count + len(latest.at))

    def replace_strays(self, strays: WatchedEvents) -> None:
        """Have other strays."""
        self._strays = strays

    # ---------------------------------------------------------------- saving

    def to_state(self) -> State:
        """State of the latest events in a row and of the strays."""
        strays = {"strays": self.strays.rows.copy()}
        values = {"whole": self.ring.count, "strays": self.strays.count}
        return State(prefixed("whole.", self.ring.to_arrays()) | strays, values)

    def restore(self, state: State) -> None:
        """Hold what `to_state` saved."""
        arrays, values = state
        self._strays = WatchedEvents(0)
        self._strays.restore({"rows": arrays["strays"]}, values["strays"])
        if "whole" in values:  # older checkpoints have none
            self.ring.restore(under(arrays, "whole."), values["whole"])

    # ---------------------------------------------------------------- reading

    @property
    def strays(self) -> WatchedEvents:
        """Watched events that lay outside every large cluster."""
        n_features = self._shards.n_features
        if self._strays is None or not self._strays.rows.shape[1]:  # asked for before there were features
            self._strays = WatchedEvents(n_features)
        if (short := n_features - self._strays.rows.shape[1]) > 0:
            self._strays.widen(np.zeros(short))
        return self._strays

    def latest(self, n: int = TUNING.look_events) -> tuple[Floats, Floats]:
        """The latest events in a row, of all shards, the oldest first, and what each weighed when it came."""
        return self.ring.latest(n)[:, : self._shards.n_features], self.ring.weights(n)

    def latest_numbers(self) -> Ints:
        """The numbers of the events that `latest` gives."""
        return self.ring.last(self.ring.at, TUNING.look_events)

    def watched_rows(self, n: int = TUNING.window_events) -> Floats:
        """The latest watched events of every shard, at most n of each, shard by shard."""
        rows = [part.watch.latest(n)[:, : self._shards.n_features] for part in self._shards.values()]
        return np.concatenate(rows)

    def watched_weights(self, n: int = TUNING.window_events) -> Floats:
        """Present weight of each event of `watched_rows`; its first weight if forgetting goes by time."""
        half_life = self._shards.settings.half_life
        return np.concatenate([part.watched_weights(n, half_life) for part in self._shards.values()])

    def watched(self) -> tuple[Floats, Floats, Ints]:
        """The latest watched events of all shards in their order, what each weighed, and its number."""
        parts = list(self._shards.values())
        order = self._order()
        at = np.concatenate([part.watch.last(part.watch.at) for part in parts])
        weight = np.concatenate([part.watch.weights() for part in parts])
        return self.watched_rows()[order], weight[order], at[order]

    def stands_for(self) -> Floats:
        """Number of events that each that `watched` gives stands for."""
        return self.watched_stands_for()[self._order()]

    def watched_stands_for(self) -> Floats:
        """Number of events that each that `watched_rows` gives stands for."""
        return np.concatenate([part.watch.stands_for() for part in self._shards.values()])

    def _order(self) -> Ints | slice:
        """Order of the watched events of all shards."""
        if len(self._shards) == 1:
            return slice(None)
        at = np.concatenate([part.watch.last(part.watch.at) for part in self._shards.values()])
        return np.argsort(at, kind="stable")[-TUNING.window_events :]

    def gaps(self) -> Gaps | None:
        """The watched events; None if no value of theirs was missing."""
        parts = self._shards.values()
        if all(part.watch.missing is None for part in parts):
            return None
        missing = [part.watch.latest_missing()[:, : self._shards.n_features] for part in parts]
        return Gaps(self.watched_rows(), np.concatenate(missing), self.watched_weights())

    def kept_watched(self) -> KeptEvents:
        """All that is kept of the watched events of all shards, in their order."""
        parts = [part.watch.kept().narrowed(self._shards.n_features) for part in self._shards.values()]
        return in_order(parts) if parts else EventRing(self._shards.n_features, 1).kept()

    # ---------------------------------------------------------------- as a model sees them

    def seen_by(self, model: Model) -> Seen:
        """The watched events as a model sees them, in the order of `watched`; each is labelled once."""
        return self.watched_seen_by(model).some(self._order())

    def watched_seen_by(self, model: Model, n: int = TUNING.window_events) -> Seen:
        """The events that `watched_rows` gives as a model sees them; each is labelled once."""
        parts = [part.watch.seen_by(model, n) for part in self._shards.values()]
        if len(parts) == 1:
            return parts[0]
        return Seen(*(np.concatenate(kept) for kept in zip(*parts, strict=True)))

    def sums_by(self, model: Model, size: int) -> Floats:
        """`block_sums` of the events that `watched` gives, as a model sees them."""
        if len(self._shards) == 1:
            return next(iter(self._shards.values())).watch.sums_by(model, size)
        return block_sums(*self.seen_by(model), self.watched()[1], len(model.rows) + 1, size)

    @property
    def memory_events(self) -> float:
        """Number of events after which one is forgotten; infinite where nothing is, or by its time."""
        half_life = self._shards.settings.half_life
        timed = any(part.tree.timed for part in self._shards.values())
        return np.inf if half_life is None or timed else TUNING.forgotten_half_lives * half_life

    def sequence(self, since: int = 0) -> RecentSequence:
        """Recent events in their order, without those that came before event number `since` or are forgotten."""
        if not self._shards or not len(self.ring):
            nothing = np.empty((0, self._shards.n_features))
            return RecentSequence(nothing, 1.0, nothing)
        watched, _, at = self.watched()
        since = max(since, int(at[-1] - min(self.memory_events, at[-1]))) if len(at) else since
        latest = self.latest()[0][self.latest_numbers() >= since]
        rows, stride = self.evenly_watched(at >= since)
        return RecentSequence(watched[rows], stride, latest)

    def evenly_watched(self, chosen: Bools) -> tuple[Ints, float]:
        """Places, in `watched`, of those chosen that stand for as many events each; and for how many.

        The first events are all watched, later ones in part. Once the later ones span more events, the first are
        thinned as those were.
        """
        held = self.stands_for()
        late = chosen & (held > 1.0)
        if 2 * held[late].sum() < held[chosen].sum():
            return np.flatnonzero(chosen & (held == 1.0)), 1.0
        at = self.watched()[2]
        thinned = watched_in(at // TUNING.block_events) == at
        return np.flatnonzero(late | (chosen & thinned)), float(TUNING.block_events)
