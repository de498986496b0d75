"""ClusterView: what a picture needs of an engine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamclust._kernels.types import Ints
from streamclust.moments import Moments

if TYPE_CHECKING:
    from streamclust.engine.engine import Engine
    from streamclust.engine.model import Model


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

    def grouped(self, parents: Mapping[int, int]) -> ClusterView:
        """Put clusters together to those of a coarser level, by the id of each there; others are left out."""
        known = np.array([cluster in parents for cluster in self.ids.tolist()], dtype=bool)
        group = np.array([parents[cluster] for cluster in self.ids[known].tolist()], dtype=np.int64)
        ids, place = np.unique(group, return_inverse=True)
        clusters = self.clusters[np.flatnonzero(known)].to_groups(place.reshape(-1), len(ids))
        owners, parts = (
            np.array([parents.get(one, one) for one in found.tolist()], dtype=np.int64)
            for found in (self.owners, self.component_ids)
        )
        return self._replace(clusters=clusters, ids=ids, owners=owners, component_ids=parts)


def cluster_view(
    engine: Engine,
    names: tuple[Hashable, ...],
    expanded: Callable[[Moments], Moments],
    model: Model | None,
) -> ClusterView:
    """The clusters of the published model at some level, and the leaves that hold events at present.

    `expanded` gives moments in the features.
    """
    found = engine.queries.components()
    if model is None:
        clusters = found
        nothing = np.zeros(0, dtype=np.int64)
        return ClusterView(names, clusters, nothing, clusters, nothing, clusters, nothing)
    clusters = found if len(model.names) == len(found) else found.to_groups(model.place, len(model.names))
    leaves = engine.queries.present_tree().leaves()
    leaves = leaves[np.flatnonzero(leaves.weight > 0)]
    owners = model.names[model.nearest(leaves.mean).cluster]
    parts = expanded(found), model.names[model.place]
    return ClusterView(names, expanded(clusters), model.names, expanded(leaves), owners, *parts)
