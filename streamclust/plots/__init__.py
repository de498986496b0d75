"""Pictures, by matplotlib (the `plots` extra), and the projections and ellipses that they are made of."""

from streamclust.plots.clusters import plot_clusters
from streamclust.plots.dendrogram import plot_dendrogram
from streamclust.plots.features import plot_features
from streamclust.plots.flows import plot_flows
from streamclust.plots.levels import plot_path
from streamclust.plots.lineage import plot_lineage
from streamclust.plots.palette import PALETTE, hex_colour
from streamclust.plots.projection import (
    feature_axes,
    outline,
    principal_axes,
    projected_covariance,
    union_outline,
)
from streamclust.plots.tree import plot_tree

__all__ = [
    "PALETTE",
    "feature_axes",
    "hex_colour",
    "outline",
    "plot_clusters",
    "plot_dendrogram",
    "plot_features",
    "plot_flows",
    "plot_lineage",
    "plot_path",
    "plot_tree",
    "principal_axes",
    "projected_covariance",
    "union_outline",
]
