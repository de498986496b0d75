"""Wide events: those that wait until a sketch is learnt, and the latest, by which the sketch is judged."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.event_rows import stacked_rows
from streamclust.engine.watched_events import chosen_of, numbers_of
from streamclust.sketch import Rows, Sketch

RECENT_EVENTS = 1024
"""Number of recent wide events that are kept as they came; a whole number of blocks."""


class Block(NamedTuple):
    """Events that wait, of one shard; no weights or times is an empty array."""

    rows: Rows
    weight: Floats
    time: Floats
    shard: Hashable


def joined_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Blocks joined where they follow each other and are of one kind, so that batching leaves no trace."""
    found: list[Block] = []
    for _, group in groupby(
        blocks, key=lambda block: (block.shard, len(block.weight) > 0, len(block.time) > 0)
    ):
        alike = list(group)
        rows = stacked_rows([block.rows for block in alike])
        weight, time = (
            np.concatenate([getattr(block, name) for block in alike]) for name in ("weight", "time")
        )
        found.append(Block(rows, weight, time, alike[0].shard))
    return found


class RecentWideEvents:
    """A bounded sample of the latest wide events, as they came, in single precision.

    Which events are kept depends on their number alone.
    """

    def __init__(self) -> None:
        self.rows: list[Rows] = []
        self.residual = np.zeros(RECENT_EVENTS)
        """The squared length of what the sketch leaves out of each."""
        self.count = 0

    def see(self, rows: Rows, first: int, residual: Floats) -> None:
        """Keep some of these events; the first of them is number `first` of all."""
        chosen = chosen_of(first, rows.shape[0], RECENT_EVENTS)
        kept = rows[chosen].astype(np.float32)
        places = (self.count + np.arange(len(chosen))) % RECENT_EVENTS
        self.residual[places] = residual[chosen]
        for i, place in enumerate(places.tolist()):
            self.rows[place : place + 1] = [kept[i : i + 1]]  # past the last there is, it is one more
        self.count += len(chosen)

    def judge(self, sketch: Sketch) -> None:
        """Measure what another sketch leaves out of the events."""
        if self.rows:
            _, self.residual[: len(self.rows)] = sketch.measure(stacked_rows(self.rows))

    def latest(self, n: int = RECENT_EVENTS) -> Rows:
        """The latest n of them, or as many as there are, the oldest first."""
        size = len(self.rows)
        places = [i % RECENT_EVENTS for i in range(self.count - min(n, size), self.count)]
        return stacked_rows([self.rows[i] for i in places])

    def numbers(self) -> Ints:
        """The number of each event that `latest()` gives."""
        return numbers_of(self.count, RECENT_EVENTS)

    def latest_residuals(self, n: int) -> Floats:
        """The residuals of the latest n of them, or of as many as there are."""
        n = min(n, len(self.rows))
        return self.residual[np.arange(self.count - n, self.count) % RECENT_EVENTS]
