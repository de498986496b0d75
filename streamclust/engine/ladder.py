"""The ladder: compares windows of several lengths, each with the one before it, to find when the stream changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from streamclust._kernels.engine.windows import block_sums, mean_statistics
from streamclust._kernels.types import Floats
from streamclust.engine.model import Model, Seen
from streamclust.engine.shards import WHOLE_EVENTS, Shards
from streamclust.engine.watch import WINDOW_EVENTS
from streamclust.late import chdtrc

MIN_WINDOW_EVENTS = 256
"""Events of the shortest window."""
MOVE_P_VALUE = 1e-4
"""Means are moved where the p-value of "nothing has moved between two windows" is below this."""
CHANGE_P_VALUE = 1e-9
"""Below this p-value the stream has changed: events before the newer window no longer count."""
MIN_JUDGED_EVENTS = 8.0
"""Clusters of fewer events in a window are left out of the test."""


class Rung(NamedTuple):
    """A window that differs from the one before it."""

    span: int
    """How many events ago it began."""
    rows: Floats
    weight: Floats


class Findings(NamedTuple):
    """Result of a look: the shortest windows whose p-values are below MOVE_P_VALUE and CHANGE_P_VALUE."""

    fits: bool
    """Whether the newest events fit the model."""
    fresh: Rung | None = None
    since: Rung | None = None


def p_value(new: Floats, old: Floats) -> float:
    """p-value of the means being equal in two windows: of all means together, or of the one that differs most.

    Shares do not count: sources that report in turns, in blocks of any length, are no drift.
    """
    every, largest, cells = mean_statistics(new, old, MIN_JUDGED_EVENTS)
    d = (new.shape[1] - 2) // 2
    if not (cells and d):
        return 1.0
    return float(min(1.0, 2.0 * min(chdtrc(d * cells, every), cells * chdtrc(d, largest))))


def fit(newest: Floats) -> float:
    """p-value of a window under the model: compared with an endless window that fits the model exactly."""
    ideal = np.zeros_like(newest)
    ideal[:, :2] = 1e9
    ideal[:, 2 + (newest.shape[1] - 2) // 2 :] = 1e9
    return p_value(newest, ideal)


def look(shards: Shards, model: Model, n_seen: int, moving: bool, tolerated: float) -> Findings:
    """Compare windows of the newest events with those before them, and the shortest with the model.

    Windows of all events in a row are only tried where the shortest does not fit, or means are moving already.
    """
    rows, weight = shards.near()
    newest = block_sums(
        *model.see(rows[-MIN_WINDOW_EVENTS:]),
        weight[-MIN_WINDOW_EVENTS:],
        len(model.rows) + 1,
        MIN_WINDOW_EVENTS,
    )
    fits = True
    if len(newest):
        outside = newest[0, -1, 0] / max(newest[0, :, 0].sum(), 1e-300)
        fits = bool(outside <= tolerated and fit(newest[0]) >= MOVE_P_VALUE)
    fresh = since = None
    for rung, p in climb(shards, model, n_seen, near=moving or not fits):
        fresh = fresh or (rung if p < MOVE_P_VALUE else None)
        if p < CHANGE_P_VALUE:
            since = rung
            break
    return Findings(fits, fresh, since)


def climb(shards: Shards, model: Model, n_seen: int, near: bool) -> Iterator[tuple[Rung, float]]:
    """Every window, the shortest first, and how often chance makes it differ as much from the one before it."""
    if near:
        rows, weight = shards.near()
        for n, p in rungs(weight, lambda part: model.see(rows[part]), len(model.rows), WHOLE_EVENTS // 2):
            yield Rung(n, rows[-n:], weight[-n:]), p
    rows, weight, at = shards.watched()
    if model.moved:
        found = rungs(weight, lambda part: model.see(rows[part]), len(model.rows), WINDOW_EVENTS // 2)
    else:
        seen = shards.seen_by(model.published)
        found = rungs(weight, seen.some, len(model.rows), WINDOW_EVENTS // 2)
    for n, p in found:
        yield Rung(n_seen - int(at[-n]), rows[-n:], weight[-n:]), p


def rungs(weight: Floats, see: Callable[[slice], Seen], k: int, longest: int) -> Iterator[tuple[int, float]]:
    """Compare the newest events with as many before them, 256 and then twice as many each time; labelled as needed."""
    n, total = MIN_WINDOW_EVENTS, len(weight)
    blocks: Floats | None = None
    while 2 * n <= total and n <= longest:
        part = slice(total - 2 * n, total if blocks is None else total - n)
        more = block_sums(*see(part), weight[part], k + 1, MIN_WINDOW_EVENTS)
        blocks = more if blocks is None else np.concatenate([blocks, more])
        half = n // MIN_WINDOW_EVENTS
        yield n, p_value(blocks[:half].sum(axis=0), blocks[half:].sum(axis=0))
        n *= 2
