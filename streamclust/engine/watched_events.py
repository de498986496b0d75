"""Watched events: a bounded sample of the latest events, from which the engine sees that the stream has changed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamclust._kernels.engine.windows import block_sums
from streamclust._kernels.hashing import splitmix64
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.event_ring import EventRing, KeptEvents, lengthened
from streamclust.engine.model import Model, Seen
from streamclust.engine.tuning import TUNING
from streamclust.sketch import CoordinateMap


def watched_in(blocks: Ints) -> Ints:
    """The number of the event that is watched in each block: a hash chooses it.

    Every eighth event of a stream whose sources report in turns would come from a few of them alone.

    >>> watched_in(np.arange(4))
    array([ 7, 11, 16, 31])
    """
    return np.asarray(
        TUNING.block_events * blocks + (splitmix64(blocks + 1) >> np.uint64(61)).astype(np.int64)
    )


def chosen_of(first: int, n: int, window: int = TUNING.window_events) -> Ints:
    """Which of n events, of which the first is number `first` of all, are watched: all until there are `window`.

    >>> chosen_of(first=14, n=8, window=16)
    array([0, 1, 2])
    """
    early = min(max(window - first, 0), n)
    start, stop = first + early, first + n
    late = watched_in(np.arange(start // TUNING.block_events, -(-stop // TUNING.block_events)))
    late = late[(late >= start) & (late < stop)] - first
    return np.concatenate([np.arange(early), late]) if early else late


def numbers_of(count: int, window: int = TUNING.window_events) -> Ints:
    """The number of each of the latest watched events, the oldest first, of which there have been `count`.

    >>> numbers_of(18, window=16)
    array([ 2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 31])
    """
    index = count - min(count, window) + np.arange(min(count, window))
    return np.where(index < window, index, watched_in(window // TUNING.block_events + index - window))


class Labels(NamedTuple):
    """The events of a ring as a model sees them, in their places, up to event number `labelled`."""

    model: Model
    seen: Seen
    labelled: int = 0


class Sums(NamedTuple):
    """Sums over blocks of the events of a ring as a model sees them, up to event number `summed`."""

    model: Model
    blocks: Floats
    summed: int


class WatchedEvents(EventRing):
    """The latest watched events.

    Which events are watched depends on their number alone, never on how they were batched.

    >>> watch = WatchedEvents(n_features=1)
    >>> watch.see(np.arange(10.0)[:, None], first=0)
    >>> watch.latest(3)[:, 0]
    array([7., 8., 9.])
    """

    _kept: Labels | None = None
    _sums: Sums | None = None

    def see(
        self,
        rows: Floats,
        first: int,
        weight: Floats | None = None,
        at: int | None = None,
        missing: Bools | None = None,
    ) -> None:
        """Keep those of these events that are to be watched; the first is number `first` of all, `at` in the stream.

        `missing` are values that were filled in.
        """
        chosen = chosen_of(first, len(rows))
        numbers = chosen + (first if at is None else at)
        some = None if missing is None else missing[chosen]
        self.add(rows[chosen], None if weight is None else weight[chosen], numbers, some)

    @staticmethod
    def due(n: int) -> int:
        """Number of a stream's first n events that are watched."""
        return min(n, TUNING.window_events + max(n - TUNING.window_events, 0) // TUNING.block_events)

    def _make_room(self) -> None:
        super()._make_room()
        kept, room = self._kept, len(self.rows)
        if kept is not None and len(kept.seen.cell) < room:
            seen = Seen(lengthened(kept.seen.cell, room), lengthened(kept.seen.whitened, room))
            self._kept = kept._replace(seen=seen)

    def seen_by(self, model: Model, n: int = TUNING.window_events) -> Seen:
        """The events that `latest` gives as a model sees them; each is labelled once for a model."""
        kept = self._kept
        if kept is None or kept.model is not model:
            kept = Labels(
                model,
                Seen(
                    np.zeros(len(self.rows), dtype=np.int64),
                    np.zeros((len(self.rows), model.whitened_features)),
                ),
            )
        if kept.labelled < self.count:
            cell, whitened = model.see(self.latest(self.count - kept.labelled))
            self.put(kept.seen.cell, cell)
            self.put(kept.seen.whitened, whitened)
            self._kept = kept._replace(labelled=self.count)
        return Seen(self.last(kept.seen.cell, n), self.last(kept.seen.whitened, n))

    def sums_by(self, model: Model, size: int) -> Floats:
        """`block_sums` of all whole blocks of `size` events, as a model sees them; those of old blocks are cached."""
        kept, blocks = self._sums, len(self) // size
        if kept is None or kept.model is not model or (self.count - kept.summed) % size:
            kept = Sums(model, np.empty((0, len(model.rows) + 1, 2 + 2 * model.whitened_features)), 0)
        new = self.count - kept.summed
        if new:
            more = block_sums(*self.seen_by(model, new), self.weights(new), kept.blocks.shape[1], size)
            kept = Sums(model, np.concatenate([more, kept.blocks])[:blocks], self.count)
        self._sums = kept
        return kept.blocks

    def numbers(self) -> Ints:
        """The number, in its shard, of each event that `latest()` gives."""
        return numbers_of(self.count)

    def stands_for(self) -> Floats:
        """Number of events of its shard that each of `latest()` stands for: itself, or all of its block."""
        index = self.count - len(self) + np.arange(len(self))
        return np.where(index < TUNING.window_events, 1.0, float(TUNING.block_events))

    def kept(self) -> KeptEvents:
        """All that it holds, the oldest first."""
        return super().kept()._replace(stands_for=self.stands_for())

    def refill(self, kept: KeptEvents, count: int) -> None:
        """Watch these events instead, as the latest of `count` watched ones; of too many, a sample.

        Each place of the ring is for as many events as it is to stand for: an event is in it with the probability that
        it stands for one of those. A hash chooses, since the events of merged streams alternate.
        """
        self.count = count
        held, places = kept.stands_for, self.stands_for()
        if held is not None and len(kept.at) and len(places):
            ends = np.cumsum(places[::-1])
            jitter = (splitmix64(np.arange(len(places)) + 1) >> np.uint64(11)).astype(float) / 2.0**53
            reached = np.cumsum(held[::-1])
            needed = (ends - places[::-1] * jitter) * min(1.0, reached[-1] / ends[-1])
            newest = np.searchsorted(reached, needed)
            kept = kept.some(len(held) - 1 - np.minimum(newest, len(held) - 1)[::-1])
        super().refill(kept, count if len(kept.at) else 0)
        self._kept = self._sums = None

    def renumber(self, at: int) -> None:
        """Number the events anew: the last is number `at` of another stream."""
        self.at += at - int(self.at.max())

    def reorder(self, columns: Ints) -> None:
        """Put the features in another order: the new column j is the old columns[j]."""
        super().reorder(columns)
        self._kept = self._sums = None

    def reproject(self, change: CoordinateMap) -> None:
        """Map the events to other coordinates."""
        super().reproject(change)
        self._kept = self._sums = None

    def replace_rows(self, rows: Floats) -> None:
        """Have the same events with other values."""
        if rows is not self.rows:
            super().replace_rows(rows)
            self._kept = self._sums = None
