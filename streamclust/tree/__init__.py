"""Events become summaries: a bounded tree of sufficient statistics."""

from streamclust.tree.merging import merge_all
from streamclust.tree.summary import SummaryTree

__all__ = ["SummaryTree", "merge_all"]
