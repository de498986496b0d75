"""The summary that a refit reads."""

from __future__ import annotations

from typing import Protocol, TypeVar, cast

from streamclust._kernels.types import Floats, Ints
from streamclust.families.base import Summary
from streamclust.moments import Moments
from streamclust.tree import SummaryTree

Read = TypeVar("Read", bound=Summary)

NEGLIGIBLE_SHARE = 2.0**-40
"""Sampled events of a smaller share of the weight are left out of a refit. A cluster of such events alone would be
judged at a scale (its Kish size over its weight) at which free energies have no digit left for their differences."""


def weighty_sample(tree: Summary) -> tuple[Floats, Floats]:
    """A tree's sample without the events that have decayed, or were weighted, to nothing beside the others."""
    points, weight = tree.sample()
    kept = weight > NEGLIGIBLE_SHARE * weight.sum()
    return (points, weight) if kept.all() else (points[kept], weight[kept])


def without_outliers(tree: Read) -> Read:
    """The tree without single events far from all others, which would decide the scale of its features.

    A summary that cannot leave events out is returned as it is.
    """
    return cast(Read, tree.without_outliers()) if isinstance(tree, SummaryTree) else tree


class LeafSummary(Summary, Protocol):
    """A summary whose events are grouped into leaves, as those of a `SummaryTree` are."""

    def leaves(self) -> Moments:
        """One row for each leaf."""
        ...


class NodeSummary(LeafSummary, Protocol):
    """A summary whose leaves are those of a tree of nodes: it can be read coarsely, and finer where that pays."""

    def cut(self, *, budget: int) -> Ints:
        """At most `budget` nodes that together hold every event once."""
        ...

    def refine(self, cut: Ints, nodes: Ints) -> Ints:
        """The cut with the given nodes replaced by their children; leaves stay."""
        ...

    def moments(self, nodes: Ints) -> Moments:
        """One row for each node."""
        ...
