"""Components set aside: a refit of the latest events does not see them, so they stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.births import MIN_BIRTH_EVENTS
from streamclust.engine.model import NOWHERE, Model, hidden_components
from streamclust.moments import Moments
from streamclust.tree import SummaryTree

MAX_RETIRED_COMPONENTS = 256
"""Number of components of retired clusters kept, the heaviest: what may return against the cost of a look."""


@dataclass(frozen=True, eq=False)
class SetAside:
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

    def some(self, kept: Ints) -> SetAside:
        """Some of them."""
        return SetAside(self.component[kept], self.weight[kept], self.retired[kept])


NOTHING_ASIDE = SetAside(NOWHERE, np.zeros(0), np.zeros(0, dtype=bool))


def set_aside(model: Model, rare: Ints, tree: SummaryTree, each: float, away: Ints = NOWHERE) -> SetAside:
    """Rare components of clusters on show, and those of absent clusters that a tree of all events still knows.

    Absent are retired clusters, and the components of those that are `away`. A rare component keeps its share. An
    absent one has the weight that the tree has of it; it is forgotten if that is less than the weight of a birth, of
    events that weigh `each`.
    """
    clusters = model.current.clusters
    absent = np.union1d(hidden_components(model), away)
    rare = np.setdiff1d(rare, absent)
    shown = clusters.weight.sum() - clusters.weight[rare].sum() - clusters.weight[absent].sum()
    absent, known = remembered(model, absent, tree, each)
    rest = max(tree.weight - known.sum(), np.finfo(float).tiny)
    return SetAside(
        np.concatenate([rare, absent]),
        np.concatenate([clusters.weight[rare] * rest / shown, known]),
        np.repeat([False, True], [len(rare), len(absent)]),
    )


def remembered(model: Model, absent: Ints, tree: SummaryTree, each: float) -> tuple[Ints, Floats]:
    """The components, of these, that a tree of all events still knows, and the weight it has of them."""
    if not len(absent):
        return absent, np.zeros(0)
    points, weight = tree.sample()
    cell = model.everyone.see(points).cell
    known = np.asarray(np.bincount(cell, weight, model.result.n_clusters + 1)[absent], dtype=float)
    heaviest = np.argsort(-known, kind="stable")[:MAX_RETIRED_COMPONENTS]
    lasting = np.sort(heaviest[known[heaviest] >= MIN_BIRTH_EVENTS * each])
    return absent[lasting], known[lasting]
