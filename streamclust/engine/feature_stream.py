"""Features of a stream: BP-means with running means, and refits of a sample.

A single pass that opened features as it went would open them without end. So between refits rows only choose among the
features there are, and their means follow; features come at refits, which read a uniform sample of the stream since it
last changed, and go there or when the events no longer have them.

This is not on the summary tree. Leaves hold events that are near each other, and a mean of two events that differ in
one feature is a sum of no features: of 20,000 events in 64 columns, a search of the 512 leaves found 5 of 6 planted
features (6 of 12) among twice as many that are none, and left 8 to 35% more variance, at 5 to 50 times the CPU. The
tree's sample and a uniform one of as many rows are worth the same (`benchmarks/features.py`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.absent_features import AbsentFeatures
from streamclust.engine.feature_alarm import ResidualAlarm
from streamclust.engine.feature_means import FeatureMeans, kept_weight
from streamclust.engine.feature_presence import FeaturePresence
from streamclust.engine.feature_sample import FeatureSample
from streamclust.engine.feature_search import filled, same_features, search
from streamclust.engine.published_features import PublishedFeatures, match_features
from streamclust.lineage import Change, Lineage
from streamclust.refit.bp_means.allocation import Allocation, BPProblem
from streamclust.refit.penalties import penalty_from_noise, warn_of_growth
from streamclust.utils.interrupts import HeldInterrupts
from streamclust.utils.state import State

log = logging.getLogger(__name__)

BLOCK_ROWS = 64
"""Rows learnt at once. Blocks begin at multiples of it, whatever the calls: the same stream gives the same bits."""
FOLLOWED_HALF_LIVES = 2
"""Number of half-lives of events that a search reads where means of that half-life have replaced others."""

SAVED_COUNTS = ("n_events", "n_refits", "n_missing", "next_refit", "n_failed_refits", "changed_at")
RESTORED = (
    "means", "presence", "absent", "alarm", "ids", "weights", "penalty", "next_refit", "n_refits",
)  # fmt: skip
"""State that a refit changes."""


class FeatureSettings(NamedTuple):
    """Parameters of a FeatureStream."""

    penalty: float | None
    half_life: float | None
    warmup: int
    refit_every: int
    reservoir: int
    max_features: int
    restarts: int
    seed: int


class FeatureStream:
    """The features of a stream of rows; NaN is a missing value.

    The lineage issues the ids of features, and logs which are born, die and return.
    """

    def __init__(self, settings: FeatureSettings, on_event: Callable[[Change], object] | None = None) -> None:
        self.settings = settings
        self.n_events = 0
        self.n_refits = self.n_failed_refits = 0
        self.n_missing = 0
        self.changed_at = 0
        """Event count at which the stream last changed at once: refits follow ever more rarely from there."""
        self.weight = 0.0
        self.penalty = math.nan
        self.lineage = Lineage(on_event)
        self.next_refit = BLOCK_ROWS * math.ceil(settings.warmup / BLOCK_ROWS)
        self.ids: Ints = np.zeros(0, dtype=np.int64)
        self.weights: Floats = np.zeros(0)
        """Number of events (decayed, if forgetting) that have each feature."""
        self.means = FeatureMeans(settings.half_life)
        self.presence = FeaturePresence(0)
        self.absent = AbsentFeatures.none(0)
        self.sample = FeatureSample(settings.reservoir)
        self.alarm = ResidualAlarm()
        self.pending: list[Floats] = []
        self.generator = np.random.default_rng(settings.seed)
        self.publish()

    @property
    def per_event(self) -> float:
        """Share of its weight that an event loses for each later one, as a logarithm."""
        return 0.0 if self.settings.half_life is None else math.log(2.0) / self.settings.half_life

    def publish(self) -> None:
        """Let other threads see the features as they are now."""
        means = self.means
        self.published = PublishedFeatures(
            self.n_refits,
            self.ids,
            self.means.latest.copy(),
            self.weights,
            self.weight,
            means.share,
            means.noise,
        )

    def allocate(self, rows: Floats) -> Bools:
        """The features of each row, by the columns it has a value in."""
        return self._as_of_now.allocate(rows)

    @property
    def _as_of_now(self) -> PublishedFeatures:
        return self.published._replace(ids=self.ids, A=self.means.latest, share=self.means.share)

    # ---------------------------------------------------------------- saving

    def to_state(self) -> State:
        """Complete state of the stream."""
        width = max([self.means.latest.shape[1], *map(len, self.pending)])
        pending = np.full((len(self.pending), width), np.nan)
        for i, row in enumerate(self.pending):
            pending[i, : len(row)] = row
        parts = (self.means, self.presence, self.sample, self.absent)
        arrays = {name: array for part in parts for name, array in part.to_arrays().items()}
        arrays |= {"ids": self.ids.copy(), "weights": self.weights.copy(), "pending": pending}
        values: dict[str, Any] = {name: getattr(self, name) for name in SAVED_COUNTS}
        return State(
            arrays | {"numbers": np.array([self.weight, self.penalty, self.means.n_values, *self.alarm])},
            values
            | {
                "since": self.sample.since,
                "generator": self.generator.bit_generator.state,
                "lineage": self.lineage.to_dict(),
            },
        )

    @classmethod
    def from_state(cls, state: State, settings: FeatureSettings) -> Self:
        """The stream that `to_state` saved; KeyError, TypeError or ValueError if it is none."""
        arrays, values = state
        stream = cls(settings)
        for name in SAVED_COUNTS:
            setattr(stream, name, int(values[name]))
        stream.ids, stream.weights = np.array(arrays["ids"]), np.array(arrays["weights"], dtype=float)
        stream.weight, stream.penalty, n_values, *alarm = map(float, arrays["numbers"])
        stream.means = FeatureMeans.from_arrays(arrays, settings.half_life)
        stream.means.n_values = n_values
        stream.presence = FeaturePresence.from_arrays(arrays, len(stream.ids))
        stream.absent = AbsentFeatures.from_arrays(arrays)
        stream.sample = FeatureSample.from_arrays(arrays, settings.reservoir, int(values["since"]))
        stream.alarm = ResidualAlarm.from_list(alarm)
        stream.pending = list(np.array(arrays["pending"]))
        stream.generator.bit_generator.state = values["generator"]
        stream.lineage = Lineage.from_dict(values["lineage"])
        if not stream._is_sound():
            raise ValueError("its arrays do not fit each other")
        stream.publish()
        return stream

    def _is_sound(self) -> bool:
        """Whether sizes and counts go together, and the numbers are finite."""
        k, d = self.means.latest.shape
        return bool(
            self.ids.shape == self.weights.shape == (k,)
            and self.sample.rows.shape[1] == self.absent.A.shape[1] == d
            and len(self.pending) < BLOCK_ROWS
            and self.n_events % BLOCK_ROWS == 0
            and 0 <= self.changed_at <= self.n_events < self.next_refit
            and 0 <= self.sample.since <= self.n_events
            and set(self.ids.tolist()) == set(self.lineage.born_at) - set(self.lineage.retired)
            and set(self.absent.ids.tolist()) <= set(self.lineage.retired)
            and all(
                np.isfinite(x).all()
                for x in (self.means.latest, self.weights, self.absent.A, self.absent.weights)
            )
        )

    # ---------------------------------------------------------------- learning

    def learn(self, rows: Floats) -> None:
        """Learn rows in their order; later ones may have more columns."""
        for row in rows:
            self.learn_row(row)

    def learn_row(self, row: Floats) -> None:
        """Learn one row: it waits until its block is full."""
        self.pending.append(row)
        if len(self.pending) < BLOCK_ROWS:
            return
        block = np.full((BLOCK_ROWS, max(max(map(len, self.pending)), self.means.latest.shape[1])), np.nan)
        for i, waiting in enumerate(self.pending):
            block[i, : len(waiting)] = waiting
        with HeldInterrupts():
            self.pending = []
            self._learn_block(block)
            self._retire()
            self._follow_alarm()
            self.publish()
        if self.n_events >= self.next_refit:
            self.refit()
        self.lineage.deliver()

    @property
    def until_due(self) -> int:
        """Number of rows until the next block is full: before, no row is assigned otherwise than now."""
        return BLOCK_ROWS - len(self.pending)

    def _learn_block(self, block: Floats) -> None:
        self.widen(block.shape[1])
        missing = np.isnan(block)
        self.n_missing += int(missing.sum())
        self.n_events += BLOCK_ROWS
        Z, share = self.allocate(block), self.means.share
        self._hear(block, Z)
        reach = self.means.learn(block, Z)
        age = np.arange(BLOCK_ROWS - 1, -1, -1.0)
        w, fade = np.exp(-self.per_event * age), math.exp(-self.per_event * BLOCK_ROWS)
        self.weight = fade * self.weight + float(w.sum())
        self.weights = fade * self.weights + w @ Z
        self.absent = self.absent.faded(fade)
        self.presence.learn(Z.sum(axis=0), share, BLOCK_ROWS, self.n_events)
        # The smallest keys are a uniform sample; with forgetting, one in proportion to weight.
        times = self.n_events - age
        draws = np.log(self.generator.exponential(size=BLOCK_ROWS))
        self.sample.add(block, draws - self.per_event * times, times)
        if reach:
            self.sample.begin(int(self.n_events - FOLLOWED_HALF_LIVES * reach))

    def _hear(self, block: Floats, Z: Bools) -> None:
        """Tell the alarm the squared residuals of a block that is not yet learnt."""
        known = ~np.isnan(block)
        squares = np.where(known, block - Z.astype(float) @ self.means.latest, 0.0) ** 2
        told = known.any(axis=1)
        each = squares.sum(axis=1)[told] / known.sum(axis=1)[told]
        self.alarm = self.alarm.after(each, self.n_events, BLOCK_ROWS)

    def _follow_alarm(self) -> None:
        """Where residuals have grown, refit now, and soon again: from here on as at the beginning of the stream."""
        if not self.alarm.rings or self.n_refits == 0:
            return
        self.changed_at = self.alarm.since
        self.sample.begin(min(self.changed_at, self.n_events - self.settings.reservoir))
        self.next_refit = self.n_events
        self.alarm = ResidualAlarm()

    def _retire(self) -> None:
        """Retire features that the events no longer have; searches read the events since they went."""
        gone = self.presence.gone(self.n_events)
        if gone.any():
            self.sample.begin(int(self.presence.last[gone].max()))
            self._let_go(gone)

    def _let_go(self, features: Bools) -> None:
        """Report features as dead, and remember them."""
        for i in np.flatnonzero(features):
            name, last = int(self.ids[i]), int(self.presence.last[i])
            self.lineage.retire(self.n_events, self.n_refits, name, float(self.weights[i]), last)
        means = self.means.latest[features]
        self.absent = self.absent.more(self.ids[features], means, self.weights[features])
        self._keep(~features)

    def _keep(self, features: Bools) -> None:
        self.means.keep(features)
        self.presence.keep(np.flatnonzero(features))
        self.ids, self.weights = self.ids[features], self.weights[features]

    def widen(self, columns: int) -> None:
        """Make room for columns that rows have brought since."""
        self.means.widen(columns)
        self.sample.widen(columns)
        self.absent = self.absent.widened(columns)

    # ---------------------------------------------------------------- refits

    def refit(self) -> None:
        """Search the sample for features. If that fails, those there are stay, and the failure is counted."""
        before, mark = {name: copy(getattr(self, name)) for name in RESTORED}, self.lineage.mark()
        try:
            self._refit()
        except BaseException as error:
            for name, value in before.items():
                setattr(self, name, value)
            self.lineage.restore(mark)
            self._schedule()
            if not isinstance(error, Exception):  # Ctrl-C
                raise
            self.n_failed_refits += 1
            log.exception(
                "a search for features failed at event %d; the stream goes on with those it has",
                self.n_events,
            )
        self.publish()
        self.lineage.deliver()

    def _schedule(self) -> None:
        """Set the event count of the next refit: at doubling distances from the last change."""
        every = BLOCK_ROWS * math.ceil(self.settings.refit_every / BLOCK_ROWS)
        self.next_refit = self.n_events + min(max(self.n_events - self.changed_at, BLOCK_ROWS), every)

    def _refit(self) -> None:
        """Find the features of the sample anew, from those there are and, ever more rarely, from nothing."""
        settings, rows = self.settings, self.sample.read()
        self.n_refits += 1
        self._schedule()
        self._prune(len(rows))
        before = self.allocate(rows)
        x = filled(rows, self.means.latest, before)
        self.penalty = penalty_from_noise(x) if settings.penalty is None else float(settings.penalty)
        found = self._search(BPProblem(x, np.ones(len(x)), self.penalty), before)
        if found.n_features >= settings.max_features:
            warn_of_growth(settings.max_features, self.penalty, "features")
        match = match_features(before, found.Z)
        if same_features(found, self.means.latest, before, match):
            self._name(self.ids, self.weights)
        else:
            self._take(found, self._matched_by_mean(found.A, match))

    def _prune(self, n_rows: int) -> None:
        """Let go of features that explain less than their price: G_kk ‖a_k‖², at the size of the sample."""
        if len(self.ids) and self.penalty > 0:
            explained = self.means.share * n_rows * (self.means.latest**2).sum(axis=1)
            self._let_go(explained < self.penalty)

    def _search(self, problem: BPProblem, before: Bools) -> Allocation:
        """Search from the present features and, at refits 1, 2, 4, 8, ... or if there are none, from nothing."""
        settings, warm = self.settings, None
        if len(self.means.latest):
            warm = Allocation(problem, before.copy(), self.means.latest.copy())
            warm.fit()
        cold = settings.restarts if self.n_refits & (self.n_refits - 1) == 0 or warm is None else 0
        rng = np.random.default_rng([settings.seed, self.n_refits])
        return search(problem, warm, cold, settings.max_features, rng)

    def _matched_by_mean(self, A: Floats, match: Ints) -> Ints:
        """The match by rows, and by means where rows leave features over."""
        left, new = np.setdiff1d(np.arange(len(self.ids)), match), np.flatnonzero(match < 0)
        present = AbsentFeatures(self.ids[left], self.means.latest[left], self.weights[left])
        found, match = present.match(A[new]), match.copy()
        match[new[found >= 0]] = left[found[found >= 0]]
        return match

    def _take(self, found: Allocation, match: Ints) -> None:
        """Take the features of a search; `match`: the place of the present one that each continues, or -1."""
        lost = ~np.isin(np.arange(len(self.ids)), match)
        match = np.append(np.cumsum(~lost) - 1, -1)[match]
        self._let_go(lost)
        z, kept = found.Z.astype(float), match >= 0
        weight = self._weight_since(self.sample.since)
        ids, weights = np.full(len(match), -1, dtype=np.int64), z.mean(axis=0) * weight
        ids[kept] = self.ids[match[kept]]
        if (
            self.sample.since or self.n_events > 2 * self.settings.reservoir
        ):  # counts beat the sample's shares
            weights[kept] = self.weights[match[kept]]
        back = self.absent.match(np.where(kept[:, None], np.inf, found.A))
        returned = back >= 0
        ids[returned] = self.absent.ids[back[returned]]
        weights[returned] += self.absent.weights[back[returned]]
        self.absent = self.absent.without(np.isin(self.absent.ids, ids))
        self.means.replace(found.A, z.T @ z * (weight / len(z)), weight)
        self.presence.keep(match)
        self.alarm = ResidualAlarm()  # residuals are others from here on
        self._sort(self._name(ids, weights), weights)

    def _weight_since(self, since: int) -> float:
        """Weight of the events after that event."""
        if since == 0:
            return self.weight
        n, half_life = self.n_events - since, self.settings.half_life
        if half_life is None:
            return float(n)
        return kept_weight(half_life) * -math.expm1(-self.per_event * n)

    def _name(self, kept: Ints, weights: Floats) -> Ints:
        """Ids of the features after a refit, and their births and returns in the log.

        `kept` is the id that each had before, or -1.
        """
        at, version = self.n_events, self.n_refits
        absent = dict(zip(self.absent.ids.tolist(), self.absent.weights.tolist(), strict=True))
        known = dict(zip(kept.tolist(), weights.tolist(), strict=True))
        before = {name: weight for name, weight in (known | absent).items() if name >= 0}
        names, old_weight = (
            np.array(list(before), dtype=np.int64),
            np.array(list(before.values()), dtype=float),
        )
        new, new_weight = np.append(kept, list(absent)), np.append(weights, list(absent.values()))
        most = np.maximum(old_weight[:, None], np.maximum(new_weight, 1.0))
        shared = np.where(names[:, None] == new, most, 0.0)  # features are the same, or share nothing
        ids = self.lineage.follow(at, version, names.tolist(), old_weight, new_weight, shared)[: len(kept)]
        for name, weight in zip(ids, weights.tolist(), strict=True):
            if name in self.lineage.retired:
                self.lineage.resume(at, version, name, weight)
        self.lineage.history.add(at, dict(zip(ids, weights.tolist(), strict=True)))
        return np.array(ids, dtype=np.int64)

    def _sort(self, ids: Ints, weights: Floats) -> None:
        """Put the features into the order of their ids."""
        order = np.argsort(ids)
        self.ids, self.weights = ids[order], weights[order]
        self.means.keep(order)
        self.presence.keep(order)

    # ---------------------------------------------------------------- merging

    def spread(self, at: Ints, n_columns: int) -> None:
        """Move columns to these places among others, of which nothing is known."""
        self.means.A = spread(self.means.A, at, n_columns, 0.0)
        self.sample.rows = spread(self.sample.rows, at, n_columns, np.nan)
        self.absent = self.absent._replace(A=spread(self.absent.A, at, n_columns, 0.0))
        self.pending = [spread(row, at[: len(row)], n_columns, np.nan) for row in self.pending]

    def merge(self, other: FeatureStream) -> None:
        """Learn what another stream has learnt: its statistics, its part of the sample, its waiting rows.

        Both streams are taken to be at the present. Where both have the same features their statistics add up;
        otherwise a refit of the joint sample decides.
        """
        now = self.n_events + other.n_events
        self.widen(other.means.latest.shape[1])
        other.widen(self.means.latest.shape[1])
        self.sample.shift(now - self.n_events, self.per_event)
        other.sample.shift(now - other.n_events, self.per_event)
        self.sample.merge(other.sample)
        self.presence.last = self.presence.last + (now - self.n_events)
        self.changed_at += now - self.n_events
        rows = self.sample.read()
        match = match_features(other.allocate(rows), self.allocate(rows))
        if len(self.ids) == 0:
            self._adopt(other, now)
        elif len(self.ids) == len(other.ids) and (match >= 0).all():
            self.means.add(other.means, match)
            self.weights = self.weights + other.weights[match]
        self.weight += other.weight
        self.n_events = now
        self.n_missing += other.n_missing
        self.alarm = ResidualAlarm()
        if self.n_refits + other.n_refits and len(rows):
            self.refit()
        self.publish()
        self.lineage.deliver()
        for row in other.pending:
            self.learn_row(row)

    def _adopt(self, other: FeatureStream, now: int) -> None:
        """Take another stream's features as one's own, under new ids."""
        self.means.replace(other.means.latest, other.means.G[-1], float(other.means.weight[-1]))
        self.presence = FeaturePresence(len(other.ids), now)
        self.weights = other.weights
        born = [self.lineage.born(now, self.n_refits, held) for held in self.weights.tolist()]
        self.ids = np.array(born, dtype=np.int64)


def spread(rows: Floats, at: Ints, n_columns: int, fill: float) -> Floats:
    """Rows with their columns at other places, among columns of one value.

    >>> spread(np.array([1.0, 2.0]), np.array([2, 0]), 3, 0.0)
    array([2., 0., 1.])
    """
    wide = np.full((*rows.shape[:-1], n_columns), fill)
    wide[..., at] = rows
    return wide
