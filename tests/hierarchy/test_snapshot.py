"""Hierarchies of summary trees."""

import numpy as np
import pytest

from streamclust.hierarchy import snapshot
from streamclust.moments import Moments
from streamclust.tree import SummaryTree
from tests.streams import clustered

K = 4
IDS = [11, 3, 8, 20]


@pytest.fixture(scope="module")
def scene():
    """A tree whose leaves straddle clusters, and the nearest centres as a model."""
    x, z = clustered(600, 2, k=K, seed=1, spread=3.0)
    tree = SummaryTree(2, max_leaves=24)
    tree.insert(x)
    centres = np.stack([x[z == c].mean(axis=0) for c in range(K)])

    def nearest(points):
        return np.linalg.norm(points[:, None] - centres, axis=2).argmin(axis=1)

    return tree, nearest(tree.leaves().mean), nearest(tree.sample()[0])


@pytest.mark.parametrize("method", ["rbhc", "abc", "bhc"])
def test_the_cut_at_k_is_the_model(scene, method):
    tree, labels, _ = scene
    dendrogram = snapshot("gaussian", tree, labels, IDS, method)
    assert dendrogram.stop == K
    nodes = dendrogram.cut_nodes(k=K)
    mine = dendrogram.ids[nodes][dendrogram.best_cut()]
    np.testing.assert_array_equal(mine, np.array(IDS)[labels[dendrogram.source]])
    assert (dendrogram.ids >= 0).sum() == K
    assert np.all(np.diff(dendrogram.height) >= 0)
    assert np.all(dendrogram.height >= 0)
    clusters = tree.leaves().to_groups(labels, K)
    by_id = {int(dendrogram.ids[node]): dendrogram.moments[int(node)] for node in nodes}
    for c, name in enumerate(IDS):
        np.testing.assert_allclose(by_id[name].mean[0], clusters.mean[c])
        np.testing.assert_allclose(by_id[name].scatter[0], clusters.scatter[c], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("method", ["rbhc", "abc", "bhc"])
def test_straddling_leaves_are_divided(scene, method):
    tree, labels, sample_labels = scene
    dendrogram = snapshot("gaussian", tree, labels, IDS, method, sample_labels=sample_labels)
    n, leaves = dendrogram.n_leaves, tree.leaves()
    assert n > len(leaves)
    whole = Moments(dendrogram.leaves.weight, dendrogram.leaves.mean, np.zeros((n, 0)), "none").to_groups(
        dendrogram.source, len(leaves)
    )
    np.testing.assert_allclose(whole.weight, leaves.weight)
    np.testing.assert_allclose(whole.mean, leaves.mean)
    weight = dict(zip(dendrogram.ids, dendrogram.weight, strict=True))
    mass = np.bincount(sample_labels, tree.sample()[1], K)
    np.testing.assert_allclose([weight[name] for name in IDS], mass)


def test_published_moments_decide_the_upper_storey(scene):
    tree, labels, _ = scene
    clusters = tree.leaves().to_groups(labels, K)
    plain = snapshot("gaussian", tree, labels, IDS, "abc")
    same = snapshot("gaussian", tree, labels, IDS, "abc", clusters=clusters)
    np.testing.assert_allclose(plain.cost, same.cost)
    moved = snapshot("gaussian", tree, labels, IDS, "abc", clusters=clusters.shift(np.array([5.0, 0.0])))
    assert not np.allclose(moved.cost[-3:], plain.cost[-3:])
    np.testing.assert_array_equal(moved.cost[:-3], plain.cost[:-3])


def test_a_cluster_without_leaves_keeps_its_id(scene):
    tree, labels, _ = scene
    clusters = Moments.stack(
        [tree.leaves().to_groups(labels, K), Moments.of_points([[90.0, 90.0], [91.0, 92.0]])]
    )
    dendrogram = snapshot("gaussian", tree, labels, [*IDS, 99], clusters=clusters)
    nodes = dendrogram.cut_nodes(k=5)
    assert sorted(dendrogram.ids[nodes]) == sorted([*IDS, 99])
    assert dendrogram.source.min() == -1
    with pytest.raises(ValueError, match="cluster 99 owns no leaf"):
        snapshot("gaussian", tree, labels, [*IDS, 99])


@pytest.mark.parametrize("method", ["rbhc", "abc", "bhc"])
def test_the_raw_tree_does_not_say_where_to_stop(scene, method):
    tree, labels, _ = scene
    raw = snapshot("gaussian", tree, labels, IDS, method, consistent=False)
    assert raw.stop is None
    assert raw.n_leaves == tree.n_leaves
    assert (raw.ids < 0).all()


def test_leaves_alone_will_do(scene):
    tree, labels, sample_labels = scene
    a, b = (snapshot("spherical", rows, labels, IDS) for rows in (tree, tree.leaves()))
    np.testing.assert_array_equal(a.children, b.children)
    with pytest.raises(ValueError, match="give the tree"):
        snapshot("spherical", tree.leaves(), labels, IDS, sample_labels=sample_labels)


@pytest.mark.parametrize("family", ["multinomial", "bernoulli", "poisson"])
def test_counts(family):
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=400)
    x = (rng.random((400, 6)) < rng.random((3, 6))[z]).astype(float)
    tree = SummaryTree(6, scatter="none", max_leaves=20)
    tree.insert(x)
    labels = np.arange(tree.n_leaves) % 3
    for method in ("rbhc", "abc", "bhc"):
        dendrogram = snapshot(family, tree, labels, method=method)
        assert sorted(dendrogram.ids[dendrogram.cut_nodes(k=3)]) == [0, 1, 2]


