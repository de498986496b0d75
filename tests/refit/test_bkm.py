"""Bayesian k-means on points and on summaries: golden values, K found, what is published, what is refused."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from streamclust.families import FAMILIES, Finite, Gaussian, Infinite, Poisson
from streamclust.families.learnt import PriorLearner
from streamclust.moments import Moments
from streamclust.refit import bkm_steps, fit_points, point_steps, refit_bkm
from streamclust.refit.bkm import problem as problem_module
from streamclust.refit.bkm.boundary_moves import exchange, exchange_changes, nudge
from streamclust.refit.bkm.fit import affordable, scored
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.merge_path import coordinates, nearest_seed, settle
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.top_down import merge_criterion, split_criterion
from streamclust.tree import SummaryTree
from tests.naive import bkm as naive
from tests.streams import clustered

GOLDEN = json.loads((Path(__file__).parent.parent / "golden.json").read_text())


@pytest.fixture
def golden():
    prior = GOLDEN["prior"]
    family = Gaussian(prior["xi0"], np.array(prior["m0"]), prior["eta0"], np.array(prior["B0"]))
    problem = Problem(family, Finite(2.0), Moments.rows_of_points(GOLDEN["X"]))
    return Labelling(problem, np.array(GOLDEN["z"]))


# ---------------------------------------------------------------- golden values


def test_golden_free_energy_and_costs(golden):
    assert golden.free_energy == pytest.approx(GOLDEN["F19"], rel=1e-12)
    np.testing.assert_allclose(golden.terms, GOLDEN["cluster_terms_finite"], rtol=1e-12)
    np.testing.assert_allclose(
        golden.problem.costs(golden.clusters).T, GOLDEN["labelcost_finite"], rtol=1e-10
    )


def test_golden_costs_of_leaves(golden):
    leaves = Moments(*(np.array(GOLDEN[f"leaf_{name}"]) for name in ("n", "mean", "scatter")))
    problem = Problem(golden.problem.family, golden.problem.mixture, leaves)
    np.testing.assert_allclose(problem.costs(golden.clusters).T, GOLDEN["leaf_cost_finite"], rtol=1e-10)


def test_golden_split_and_merge_criteria(golden):
    np.testing.assert_allclose(split_criterion(golden), GOLDEN["J_split"], rtol=1e-10)
    np.testing.assert_allclose(merge_criterion(golden)[0, 1], GOLDEN["J_merge_01"], rtol=1e-6)
    np.testing.assert_allclose(np.diagonal(merge_criterion(golden)), 1.0)


def test_golden_change_of_free_energy_by_a_merge(golden):
    assert golden.merge_changes()[0, 1] == pytest.approx(GOLDEN["merge_deltaF_finite"], rel=1e-10)
    assert not np.isfinite(golden.merge_changes()[1, 0])


def test_golden_partition_agrees_with_the_slow_twin(golden):
    family = golden.problem.family
    slow = naive.NaiveGaussian(family.xi0, family.m0, family.eta0, family.B0)
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    state = Labelling(golden.problem, labels).converge()
    history = naive.me(slow, np.array(GOLDEN["X"]), np.ones(10), labels, 2.0)
    assert naive.same_partition(state.labels, history[-1])


# ---------------------------------------------------------------- the ME iteration


def test_a_merge_leaves_the_other_clusters_as_they_were():
    x, z = clustered(300, 2, k=4)
    problem = Problem(Gaussian.informed(x), Finite(), Moments.rows_of_points(x))
    for a, b in [(0, 1), (0, 3), (1, 2), (2, 3)]:
        state = Labelling(problem, z)
        state.converge(1)
        before = state.labels.copy()
        state.merge(a, b)
        expected = Labelling(problem, np.where(before == b, a, before), 4)
        assert state.n_clusters == 3
        assert naive.same_partition(state.labels, expected.labels)
        np.testing.assert_allclose(state.priced(), Labelling(problem, state.labels).priced())


def test_merging_pairs_is_merging_one_by_one():
    points, labels = clustered(300, 3, k=6, seed=2)
    family, mixture = scored("gaussian", "finite", points)
    one = Labelling(Problem(family, mixture, Moments.rows_of_points(points)), labels, 6)
    two = one.copy()
    one.merge_pairs([(0, 4), (2, 3)])
    two.merge(0, 4)
    two.merge(2, 3)
    np.testing.assert_array_equal(one.labels, two.labels)
    assert one.free_energy == pytest.approx(two.free_energy, rel=1e-12)


def test_costs_of_leaves_where_digits_would_cancel(monkeypatch):
    points, labels = clustered(400, 3, seed=3)
    family, mixture = scored("gaussian", "finite", points)
    leaves = Moments.rows_of_points(points).to_groups(np.arange(400) // 8, kind="full")
    clusters = Moments.rows_of_points(points).to_groups(labels, kind="full")
    product = Problem(family, mixture, leaves).costs(clusters)
    monkeypatch.setattr("streamclust.refit.bkm.problem.MAX_CANCELLED_NATS", 0.0)
    np.testing.assert_allclose(Problem(family, mixture, leaves).costs(clusters), product, rtol=1e-9)


def test_leaves_of_tight_clusters_far_apart_are_told_apart():
    """Squares about the common mean would lose what tells the clusters of a pair apart."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [1e-3, 0.0], [1e6, 0.0]])
    points = centres[np.arange(900) % 3] + 1e-4 * rng.normal(size=(900, 2))
    rows = Moments.rows_of_points(points)
    clusters = rows.to_groups(np.arange(900) % 3, kind="full")
    leaves = rows.to_groups(np.arange(900) % 90, kind="full")  # ten points each, of one cluster
    family = Gaussian(1e-25, points.mean(axis=0), 2.0, 1e-9 * np.eye(2))
    found = Problem(family, Finite(), leaves).costs(clusters).argmin(axis=0)
    np.testing.assert_array_equal(found, np.arange(90) % 3)


