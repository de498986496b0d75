"""The present: a test for drift of the stream from its summary, and the summary reweighted to the latest events."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.engine.model import Model
from streamclust.engine.tuning import TUNING
from streamclust.moments import Moments
from streamclust.refit.summary import weighty_sample
from streamclust.tree import SummaryTree
from streamclust.utils.late import chdtrc
from streamclust.utils.outliers import outlying


def drifted(tree: SummaryTree, watched: Floats, weight: Floats, evidence: float = 1.0) -> bool:
    """Whether the latest events fall to the leaves in other shares than all events did: Pearson's χ² test.

    It needs no model: clusters that move, appear, vanish or split all change the shares. A watched event counts for
    `evidence` independent ones.
    """
    return p_value_of_shares(tree, watched, weight, evidence) < TUNING.change_p_value


def p_value_of_shares(tree: SummaryTree, watched: Floats, weight: Floats, evidence: float = 1.0) -> float:
    """The p-value of the latest events under the tree's own shares."""
    leaf = tree.leaf_weights()
    expected = leaf / leaf.sum()
    size = evidence * kish(weight)
    judged = expected * size >= TUNING.min_cluster_events
    if not judged.any():
        return 1.0
    seen = tree.shares(watched, weight)
    expected, seen = (np.append(part[judged], 1.0 - part[judged].sum()) for part in (expected, seen))
    expected = np.maximum(expected, 1e-12)  # events that no leaf stands for are as good as impossible
    statistic = size * float(((seen - expected) ** 2 / expected).sum())
    return float(chdtrc(max(1, len(seen) - 1), statistic))


def as_of_now(tree: SummaryTree, watched: Floats, weight: Floats) -> SummaryTree:
    """The tree, to read, with each leaf's weight its share of the latest events.

    Leaves keep their samples, so clusters too rare to be described by the watched events remain, as long as any of
    their events was watched. The total weight stays.
    """
    leaf, share = tree.leaf_weights(), tree.shares(watched, weight)
    if not share.sum() > 0:  # all of them fall to leaves that have lost their weight
        return tree
    return tree.reweighted(share / share.sum() * leaf.sum() / leaf, worth=kish(weight))


class WithStrays:
    """A tree to refit, whose sample holds more of the events that lie outside every large cluster.

    Those are few among the leaves' samples, and rare clusters are made of them. `strays` were watched over a longer
    time; they take the place of the sampled events that lie outside too, with the same weight together.
    """

    def __init__(self, tree: SummaryTree, large: Model, strays: Floats) -> None:
        self._tree = tree
        points, weight = weighty_sample(tree)
        outside = large.outside(points)
        strays = strays[large.outside(strays)] if len(strays) else strays
        if len(strays) > outside.sum() > 0:
            share = np.full(len(strays), weight[outside].sum() / len(strays))
            points, weight = (
                np.concatenate([points[~outside], strays]),
                np.concatenate([weight[~outside], share]),
            )
            outside = np.arange(len(points)) >= len(points) - len(strays)
        kept = ~outlying(points, weight)
        self._sample = points[kept], weight[kept]
        self._outside = outside[kept]

    @property
    def n_features(self) -> int:
        """D."""
        return self._tree.n_features

    @property
    def total(self) -> Moments:
        """One row: the moments of everything, as the tree has them."""
        return self._tree.total

    @property
    def worth(self) -> float:
        """Number of events that the tree's weights were estimated from."""
        return self._tree.worth

    @property
    def n_independent(self) -> float:
        """Number of independent events that the tree's are worth."""
        return self._tree.n_independent

    def leaves(self) -> Moments:
        """One row for each leaf of the tree."""
        return self._tree.leaves()

    def sample(self) -> tuple[Floats, Floats]:
        """Points and the weight each stands for."""
        return self._sample

    def outside(self) -> tuple[Floats, Floats]:
        """Sampled events outside every large cluster, and their weights."""
        points, weight = self._sample
        return points[self._outside], weight[self._outside]


def kish(weight: Floats) -> float:
    """Number of equal weights with the same relative variance of their sum (Kish)."""
    return float(weight.sum() ** 2 / (weight**2).sum())