def test_one_cluster_and_one_leaf_each():
    tree = SummaryTree(1, max_leaves=8)
    tree.insert(np.arange(6.0)[:, None])
    n = tree.n_leaves
    one = snapshot("gaussian", tree, np.zeros(n, dtype=int), [5])
    assert one.stop == 1
    assert one.ids[-1] == 5
    each = snapshot("gaussian", tree, np.arange(n), np.arange(n) + 10)
    assert each.stop == n
    np.testing.assert_array_equal(each.ids[:n], np.arange(n) + 10)


def test_decayed_leaves():
    """Leaves far below weight one."""
    tree = SummaryTree(2, max_leaves=16, half_life=20.0)
    tree.insert(clustered(500, 2, k=2)[0])
    labels = (tree.leaves().mean[:, 0] > 0).astype(int)
    for method in ("rbhc", "abc", "bhc"):
        assert np.isfinite(snapshot("gaussian", tree, labels, method=method).cost).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0, 1]}, "labels must be"),
        ({"labels": np.full(24, -1)}, "labels must be"),
        ({"labels": np.zeros(24)}, "labels must be"),
        ({"ids": [1, 2, 3]}, "need that many ids"),
        ({"ids": [1, 2, 3, 3]}, "all different"),
        ({"ids": [1, 2, 3, -3]}, "ids must be whole numbers"),
        ({"sample_labels": [0, 1]}, "sample_labels must be"),
        ({"method": "ward"}, "method must be one of"),
        ({"clusters": Moments.empty(2, 2)}, "4 ids need as many clusters"),
    ],
)
def test_what_does_not_fit_is_said(scene, change, message):
    tree, labels, _ = scene
    with pytest.raises(ValueError, match=message):
        snapshot("gaussian", tree, **({"labels": labels, "ids": IDS} | change))


def test_sample_labels_beyond_the_clusters(scene):
    tree, labels, sample_labels = scene
    with pytest.raises(ValueError, match=r"must lie in 0\.\.3"):
        snapshot("gaussian", tree, labels, IDS, sample_labels=sample_labels + 1)


def test_an_empty_tree_is_refused():
    with pytest.raises(ValueError, match="no rows to merge"):
        snapshot("gaussian", SummaryTree(2), np.zeros(0, dtype=int))
