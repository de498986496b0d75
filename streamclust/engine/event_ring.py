"""Event ring: the latest events of a stream, with their weights and numbers, in a bounded array."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.imputation import imputed
from streamclust.engine.model import Model
from streamclust.engine.tuning import TUNING
from streamclust.sketch import CoordinateMap
from streamclust.utils.state import Arrays

Array = TypeVar("Array", Floats, Ints, Bools)

FIRST_ROOM = 64
"""Number of events that a new ring has room for; a stream of few events takes little memory."""


def lengthened(kept: Array, room: int) -> Array:
    """A longer copy, zeros at the end."""
    found = np.zeros((room, *kept.shape[1:]), dtype=kept.dtype)
    found[: len(kept)] = kept
    return found


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


class EventRing:
    """The latest of some events, with their weights and numbers: `size` at most.

    Its arrays grow with the number of events, to the next power of two.

    >>> ring = EventRing(n_features=1, size=1000)
    >>> ring.add(np.zeros((65, 1)), None, np.arange(65))
    >>> len(ring), len(ring.rows)
    (65, 128)
    """

    def __init__(self, n_features: int, size: int = TUNING.window_events) -> None:
        self.size = size
        room = min(size, FIRST_ROOM)
        self.rows = np.zeros((room, n_features))
        self.weight = np.zeros(room)
        self.at = np.zeros(room, dtype=np.int64)
        """The number of each event in the stream."""
        self.count = 0
        self.missing: Bools | None = None
        """Which values the events lacked: those in `rows` were filled in. None: all of them were complete."""

    def add(self, rows: Floats, weight: Floats | None, at: Ints, missing: Bools | None = None) -> None:
        """Keep these events, the oldest first; `missing` are values that were filled in."""
        self.count += len(rows)
        self._make_room()
        if self.missing is None and missing is not None and missing.any():
            self.missing = np.zeros(self.rows.shape, dtype=bool)
        if self.missing is not None:
            self.put(self.missing, np.zeros(rows.shape, dtype=bool) if missing is None else missing)
        self.put(self.rows, rows)
        self.put(self.weight, np.ones(len(rows)) if weight is None else weight)
        self.put(self.at, at)

    def _make_room(self) -> None:
        """Lengthen the arrays to what the count needs: before the ring is full, event i has place i."""
        room = min(self.size, 1 << max(self.count - 1, 0).bit_length())
        if room > len(self.rows):
            self.rows, self.weight = lengthened(self.rows, room), lengthened(self.weight, room)
            self.at = lengthened(self.at, room)
            if self.missing is not None:
                self.missing = lengthened(self.missing, room)

    def put(self, kept: Array, new: Array) -> None:
        """Write what is kept of each of the latest events in its place; of too many, of the last."""
        n, end = min(len(new), self.size), self.count % self.size
        later = min(n, end)
        kept[end - later : end] = new[len(new) - later :]
        if n > later:
            kept[self.size - (n - later) :] = new[len(new) - n : len(new) - later]

    def __len__(self) -> int:
        return min(self.count, self.size)

    def latest(self, n: int = TUNING.window_events) -> Floats:
        """The latest n events, or as many as there are, the oldest first."""
        return self.last(self.rows, n)

    def weights(self, n: int = TUNING.window_events) -> Floats:
        """Weight of each event that `latest` gives when it came."""
        return self.last(self.weight, n)

    def latest_missing(self, n: int = TUNING.window_events) -> Bools:
        """Which values of the events that `latest` gives were filled in."""
        if self.missing is None:
            return np.zeros((min(n, len(self)), self.rows.shape[1]), dtype=bool)
        return self.last(self.missing, n)

    def last(self, kept: Array, n: int = TUNING.window_events) -> Array:
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

    def to_arrays(self) -> Arrays:
        """Copies of the events, their weights and numbers; the count is saved elsewhere."""
        arrays = {name: getattr(self, name).copy() for name in ("rows", "weight", "at")}
        return arrays if self.missing is None else arrays | {"missing": self.missing.copy()}

    def restore(self, arrays: Arrays, count: int) -> None:
        """Hold the events that `to_arrays` saved; older checkpoints have no numbers, and no missing values."""
        self.rows, self.count = np.array(arrays["rows"]), count
        room = len(self.rows)
        self.weight = arrays["weight"].copy() if "weight" in arrays else np.ones(room)
        self.at = arrays["at"].copy() if "at" in arrays else np.zeros(room, dtype=np.int64)
        self.missing = arrays["missing"].copy() if "missing" in arrays else None

    def refill(self, kept: KeptEvents, count: int) -> None:
        """Hold these events instead, the oldest first, as the latest of `count`."""
        self.count = count
        self._make_room()
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
        self.rows = np.concatenate(
            [self.rows, np.broadcast_to(values, (len(self.rows), len(values)))], axis=1
        )
        if unknown and len(self) and self.missing is None:
            self.missing = np.zeros((len(self.rows), self.rows.shape[1] - len(values)), dtype=bool)
        if self.missing is not None:
            self.missing = np.pad(self.missing, ((0, 0), (0, len(values))), constant_values=unknown)

    def reorder(self, columns: Ints) -> None:
        """Put the features in another order: the new column j is the old columns[j]."""
        self.rows = np.ascontiguousarray(self.rows[:, columns])
        if self.missing is not None:
            self.missing = np.ascontiguousarray(self.missing[:, columns])

    def reproject(self, change: CoordinateMap) -> None:
        """Map the events to other coordinates."""
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
