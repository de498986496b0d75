"""The present: whether the stream still is what the summary says, and the summary as the stream is now."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import chdtrc

from streamclust._kernels.types import Floats
from streamclust.engine.model import Model
from streamclust.tree import SummaryTree

CHANCE = 1e-9
"""The stream has drifted if, had it not, chance would spread the watched events so unevenly less often than this."""
FEWEST = 5.0
"""Leaves that expect fewer watched events than this are judged together."""


def drifted(tree: SummaryTree, watched: Floats, weight: Floats) -> bool:
    """Whether the latest events fall to the leaves in other shares than all events did: Pearson's χ² test.

    It needs no model: clusters that move, appear, vanish or split all change the shares.
    """
    return evidence(tree, watched, weight) < CHANCE


def evidence(tree: SummaryTree, watched: Floats, weight: Floats) -> float:
    """The p-value of the latest events under the tree's own shares."""
    leaf = tree.leaves().weight
    expected, seen = leaf / leaf.sum(), tree.shares(watched, weight)
    size = kish(weight)
    judged = expected * size >= FEWEST
    expected, seen = (np.append(part[judged], 1.0 - part[judged].sum()) for part in (expected, seen))
    expected = np.maximum(expected, 1e-12)  # what no leaf stands for is as good as impossible
    statistic = size * float(((seen - expected) ** 2 / expected).sum())
    return float(chdtrc(max(1, len(seen) - 1), statistic))


def as_of_now(tree: SummaryTree, watched: Floats, weight: Floats) -> SummaryTree:
    """The tree, to read, with each leaf's weight its share of the latest events.

    Leaves and their samples are all still there, so clusters too rare for the watched events to describe are, if
    only they were seen. The total stays.
    """
    leaf = tree.leaves().weight
    return tree.reweighted(tree.shares(watched, weight) * leaf.sum() / leaf, worth=kish(weight))


class WithStrays:
    """A tree to refit, whose sample holds more of the events that lie outside every large cluster.

    Those are few among the leaves' samples, and rare clusters are made of them. `strays` were watched over a longer
    time; they take the place of the sampled events that lie outside too, with the same weight together.
    """

    def __init__(self, tree: SummaryTree, large: Model, strays: Floats) -> None:
        self._tree = tree
        points, weight = tree.sample()
        outside = large.outside(points)
        strays = strays[large.outside(strays)] if len(strays) else strays
        if len(strays) > outside.sum() > 0:
            share = np.full(len(strays), weight[outside].sum() / len(strays))
            points, weight = (
                np.concatenate([points[~outside], strays]),
                np.concatenate([weight[~outside], share]),
            )
        self._sample = points, weight

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._tree, name)

    def sample(self) -> tuple[Floats, Floats]:
        """Points and the weight each stands for."""
        return self._sample


def kish(weight: Floats) -> float:
    """How many equal events weigh as reliably as these."""
    return float(weight.sum() ** 2 / (weight**2).sum())
