"""Matching of old and new clusters by the events they share: which id each new cluster keeps."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints

RETIRED_CLAIM = 1e-6
"""Factor on a retired cluster's overlap, so that a live cluster's claim to an id comes first."""


def matched(shared: Floats, old_weight: Floats, new_weight: Floats, live: Bools) -> dict[int, int]:
    """Map new clusters to the old ones whose ids they keep. Live clusters have precedence over retired ones."""
    worthy = (shared > 0.5 * old_weight[:, None]) | (shared > 0.5 * new_weight)
    claim = np.where(worthy, np.where(live[:, None], shared, RETIRED_CLAIM * shared), 0.0)
    return {int(j): int(i) for i, j in zip(*best_pairs(claim), strict=True) if worthy[i, j]}


def best_pairs(claim: Floats) -> tuple[Ints, Ints]:
    """Rows and columns of the pairs, none in two of them, of the largest sum; those of no claim may be left out."""
    if not claim.size:
        return np.arange(0), np.arange(0)
    if ((claim > 0).sum(axis=0) <= 1).all():  # no two rows want the same column
        return np.arange(len(claim)), claim.argmax(axis=1)
    if ((claim > 0).sum(axis=1) <= 1).all():
        return claim.argmax(axis=0), np.arange(claim.shape[1])
    from scipy.optimize import linear_sum_assignment  # 20 MB, and slow to import

    rows, columns = linear_sum_assignment(claim, maximize=True)
    return rows, columns


def majority(shared: Floats, weight: Floats) -> list[int]:
    """For each column, the row with more than half of its weight; -1 if there is none."""
    if not len(shared):
        return [-1] * len(weight)
    best = shared.argmax(axis=0)
    most = shared[best, np.arange(len(weight))]
    return [int(i) for i in np.where(most > 0.5 * weight, best, -1)]
