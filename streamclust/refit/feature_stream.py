"""Features of a stream: BP-means with running ZᵀZ and means, and refits of a reservoir.

A single pass that opened features as it went would open them without end. So between refits rows only choose among the
features there are, and ZᵀZ and A follow; features come and go at refits, which read a uniform sample of the stream.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.refit.allocating import Allocation, BPProblem, inverse, nearest_features
from streamclust.refit.bp_means import settle
from streamclust.refit.feature_start import first_features, start_while_it_pays
from streamclust.refit.penalties import penalty_from_noise, warn_of_growth

BLOCK = 64
"""Rows learnt at once. Blocks begin at multiples of it, whatever the calls: the same stream gives the same bits."""


class StreamSettings(NamedTuple):
    """What a FeatureStream is told."""

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

    G (ZᵀZ) and A are the running statistics: A is least squares of all rows so far, G its weights. G A is ZᵀX, which is
    never kept: A follows by corrections from residuals, so that data far from the origin keep their digits.
    """

    def __init__(self, settings: StreamSettings) -> None:
        self.settings = settings
        self.n_events = 0
        self.n_refits = 0
        self.n_missing = 0
        self.weight = 0.0
        self.penalty = math.nan
        self.next_id = 0
        self.next_refit = BLOCK * math.ceil(settings.warmup / BLOCK)
        self.A: Floats = np.zeros((0, 0))
        self.G: Floats = np.zeros((0, 0))
        self.ids: Ints = np.zeros(0, dtype=np.int64)
        self.rows: Floats = np.zeros((0, 0))
        self.keys: Floats = np.zeros(0)
        self.pending: list[Floats] = []
        self._generator = np.random.default_rng(settings.seed)

    # ---------------------------------------------------------------- learning

    def learn(self, rows: Floats) -> None:
        """Learn rows in their order; later ones may have more columns."""
        for row in rows:
            self.learn_row(row)

    def learn_row(self, row: Floats) -> None:
        """Learn one row: it waits until its block is full."""
        self.pending.append(row)
        if len(self.pending) == BLOCK:
            block = np.full((BLOCK, max(max(map(len, self.pending)), self.A.shape[1])), np.nan)
            for i, waiting in enumerate(self.pending):
                block[i, : len(waiting)] = waiting
            self.pending = []
            self._learn_block(block)

    def _learn_block(self, block: Floats) -> None:
        self.widen(block.shape[1])
        missing = np.isnan(block)
        self.n_missing += int(missing.sum())
        age = np.arange(BLOCK - 1, -1, -1.0)
        per_event = 0.0 if self.settings.half_life is None else math.log(2.0) / self.settings.half_life
        w, fade = np.exp(-per_event * age), math.exp(-per_event * BLOCK)
        self.weight = fade * self.weight + float(w.sum())
        self.G = fade * self.G
        if len(self.A):
            Z = self.allocate(block)
            z = Z.astype(float)
            x = np.where(missing, z @ self.A, block)
            weighted = z * w[:, None]
            self.G = self.G + weighted.T @ z
            self.A = self.A + inverse(self.G) @ (weighted.T @ (x - z @ self.A))
        self.n_events += BLOCK
        # The smallest keys are a uniform sample; with forgetting, one in proportion to weight.
        time = self.n_events - age
        self._keep(block, np.log(self._generator.exponential(size=BLOCK)) - per_event * time)
        if self.n_events >= self.next_refit:
            self.refit()

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

    @property
    def usual(self) -> Bools:
        """The features that more than half of the events have."""
        return np.asarray(self.G.diagonal() > 0.5 * self.weight)

    def allocate(self, rows: Floats) -> Bools:
        """The features of each row, by the columns it has a value in."""
        usual = self.usual
        if len(self.A) == 0:
            return np.zeros((len(rows), 0), dtype=bool)
        if not np.isnan(rows).any():
            return nearest_features(rows, self.A, usual)
        Z = np.empty((len(rows), len(self.A)), dtype=bool)
        masks, group = np.unique(np.isnan(rows), axis=0, return_inverse=True)
        for i, mask in enumerate(masks):
            mine = group.ravel() == i
            Z[mine] = nearest_features(rows[mine][:, ~mask], np.ascontiguousarray(self.A[:, ~mask]), usual)
        return Z

    # ---------------------------------------------------------------- refits

    def refit(self) -> None:
        """Find the features of the reservoir anew, from those there are and, ever more rarely, from nothing."""
        settings = self.settings
        self.n_refits += 1
        while self.next_refit <= self.n_events:
            self.next_refit += min(
                max(self.next_refit, BLOCK), BLOCK * math.ceil(settings.refit_every / BLOCK)
            )
        self._prune()
        before = self.allocate(self.rows)
        x = self._filled(self.rows, before)
        self.penalty = penalty_from_noise(x) if settings.penalty is None else float(settings.penalty)
        problem = BPProblem(x, np.ones(len(x)), self.penalty)
        rng = np.random.default_rng([settings.seed, self.n_refits])
        found = self._search(problem, before, rng)
        if found.n_features >= settings.max_features:
            warn_of_growth(settings.max_features, self.penalty, "features")
        if not self._same_features(found, before):
            self._adopt(found, before)

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

    def _same_features(self, found: Allocation, before: Bools) -> bool:
        """Whether a refit found what there was: then the whole stream's statistics are worth more than the sample."""
        if found.n_features != len(self.A) or len(self.A) == 0:
            return False
        if (match_features(before, found.Z) < 0).any():
            return False
        present = Allocation(found.problem, before, self.A)
        # The reservoir's own means fit it better than true ones would, by about K rows' worth.
        return present.remainder <= found.remainder * (1.0 + 2.0 * len(self.A) / len(before))

    def _adopt(self, found: Allocation, before: Bools) -> None:
        """Take the features of a refit; those that most of the same rows have keep their ids."""
        match = match_features(before, found.Z)
        ids = np.empty(found.n_features, dtype=np.int64)
        for new, old in enumerate(match):
            if old >= 0:
                ids[new] = self.ids[old]
            else:
                ids[new] = self.next_id
                self.next_id += 1
        order = np.argsort(ids)
        z = found.Z[:, order].astype(float)
        self.A, self.ids = np.ascontiguousarray(found.A[order]), ids[order]
        self.G = z.T @ z * (self.weight / len(z))

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
            self.ids = self.next_id + np.arange(len(self.A))
            self.next_id += len(self.A)
        self.weight += other.weight
        self.n_events = now
        self.n_missing += other.n_missing
        if self.n_refits + other.n_refits and len(self.rows):
            self.refit()
        for row in other.pending:
            self.learn_row(row)

    # ---------------------------------------------------------------- saving

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The whole state as arrays; `from_arrays` continues bit for bit."""
        width = max([self.A.shape[1], *map(len, self.pending)])
        pending = np.full((len(self.pending), width), np.nan)
        for i, row in enumerate(self.pending):
            pending[i, : len(row)] = row
        counts = [self.n_events, self.n_refits, self.n_missing, self.next_id, self.next_refit]
        arrays = {"A": self.A, "G": self.G, "ids": self.ids, "rows": self.rows, "keys": self.keys}
        more = {
            "pending": pending,
            "counts": np.array(counts, dtype=np.int64),
            "numbers": np.array([self.weight, self.penalty]),
            "generator": np.array(json.dumps(self._generator.bit_generator.state)),
        }
        return {name: np.array(value) for name, value in (arrays | more).items()}

    @classmethod
    def from_arrays(cls, settings: StreamSettings, arrays: Mapping[str, NDArray[Any]]) -> FeatureStream:
        """The stream that `to_arrays` was called on."""
        stream = cls(settings)
        try:
            stream.A, stream.G, stream.ids = (np.array(arrays[name]) for name in ("A", "G", "ids"))
            stream.rows, stream.keys = np.array(arrays["rows"]), np.array(arrays["keys"])
            stream.pending = list(np.array(arrays["pending"]))
            counts = [int(n) for n in arrays["counts"]]
            stream.n_events, stream.n_refits, stream.n_missing, stream.next_id, stream.next_refit = counts
            stream.weight, stream.penalty = map(float, arrays["numbers"])
            stream._generator.bit_generator.state = json.loads(str(arrays["generator"]))
        except (KeyError, ValueError, TypeError) as wrong:
            raise ValueError(f"not a saved feature stream: {wrong}") from None
        k, d = stream.A.shape if stream.A.ndim == 2 else (-1, -1)
        sound = (
            stream.G.shape == (k, k)
            and stream.ids.shape == (k,)
            and stream.rows.shape == (len(stream.keys), d)
            and len(stream.pending) < BLOCK
            and stream.n_events % BLOCK == 0
            and stream.next_refit > stream.n_events
            and np.all(stream.ids < stream.next_id)
            and np.isfinite(stream.A).all()
            and np.isfinite(stream.G).all()
        )
        if not sound:
            raise ValueError("not a saved feature stream: its arrays do not fit each other")
        return stream


def match_features(before: Bools, after: Bools) -> Ints:
    """For each feature after, the one before that it continues, or -1: pairs that share more than half their rows."""
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
