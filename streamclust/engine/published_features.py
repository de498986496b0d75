"""PublishedFeatures: the features of a stream as events are assigned by them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.refit.bp_means.allocation import nearest_features


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
    share: Floats
    """Share of the events that have each feature, since means last moved."""
    noise: float
    """Variance of a value about the sum of its event's features; NaN before the first event."""

    def allocate(self, rows: Floats) -> Bools:
        """The features of each row, by the columns it has a value in."""
        if len(self.A) == 0:
            return np.zeros((len(rows), 0), dtype=bool)
        usual = np.asarray(self.share > 0.5)
        if not np.isnan(rows).any():
            return nearest_features(rows, self.A, usual)
        Z = np.empty((len(rows), len(self.A)), dtype=bool)
        masks, group = np.unique(np.isnan(rows), axis=0, return_inverse=True)
        for i, mask in enumerate(masks):
            mine = group.ravel() == i
            Z[mine] = nearest_features(rows[mine][:, ~mask], np.ascontiguousarray(self.A[:, ~mask]), usual)
        return Z

    def allocate_any(self, rows: Floats) -> tuple[Bools, Floats]:
        """The features of rows that may lack the latest columns or have more, and the rows of known columns."""
        width = self.A.shape[1]
        known = rows[:, :width]
        if known.shape[1] < width:
            known = np.pad(known, ((0, 0), (0, width - known.shape[1])), constant_values=np.nan)
        return self.allocate(known), known

    def novelty(self, rows: Floats) -> Floats:
        """-log p(x | the features of x) of each row, whose noise is Gaussian and alike in all columns.

        Values that lack, and columns that no event had, say nothing. 0 before the first event.
        """
        if not self.noise >= 0:
            return np.zeros(len(rows))
        Z, known = self.allocate_any(rows)
        residual = known - Z.astype(float) @ self.A
        variance = max(self.noise, float(np.finfo(float).tiny) * 1e8)
        each = 0.5 * (math.log(2.0 * math.pi * variance) + residual**2 / variance)
        return np.asarray(np.where(np.isnan(known), 0.0, each).sum(axis=1))


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