@pytest.mark.compiled
def test_nudges_move_what_no_single_row_can():
    lower = 0
    for seed in range(6):
        points, _ = clustered(600, 2, k=6, seed=seed, spread=3.0)
        family, mixture = scored("gaussian", "finite", points)
        problem = Problem(family, mixture, Moments.rows_of_points(points))
        state = Labelling(
            problem, nearest_seed(problem, coordinates(problem), 6, np.random.default_rng(seed))
        )
        state.converge()
        while exchange(state, 2.0):
            state.converge()
        lower += nudge(state).free_energy < state.free_energy
    assert lower > 0


def test_an_infinite_mixture_keeps_a_cluster_whose_end_it_would_pay_for():
    """F of (23) may rise when a cluster disappears: its rows then stay with it."""
    x = np.concatenate([np.linspace(-1, 1, 40), [1.05]])[:, None]
    problem = Problem(Gaussian.informed(x), Infinite(1e6), Moments.rows_of_points(x))
    state = Labelling(problem, np.repeat([0, 1], [40, 1]))
    before = state.free_energy
    state.converge()
    assert state.free_energy <= before
    assert state.n_clusters == 2


def test_clusters_below_weight_one_dissolve_in_an_infinite_mixture():
    x = np.array([[0.0], [0.1], [0.2], [9.0]])
    rows = Moments.rows_of_points(x, [1.0, 1.0, 1.0, 0.5])
    state = Labelling(Problem(Gaussian.informed(x), Infinite(2.0), rows), np.array([0, 0, 0, 1]))
    assert state.n_clusters == 1
    np.testing.assert_array_equal(state.labels, 0)


def test_rows_of_weight_zero_change_nothing():
    x, z = clustered(200, 2, k=3)
    rows = Moments.rows_of_points(np.vstack([x, x[:50] + 30]), np.repeat([1.0, 0.0], [200, 50]))
    family = Gaussian.informed(x)
    state = Labelling(Problem(family, Finite(), rows), np.concatenate([z, np.zeros(50, int)])).converge()
    alone = Labelling(Problem(family, Finite(), rows[:200]), z).converge()
    assert state.free_energy == pytest.approx(alone.free_energy, rel=1e-12)


