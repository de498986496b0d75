"""Pictures, by matplotlib (the `plots` extra)."""

from streamclust.plots.clusters import plot_clusters
from streamclust.plots.dendrogram import plot_dendrogram
from streamclust.plots.features import plot_features
from streamclust.plots.lineage import plot_lineage
from streamclust.plots.tree import plot_tree

__all__ = ["plot_clusters", "plot_dendrogram", "plot_features", "plot_lineage", "plot_tree"]
