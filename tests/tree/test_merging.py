"""Merged trees are as good as one: spread, samples and the clusters found in them."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from streamclust.refit.bkm.fit import refit_bkm
from streamclust.tree import SummaryTree, merge_all
from streamclust_connectors.synthetic import SyntheticMixture


def tree_of(rows, seed=0, **settings):
    tree = SummaryTree(rows.shape[1], **settings, seed=seed)
    tree.insert(rows)
    return tree


def worth(tree):
    """How many equal events weigh as reliably as the tree's sample."""
    _, weight = tree.sample()
    return weight.sum() ** 2 / (weight**2).sum()


def within(tree):
    return tree.leaves().trace.sum()


@pytest.mark.compiled
@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("shards", ["random", "sorted by cluster", "one for each cluster", "sorted in space"])
def test_sixty_four_shards_give_the_clusters_of_the_whole(d, shards):
    mixture = SyntheticMixture(d, n_clusters=10, tau=2.0, seed=1)
    rows, labels = mixture.sample(128_000)
    unseen, truth = mixture.sample(10_000)
    parts = np.array_split(rows, 64)
    if shards == "one for each cluster":
        parts = [rows[labels == k] for k in range(10)]
    elif shards != "random":
        by = labels if shards == "sorted by cluster" else rows[:, 0]
        parts = np.array_split(rows[np.argsort(by, kind="stable")], 64)
    one = tree_of(rows, max_leaves=256)
    merged = merge_all([tree_of(part, k + 1, max_leaves=256) for k, part in enumerate(parts)])
    scores = [
        adjusted_rand_score(truth, refit_bkm("gaussian", tree).assign(unseen)) for tree in (one, merged)
    ]
    assert scores[1] > scores[0] - 0.01
    assert within(merged) < 1.4 * within(one)
    assert worth(merged) > 0.75 * worth(one)
    np.testing.assert_allclose(merged.total.mean, one.total.mean, rtol=1e-9)
    np.testing.assert_allclose(merged.total.scatter, one.total.scatter, rtol=1e-9, atol=1e-9 * within(one))


@pytest.mark.compiled
def test_what_is_merged_bit_by_bit_does_not_wear_out():
    d = 4
    mixture = SyntheticMixture(d, n_clusters=6, tau=2.0, seed=0)
    one, merged = SummaryTree(d, max_leaves=128), SummaryTree(d, max_leaves=128, seed=1)
    for k in range(150):
        rows, _ = mixture.sample(500)
        one.insert(rows)
        merged.merge(tree_of(rows, k + 2, max_leaves=128))
    assert within(merged) < 1.15 * within(one)
    assert worth(merged) > 0.85 * worth(one)


@pytest.mark.compiled
def test_what_is_new_in_a_small_tree_gets_leaves():
    rng = np.random.default_rng(0)
    large = tree_of(rng.normal(size=(20_000, 2)), max_leaves=64)
    large.merge(tree_of(rng.normal(size=(1000, 2)) + 50.0, 1, max_leaves=64))
    new = large.leaves()
    new = new[np.flatnonzero(new.mean[:, 0] > 25)]
    assert len(new) > 1
    assert new.weight.sum() == pytest.approx(1000)


def test_the_same_tree_is_not_merged_twice():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    tree, other = tree_of(rows, max_leaves=8), tree_of(rows, 1, max_leaves=8)
    with pytest.raises(ValueError, match="cannot merge the same tree twice"):
        tree.merge(other, other)
    assert tree.n_events == 40


def test_no_trees_make_no_tree():
    with pytest.raises(ValueError, match="there is no tree to merge"):
        merge_all([])


def test_one_tree_alone_stays_as_it_is():
    tree = tree_of(np.random.default_rng(0).normal(size=(400, 2)), max_leaves=8)
    merged = merge_all([tree, SummaryTree(2, max_leaves=8)])
    for name, value in merged.to_arrays().items():
        np.testing.assert_array_equal(value, tree.to_arrays()[name], err_msg=name)


def test_equal_means_are_told_apart_by_their_events():
    parts = [tree_of(np.array([[-float(k)], [float(k)]]), k, max_leaves=8, leaf_size=2) for k in range(1, 5)]
    merged = merge_all(parts)
    points, weights = merged.sample()
    assert sorted(points[:, 0]) == [-4.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0]
    assert weights.tolist() == [1.0] * 8