def test_seeds_of_few_distinct_rows():
    x = np.repeat([[0.0], [5.0]], 10, axis=0)
    problem = Problem(Gaussian.informed(x), Finite(), Moments.rows_of_points(x))
    assert len(np.unique(nearest_seed(problem, coordinates(problem), 8, np.random.default_rng(0)))) == 2


def test_coordinates_suit_the_family():
    counts = Moments.rows_of_points([[3.0, 1.0], [0.0, 0.0], [6.0, 2.0]])
    poisson = Problem(Poisson.informed(counts.mean), Finite(1.0), counts)
    np.testing.assert_allclose(coordinates(poisson), np.sqrt(counts.mean))


@pytest.mark.parametrize("name", ["gaussian", "diagonal", "spherical", "bernoulli"])
def test_the_exact_change_of_an_exchange(name):
    x, z = clustered(60, 2, k=3, seed=4, spread=1.5)
    x = (x > 0).astype(float) if name == "bernoulli" else x
    family, mixture = scored(name, "finite", x)
    state = Labelling(Problem(family, mixture, Moments.rows_of_points(x)), z)
    rows, other = np.arange(60), (z + 1) % 3
    for row, change in zip(rows, exchange_changes(state, rows, other), strict=True):
        moved = Labelling(state.problem, np.where(rows == row, other, z))
        assert change == pytest.approx(moved.free_energy - state.free_energy, rel=1e-7, abs=1e-8)


def test_exchanges_lower_the_free_energy():
    x, z = clustered(200, 3, k=4, seed=4, spread=1.5)
    state = Labelling(Problem(Gaussian.informed(x), Finite(), Moments.rows_of_points(x)), z).converge()
    before = state.free_energy
    moved = exchange(state, 2.0)
    assert moved > 0
    assert state.free_energy < before
    np.testing.assert_allclose(state.clusters.weight, np.bincount(state.labels))


# ---------------------------------------------------------------- K on points


@pytest.mark.compiled
@pytest.mark.parametrize("mixture", ["finite", "infinite", "uninformative"])
@pytest.mark.parametrize(("k", "d"), [(1, 2), (3, 1), (6, 2), (10, 5)])
def test_separated_gaussians_are_all_found(k, d, mixture):
    x, z = clustered(300 * k, d, k=k, seed=k, spread=40.0 if d < 3 else 12.0)
    found = fit_points("gaussian", x, mixture=mixture)
    assert found.n_clusters == k or (mixture == "uninformative" and found.n_clusters == k + 1)
    assert adjusted_rand_score(z, found.labels) > 0.99


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["gaussian", "diagonal", "spherical"])
@pytest.mark.parametrize("seed", range(3))
def test_free_energy_at_or_below_that_of_the_truth(name, seed):
    x, z = clustered(1200, 4, k=8, seed=seed, spread=8.0)
    found = fit_points(name, x, prior="bkm")
    true = Labelling(Problem(found.family, found.mixture, Moments.rows_of_points(x)), z).converge()
    assert found.free_energy <= true.free_energy + 1e-6
    assert found.n_clusters == 8


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["gaussian", "diagonal", "spherical"])
@pytest.mark.parametrize("seed", range(2))
def test_free_energy_with_a_learnt_prior_at_or_below_that_of_the_truth(name, seed):
    x, z = clustered(1200, 4, k=8, seed=seed, spread=8.0)
    found = fit_points(name, x)
    learner = PriorLearner.of(FAMILIES[name], x)
    problem = Problem(found.family, found.mixture, Moments.rows_of_points(x), learner=learner)
    true = settle(Labelling(problem, z), iterations=20, turns=5)
    assert found.free_energy <= true.free_energy + 1e-4 * abs(true.free_energy)
    assert found.n_clusters == 8


