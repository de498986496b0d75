"""Pictures, by matplotlib (the `plots` extra)."""

from streamclust.plots.clusters import plot_clusters
from streamclust.plots.tree import plot_tree

__all__ = ["plot_clusters", "plot_tree"]
