"""Watch: a bounded sample of the latest events, from which the engine sees that the stream has changed."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from streamclust._kernels.engine.windows import block_sums
from streamclust._kernels.hashing import splitmix64
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.imputation import imputed
from streamclust.engine.model import Model, Seen
from streamclust.sketch import CoordinateMap

BLOCK_EVENTS = 8
"""One event in each block of so many is watched (kept in the sample); of the first WINDOW_EVENTS, every one."""
WINDOW_EVENTS = 4096
"""Number of watched events kept; a whole number of blocks."""

Array = TypeVar("Array", Floats, Ints, Bools)


def watched_in(blocks: Ints) -> Ints:
    """The number of the event that is watched in each block: a hash chooses it.

    Every eighth event of a stream whose sources report in turns would come from a few of them alone.

    >>> watched_in(np.arange(4))
    array([ 7, 11, 16, 31])
    """
    return np.asarray(BLOCK_EVENTS * blocks + (splitmix64(blocks + 1) >> np.uint64(61)).astype(np.int64))


def chosen_of(first: int, n: int, window: int = WINDOW_EVENTS) -> Ints:
    """Which of n events, of which the first is number `first` of all, are watched: all until there are `window`.

    >>> chosen_of(first=14, n=8, window=16)
    array([0, 1, 2])
    """
    early = min(max(window - first, 0), n)
    start, stop = first + early, first + n
    late = watched_in(np.arange(start // BLOCK_EVENTS, -(-stop // BLOCK_EVENTS)))
    late = late[(late >= start) & (late < stop)] - first
    return np.concatenate([np.arange(early), late]) if early else late


class KeptEvents(NamedTuple):
    """Events of a ring with their weights and numbers, the oldest first, and how many events each stands for."""

    rows: Floats
    weight: Floats
    at: Ints
    stands_for: Floats | None = None
    """None: each for itself."""
    missing: Bools | None = None
    """Which values were filled in; None: none."""

    def some(self, chosen: Ints | slice) -> KeptEvents:
        """Some of them."""
        held = None if self.stands_for is None else self.stands_for[chosen]
        missing = None if self.missing is None else self.missing[chosen]
        return KeptEvents(self.rows[chosen], self.weight[chosen], self.at[chosen], held, missing)

    def narrowed(self, n_features: int) -> KeptEvents:
        """Their first features."""
        missing = None if self.missing is None else self.missing[:, :n_features]
        return self._replace(rows=self.rows[:, :n_features], missing=missing)

    def missing_values(self) -> Bools:
        """Which values were filled in, of every event."""
        return np.zeros(self.rows.shape, dtype=bool) if self.missing is None else self.missing

    def ranked(self, count: int) -> KeptEvents:
        """The events, numbered by their order: the last is number `count` - 1."""
        return self._replace(at=np.arange(count - len(self.at), count))


def spread(at: Ints, n: int, total: int) -> Ints:
    """Numbers of a stream's n events, where they are spread evenly over `total` events.

    >>> spread(np.array([0, 1, 2, 3]), n=4, total=12)
    array([ 2,  5,  8, 11])
    """
    numbers = np.floor((at + 1) * (total / max(n, 1))).astype(np.int64) - 1
    return np.asarray(np.maximum(numbers, 0))


def side_by_side(ours: KeptEvents, n: int, theirs: KeptEvents, n_theirs: int) -> KeptEvents:
    """The events of two streams, of n and `n_theirs` events, as if those had run side by side, each at its own pace."""
    total = n + n_theirs
    return in_order(
        [ours._replace(at=spread(ours.at, n, total)), theirs._replace(at=spread(theirs.at, n_theirs, total))]
    )


def in_order(parts: list[KeptEvents]) -> KeptEvents:
    """The events of several rings in the order of their numbers."""
    held = [part.stands_for for part in parts if part.stands_for is not None]
    filled = any(part.missing is not None for part in parts)
    both = KeptEvents(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.weight for part in parts]),
        np.concatenate([part.at for part in parts]),
        np.concatenate(held) if held else None,
        np.concatenate([part.missing_values() for part in parts]) if filled else None,
    )
    return both.some(np.argsort(both.at, kind="stable"))


class Ring:
    """The latest of some events, with their weights and numbers."""

    def __init__(self, n_features: int, size: int = WINDOW_EVENTS) -> None:
        self.size = size
        self.rows = np.zeros((size, n_features))
        self.weight = np.ones(size)
        self.at = np.zeros(size, dtype=np.int64)
        """The number of each event in the stream."""
        self.count = 0
        self.missing: Bools | None = None
        """Which values the events lacked: those in `rows` were filled in. None: all of them were complete."""

    def add(self, rows: Floats, weight: Floats | None, at: Ints, missing: Bools | None = None) -> None:
        """Keep these events, the oldest first; `missing` are values that were filled in."""
        self.count += len(rows)
        if self.missing is None and missing is not None and missing.any():
            self.missing = np.zeros(self.rows.shape, dtype=bool)
        if self.missing is not None:
            self.put(self.missing, np.zeros(rows.shape, dtype=bool) if missing is None else missing)
        self.put(self.rows, rows)
        self.put(self.weight, np.ones(len(rows)) if weight is None else weight)
        self.put(self.at, at)

    def put(self, kept: Array, new: Array) -> None:
        """Write what is kept of each of the latest events in its place; of too many, of the last."""
        n, end = min(len(new), self.size), self.count % self.size
        later = min(n, end)
        kept[end - later : end] = new[len(new) - later :]
        if n > later:
            kept[self.size - (n - later) :] = new[len(new) - n : len(new) - later]

    def __len__(self) -> int:
        return min(self.count, self.size)

    def latest(self, n: int = WINDOW_EVENTS) -> Floats:
        """The latest n events, or as many as there are, the oldest first."""
        return self.last(self.rows, n)

    def weights(self, n: int = WINDOW_EVENTS) -> Floats:
        """What each event that `latest` gives weighed when it came."""
        return self.last(self.weight, n)

    def latest_missing(self, n: int = WINDOW_EVENTS) -> Bools:
        """Which values of the events that `latest` gives were filled in."""
        if self.missing is None:
            return np.zeros((min(n, len(self)), self.rows.shape[1]), dtype=bool)
        return self.last(self.missing, n)

    def last(self, kept: Array, n: int = WINDOW_EVENTS) -> Array:
        """A copy of the latest n of what is kept of each event in its place, the oldest first."""
        n, end = min(n, len(self)), self.count % self.size
        if n <= end:
            return kept[end - n : end].copy()
        return np.concatenate([kept[self.size - (n - end) :], kept[:end]])

    def kept(self) -> KeptEvents:
        """All that it holds, the oldest first."""
        missing = None if self.missing is None else self.last(self.missing, self.size)
        at = self.last(self.at, self.size)
        return KeptEvents(self.latest(self.size), self.weights(self.size), at, missing=missing)

    def refill(self, kept: KeptEvents, count: int) -> None:
        """Hold these events instead, the oldest first, as the latest of `count`."""
        self.count = count
        self.missing = None
        if kept.missing is not None:
            self.missing = np.zeros(self.rows.shape, dtype=bool)
            self.put(self.missing, kept.missing)
        self.put(self.rows, kept.rows)
        self.put(self.weight, kept.weight)
        self.put(self.at, kept.at)

    def spread(self, n: int, total: int) -> None:
        """Number the events of a stream of n events as if they were spread evenly over `total` events."""
        self.at = spread(self.at, n, total)

    def widen(self, values: Floats, unknown: bool = False) -> None:
        """Add features in which every event so far has the same values; `unknown`: those are filled in."""
        self.rows = np.concatenate([self.rows, np.broadcast_to(values, (self.size, len(values)))], axis=1)
        if unknown and len(self) and self.missing is None:
            self.missing = np.zeros((self.size, self.rows.shape[1] - len(values)), dtype=bool)
        if self.missing is not None:
            self.missing = np.pad(self.missing, ((0, 0), (0, len(values))), constant_values=unknown)

    def reorder(self, columns: Ints) -> None:
        """Put the features in another order: the new column j is the old columns[j]."""
        self.rows = np.ascontiguousarray(self.rows[:, columns])
        if self.missing is not None:
            self.missing = np.ascontiguousarray(self.missing[:, columns])

    def carry(self, change: CoordinateMap) -> None:
        """Have the events in other coordinates."""
        self.rows = change.points(self.rows, np.random.default_rng([self.count, self.size]))
        self.missing = None

    def impute(self, model: Model, log_share: Floats, seed: int) -> None:
        """Draw the missing values anew, from this model; those that it has no feature for stay.

        `log_share` is that of each of its components.
        """
        if self.missing is not None:
            rows, written, known = self.rows.copy(), slice(0, len(self)), slice(0, model.n_coordinates)
            missing = self.missing[written, known]
            number = self.at[written]
            rows[written, known] = imputed(model, rows[written, known], missing, number, seed, log_share)
            self.replace_rows(rows)

    def replace_rows(self, rows: Floats) -> None:
        """Have the same events with other values."""
        self.rows = rows


class Labels(NamedTuple):
    """The events of a ring as a model sees them, in their places: so many, of all that there have been."""

    model: Model
    seen: Seen
    labelled: int = 0


class Sums(NamedTuple):
    """Sums over blocks of the events of a ring as a model sees them, after so many of all that there have been."""

    model: Model
    blocks: Floats
    summed: int


class Watch(Ring):
    """The latest watched events.

    Which events are watched depends on their number alone, never on how they were batched.

    >>> watch = Watch(n_features=1)
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
        """How many of a stream's first n events are watched."""
        return min(n, WINDOW_EVENTS + max(n - WINDOW_EVENTS, 0) // BLOCK_EVENTS)

    def seen_by(self, model: Model, n: int = WINDOW_EVENTS) -> Seen:
        """The events that `latest` gives as a model sees them; each is labelled once for a model."""
        kept = self._kept
        if kept is None or kept.model is not model:
            kept = Labels(
                model,
                Seen(
                    np.zeros(WINDOW_EVENTS, dtype=np.int64),
                    np.zeros((WINDOW_EVENTS, model.whitened_features)),
                ),
            )
        if kept.labelled < self.count:
            cell, whitened = model.see(self.latest(self.count - kept.labelled))
            self.put(kept.seen.cell, cell)
            self.put(kept.seen.whitened, whitened)
            self._kept = kept._replace(labelled=self.count)
        return Seen(self.last(kept.seen.cell, n), self.last(kept.seen.whitened, n))

    def sums_by(self, model: Model, size: int) -> Floats:
        """`block_sums` of all whole blocks of so many events, as a model sees them; of old ones those kept."""
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
        index = self.count - len(self) + np.arange(len(self))
        return np.where(
            index < WINDOW_EVENTS, index, watched_in(WINDOW_EVENTS // BLOCK_EVENTS + index - WINDOW_EVENTS)
        )

    def stands_for(self) -> Floats:
        """How many events of its shard each that `latest()` gives stands for: itself, or all of its block."""
        index = self.count - len(self) + np.arange(len(self))
        return np.where(index < WINDOW_EVENTS, 1.0, float(BLOCK_EVENTS))

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

    def carry(self, change: CoordinateMap) -> None:
        """Have the events in other coordinates."""
        super().carry(change)
        self._kept = self._sums = None

    def replace_rows(self, rows: Floats) -> None:
        """Have the same events with other values."""
        if rows is not self.rows:
            super().replace_rows(rows)
            self._kept = self._sums = None
