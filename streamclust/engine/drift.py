"""The ladder: compares windows of several lengths, each with the one before it, to find when the stream changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
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
from streamclust.engine.dependence import BlockCurve
from streamclust.engine.model import Model, Seen
from streamclust.engine.shards import Shards
from streamclust.engine.stream import Counters
from streamclust.engine.tuning import TUNING
from streamclust.utils.late import chdtrc, fdtrc


class Rung(NamedTuple):
    """A window that differs from the one before it."""

    span: int
    """Number of events since it began."""
    rows: Floats
    weight: Floats


class Findings(NamedTuple):
    """Result of a look: the shortest windows whose p-values are below rare_p_value and change_p_value."""

    fits: bool
    """Whether the newest events fit the model."""
    fresh: Rung | None = None
    since: Rung | None = None


def p_value(new: Floats, old: Floats, evidence: float = 1.0) -> float:
    """p-value of the means being equal in two windows: of all means together, or of the one that differs most.

    Shares do not count: sources that report in turns, in blocks of any length, are no drift.
    """
    d = (new.shape[1] - 2) // 2
    return float(p_values(mean_statistics(new, old, TUNING.min_sample)[None], d, evidence)[0])


def p_values(statistics: Floats, d: int, evidence: float = 1.0) -> Floats:
    """p-values of rows of `mean_statistics`, of D features, for events that count `evidence`.

    Where that is less than 1, squares of features depend on each other, and sums of them vary so much more: they are
    compared with a chi-squared of as many degrees of freedom fewer [Satterthwaite 1946].
    """
    every, largest, cells = statistics.T
    each = evidence * d
    df = each * np.maximum(cells, 1.0)
    p = 2.0 * np.minimum(chdtrc(df, evidence * every), cells * chdtrc(each, evidence * largest))
    return np.where(cells * d > 0, np.minimum(1.0, p), 1.0)


def fit(newest: Floats, evidence: float = 1.0) -> float:
    """p-value of a window under the model: compared with an endless window that fits the model exactly."""
    d = (newest.shape[1] - 2) // 2
    return float(p_values(fit_statistics(newest, TUNING.min_sample)[None], d, evidence)[0])


def look(shards: Shards, model: Model, counters: Counters) -> Findings:
    """Compare windows of the newest events with those before them, and the shortest with the model.

    Windows of all events in a row are only tried where the shortest does not fit, or means are moving already.
    """
    rows, weight = shards.recent.latest(TUNING.look_sample_events)
    newest = block_sums(*model.see(rows), weight, len(model.rows) + 1, TUNING.look_sample_events)
    fits = True
    if len(newest):
        if not (
            counters.moving or model.moved
        ):  # at most looks nothing has moved: that shows without p-values
            blocks = shards.recent.sums_by(model.published, TUNING.look_sample_events)
            if at_rest(newest[0], blocks, counters.tolerated, TUNING.min_sample):
                return Findings(fits=True)
        outside = newest[0, -1, 0] / max(newest[0, :, 0].sum(), 1e-300)
        ordinary = fit(newest[0], model.event_evidence) >= TUNING.rare_p_value
        fits = bool(outside <= counters.tolerated and ordinary)
    fresh = since = None
    wandering = Wandering(shards, model, counters)
    for near, n, p in climb(shards, model, near=counters.moving or not fits):
        if p >= TUNING.rare_p_value or (p := wandering.p_value(near, n, p)) >= TUNING.rare_p_value:
            continue
        found = window(shards, counters.n_seen, near, n)
        fresh = fresh or found
        if p < TUNING.change_p_value:
            since = found
            break
    return Findings(fits, fresh, since)


class Wandering:
    """Compares windows whose means may wander: their differences are judged by those of windows before them."""

    def __init__(self, shards: Shards, model: Model, counters: Counters) -> None:
        self._shards = shards
        self._model = model
        self._counters = counters

    @cached_property
    def _watched(self) -> tuple[Floats, Seen]:
        rows, weight, _ = self._shards.recent.watched()
        return weight, self._model.see(rows)

    @cached_property
    def _latest(self) -> tuple[Floats, Seen]:
        rows, weight = self._shards.recent.latest()
        return weight, self._model.see(rows)

    def p_value(self, near: bool, n: int, independent: float) -> float:
        """p-value of the means being equal in the newest n events and the n before them.

        The latest events in a row, if `near`, else watched ones. It is `independent`, that of independent events,
        unless those of the present, but before the newer window, depend on each other, or did before. Then the variance
        of a difference is that of independent events and, beyond it, what means have wandered over such a time; as that
        was estimated, the statistic has the tail of an F distribution. It is 1 while clusters have had fewer than D + 1
        independent events: their covariances are not known in all directions, and sources leave them in the others.
        """
        stride = float(self._shards.recent.stands_for()[-1])
        curves = self._curves(n if near else n * stride)
        k, d = len(self._model.rows), self._model.whitened_features
        own_times = [curve.correlation_time() for curve, _ in curves]
        times = [own * each if own > 1.0 else 1.0 for own, (_, each) in zip(own_times, curves, strict=True)]
        known = self._counters.time_known_before(k, self._shards.recent.memory_events)
        time = max(known, *times, 1.0)
        if time == 1.0:
            return independent
        if max((curve.n_own * each for curve, each in curves), default=0.0) < (d + 1) * time:
            return 1.0
        weight, seen = self._latest if near else self._watched
        first = len(weight) - 2 * n
        new, old = block_sums(*seen.some(slice(first, None)), weight[first:], k + 1, n)[:, :k]
        size = [part[:, 0] ** 2 / np.maximum(part[:, 1], 1e-300) for part in (new, old)]
        judged = np.minimum(*size) >= TUNING.min_sample
        if not judged.any():
            return 1.0
        a, b = (part[judged, None] for part in size)
        step = (
            1.0 if near else float(self._shards.recent.stands_for()[first:].min())
        )  # means of a shorter time vary more
        span = np.minimum(a, b)[:, 0] * step
        wandered, n_bends = (
            np.max(parts, axis=0)
            for parts in zip(*(curve.excess_at(span / each) for curve, each in curves), strict=True)
        )
        (m, inner), (o, outer) = (moments_of(part[judged], d) for part in (new, old))
        variance = np.maximum(1.0, (a * inner + b * outer) / (a + b))
        statistic = ((m - o) ** 2 / (variance * (1 / a + 1 / b) + 4 * wandered[:, None])).sum(axis=1)
        free = TUNING.min_sample + n_bends * d / 2
        cells = len(statistic)
        every = fdtrc(d * cells, free.max(), statistic.sum() / (d * cells))
        return float(min(1.0, 2.0 * min(every, cells * fdtrc(d, free, statistic / d).min())))

    def _curves(self, newest: float) -> list[tuple[BlockCurve, float]]:
        """Curves of block means before the newest events, and the events that each event compared stands for."""
        watched, latest = self._shards.recent.watched()[2], self._shards.recent.latest_numbers()
        # Shards that came from elsewhere have watched events alone.
        end = int((latest if len(latest) else watched)[-1]) + 1 - newest
        far, near = ((number >= self._counters.begin) & (number < end) for number in (watched, latest))
        rows, stride = self._shards.recent.evenly_watched(far)
        parts = (self._watched, rows, stride), (self._latest, np.flatnonzero(near), 1.0)
        k = len(self._model.rows)
        return [(BlockCurve.of(seen.some(past), k), step) for (_, seen), past, step in parts if len(past)]


def moments_of(sums: Floats, d: int) -> tuple[Floats, Floats]:
    """Means and variances of each feature, from rows of `block_sums`."""
    mean = sums[:, 2 : 2 + d] / sums[:, :1]
    return mean, sums[:, 2 + d :] / sums[:, :1] - mean**2


def climb(shards: Shards, model: Model, near: bool) -> Iterator[tuple[bool, int, float]]:
    """Every window, the shortest first: whether it is of events in a row or of watched ones, how many, and p-value."""
    if near:
        rows, weight = shards.recent.latest()
        for n, p in rungs(
            weight,
            lambda part: model.see(rows[part]),
            len(model.rows),
            TUNING.look_events // 2,
            model.event_evidence,
        ):
            yield True, n, p
    if model.moved:
        rows, weight, _ = shards.recent.watched()
        for n, p in rungs(
            weight,
            lambda part: model.see(rows[part]),
            len(model.rows),
            TUNING.window_events // 2,
            model.event_evidence,
        ):
            yield False, n, p
    else:
        blocks = shards.recent.sums_by(model.published, TUNING.look_sample_events)
        statistics = ladder_statistics(blocks, TUNING.min_sample)
        found = p_values(statistics, model.whitened_features, model.event_evidence)
        for i, p in enumerate(found.tolist()):
            yield False, TUNING.look_sample_events << i, p


def window(shards: Shards, n_seen: int, near: bool, n: int) -> Rung:
    """The newest n events in a row or, if not `near`, the newest n watched ones."""
    if near:
        return Rung(n, *shards.recent.latest(n))
    rows, weight, at = shards.recent.watched()
    return Rung(n_seen - int(at[-n]), rows[-n:], weight[-n:])


def rungs(
    weight: Floats, see: Callable[[slice], Seen], k: int, longest: int, evidence: float = 1.0
) -> Iterator[tuple[int, float]]:
    """Compare the newest events with as many before them, 256 and then twice as many each time; labelled as needed."""
    n, total = TUNING.look_sample_events, len(weight)
    blocks: Floats | None = None
    while 2 * n <= total and n <= longest:
        part = slice(total - 2 * n, total if blocks is None else total - n)
        more = block_sums(*see(part), weight[part], k + 1, TUNING.look_sample_events)
        blocks = more if blocks is None else np.concatenate([blocks, more])
        half = n // TUNING.look_sample_events
        yield n, p_value(blocks[:half].sum(axis=0), blocks[half:].sum(axis=0), evidence)
        n *= 2
