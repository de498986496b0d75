"""Summaries become hierarchies: relaxed BHC, agglomerative Bayesian clustering, BHC."""

from streamclust.hierarchy.agglomerate import MergeProgress, MethodName, agglomerate, agglomerate_steps
from streamclust.hierarchy.dendrogram import Dendrogram
from streamclust.hierarchy.rbhc import threshold_rule
from streamclust.hierarchy.snapshot import snapshot

__all__ = [
    "Dendrogram",
    "MergeProgress",
    "MethodName",
    "agglomerate",
    "agglomerate_steps",
    "snapshot",
    "threshold_rule",
]
