"""What can be asked of a finished tree."""

import re
from dataclasses import replace

import matplotlib
import networkx
import numpy as np
import pytest

from streamclust.hierarchy import Dendrogram, agglomerate
from streamclust.moments import Moments
from streamclust.plots import plot_dendrogram
from tests.naive import hierarchy as naive
from tests.streams import clustered

matplotlib.use("Agg")


@pytest.fixture
def tree():
    return agglomerate("spherical", Moments.rows_of_points([[0.0], [1.0], [10.0], [12.0], [40.0]]))


def test_cuts(tree):
    assert tree.cut(k=3).tolist() == [0, 0, 1, 1, 2]
    assert tree.cut(cost=0.5).tolist() == [0, 0, 1, 2, 3]
    assert tree.cut(cost=-1.0).tolist() == [0, 1, 2, 3, 4]
    assert tree.cut(cost=np.inf).tolist() == [0] * 5
    assert tree.cut_nodes(k=3).tolist() == [5, 6, 4]
    for k in (0, 6, 2.5):
        with pytest.raises(ValueError, match="k must be a whole number from 1 to the 5 leaves"):
            tree.cut(k=k)
    with pytest.raises(ValueError, match="not by both"):
        tree.cut(k=2, cost=1.0)
    with pytest.raises(ValueError, match="NaN"):
        tree.cut(cost=np.nan)
    with pytest.raises(ValueError, match="nothing says where to stop"):
        tree.best_cut()


def test_moments_of_every_node(tree):
    below = naive.members(tree.children)
    x = tree.leaves.mean
    np.testing.assert_allclose(tree.moments.mean, [x[list(m)].mean(axis=0) for m in below])
    np.testing.assert_array_equal(tree.count, [len(m) for m in below])


def test_newick_is_a_tree_with_these_lengths(tree):
    names = ["a b", "it's", "c", "", "e"]
    text = tree.to_newick(names)
    assert text.endswith(");")
    assert "'a b':" in text
    assert "'it''s':" in text
    assert "'':" in text
    lengths = sum(float(v) for v in re.findall(r":([0-9.e+-]+)", text))
    level = np.concatenate([np.zeros(5), tree.height])
    expected = sum(2 * level[5 + t] - level[a] - level[b] for t, (a, b) in enumerate(tree.children))
    assert lengths == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="5 leaves need as many names"):
        tree.to_newick(["a"])


def test_networkx(tree):
    graph = tree.to_networkx()
    assert networkx.is_arborescence(graph)
    assert graph.nodes[8]["weight"] == 5.0
    assert sorted(graph.successors(5)) == tree.children[0].tolist()
    ids = np.array([-1, -1, 3, -1, 5, -1, -1, -1, -1])
    called = replace(tree, ids=ids, names={3: "night"}).to_networkx()
    assert [called.nodes[node].get("name") for node in range(9)] == [None, None, "night", *[None] * 6]


def test_names_are_stored(tree):
    named = replace(tree, names={7: "b", 3: "a"})
    assert Dendrogram.from_dict(named.to_dict()).names == {3: "a", 7: "b"}
    older = tree.to_dict()
    del older["names"]
    assert Dendrogram.from_dict(older).names == {}


def test_networkx_is_asked_for(tree, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "networkx", None)
    with pytest.raises(ImportError, match="needs networkx"):
        tree.to_networkx()


@pytest.mark.compiled
def test_deep_trees_need_no_recursion():
    n = 2000
    deep = agglomerate("spherical", Moments.rows_of_points(np.cumsum(1.02 ** np.arange(n))[:, None]))
    assert deep.to_newick().count("(") == n - 1
    assert len(deep.to_linkage()) == n - 1
    deep.plot(show=n)


def test_stored_forms_that_are_none(tree):
    good = tree.to_dict()
    for wrong in (
        {"children": [[0, 1]] * 4},
        {"children": [[0, 1], [2, 3], [4, 8], [5, 6]]},
        {"cost": [1.0]},
    ):
        with pytest.raises(ValueError, match="not a stored dendrogram"):
            Dendrogram.from_dict(good | wrong)
    with pytest.raises(ValueError, match="not a stored dendrogram"):
        Dendrogram.from_dict({})


def test_purity_says_what_it_needs(tree):
    with pytest.raises(ValueError, match="labels must be 5 classes"):
        tree.purity([0, 1])
    with pytest.raises(ValueError, match="two events of one class"):
        tree.purity([0, 1, 2, 3, 4])
    with pytest.raises(ValueError, match="masses must not be negative"):
        tree.purity(np.full((5, 2), np.nan))
    assert tree.purity([0, 0, 1, 1, 2]) == 1.0


def test_purity_within_a_mixed_leaf():
    """One leaf of three and one: its pairs see the leaf alone."""
    tree = agglomerate("spherical", Moments.rows_of_points([[0.0], [9.0]], [4.0, 1.0]))
    assert tree.purity([[3.0, 1.0], [0.0, 1.0]]) == pytest.approx((3 * 3 / 4 + 1 * 2 / 5) / 4)


def test_one_leaf_has_no_linkage():
    one = agglomerate("gaussian", Moments.rows_of_points([[1.0, 2.0]]))
    with pytest.raises(ValueError, match="at least two leaves"):
        one.to_linkage()
    assert one.to_newick() == "0;"
    one.plot()


def test_people_can_look(tree):
    assert "5 leaves of weight 5" in repr(tree)
    assert "<table>" in tree._repr_html_()


def test_picture():
    x, _ = clustered(80, 2, k=4, spread=15.0)
    tree = agglomerate("gaussian", Moments.rows_of_points(x), "abc")
    ax = plot_dendrogram(tree, show=30)
    brackets = ax.collections[0].get_segments()
    assert len(brackets) == 29
    tops = sorted(max(segment[:, 1]) for segment in brackets)
    np.testing.assert_allclose(tops, tree.drawn_height[-29:])
    assert len(ax.lines) == 1  # the cut
    assert tree.drawn_height[-tree.stop] < ax.lines[0].get_ydata()[0] < tree.drawn_height[-tree.stop + 1]
    assert len(ax.get_xticks()) == 30
