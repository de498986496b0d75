import numpy as np
import pytest

from streamclust.plots import plot_tree
from streamclust.tree import SummaryTree
from tests.streams import clustered


@pytest.mark.parametrize("scatter", ["full", "diagonal"])
def test_every_leaf_is_an_ellipse_of_two_deviations(scatter, ax):
    rows, _ = clustered(1500, 3)
    tree = SummaryTree(3, max_leaves=20, scatter=scatter)
    tree.insert(rows)
    plot_tree(tree, features=(2, 0), ax=ax, names="abc")
    ellipses, points = ax.collections[:2]
    np.testing.assert_allclose(ellipses.get_offsets(), tree.leaves().mean[:, [2, 0]])
    np.testing.assert_allclose(points.get_offsets(), tree.sample()[0][:, [2, 0]])
    covariance = tree.leaves().covariance
    variance = np.einsum("rii->ri", covariance) if scatter == "full" else covariance
    axes = np.column_stack([ellipses.get_widths(), ellipses.get_heights()])
    np.testing.assert_allclose((axes**2).sum(axis=1) / 16, variance[:, 2] + variance[:, 0], rtol=1e-9)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("c", "a")


def test_denser_leaves_have_higher_values(ax):
    tree = SummaryTree(2, max_leaves=8)
    rng = np.random.default_rng(0)
    tree.insert(np.concatenate([rng.normal(size=(900, 2)), 100.0 + 9.0 * rng.normal(size=(100, 2))]))
    density = tree.plot(ax=ax).collections[0].get_array()
    far = tree.leaves().mean[:, 0] > 50.0
    assert density[far].max() < density[~far].min()


def test_what_cannot_be_drawn_is_said(ax):
    with pytest.raises(ValueError, match="learnt no events"):
        plot_tree(SummaryTree(2), ax=ax)
    tree = SummaryTree(2, scatter="none")
    tree.insert(np.ones((3, 2)))
    with pytest.raises(ValueError, match="keep a scatter"):
        plot_tree(tree, ax=ax)