@pytest.mark.compiled
def test_separated_counts_are_all_found():
    rng = np.random.default_rng(0)
    z = rng.integers(4, size=1200)
    rate = np.exp(rng.normal(size=(4, 6)) * 1.5 + 1.5)
    poisson = rng.poisson(rate[z]).astype(float)
    assert adjusted_rand_score(z, fit_points("poisson", poisson).labels) > 0.97
    share = rate / rate.sum(axis=1, keepdims=True)
    words = np.stack([rng.multinomial(60, p) for p in share[z]]).astype(float)
    found = fit_points("multinomial", words)
    assert found.n_clusters == 4
    assert adjusted_rand_score(z, found.labels) > 0.97
    yes = (rng.random((1200, 30)) < rng.uniform(size=(4, 30))[z]).astype(float)
    found = fit_points("bernoulli", yes)
    assert found.n_clusters == 4
    assert adjusted_rand_score(z, found.labels) > 0.97


@pytest.mark.compiled
def test_top_down_finds_what_lies_far_apart():
    x, z = clustered(1000, 2, k=4, seed=3, spread=40.0)
    found = fit_points("gaussian", x, search="top-down")
    assert found.n_clusters == 4
    assert adjusted_rand_score(z, found.labels) > 0.99


@pytest.mark.compiled
def test_weights_count_as_repetitions():
    x, _ = clustered(200, 2, k=3, seed=1, spread=20.0)
    family = Gaussian.informed(x)
    weighted = fit_points(family, x, weight=np.full(200, 3.0))
    repeated = fit_points(family, np.repeat(x, 3, axis=0))
    assert weighted.n_clusters == repeated.n_clusters == 3
    assert weighted.free_energy == pytest.approx(repeated.free_energy, rel=1e-9)


@pytest.mark.compiled
def test_many_points_start_on_some_and_end_on_all():
    x, z = clustered(30_000, 2, k=5, seed=3, spread=30.0)
    stages = [(p.stage, p.n_clusters) for p in point_steps("gaussian", x)]
    assert {s for s, _ in stages} == {"some points", "points"}
    found = fit_points("gaussian", x)
    assert found.n_clusters == 5
    assert found.clusters.weight.sum() == 30_000
    assert adjusted_rand_score(z, found.labels) > 0.99


@pytest.fixture
def descents(monkeypatch):
    """How many points each descent of a tree found clusters for."""
    sizes, descend = [], problem_module.RowTree.descend

    def counted(tree, form):
        sizes.append(len(tree._rows))
        return descend(tree, form)

    monkeypatch.setattr(problem_module.RowTree, "descend", counted)
    return sizes


@pytest.mark.compiled
@pytest.mark.parametrize("search", ["auto", "quick", "top-down"])
@pytest.mark.parametrize(
    ("name", "mixture", "n"),
    [
        ("gaussian", "finite", 25_000),
        ("gaussian", "infinite", 300),
        ("gaussian", "uninformative", 300),
        ("spherical", "finite", 300),
        ("poisson", "infinite", 300),
    ],
)
def test_a_tree_assigns_as_blas_does(descents, name, mixture, search, n):
    """Descents within the search, splits and merges included, to the very same clusters."""
    x, _ = clustered(n, 2, k=4, seed=2, spread=6.0)
    x = np.round(np.abs(x)) if name == "poisson" else x
    weight = np.random.default_rng(0).integers(1, 4, size=len(x)).astype(float)
    blas = fit_points(name, x, weight, mixture=mixture, search=search, assign="blas")
    assert not descents
    tree = fit_points(name, x, weight, mixture=mixture, search=search, assign="tree")
    assert len(descents) > 10
    assert n in descents
    assert tree.free_energy == pytest.approx(blas.free_energy, rel=1e-12)
    np.testing.assert_array_equal(tree.labels, blas.labels)


# ---------------------------------------------------------------- K on summaries


