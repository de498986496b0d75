"""Rows relabelled as if they were new: against one evidence at a time, and where ME iterations are locked."""

import numpy as np
import pytest

from streamclust.families import Gaussian, scoring
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import fit_points
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.leave_one_out import collapsed_labels, locked, unlock
from streamclust.refit.bkm.problem import Problem
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
