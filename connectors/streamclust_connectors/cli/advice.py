"""Advice on poor results: fewer columns, another family, more rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streamclust_connectors.cli.tables import counted

if TYPE_CHECKING:
    from streamclust import StreamClusterer

FULL_COVARIANCE = "gaussian"
"""The family with a full covariance matrix."""
MIN_ROWS_PER_CLUSTER = 10
"""Minimal average number of rows per cluster; with fewer, the advice says there are too many clusters."""
MIN_COUNTED_ROWS = 20
"""Number of consecutive values after which a column is taken for row numbers."""


def remarks(model: StreamClusterer, family: str, vectors: Sequence[Mapping[Any, Any]]) -> list[str]:
    """Remarks on a poor result, with options to try; `vectors` are the first events."""
    columns = {name: [vector.get(name) for vector in vectors] for name in model.feature_names}
    n, d, k = model.n_seen, len(model.feature_names), model.n_clusters
    found = []
    if counting := [str(name) for name, values in columns.items() if counts_up(values)]:
        listed = ",".join(counting)
        look = "looks like a row number" if len(counting) == 1 else "look like row numbers"
        found.append(f"{listed} {look}; consider --exclude {listed}")
    if family == FULL_COVARIANCE and model.sketch is None and n < d * d:
        found.append(
            f"{counted(n, 'event')} {'is' if n == 1 else 'are'} too few for {counted(d, 'feature')}: a full covariance "
            f"has {counted(d * (d + 1) // 2, 'number')} per cluster. Try --family diagonal ({2 * d} with the mean), "
            "or fewer --features"
        )
    if k == 1 or k * MIN_ROWS_PER_CLUSTER > n:
        found.append(
            f"{counted(n, 'event')} formed only one cluster: the features together show no separate groups"
            if k == 1
            else f"{counted(k, 'cluster')} of {counted(n, 'event')} are probably too many: fewer than "
            f"{MIN_ROWS_PER_CLUSTER} events per cluster"
        )
        found[-1] += f". {suggestion(columns, family)}"
    return found


def suggestion(columns: Mapping[Any, Sequence[Any]], family: str) -> str:
    """Options to try, given the values of the features."""
    values = [{v for v in column if v is not None} for column in columns.values()]
    everything = set().union(*values)
    if family in (FULL_COVARIANCE, "diagonal", "spherical") and everything <= {0, 1}:
        return "All values are 0 or 1: try --family bernoulli"
    if family in (FULL_COVARIANCE, "diagonal", "spherical") and all(
        v >= 0 and v == int(v) for v in everything
    ):
        return "All values are counts: try --family poisson"
    few = [str(name) for name, own in zip(columns, values, strict=True) if len(own) <= 2]
    if few and len(few) < len(columns):
        return f"Columns with only one or two values form separate clusters: try --exclude {','.join(few)}"
    other = "--family diagonal" if family == FULL_COVARIANCE else "another --family"
    return f"Try fewer columns (--features, --exclude) or {other}"


def counts_up(values: Sequence[Any]) -> bool:
    """Whether values increase by one from row to row, as row numbers do."""
    return len(values) >= MIN_COUNTED_ROWS and all(
        isinstance(a, (int, float)) and isinstance(b, (int, float)) and b - a == 1
        for a, b in pairwise(values)
    )