def tree_of(x, leaves, **kwargs):
    tree = SummaryTree(x.shape[1], max_leaves=leaves, **kwargs)
    tree.insert(x)
    return tree


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(3))
def test_summaries_of_many_points(seed):
    x, z = clustered(50_000, 8, k=10, seed=seed, spread=4.0)
    found = refit_bkm("gaussian", tree_of(x, 256))
    assert found.n_clusters == 10
    assert adjusted_rand_score(z, found.assign(x)) >= 0.97
    np.testing.assert_allclose(found.clusters.weight.sum(), 50_000)


@pytest.mark.compiled
def test_rare_clusters_are_found_in_summaries():
    """Clusters of .5% of the mass: the leaves see them, and local Kish sizes keep them."""
    rng = np.random.default_rng(5)
    common = rng.normal(size=(60_000, 2)) + 12.0 * rng.integers(-1, 2, size=(60_000, 2))
    rare = [rng.normal(size=(300, 2)) * 0.3 + c for c in ([6.0, 6.0], [-6.0, 6.0], [6.0, -6.0])]
    x = np.concatenate([common, *rare])
    found = refit_bkm("gaussian", tree_of(x[rng.permutation(len(x))], 512))
    small = found.clusters.mean[found.clusters.weight < 2000]
    for centre in ([6.0, 6.0], [-6.0, 6.0], [6.0, -6.0]):
        assert np.sqrt(((small - centre) ** 2).sum(axis=1)).min() < 0.5


@pytest.mark.compiled
@pytest.mark.parametrize("mixture", ["finite", "infinite", "uninformative"])
def test_warm_refits_stay_and_follow(mixture):
    x, z = clustered(4000, 2, k=4, seed=1, spread=30.0)
    tree = tree_of(x, 256)
    cold = refit_bkm("gaussian", tree, mixture=mixture)
    assert cold.n_clusters == 4
    warm = refit_bkm("gaussian", tree, start=cold, mixture=mixture)
    assert warm.n_clusters == 4
    assert adjusted_rand_score(z, warm.assign(x)) > 0.99
    tree.insert(clustered(2000, 2, k=1, seed=9, spread=0.0)[0] + 300.0)
    assert refit_bkm("gaussian", tree, start=warm.clusters, mixture=mixture).n_clusters == 5


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["diagonal", "spherical", "multinomial", "bernoulli", "poisson"])
def test_summaries_of_every_family(name):
    rng = np.random.default_rng(3)
    z = rng.integers(3, size=3000)
    if name == "bernoulli":
        x = (rng.random((3000, 20)) < np.array([0.04, 0.5, 0.96])[z, None]).astype(float)
    elif name in ("multinomial", "poisson"):
        x = rng.poisson(np.array([[2.0, 30.0, 2.0], [30.0, 2.0, 2.0], [2.0, 2.0, 30.0]])[z]).astype(float)
    else:
        x = rng.normal(size=(3000, 3)) + 15.0 * z[:, None]
    kind = {"diagonal": "diagonal", "spherical": "scalar"}.get(name, "none")
    found = refit_bkm(name, tree_of(x, 128, scatter=kind))
    assert adjusted_rand_score(z, found.assign(x)) > 0.97
    assert found.n_clusters <= 4  # bernoulli leaves may hold a cluster of stragglers


@pytest.mark.compiled
def test_exact_trees_are_clustered_point_by_point():
    x, z = clustered(600, 2, k=3, seed=1, spread=30.0)
    found = refit_bkm("gaussian", tree_of(x, None))
    assert found.n_clusters == 3
    assert adjusted_rand_score(z, found.assign(x)) == 1.0


@pytest.mark.compiled
def test_leaves_are_labelled_whole():
    x, _ = clustered(3000, 2, k=3, seed=1, spread=40.0)
    tree = tree_of(x, 200)
    found = refit_bkm("gaussian", tree)
    assert len(found.labels) == tree.n_leaves
    np.testing.assert_array_equal(found.labels, found.assign(tree.leaves()))
    owned = tree.leaves().to_groups(found.labels, found.n_clusters)
    np.testing.assert_allclose(owned.weight, found.clusters.weight, rtol=0.05)


