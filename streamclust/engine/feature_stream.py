"""Features of a stream: BP-means with running ZᵀZ and means, and refits of a reservoir.

A single pass that opened features as it went would open them without end. So between refits rows only choose among the
features there are, and ZᵀZ and A follow; features come and go at refits, which read a uniform sample of the stream.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.lineage import Change, Lineage
from streamclust.refit.bp_means.allocation import Allocation, BPProblem, inverse, nearest_features
from streamclust.refit.bp_means.fit import settle
from streamclust.refit.bp_means.start import first_features, start_while_it_pays
from streamclust.refit.penalties import penalty_from_noise, warn_of_growth
from streamclust.utils.interrupts import HeldInterrupts
from streamclust.utils.state import Arrays, State

log = logging.getLogger(__name__)

BLOCK_ROWS = 64
"""Rows learnt at once. Blocks begin at multiples of it, whatever the calls: the same stream gives the same bits."""


SAVED_ARRAYS = ("A", "G", "ids", "rows", "keys")
SAVED_COUNTS = ("n_events", "n_refits", "n_missing", "next_refit", "n_failed_refits")
OLDER_COUNTS = {"n_failed_refits": 0}
"""Counts that older checkpoints do not have."""


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


class PublishedFeatures(NamedTuple):
    """The features that events are assigned by; replaced as a whole, never changed."""

    version: int
    """Number of refits so far."""
    ids: Ints
    A: Floats
    """Mean of each feature (features, columns)."""
    weights: Floats
    """Number of events (decayed, if forgetting) that have each feature."""
    total: float
    """Number of events (decayed, if forgetting)."""

    def allocate(self, rows: Floats) -> Bools:
        """The features of each row, by the columns it has a value in."""
        if len(self.A) == 0:
            return np.zeros((len(rows), 0), dtype=bool)
        usual = np.asarray(self.weights > 0.5 * self.total)
        if not np.isnan(rows).any():
            return nearest_features(rows, self.A, usual)
        Z = np.empty((len(rows), len(self.A)), dtype=bool)
        masks, group = np.unique(np.isnan(rows), axis=0, return_inverse=True)
        for i, mask in enumerate(masks):
            mine = group.ravel() == i
            Z[mine] = nearest_features(rows[mine][:, ~mask], np.ascontiguousarray(self.A[:, ~mask]), usual)
        return Z


class FeatureStream:
    """The features of a stream of rows; NaN is a missing value.

    G (ZᵀZ) and A are the running statistics: A is least squares of all rows so far, G its weights. G A is ZᵀX, which is
    never kept: A follows by corrections from residuals, so that data far from the origin keep their digits.

    The lineage issues the ids of features, and logs which are born and which die.
    """

    def __init__(self, settings: FeatureSettings, on_event: Callable[[Change], object] | None = None) -> None:
        self.settings = settings
        self.n_events = 0
        self.n_refits = self.n_failed_refits = 0
        self.n_missing = 0
        self.weight = 0.0
        self.penalty = math.nan
        self.lineage = Lineage(on_event)
        self.next_refit = BLOCK_ROWS * math.ceil(settings.warmup / BLOCK_ROWS)
        self.A: Floats = np.zeros((0, 0))
        self.G: Floats = np.zeros((0, 0))
        self.ids: Ints = np.zeros(0, dtype=np.int64)
        self.rows: Floats = np.zeros((0, 0))
        self.keys: Floats = np.zeros(0)
        self.pending: list[Floats] = []
        self.generator = np.random.default_rng(settings.seed)
        self.publish()

    def publish(self) -> None:
        """Let other threads see the features as they are now."""
        self.published = self._as_of_now

    @property
    def _as_of_now(self) -> PublishedFeatures:
        return PublishedFeatures(self.n_refits, self.ids, self.A, self.G.diagonal(), self.weight)

    # ---------------------------------------------------------------- saving

    def to_state(self) -> State:
        """Complete state of the stream."""
        width = max([self.A.shape[1], *map(len, self.pending)])
        pending = np.full((len(self.pending), width), np.nan)
        for i, row in enumerate(self.pending):
            pending[i, : len(row)] = row
        arrays: Arrays = {name: np.array(getattr(self, name)) for name in SAVED_ARRAYS}
        values = {name: getattr(self, name) for name in SAVED_COUNTS}
        return State(
            arrays | {"pending": pending, "numbers": np.array([self.weight, self.penalty])},
            values | {"generator": self.generator.bit_generator.state, "lineage": self.lineage.to_dict()},
        )

    @classmethod
    def from_state(cls, state: State, settings: FeatureSettings) -> Self:
        """The stream that `to_state` saved; KeyError, TypeError or ValueError if it is none."""
        arrays, values = state
        stream = cls(settings)
        for name in SAVED_ARRAYS:
            setattr(stream, name, np.array(arrays[name]))
        for name in SAVED_COUNTS:
            setattr(stream, name, int((OLDER_COUNTS | values)[name]))
        stream.pending = list(np.array(arrays["pending"]))
        stream.weight, stream.penalty = map(float, arrays["numbers"])
        stream.generator.bit_generator.state = values["generator"]
        stream.lineage = Lineage.from_dict(values["lineage"])
        if not stream._is_sound():
            raise ValueError("its arrays do not fit each other")
        stream.publish()
        return stream

    def _is_sound(self) -> bool:
        """Whether sizes and counts go together, and the numbers are finite."""
        k, d = self.A.shape if self.A.ndim == 2 else (-1, -1)
        return bool(
            self.G.shape == (k, k)
            and self.ids.shape == (k,)
            and self.rows.shape == (len(self.keys), d)
            and len(self.pending) < BLOCK_ROWS
            and self.n_events % BLOCK_ROWS == 0
            and self.next_refit > self.n_events
            and self.ids.tolist() == sorted(self.lineage.born_at)
            and np.isfinite(self.A).all()
            and np.isfinite(self.G).all()
        )

    # ---------------------------------------------------------------- learning

    def learn(self, rows: Floats) -> None:
        """Learn rows in their order; later ones may have more columns."""
        for row in rows:
            self.learn_row(row)

    def learn_row(self, row: Floats) -> None:
        """Learn one row: it waits until its block is full."""
        self.pending.append(row)
        if len(self.pending) == BLOCK_ROWS:
            block = np.full((BLOCK_ROWS, max(max(map(len, self.pending)), self.A.shape[1])), np.nan)
            for i, waiting in enumerate(self.pending):
                block[i, : len(waiting)] = waiting
            with HeldInterrupts():
                self.pending = []
                self._learn_block(block)
                self.publish()
            if self.n_events >= self.next_refit:
                self.refit()

    @property
    def until_due(self) -> int:
        """Number of rows until the next block is full: before, no row is assigned otherwise than now."""
        return BLOCK_ROWS - len(self.pending)

    def _learn_block(self, block: Floats) -> None:
        self.widen(block.shape[1])
        missing = np.isnan(block)
        self.n_missing += int(missing.sum())
        age = np.arange(BLOCK_ROWS - 1, -1, -1.0)
        per_event = 0.0 if self.settings.half_life is None else math.log(2.0) / self.settings.half_life
        w, fade = np.exp(-per_event * age), math.exp(-per_event * BLOCK_ROWS)
        self.weight = fade * self.weight + float(w.sum())
        self.G = fade * self.G
        if len(self.A):
            Z = self.allocate(block)
            z = Z.astype(float)
            x = np.where(missing, z @ self.A, block)
            weighted = z * w[:, None]
            self.G = self.G + weighted.T @ z
            self.A = self.A + inverse(self.G) @ (weighted.T @ (x - z @ self.A))
        self.n_events += BLOCK_ROWS
        # The smallest keys are a uniform sample; with forgetting, one in proportion to weight.
        time = self.n_events - age
        self._keep(block, np.log(self.generator.exponential(size=BLOCK_ROWS)) - per_event * time)

    def _keep(self, rows: Floats, keys: Floats) -> None:
        rows, keys = np.concatenate([self.rows, rows]), np.concatenate([self.keys, keys])
        kept = np.sort(np.argsort(keys, kind="stable")[: self.settings.reservoir])
        self.rows, self.keys = rows[kept], keys[kept]

    def widen(self, columns: int) -> None:
        """Make room for columns that rows have brought since."""
        more = columns - self.A.shape[1]
        if more > 0:
            self.A = np.pad(self.A, ((0, 0), (0, more)))
            self.rows = np.pad(self.rows, ((0, 0), (0, more)), constant_values=np.nan)

    # ---------------------------------------------------------------- reading

    def allocate(self, rows: Floats) -> Bools:
        """The features of each row, by the columns it has a value in."""
        return self._as_of_now.allocate(rows)

    # ---------------------------------------------------------------- refits

    def refit(self) -> None:
        """Search the reservoir for features. If that fails, those there are stay, and the failure is counted."""
        before = self.A, self.G, self.ids, self.penalty, self.next_refit, self.n_refits, self.lineage.mark()

        def restore() -> None:
            self.A, self.G, self.ids, self.penalty, self.next_refit, self.n_refits, mark = before
            self.lineage.restore(mark)

        try:
            self._refit()
        except BaseException as error:
            restore()
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
        """Set the event count of the next refit."""
        every = BLOCK_ROWS * math.ceil(self.settings.refit_every / BLOCK_ROWS)
        while self.next_refit <= self.n_events:
            self.next_refit += min(max(self.next_refit, BLOCK_ROWS), every)

    def _refit(self) -> None:
        """Find the features of the reservoir anew, from those there are and, ever more rarely, from nothing."""
        settings = self.settings
        self.n_refits += 1
        self._schedule()
        old, weight = self.ids, self.G.diagonal()
        self._prune()
        before = self.allocate(self.rows)
        x = self._filled(self.rows, before)
        self.penalty = penalty_from_noise(x) if settings.penalty is None else float(settings.penalty)
        problem = BPProblem(x, np.ones(len(x)), self.penalty)
        rng = np.random.default_rng([settings.seed, self.n_refits])
        found = self._search(problem, before, rng)
        if found.n_features >= settings.max_features:
            warn_of_growth(settings.max_features, self.penalty, "features")
        match = match_features(before, found.Z)
        if self._same_features(found, before, match):
            self._follow(old, weight, self.ids, self.G.diagonal())
            return
        kept = np.where(match >= 0, self.ids[match], -1) if len(self.ids) else match
        share = self.weight / len(x)
        self._take(found, self._follow(old, weight, kept, found.Z.sum(axis=0) * share))

    def _prune(self) -> None:
        """Let go of features that explain less than their price: G_kk ‖a_k‖², at the size of the reservoir."""
        if len(self.A) and self.weight > 0 and self.penalty > 0:
            share = self.G.diagonal() * len(self.rows) / self.weight
            kept = share * (self.A**2).sum(axis=1) >= self.penalty
            self.A, self.ids, self.G = self.A[kept], self.ids[kept], self.G[np.ix_(kept, kept)]

    def _search(self, problem: BPProblem, before: Bools, rng: np.random.Generator) -> Allocation:
        """The best of a warm search and, at refits 1, 2, 4, 8, ..., cold ones: a warm one never leaves its optimum."""
        settings = self.settings
        starts: list[Allocation] = []
        if len(self.A):
            warm = Allocation(problem, before.copy(), self.A.copy())
            warm.fit()
            starts += [warm]
        if self.n_refits & (self.n_refits - 1) == 0 or not starts:
            starts += [first_features(problem, "greedy", run) for run in range(settings.restarts)]
        best = Allocation.nothing(problem)
        for start in starts:
            state = start_while_it_pays(start, "greedy", rng, settings.max_features)
            steps = settle(state, "refit", False, settings.max_features)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    state = end.value
                    break
            if state.objective < best.objective:
                best = state
        return best

    def _same_features(self, found: Allocation, before: Bools, match: Ints) -> bool:
        """Whether a refit found what there was: then the whole stream's statistics are worth more than the sample."""
        if found.n_features != len(self.A) or len(self.A) == 0 or (match < 0).any():
            return False
        present = Allocation(found.problem, before, self.A)
        # The reservoir's own means fit it better than true ones would, by about K rows' worth.
        return present.remainder <= found.remainder * (1.0 + 2.0 * len(self.A) / len(before))

    def _take(self, found: Allocation, ids: Ints) -> None:
        """Take the features of a refit, in the order of their ids."""
        order = np.argsort(ids)
        z = found.Z[:, order].astype(float)
        self.A, self.ids = np.ascontiguousarray(found.A[order]), ids[order]
        self.G = z.T @ z * (self.weight / len(z))

    def _follow(self, old: Ints, old_weight: Floats, kept: Ints, new_weight: Floats) -> Ints:
        """Ids of the features after a refit, and their births and deaths in the log.

        `kept` is the old id that each continues, or -1.
        """
        most = np.maximum(old_weight[:, None], np.maximum(new_weight, 1.0))
        shared = np.where(old[:, None] == kept, most, 0.0)  # features are the same, or share nothing
        ids = self.lineage.follow(self.n_events, self.n_refits, old.tolist(), old_weight, new_weight, shared)
        self.lineage.history.add(self.n_events, dict(zip(ids, new_weight.tolist(), strict=True)))
        return np.array(ids, dtype=np.int64)

    def _filled(self, rows: Floats, Z: Bools) -> Floats:
        """Rows with missing values as their features have them; before there are any, as the column's mean."""
        missing = np.isnan(rows)
        if not missing.any():
            return rows
        seen = np.maximum((~missing).sum(axis=0), 1)
        mean = np.where(missing, 0.0, rows).sum(axis=0) / seen
        unknown = (self.A == 0).all(axis=0)  # a column that came after the last refit
        guess = np.where(unknown, mean, Z.astype(float) @ self.A) if len(self.A) else mean
        return np.where(missing, guess, rows)

    # ---------------------------------------------------------------- merging

    def merge(self, other: FeatureStream) -> None:
        """Learn what another stream has learnt: its statistics, its part of the reservoir, its waiting rows.

        Both streams are taken to be at the present. Where both have the same features their statistics add up;
        otherwise a refit of the joint reservoir decides.
        """
        per_event = 0.0 if self.settings.half_life is None else math.log(2.0) / self.settings.half_life
        self.widen(other.A.shape[1])
        theirs = FeatureStream(self.settings)
        theirs.A, theirs.G, theirs.weight = other.A, other.G, other.weight
        theirs.rows, theirs.keys, theirs.ids = other.rows, other.keys, other.ids
        theirs.widen(self.A.shape[1])
        now = self.n_events + other.n_events
        self.keys = self.keys - per_event * (now - self.n_events)
        self._keep(theirs.rows, theirs.keys - per_event * (now - other.n_events))
        mine, yours = self.allocate(self.rows), theirs.allocate(self.rows)
        match = match_features(yours, mine)
        if len(self.A) == len(theirs.A) and (match >= 0).all() and len(self.A):
            G, A = theirs.G[np.ix_(match, match)], theirs.A[match]
            total = self.G + G
            self.A = self.A + inverse(total) @ G @ (A - self.A)
            self.G = total
        elif len(self.A) == 0:
            self.A, self.G = theirs.A.copy(), theirs.G.copy()
            born = [self.lineage.born(now, self.n_refits, held) for held in self.G.diagonal().tolist()]
            self.ids = np.array(born, dtype=np.int64)
        self.weight += other.weight
        self.n_events = now
        self.n_missing += other.n_missing
        if self.n_refits + other.n_refits and len(self.rows):
            self.refit()
        self.publish()
        self.lineage.deliver()
        for row in other.pending:
            self.learn_row(row)


def match_features(before: Bools, after: Bools) -> Ints:
    """For each feature after, the one before that it continues, or -1: pairs that share more than half their rows."""
    from scipy.optimize import (
        linear_sum_assignment,
    )  # slow to import, and not needed to start from a checkpoint

    match = np.full(after.shape[1], -1, dtype=np.int64)
    if before.shape[1] == 0 or after.shape[1] == 0:
        return match
    old, new = before.astype(float), after.astype(float)
    both = new.T @ old
    union = new.sum(axis=0)[:, None] + old.sum(axis=0) - both
    share = both / np.maximum(union, 1.0)
    for a, b in zip(*linear_sum_assignment(-share), strict=True):
        if share[a, b] > 0.5:
            match[a] = b
    return match
