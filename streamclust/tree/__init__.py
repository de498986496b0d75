"""Events become summaries: a bounded tree of sufficient statistics."""

from streamclust.tree.summary import SummaryTree

__all__ = ["SummaryTree"]
