"""The ladder: compares windows of several lengths, each with the one before it, to find when the stream changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from streamclust._kernels.engine.windows import (
    at_rest,
    block_sums,
    fit_statistics,
    ladder_statistics,
    mean_statistics,
)
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
    return float(p_values(mean_statistics(new, old, MIN_JUDGED_EVENTS)[None], (new.shape[1] - 2) // 2)[0])


def p_values(statistics: Floats, d: int) -> Floats:
    """The same of rows of `mean_statistics`, of D features."""
    every, largest, cells = statistics.T
    df = d * np.maximum(cells, 1.0)
    p = 2.0 * np.minimum(chdtrc(df, every), cells * chdtrc(d, largest))
    return np.where(cells * d > 0, np.minimum(1.0, p), 1.0)


def fit(newest: Floats) -> float:
    """p-value of a window under the model: compared with an endless window that fits the model exactly."""
    d = (newest.shape[1] - 2) // 2
    return float(p_values(fit_statistics(newest, MIN_JUDGED_EVENTS)[None], d)[0])


def look(shards: Shards, model: Model, n_seen: int, moving: bool, tolerated: float) -> Findings:
    """Compare windows of the newest events with those before them, and the shortest with the model.

    Windows of all events in a row are only tried where the shortest does not fit, or means are moving already.
    """
    rows, weight = shards.near(MIN_WINDOW_EVENTS)
    newest = block_sums(*model.see(rows), weight, len(model.rows) + 1, MIN_WINDOW_EVENTS)
    fits = True
    if len(newest):
        if not (moving or model.moved):  # at most looks nothing has moved: that shows without p-values
            blocks = shards.sums_by(model.published, MIN_WINDOW_EVENTS)
            if at_rest(newest[0], blocks, tolerated, MIN_JUDGED_EVENTS):
                return Findings(fits=True)
        outside = newest[0, -1, 0] / max(newest[0, :, 0].sum(), 1e-300)
        fits = bool(outside <= tolerated and fit(newest[0]) >= MOVE_P_VALUE)
    fresh = since = None
    for near, n, p in climb(shards, model, near=moving or not fits):
        if p >= MOVE_P_VALUE:
            continue
        found = window(shards, n_seen, near, n)
        fresh = fresh or found
        if p < CHANGE_P_VALUE:
            since = found
            break
    return Findings(fits, fresh, since)


def climb(shards: Shards, model: Model, near: bool) -> Iterator[tuple[bool, int, float]]:
    """Every window, the shortest first: whether it is of events in a row or of watched ones, how many, and p-value."""
    if near:
        rows, weight = shards.near()
        for n, p in rungs(weight, lambda part: model.see(rows[part]), len(model.rows), WHOLE_EVENTS // 2):
            yield True, n, p
    if model.moved:
        rows, weight, _ = shards.watched()
        for n, p in rungs(weight, lambda part: model.see(rows[part]), len(model.rows), WINDOW_EVENTS // 2):
            yield False, n, p
    else:
        blocks = shards.sums_by(model.published, MIN_WINDOW_EVENTS)
        found = p_values(ladder_statistics(blocks, MIN_JUDGED_EVENTS), model.whitened_features)
        for i, p in enumerate(found.tolist()):
            yield False, MIN_WINDOW_EVENTS << i, p


def window(shards: Shards, n_seen: int, near: bool, n: int) -> Rung:
    """The newest n events in a row or, if not `near`, the newest n watched ones."""
    if near:
        return Rung(n, *shards.near(n))
    rows, weight, at = shards.watched()
    return Rung(n_seen - int(at[-n]), rows[-n:], weight[-n:])


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
