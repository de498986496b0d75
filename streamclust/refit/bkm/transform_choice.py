"""Which features of a table are transformed: those whose clusters are much likelier to be normal by their logarithm.

A feature is a candidate if it has no negative value and its positive values span more than a decade. A marginal that
has several peaks or bounds looks skewed, too; so the features are judged together, by the free energy of the clusters
that a search finds with and without the transform, in the features' own units (with the transform's slope at each
event).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.families import FamilyLike
from streamclust.families.priors import spread_indices
from streamclust.parameters import TransformOf
from streamclust.refit.bkm.fit import fit_points
from streamclust.refit.bkm.tuning import TUNING
from streamclust.sketch.transform import Transform
from streamclust.utils.outliers import outlying


def candidates(rows: Floats, columns: Collection[int]) -> list[int]:
    """Columns of no negative value whose positive values span more than a decade, the longest tail first.

    >>> rng = np.random.default_rng(0)
    >>> rows = np.column_stack([rng.normal(size=500), rng.lognormal(0, 1.5, size=500), rng.uniform(1, 20, size=500)])
    >>> candidates(rows, range(3))
    [1]
    """
    span: dict[int, float] = {}
    for j in columns:
        values = rows[:, j][~np.isnan(rows[:, j])]
        some = values[values > 0.0]
        if len(some) < TUNING.min_skewed_events or (values < 0.0).any():
            continue
        low, high = np.quantile(some, [TUNING.tail_share, 1.0 - TUNING.tail_share])
        if high >= TUNING.min_span * low:
            span[j] = float(high / low)
    return sorted(span, key=lambda j: (-span[j], j))


def knee_of(values: Floats) -> float:
    """The knee of a feature by its values: few of those that are not 0 are nearer to 0; 0 if all are.

    >>> round(knee_of(np.array([0.0, np.nan, *range(1, 12)])), 9)
    2.0
    """
    size = np.abs(values[~np.isnan(values)])
    return float(np.quantile(size[size > 0.0], TUNING.knee_share)) if size.any() else 0.0


def choose_transform(
    family: FamilyLike,
    rows: Floats,
    weight: Floats | None = None,
    wishes: Mapping[int, TransformOf] | None = None,
    columns: Collection[int] | None = None,
    evidence: float = 1.0,
) -> Transform:
    """The transform of these rows: what `wishes` say, and by the evidence for other `columns` (all; empty: none).

    `evidence` is the number of independent events that an event is worth.
    """
    wishes = wishes or {}
    knee = np.zeros(rows.shape[1])
    for j, wish in wishes.items():
        if wish != "none":
            knee[j] = knee_of(rows[:, j]) if wish == "log" else float(wish)
    open_columns = [j for j in (range(rows.shape[1]) if columns is None else columns) if j not in wishes]
    if not len(rows) or not candidates(rows, open_columns):
        return Transform(knee)
    chosen = sample_of(rows, weight)
    if len(chosen) < TUNING.min_skewed_events:
        return Transform(knee)
    rows, weight = rows[chosen], None if weight is None else weight[chosen]
    return by_evidence(family, rows, weight, Transform(knee), open_columns, evidence)


def sample_of(rows: Floats, weight: Floats | None) -> Ints:
    """Rows that the evidence is taken from: complete ones of some weight, none of them an outlier."""
    known = ~np.isnan(rows).any(axis=1)
    if weight is not None:
        known &= weight > 0.0
    complete = np.flatnonzero(known)
    some = complete[spread_indices(len(complete), min(len(complete), TUNING.transform_rows))]
    return some[~outlying(rows[some])]


def by_evidence(
    family: FamilyLike,
    rows: Floats,
    weight: Floats | None,
    given: Transform,
    columns: Collection[int],
    evidence: float,
) -> Transform:
    """The `given` transform with further columns, one after the other as long as each is worth it."""

    def cost(transform: Transform) -> float:
        slope = transform.log_slope(rows)
        lost = float(slope.sum() if weight is None else slope @ weight)
        found = fit_points(family, transform.of(rows), weight, rng=0, search="quick")
        return evidence * (found.free_energy - lost)

    best = None
    for j in candidates(rows, columns):
        best = cost(given) if best is None else best
        knee = given.knee.copy()
        knee[j] = knee_of(rows[:, j])
        found = Transform(knee)
        if (new := cost(found)) < best - TUNING.transform_nats:
            given, best = found, new
    return given
