"""Components into clusters of any shape: components that are pieces of one plateau of events are joined."""

from streamclust.shapes.edges import Edges, judged_edges
from streamclust.shapes.joins import (
    MergeTree,
    gaussian_components,
    heaviest_first,
    joined_clusters,
    joins_within,
    merge_tree,
)

__all__ = [
    "Edges",
    "MergeTree",
    "gaussian_components",
    "heaviest_first",
    "joined_clusters",
    "joins_within",
    "judged_edges",
    "merge_tree",
]
