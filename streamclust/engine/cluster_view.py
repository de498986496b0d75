"""ClusterView: what a picture needs of an engine."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamclust._kernels.types import Ints
from streamclust.moments import Moments

if TYPE_CHECKING:
    from streamclust.engine.engine import Engine


class ClusterView(NamedTuple):
    """Clusters and leaves of the summary as of now. Holds copies: it can be drawn while the stream goes on."""

    features: tuple[Hashable, ...]
    clusters: Moments
    """No rows before the first event."""
    ids: Ints
    """Of the clusters."""
    leaves: Moments
    owners: Ints
    """The id of the cluster that each leaf belongs to."""
    components: Moments
    """The Gaussians that the clusters are made of; the clusters themselves, unless shapes are joined."""
    component_ids: Ints
    """The id of the cluster that each component is part of."""


def cluster_view(
    engine: Engine, names: tuple[Hashable, ...], expanded: Callable[[Moments], Moments]
) -> ClusterView:
    """The active clusters, and the leaves that hold events at present; `expanded` gives moments in the features."""
    model, clusters = engine.model, engine.queries.clusters()
    if model is None:
        nothing = np.zeros(0, dtype=np.int64)
        return ClusterView(names, clusters, nothing, clusters, nothing, clusters, nothing)
    leaves = engine.queries.present_tree().leaves()
    leaves = leaves[np.flatnonzero(leaves.weight > 0)]
    owners = model.names[model.nearest(leaves.mean).cluster]
    parts = expanded(engine.queries.components()), model.names[model.place]
    return ClusterView(names, expanded(clusters), model.names, expanded(leaves), owners, *parts)
