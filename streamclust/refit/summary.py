"""The summary that a refit reads."""

from __future__ import annotations

from typing import Protocol

from streamclust._kernels.types import Ints
from streamclust.families.base import Summary
from streamclust.moments import Moments


class LeafSummary(Summary, Protocol):
    """A summary whose events are grouped into leaves, as those of a `SummaryTree` are."""

    def leaves(self) -> Moments:
        """One row for each leaf."""
        ...


class NodeSummary(LeafSummary, Protocol):
    """A summary whose leaves are those of a tree of nodes: it can be read coarsely, and finer where that pays."""

    def cut(self, *, budget: int) -> Ints:
        """At most so many nodes that together hold every event once."""
        ...

    def refine(self, cut: Ints, nodes: Ints) -> Ints:
        """The cut with the given nodes replaced by their children; leaves stay."""
        ...

    def moments(self, nodes: Ints) -> Moments:
        """One row for each node."""
        ...
