"""Rows relabelled as if they were new: against one evidence at a time, and where ME iterations are locked."""

from dataclasses import replace

import numpy as np
import pytest

from streamclust.families import Gaussian, scoring
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import fit_points
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.leave_one_out import collapsed_labels, locked, unlock
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.splits import SplitScan
from streamclust_connectors.synthetic import SyntheticMixture


def problem_of(points, mixture="finite"):
    family, scored = scoring(mixture, Gaussian.informed(points), points)
    return Problem(family, scored, Moments.rows_of_points(points))


def moments_of(points):
    return Moments.of_points(points) if len(points) else Moments.empty(1, points.shape[1])


@pytest.mark.parametrize("mixture", ["finite", "infinite"])
def test_every_row_is_priced_without_itself(mixture):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 3)) + 2.0 * rng.integers(3, size=(40, 1))
    labels = rng.integers(4, size=40)
    problem = problem_of(points, mixture)
    evidence = problem.family.log_marginal
    expected = []
    for i in range(40):
        costs = []
        for c in range(4):
            others = points[(labels == c) & (np.arange(40) != i)]
            gained = evidence(moments_of(np.vstack([others, points[i]]))) - evidence(moments_of(others))
            costs.append(-gained[0] - problem.mixture.mixing(np.array([float(len(others))]))[0])
        expected.append(int(np.argmin(costs)))
    np.testing.assert_array_equal(collapsed_labels(Labelling(problem, labels)), expected)


def test_rows_that_lock_themselves_in_are_freed():
    points, truth = SyntheticMixture(n_features=24, n_clusters=4, tau=0.5, seed=3, moved=True).sample(320)
    problem = problem_of(points)
    reference = Labelling(problem, truth).converge().free_energy
    start = np.where(np.arange(320) % 3 == 0, (truth + 1) % 4, truth)  # a third of the rows in a wrong place
    stuck = Labelling(problem, start).converge()
    assert stuck.free_energy > reference + 10
    state = Labelling(problem, start)
    assert locked(state)
    assert unlock(state).converge().free_energy <= reference + 1e-6 * abs(reference)


def test_unlocking_never_ends_above_its_start():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(60, 5))
    for _ in range(10):
        state = Labelling(problem_of(points), rng.integers(6, size=60))
        before = state.free_energy
        assert unlock(state).free_energy <= before


@pytest.mark.compiled
def test_clusters_told_apart_by_their_shapes_alone_are_found():
    points, truth = SyntheticMixture(n_features=32, n_clusters=10, tau=0.5, seed=0, moved=True).sample(1000)
    found = fit_points("gaussian", points, prior="bkm")
    reference = Labelling(
        Problem(found.family, found.mixture, Moments.rows_of_points(points)), truth
    ).converge()
    assert found.n_clusters == 10
    assert found.free_energy <= reference.free_energy


def test_many_rows_per_dimension_are_not_locked():
    points = np.random.default_rng(2).normal(size=(4000, 2))
    assert not locked(Labelling(problem_of(points), np.arange(4000) % 5))


def test_a_lone_row_answers_for_its_whole_cluster():
    points = np.vstack([np.zeros((1, 2)), np.random.default_rng(3).normal(size=(30, 2)) * 0.1])
    labels = np.r_[1, np.zeros(30, dtype=int)]
    assert collapsed_labels(Labelling(problem_of(points), labels))[0] == 0


@pytest.mark.compiled
def test_a_split_tells_clusters_apart_that_differ_by_their_shapes_alone():
    """ME iterations leave the rows of either half where a first cut put them."""
    rng = np.random.default_rng(4)
    roots = rng.normal(size=(2, 24, 24)) / np.sqrt(24)
    truth = np.repeat([0, 1], 110)
    points = np.einsum("nij,nj->ni", roots[truth], rng.normal(size=(220, 24)))
    state = Labelling(problem_of(points), np.zeros(220, dtype=np.int64))
    scan = SplitScan(state, np.ones(1, dtype=bool))
    found = scan.best(np.random.default_rng(0), (2, 1))
    assert found.change[0] < 0
    sides = found.side[np.argsort(scan.order)]
    assert max(np.mean(sides == truth), np.mean(sides != truth)) > 0.9


@pytest.mark.compiled
def test_a_learnt_prior_lets_clusters_have_shapes_of_their_own_where_rows_are_few():
    points, truth = SyntheticMixture(n_features=32, n_clusters=10, tau=0.5, seed=0, moved=True).sample(1000)
    found = fit_points("gaussian", points)
    assert found.n_clusters == 10
    assert np.mean(found.clusters.weight) == 100
    shared = np.bincount(found.labels * 10 + truth, minlength=100).reshape(10, 10)
    assert shared.max(axis=1).sum() > 980


def test_rows_of_any_weight_are_priced_without_themselves():
    rng = np.random.default_rng(6)
    points, weight = rng.normal(size=(40, 3)), rng.uniform(0.2, 3.0, size=40)
    whole = problem_of(points)
    problem = replace(whole, rows=Moments.rows_of_points(points, weight))
    state = Labelling(problem, np.arange(40) % 2)
    found = collapsed_labels(state)
    family, mixture = problem.family, problem.mixture
    for row in range(40):
        costs = []
        for c in range(2):
            others = (state.labels == c) & (np.arange(40) != row)
            without = Moments.of_points(points[others], weight[others])
            point = Moments.of_points(points[[row]], weight[[row]])
            gain = family.log_marginal(without + point) - family.log_marginal(without)
            n = without.weight if state.labels[row] == c else state.clusters.weight[[c]]
            costs.append(-float(gain[0]) - weight[row] * float(mixture.mixing(n)[0]))
        assert found[row] == int(np.argmin(costs))
