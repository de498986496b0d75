from dataclasses import replace

import numpy as np
import pytest

from streamclust.hierarchy import agglomerate
from streamclust.hierarchy.snapshot import snapshot
from streamclust.moments import Moments
from streamclust.plots import plot_dendrogram
from streamclust.plots.drawing import colour

FIVE = [[0.0], [1.0], [20.0], [21.0], [50.0]]


@pytest.fixture
def five():
    return agglomerate("spherical", Moments.rows_of_points(FIVE))


def shades(ax):
    return {tuple(shade) for shade in np.round(ax.collections[0].get_colors()[:, :3], 6)}


def test_brackets_stand_at_the_heights_of_their_merges(five, ax):
    plot_dendrogram(five, ax=ax)
    tops = sorted(segment[:, 1].max() for segment in ax.collections[0].get_segments())
    np.testing.assert_allclose(tops, five.drawn_height)


def test_leaves_are_named_and_subtrees_weighed(five, ax):
    plot_dendrogram(five, k=3, ax=ax, names=list("abcde"))
    assert sorted(tick.get_text() for tick in ax.get_xticklabels()) == list("abcde")
    ax.clear()
    plot_dendrogram(five, k=2, show=3, ax=ax, names=list("abcde"))
    assert sorted(tick.get_text() for tick in ax.get_xticklabels()) == ["(2)", "(2)", "e"]


def test_clusters_have_the_colours_of_their_numbers_and_the_rest_is_grey(five, ax):
    plot_dendrogram(five, k=3, ax=ax)
    pairs = {tuple(np.round(colour(i), 6)) for i in range(3)}
    assert len(shades(ax) & pairs) == 2  # the third is a single leaf
    assert shades(ax) - pairs == {(0.6, 0.6, 0.6)}


def test_published_clusters_have_the_colours_of_their_ids(ax):
    tree = snapshot("spherical", Moments.rows_of_points(FIVE), [0, 0, 1, 1, 2], ids=[7, 40, 3])
    tree.plot(k=3, ax=ax)
    ids = {tuple(np.round(colour(i), 6)) for i in (7, 40)}
    assert ids <= shades(ax)
    assert {text.get_text() for text in ax.texts} == {"7", "40", "3"}


def test_clusters_have_the_names_that_people_gave_them(ax):
    tree = snapshot("spherical", Moments.rows_of_points(FIVE), [0, 0, 1, 1, 2], ids=[7, 40, 3])
    replace(tree, names={40: "night $hift"}).plot(k=3, ax=ax)
    assert {text.get_text() for text in ax.texts} == {"7", "40\nnight \\$hift", "3"}


def test_the_cut_is_a_line_between_two_merges(five, ax):
    plot_dendrogram(five, k=2, ax=ax)
    (level,) = {*ax.lines[0].get_ydata()}
    assert five.drawn_height[-2] < level < five.drawn_height[-1]
