"""Means of the features of a stream over its latest events, by least squares, as far back as they still hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.refit.bp_means.allocation import inverse
from streamclust.utils.state import Arrays

HALF_LIVES = (512.0, 2048.0, 8192.0)
"""Half-lives, in events, of the means that may replace those over all events."""
ERROR_HALF_LIFE = 2048.0
"""Half-life, in events, of the squared errors by which means are compared."""
MOVED_NATS = math.log(1e4)
"""Log likelihood ratio at which means over fewer events replace others: the p-value at which clusters follow."""
SAVED = ("A", "G", "weight", "error")


class FeatureMeans:
    """Means of all features, by several half-lives: `HALF_LIVES`, and last the one that was asked for, or none.

    The last one is what the stream shows. All predict each block of events before they learn it. Where one of a shorter
    half-life has predicted better, by a likelihood ratio of 10,000, features have moved: those of longer ones are
    replaced by it, and go on from there. So means are of all events since they last moved.

    G (ZᵀWZ) and A are running statistics: A is least squares. G A is ZᵀWX, which is never kept: A follows by
    corrections from residuals, so that data far from the origin keep their digits.
    """

    def __init__(self, half_life: float | None, n_columns: int = 0) -> None:
        longest = math.inf if half_life is None else half_life
        self.half_lives = (*(h for h in HALF_LIVES if h < longest), longest)
        self.replace(np.zeros((0, n_columns)), np.zeros((0, 0)), 0.0)

    def replace(self, A: Floats, G: Floats, weight: float) -> None:
        """Begin anew from means found in events of this weight, and their ZᵀZ; shorter half-lives take less of it."""
        self.weight = np.array([min(weight, kept_weight(h)) for h in self.half_lives])
        share = self.weight / weight if weight > 0 else self.weight
        self.A: Floats = np.repeat(A[None], len(share), axis=0)
        self.G: Floats = G[None] * share[:, None, None]
        self.error: Floats = np.zeros(len(share))
        self.n_values = 0.0

    @property
    def latest(self) -> Floats:
        """Mean of each feature (features, columns), of all events since means last moved."""
        return np.asarray(self.A[-1])

    @property
    def noise(self) -> float:
        """Variance of a value about the sum of its event's features; NaN before the first event."""
        return float(self.error.min()) / self.n_values if self.n_values > 0 else math.nan

    @property
    def share(self) -> Floats:
        """Share of the events that have each feature, since means last moved."""
        return np.asarray(self.G[-1].diagonal() / max(self.weight[-1], 1e-300))

    def learn(self, rows: Floats, Z: Bools) -> float:
        """Learn a block of events, NaN where a value lacks, that have these features.

        Returns the half-life of the means that were found to be better than those of longer ones; 0 if there are none.
        """
        z, known, age = Z.astype(float), ~np.isnan(rows), np.arange(len(rows) - 1, -1, -1.0)
        kept = 0.5 ** (len(rows) / ERROR_HALF_LIFE)
        self.n_values = kept * self.n_values + float(known.sum())
        for i, half_life in enumerate(self.half_lives):
            residual = np.where(known, rows - z @ self.A[i], 0.0)
            self.error[i] = kept * self.error[i] + float((residual**2).sum())
            w, fade = 0.5 ** (age / half_life), 0.5 ** (len(rows) / half_life)
            weighted = z * w[:, None]
            self.weight[i] = fade * self.weight[i] + w.sum()
            self.G[i] = fade * self.G[i] + weighted.T @ z
            if Z.shape[1]:
                self.A[i] += inverse(self.G[i]) @ (weighted.T @ residual)
        return self._follow()

    def _follow(self) -> float:
        best = int(np.argmin(self.error))
        if not self.error[best] + 2.0 * self.noise * MOVED_NATS < self.error[-1]:
            return 0.0
        for part in (self.A, self.G, self.weight, self.error):
            part[best + 1 :] = part[best]
        return self.half_lives[best]

    def keep(self, features: Bools | Ints) -> None:
        """Keep these features, in this order, and let go of all others."""
        self.A = self.A[:, features]
        self.G = self.G[:, features][:, :, features]

    def widen(self, n_columns: int) -> None:
        """Make room for columns that events have brought since."""
        self.A = np.pad(self.A, ((0, 0), (0, 0), (0, max(n_columns - self.A.shape[2], 0))))

    def add(self, other: Self, match: Ints) -> None:
        """Add what another stream has learnt of the same features; `match`: the place of each of them there."""
        G, A = other.G[-1][np.ix_(match, match)], other.A[-1][match]
        total = self.G[-1] + G
        self.replace(
            self.A[-1] + inverse(total) @ G @ (A - self.A[-1]),
            total,
            float(self.weight[-1] + other.weight[-1]),
        )

    # ---------------------------------------------------------------- saving

    def to_arrays(self) -> Arrays:
        """Complete state."""
        return {name: np.array(getattr(self, name)) for name in SAVED}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], half_life: float | None) -> Self:
        """The means that `to_arrays` saved; KeyError, TypeError or ValueError if it is none."""
        means = cls(half_life)
        n = len(means.half_lives)
        for name in SAVED:
            setattr(means, name, np.array(arrays[name], dtype=float))
        k = means.A.shape[1] if means.A.ndim == 3 else -1
        shapes = (len(means.A), means.G.shape, means.weight.shape, means.error.shape)
        if shapes != (n, (n, k, k), (n,), (n,)):
            raise ValueError("its arrays do not fit each other")
        if not all(np.isfinite(getattr(means, name)).all() for name in SAVED):
            raise ValueError("its arrays do not fit each other: means are not finite")
        return means


def kept_weight(half_life: float) -> float:
    """Weight of a stream without end, of which an event weighs 1 and half as much for each half-life that it is old.

    >>> kept_weight(1.0), kept_weight(math.inf)
    (2.0, inf)
    """
    return math.inf if half_life == math.inf else 1.0 / (1.0 - 0.5 ** (1.0 / half_life))
