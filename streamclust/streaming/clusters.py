"""Cluster: a cluster as it is now, with its features by name."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.engine import Model
from streamclust.moments import Moments
from streamclust.schema import Schema


@dataclass(frozen=True, eq=False)
class Cluster:
    """A cluster as it is now."""

    id: int
    weight: float
    """How many events it holds (decayed, if forgetting)."""
    share: float
    mean: dict[Hashable, float]
    covariance: Floats | None
    """(D, D), (D,) or a number, as the family has it; (D,) where events are wide."""
    born: int
    """Number of events learnt before it was born."""
    last_seen: int
    """Number of the latest watched event assigned to it."""
    components: Moments
    """Moments of its components, the heaviest first; one row, unless shapes are joined (`shape="any"`)."""


def heaviest_rows_first(components: Moments) -> Moments:
    """Rows by falling weight."""
    return components[np.argsort(-components.weight, kind="stable")]


def clusters_of(
    model: Model,
    rows: Moments,
    parts: Moments,
    schema: Schema,
    born_at: Mapping[int, int],
    last_seen: Mapping[int, int],
) -> list[Cluster]:
    """The clusters of a model, the heaviest first; `rows` are their moments, `parts` those of their components."""
    kept = None if rows.kind == "none" else rows.covariance
    found = [
        Cluster(
            id=int(name),
            weight=float(rows.weight[k]),
            share=float(rows.weight[k] / rows.weight.sum()),
            mean=schema.mapping(rows.mean[k]),
            covariance=None if kept is None else kept[k],
            born=born_at.get(int(name), model.n_seen),  # missing while another thread publishes
            last_seen=last_seen[int(name)],
            components=heaviest_rows_first(parts[np.flatnonzero(model.place == k)]),
        )
        for k, name in enumerate(model.names)
    ]
    return sorted(found, key=lambda cluster: -cluster.weight)