@pytest.mark.compiled
def test_steps_tell_the_way_and_end_with_the_partition():
    x, _ = clustered(4000, 2, k=4, seed=1, spread=30.0)
    steps = list(bkm_steps("gaussian", tree_of(x, 256)))
    assert [s.result is not None for s in steps] == [False] * (len(steps) - 1) + [True]
    assert {s.stage for s in steps} == {"leaves", "sample"}
    for before, after in pairwise(steps):
        if (before.stage, after.move) == (after.stage, "iterate"):
            assert after.objective <= before.objective
    assert steps[-1].n_clusters == steps[-1].result.n_clusters == 4


def test_partitions_can_be_looked_at():
    x, _ = clustered(500, 2, k=2, seed=1, spread=30.0)
    found = fit_points("gaussian", x)
    assert repr(found).startswith("Partition(2 gaussian clusters of 500 events, free energy ")
    assert found._repr_html_().count("<tr>") == 3
    assert json.loads(json.dumps(found.to_dict()))["n_clusters"] == 2
    words = fit_points("multinomial", np.round(np.abs(x)))
    assert "covariance" not in words.to_dict()["clusters"][0]
    assert len(found.assign(np.zeros((0, 2)))) == 0


@pytest.mark.parametrize("mixture", ["finite", "infinite"])
def test_predictive_densities_sum_to_one(mixture):
    x, _ = clustered(300, 1, k=2, seed=1, spread=8.0)
    found = fit_points("gaussian", x, mixture=mixture)
    grid = np.linspace(-3000, 3000, 600_001)[:, None]
    mass = np.exp(found.log_predictive(grid)).sum() * (grid[1, 0] - grid[0, 0])
    assert mass == pytest.approx(1.0, abs=2e-3)  # under an infinite mixture tails are Cauchy's
    np.testing.assert_allclose(found.probability(x).sum(axis=1), 1.0)


# ---------------------------------------------------------------- refusing


def test_bad_arguments_are_named():
    x, _ = clustered(50, 2, k=2)
    tree = tree_of(x, 16)
    with pytest.raises(ValueError, match="search must be one of auto, quick, top-down, got 'sideways'"):
        fit_points("gaussian", x, search="sideways")
    with pytest.raises(ValueError, match="assign must be one of auto, tree, blas, got 'gpu'"):
        fit_points("gaussian", x, assign="gpu")
    with pytest.raises(ValueError, match="unknown family 'cauchy'"):
        refit_bkm("cauchy", tree)
    with pytest.raises(ValueError, match="mixture must be one of"):
        refit_bkm("gaussian", tree, mixture="strange")
    with pytest.raises(ValueError, match="start must be clusters of 2 features"):
        refit_bkm("gaussian", tree, start=Moments.of_points(np.ones((3, 5))))
    with pytest.raises(ValueError, match="every point has weight 0"):
        fit_points("gaussian", x, weight=np.zeros(50))
    with pytest.raises(ValueError, match="the tree has no data"):
        refit_bkm("gaussian", SummaryTree(2))


def test_a_refit_of_many_clusters_prices_a_bounded_part_of_the_sample():
    """A stream whose clusters wander for ever once took a minute a refit, and gigabytes."""
    rng = np.random.default_rng(0)
    for n, k, expected in (
        (20_000, 400, 20_000),
        (20_000, 500, 16_000),
        (20_000, 3000, 8192),
        (500, 400, 500),
    ):
        sample = Problem(
            FAMILIES["diagonal"].informed(rng.normal(size=(50, 1))),
            Finite(),
            Moments.rows_of_points(rng.normal(size=(n, 1))),
        )
        start = Moments.rows_of_points(rng.normal(size=(k, 1)))
        rows = affordable(sample, start).rows
        assert len(rows) == expected
        assert rows.weight.sum() == expected
        np.testing.assert_array_equal(rows.mean, affordable(sample, start).rows.mean)
