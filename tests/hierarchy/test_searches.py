"""Searches on data large enough to matter, thresholds, stopping rules, bad input."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.special import logsumexp

from streamclust.families import FAMILIES, Finite, Gaussian, SphericalGaussian
from streamclust.hierarchy import agglomerate, agglomerate_steps, threshold_rule
from streamclust.hierarchy.agglomerative import Agglomerative
from streamclust.hierarchy.nn_chain import chain_merges
from streamclust.hierarchy.problem import MergeProblem, Merges
from streamclust.hierarchy.rbhc import Relaxed
from streamclust.hierarchy.ward import ward_merges
from streamclust.moments import Moments
from tests.hierarchy.scenes import energy_of, points_of, rows_of
from tests.naive import hierarchy as naive
from tests.streams import clustered


def points(x):
    return Moments.rows_of_points(np.asarray(x, dtype=float))


@pytest.mark.compiled
@pytest.mark.parametrize(
    "x",
    [
        clustered(3000, 2)[0],
        clustered(2000, 16)[0],
        np.random.default_rng(0).uniform(size=(2500, 16)),  # where trees cannot prune
        1.01 ** np.arange(1500.0)[:, None],  # where each round has one pair
        np.round(clustered(2000, 2)[0]),  # ties and duplicates
    ],
    ids=["clustered, 2", "clustered, 16", "uniform, 16", "growing gaps", "ties"],
)
def test_rounds_of_pairs_are_ward(x):
    heights = 2 * np.sqrt(agglomerate("spherical", points(x)).cost)
    theirs = linkage(x, "ward")[:, 2]
    np.testing.assert_allclose(heights.sum(), theirs.sum(), rtol=1e-9 if len(np.unique(x)) > 2000 else 1e-2)
    if len(np.unique(x)) > 2000 or x.shape[1] == 1:
        np.testing.assert_allclose(heights, theirs, rtol=1e-9, atol=1e-9)


def test_rounds_and_the_chain_agree_on_weighted_rows():
    family, rows = rows_of("spherical", 90, 3, np.random.default_rng(0), weighted=True)
    merges = []
    for search in (ward_merges, chain_merges):
        merges.append(Merges(90))
        for _ in search(MergeProblem.of(Relaxed(), family, rows), merges[-1]):
            pass
    np.testing.assert_allclose(np.sort(merges[0].costs), np.sort(merges[1].costs), rtol=1e-9)


@pytest.mark.parametrize("search", ["lazy", "conga"])
@pytest.mark.parametrize("name", ["diagonal", "bernoulli"])
def test_thirty_weighted_rows_merge_as_the_naive_search(search, name):
    family, rows = rows_of(name, 30, 4, np.random.default_rng(5), weighted=True)
    tree = agglomerate(family, rows, "abc", search, phi0=2.0)
    expected = naive.greedy(30, energy_of("abc", family, rows))
    np.testing.assert_allclose(tree.cost, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.compiled
@pytest.mark.parametrize("method", ["rbhc", "abc", "bhc"])
@pytest.mark.parametrize("name", FAMILIES)
def test_lazy_list_and_conga_line_are_one_sequence(method, name):
    rng = np.random.default_rng(0)
    family, rows = rows_of(name, 500, 3, rng, weighted=True)
    lazy, conga = (agglomerate(family, rows, method, search) for search in ("lazy", "conga"))
    np.testing.assert_allclose(lazy.cost, conga.cost, rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(lazy.cut(k=20), conga.cut(k=20))


@pytest.mark.compiled
def test_evaluations_of_the_lazy_list():
    x, _ = clustered(1000, 2)
    for search, most in (("lazy", 1.7), ("conga", 12.0)):
        *_, last = agglomerate_steps("gaussian", points(x), "abc", search)
        assert 0.5 * 1000**2 < last.evaluations < most * 1000**2


def test_progress_is_told():
    x, _ = clustered(60, 2)
    for method, search in (("rbhc", "chain"), ("abc", "lazy"), ("abc", "conga")):
        told = list(agglomerate_steps("diagonal", points(x), method, search))
        merges = [step.merges for step in told]
        assert len(told) > 5
        assert merges == sorted(merges)
        assert merges[-1] == told[-1].n_merges == 59
        assert told[-1].dendrogram is not None


# ---------------------------------------------------------------- where to stop


def test_bhc_root_is_the_sum_over_consistent_partitions():
    x = np.random.default_rng(3).normal(size=(7, 2)) * 3
    family, alpha = Gaussian.informed(x, rule="nearest"), 0.7
    tree = agglomerate(family, points(x), "bhc", alpha=alpha)
    energy = energy_of("bhc", family, points(x), alpha=alpha)
    below = naive.members(tree.children)
    total = logsumexp([-sum(energy(below[c]) for c in p) for p in naive.consistent_partitions(tree.children)])
    apart = sum(energy((i,)) for i in range(7))
    root = apart - np.logaddexp(0, -tree.cost).sum()  # E_ab = E_a + E_b - log(1 + exp(-d))
    assert -root == pytest.approx(total, rel=1e-10)


def test_bhc_stops_where_merging_becomes_unlikely():
    x, z = clustered(60, 2, k=3, spread=20.0)
    tree = agglomerate("gaussian", points(x), "bhc")
    n = 60 - tree.stop
    assert np.all(tree.cost[:n] <= 0)
    assert tree.cost[n] > 0
    assert len({*zip(z.tolist(), tree.best_cut().tolist(), strict=True)}) == tree.stop


def test_abc_stops_at_the_least_free_energy():
    x, z = clustered(40, 2, k=3, spread=20.0)
    family = Gaussian.informed(x, rule="nearest")
    tree = agglomerate(family, points(x), "abc")
    energies = [
        Finite(2.0).free_energy(family, points(x).to_groups(tree.cut(k=k), kind="full")) for k in range(1, 41)
    ]
    problem = MergeProblem.of(Agglomerative(2.0), family, points(x))
    np.testing.assert_allclose(
        Agglomerative(2.0).free_energies(problem, tree.cost)[::-1], energies, rtol=1e-9
    )
    assert tree.stop == int(np.argmin(energies)) + 1 == 3
    assert len({*zip(z.tolist(), tree.best_cut().tolist(), strict=True)}) == 3


@pytest.mark.parametrize("name", ["poisson", "spherical"])
def test_a_threshold_cuts_the_reducible_tree(name):
    family, rows = rows_of(name, 80, 3, np.random.default_rng(2), weighted=True)
    whole = agglomerate(family, rows)
    for k in (1, 3, 20):
        level = np.inf if k == 1 else float(whole.height[80 - k - 1 : 80 - k + 1].mean())
        forest = agglomerate(family, rows, threshold=level)
        assert forest.stop == k
        np.testing.assert_array_equal(forest.best_cut(), whole.cut(k=k))


@pytest.mark.parametrize("name", ["gaussian", "multinomial"])
def test_the_forest_lies_below_its_threshold(name):
    family, rows = rows_of(name, 80, 3, np.random.default_rng(2), weighted=False)
    level = threshold_rule(family, rows, 3)
    forest = agglomerate(family, rows, threshold=level)
    assert np.all(forest.cost[: 80 - forest.stop] <= level)
    assert np.all(np.diff(forest.height) >= 0)
    assert len(np.unique(forest.best_cut())) == forest.stop


def test_thresholds_of_nothing_and_of_infinity():
    x = np.array([[0.0], [0.0], [1.0], [5.0]])
    for name in ("spherical", "gaussian"):
        assert agglomerate(name, points(x), threshold=0.0).best_cut().tolist() == [0, 0, 1, 2]
        assert agglomerate(name, points(x), threshold=np.inf).stop == 1
    for bad in (-1.0, np.nan):
        with pytest.raises(ValueError, match="threshold must not be negative"):
            agglomerate("spherical", points(x), threshold=bad)
    with pytest.raises(ValueError, match="threshold is for rbhc"):
        agglomerate("gaussian", points(x), "abc", threshold=1.0)


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["spherical", "gaussian", "poisson"])
def test_the_threshold_rule_lands_near_the_truth(name):
    x = points_of(name, 600, 6, np.random.default_rng(0), k=6)
    if name != "poisson":
        x, _ = clustered(600, 3, k=6, seed=4, spread=10.0)
    family = FAMILIES[name].informed(x)
    level = threshold_rule(family, points(x), rough_guess=6)
    assert 3 <= agglomerate(family, points(x), threshold=level).stop <= 18


# ---------------------------------------------------------------- small and bad input


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("method", ["rbhc", "abc", "bhc"])
@pytest.mark.parametrize("search", ["auto", "lazy", "conga"])
def test_one_row_two_equal_rows_and_few_rows(name, method, search):
    one = agglomerate(name, points([[1.0, 0.0]]), method, search)
    assert (one.n_leaves, one.children.shape, one.cut(k=1).tolist()) == (1, (0, 2), [0])
    two = agglomerate(name, points([[1.0, 0.0], [1.0, 0.0]]), method, search)
    assert two.children.tolist() == [[0, 1]]
    assert np.isfinite(two.cost).all()
    few = agglomerate(name, points(points_of(name, 5, 20, np.random.default_rng(0))), method, search)
    assert np.isfinite(few.cost).all()


def test_what_cannot_be_asked_is_said():
    x = points([[0.0], [1.0], [3.0]])
    with pytest.raises(ValueError, match="method must be one of rbhc, abc, bhc"):
        agglomerate("gaussian", x, "ward")
    with pytest.raises(ValueError, match="search must be one of"):
        agglomerate("gaussian", x, search="fast")
    for method in ("abc", "bhc"):
        with pytest.raises(ValueError, match="needs reducible costs"):
            agglomerate("gaussian", x, method, "chain")
    with pytest.raises(ValueError, match="phi0 must be positive"):
        agglomerate("gaussian", x, "abc", phi0=0.0)
    with pytest.raises(ValueError, match="alpha must be positive"):
        agglomerate("gaussian", x, "bhc", alpha=-1.0)
    with pytest.raises(ValueError, match="unknown family"):
        agglomerate("cauchy", x)
    with pytest.raises(ValueError, match="rough_guess must be at least 1"):
        threshold_rule(SphericalGaussian.informed(x.mean), x, 0)
    assert threshold_rule(SphericalGaussian.informed(x.mean), points([[1.0], [1.0]]), 3) == np.inf
