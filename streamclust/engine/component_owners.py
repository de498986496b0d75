"""Component owners: which cluster each component belongs to, and which clusters are active."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.results import large_rows


@dataclass(frozen=True, eq=False)
class ComponentOwners:
    """Clusters of components, as published; updates of a model share it.

    ids         one for each cluster
    hidden      ids of retired clusters
    owner       the cluster of each component, by its place in `ids`; empty: each is a cluster of its own
    component_weight  weight of each component when it was published

    >>> found = ComponentOwners((4, 7), frozenset({4}), (0, 1, 1), np.array([90.0, 6.0, 4.0]))
    >>> found.rows, found.names, found.weight
    (array([1, 2]), array([7]), array([90., 10.]))
    """

    ids: tuple[int, ...]
    hidden: frozenset[int]
    owner: tuple[int, ...]
    component_weight: Floats

    @cached_property
    def owners(self) -> Ints:
        """The cluster of each component, by its place in `ids`."""
        return np.array(self.owner or range(len(self.component_weight)), dtype=np.int64)

    @cached_property
    def weight(self) -> Floats:
        """The weight of each cluster, active or not, when it was published."""
        return np.asarray(np.bincount(self.owners, self.component_weight, len(self.ids)), dtype=float)

    @cached_property
    def active_clusters(self) -> Ints:
        """Places, in `ids`, of active clusters; of all, should all be hidden."""
        active = [k for k, cluster in enumerate(self.ids) if cluster not in self.hidden]
        return np.array(active or range(len(self.ids)), dtype=np.int64)

    @cached_property
    def rows(self) -> Ints:
        """Components of active clusters."""
        if not self.hidden:
            return np.arange(len(self.owners))
        return np.flatnonzero(np.isin(self.owners, self.active_clusters))

    @cached_property
    def place(self) -> Ints:
        """The cluster of each component in `rows`, by its place in `names`."""
        return np.searchsorted(self.active_clusters, self.owners[self.rows])

    @cached_property
    def names(self) -> Ints:
        """Ids of active clusters."""
        return np.array(self.ids, dtype=np.int64)[self.active_clusters]

    @cached_property
    def id_of_row(self) -> list[int]:
        """Id of the cluster of each component in `rows`."""
        return [int(name) for name in self.names[self.place]]

    @cached_property
    def in_large(self) -> Bools:
        """Whether each component in `rows`, and last the events outside all of them, is large."""
        return np.append(np.isin(self.rows, large_rows(self.component_weight)), False)
