import matplotlib
import numpy as np
import pytest

from streamclust.moments import Moments
from streamclust.plots import plot_clusters, plot_tree
from streamclust.tree import SummaryTree
from tests.streams import clustered

matplotlib.use("Agg")


@pytest.mark.parametrize("scatter", ["full", "diagonal"])
def test_every_leaf_is_an_ellipse_of_two_deviations(scatter):
    rows, _ = clustered(1500, 3)
    tree = SummaryTree(3, max_leaves=20, scatter=scatter)
    tree.insert(rows)
    ax = plot_tree(tree, features=(2, 0))
    ellipses = ax.collections[1]
    np.testing.assert_allclose(ellipses.get_offsets(), tree.leaves().mean[:, [2, 0]])
    covariance = tree.leaves().covariance
    variance = np.einsum("rii->ri", covariance) if scatter == "full" else covariance
    axes = np.column_stack([ellipses.get_widths(), ellipses.get_heights()])
    np.testing.assert_allclose((axes**2).sum(axis=1) / 16, variance[:, 2] + variance[:, 0], rtol=1e-9)


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ValueError, match="learnt no events"):
        plot_tree(SummaryTree(2))
    tree = SummaryTree(2, scatter="none")
    tree.insert(np.ones((3, 2)))
    with pytest.raises(ValueError, match="full or diagonal scatter"):
        plot_tree(tree)


def test_clusters_are_drawn_at_their_means():
    rows, labels = clustered(300, 2, k=3)
    clusters = Moments.rows_of_points(rows).to_groups(labels, kind="full")
    ax = plot_clusters(clusters)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), clusters.mean)
