"""Fixed components: a refit of the latest events has no events of them, so they stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.model import Model, hidden_components
from streamclust.engine.results import NOWHERE
from streamclust.engine.tuning import TUNING
from streamclust.moments import Moments
from streamclust.tree import SummaryTree


@dataclass(frozen=True, eq=False)
class FixedComponents:
    """Components of a model that a refit leaves as they are, each with the weight it gets beside what is found."""

    component: Ints
    weight: Floats
    retired: Bools
    """Which belong to clusters that are retired or away; these come last."""

    def __len__(self) -> int:
        return len(self.component)

    def moments(self, model: Model) -> Moments:
        """The components, with their new weights."""
        rows = model.current.clusters[self.component]
        return rows.scale(self.weight / np.maximum(rows.weight, np.finfo(float).tiny))

    def some(self, kept: Ints) -> FixedComponents:
        """Some of them."""
        return FixedComponents(self.component[kept], self.weight[kept], self.retired[kept])


NO_FIXED = FixedComponents(NOWHERE, np.zeros(0), np.zeros(0, dtype=bool))


def fixed_components(
    model: Model, rare: Ints, tree: SummaryTree, each: float, away: Ints = NOWHERE
) -> FixedComponents:
    """Rare components of active clusters, and those of absent clusters that a tree of all events still knows.

    Absent are retired clusters, and the components that are `away`. A rare component keeps its share. An absent one has
    the weight that the tree has of it; it is forgotten if that is less than the weight of a birth, of events that weigh
    `each`.
    """
    clusters = model.current.clusters
    absent = np.union1d(hidden_components(model), away)
    rare = np.setdiff1d(rare, absent)
    shown = clusters.weight.sum() - clusters.weight[rare].sum() - clusters.weight[absent].sum()
    absent, known = remembered(model, absent, tree, each)
    rest = max(tree.weight - known.sum(), np.finfo(float).tiny)
    return FixedComponents(
        np.concatenate([rare, absent]),
        np.concatenate([clusters.weight[rare] * rest / shown, known]),
        np.repeat([False, True], [len(rare), len(absent)]),
    )


def remembered(model: Model, absent: Ints, tree: SummaryTree, each: float) -> tuple[Ints, Floats]:
    """The components, of these, that a tree of all events still knows, and the weight it has of them."""
    if not len(absent):
        return absent, np.zeros(0)
    points, weight = tree.sample()
    cell = model.with_retired.see(points).cell
    known = np.asarray(np.bincount(cell, weight, model.result.n_clusters + 1)[absent], dtype=float)
    heaviest = np.argsort(-known, kind="stable")[: TUNING.first_leaves]
    lasting = np.sort(heaviest[known[heaviest] >= TUNING.min_cluster_events * each])
    return absent[lasting], known[lasting]
