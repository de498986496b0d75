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
    """Which belong to retired clusters; these come last."""

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


def fixed_components(model: Model, rare: Ints, tree: SummaryTree, each: float) -> FixedComponents:
    """Rare components of active clusters, and those of retired clusters that a tree of all events still knows.

    A rare component keeps its share. A retired one has the weight that the tree has of it; it is forgotten if that is
    less than the weight of a birth, of events that weigh `each`.
    """
    hidden = hidden_components(model)
    clusters = model.current.clusters
    rare = np.setdiff1d(rare, hidden)
    shown = clusters.weight.sum() - clusters.weight[rare].sum() - clusters.weight[hidden].sum()
    hidden, known = remembered(model, tree, each)
    rest = max(tree.weight - known.sum(), np.finfo(float).tiny)
    return FixedComponents(
        np.concatenate([rare, hidden]),
        np.concatenate([clusters.weight[rare] * rest / shown, known]),
        np.repeat([False, True], [len(rare), len(hidden)]),
    )


def remembered(model: Model, tree: SummaryTree, each: float) -> tuple[Ints, Floats]:
    """The components of retired clusters that a tree of all events still knows, and the weight it has of them."""
    hidden = hidden_components(model)
    if not len(hidden):
        return hidden, np.zeros(0)
    points, weight = tree.sample()
    cell = model.with_retired.see(points).cell
    known = np.asarray(np.bincount(cell, weight, model.result.n_clusters + 1)[hidden], dtype=float)
    heaviest = np.argsort(-known, kind="stable")[: TUNING.max_retired_components]
    lasting = np.sort(heaviest[known[heaviest] >= TUNING.min_cluster_events * each])
    return hidden[lasting], known[lasting]
