"""Clusters with covariances of their own where rows are few, and only where clusters are Gaussian."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import digamma, polygamma
from sklearn.metrics import adjusted_rand_score

from streamclust.families import Gaussian
from streamclust.families.learnt import PriorLearner
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import fit_points
from streamclust.refit.bkm.inputs import WeightedPoints, prepared
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.row_scales import scale_variance
from streamclust.refit.bkm.tuning import TUNING


def labelling(x: np.ndarray, labels: np.ndarray, weight: float = 1.0) -> Labelling:
    rows = Moments.rows_of_points(x, np.full(len(x), weight))
    family, mixture, learner = prepared("gaussian", "finite", WeightedPoints(rows, "full"), None, "auto")
    return Labelling(Problem(family, mixture, rows, learner=learner), labels)


def ten_covariances(d: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten clusters about nearly one place, stretched by a random matrix each [the recipe of table 1]."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=n)
    stretch = rng.normal(size=(10, d, d))
    x = rng.normal(size=(n, d)) + 0.3 * rng.normal(size=(10, d))[labels]
    return np.einsum("nij,nj->ni", stretch[labels], x), labels


def rows_with_tails(rng: np.random.Generator, n: int, d: int, degrees: float) -> np.ndarray:
    return rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(degrees, size=(n, 1)) / degrees)


def literal_scale_variance(state: Labelling) -> float:
    """Each row priced under a posterior learnt from all others of its cluster."""
    family, rows = state.problem.family, state.problem.rows
    assert isinstance(family, Gaussian)
    d, found = rows.n_features, []
    for i, c in enumerate(state.labels):
        others = (state.labels == c) & (np.arange(len(rows)) != i)
        left = family.posterior(state.problem.group(np.where(others, 0, -1), 1))
        step = rows.mean[i] - left.mean[0]
        squares = left.xi[0] / (left.xi[0] + 1) * step @ np.linalg.solve(left.B[0], step)
        half = (left.eta[0] - d + 1) / 2
        error = np.log(squares) - digamma(d / 2) + digamma(half)
        found.append(error**2 - polygamma(1, d / 2) - polygamma(1, half))
    return float(np.mean(found))


@pytest.mark.parametrize("weight", [1.0, 0.4])
def test_rows_are_priced_as_if_their_cluster_had_never_seen_them(weight):
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    x = rng.normal(size=(60, 4)) * (1.0 + labels[:, None]) + 5.0 * labels[:, None]
    state = labelling(x, labels, weight)
    assert scale_variance(state) == pytest.approx(literal_scale_variance(state), rel=1e-6)


@pytest.mark.parametrize("d", [2, 8, 32])
def test_gaussian_rows_have_one_scale_and_those_with_tails_have_not(d):
    rng = np.random.default_rng(d)
    labels = np.zeros(4000, dtype=np.int64)
    assert abs(scale_variance(labelling(rng.normal(size=(4000, d)), labels))) < 0.05
    for degrees in (5.0, 10.0):
        tails = scale_variance(labelling(rows_with_tails(rng, 4000, d, degrees), labels))
        assert tails == pytest.approx(float(polygamma(1, degrees / 2)), rel=0.35)


def test_a_row_alone_in_its_cluster_does_not_count():
    x = np.random.default_rng(0).normal(size=(50, 3))
    one = np.zeros(50, dtype=np.int64)
    together = labelling(x, one)
    more = Problem(
        together.problem.family, together.problem.mixture, Moments.rows_of_points(np.vstack([x, [[1e3] * 3]]))
    )
    apart = Labelling(more, np.append(one, 1))
    assert scale_variance(apart) == pytest.approx(scale_variance(together))
    assert scale_variance(labelling(x[:2], np.array([0, 1]))) == np.inf


@pytest.mark.parametrize("d", [1, 2, 16, 64])
def test_own_covariances_leave_each_feature_as_free_as_one_alone(d):
    x = np.random.default_rng(0).normal(size=(200, d))
    shared = PriorLearner.of(Gaussian, x)
    own = PriorLearner(shared.kind, shared.m0, shared.variance, shared.blur, own=True)
    assert own.least_eta - d + 1 == PriorLearner.of(Gaussian, x[:, :1]).least_eta
    assert own.least_eta <= shared.least_eta
    assert own.binds(own.family(0.1, own.least_eta, own.anchor))
    assert not own.binds(own.family(0.1, 1.01 * own.least_eta, own.anchor))


def test_few_gaussian_rows_that_differ_in_covariance_alone_are_told_apart():
    x, labels = ten_covariances(24, 800, 0)
    found = fit_points("gaussian", x)
    assert found.n_clusters == 10
    assert adjusted_rand_score(labels, found.labels) > 0.95
    assert found.family.eta0 < PriorLearner.of(Gaussian, x).least_eta


def test_tails_are_no_clusters_that_differ_in_covariance():
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 3
    x = rows_with_tails(rng, 600, 16, 4.0) + 12.0 * np.eye(16)[labels]
    found = fit_points("gaussian", x)
    assert found.family.eta0 >= PriorLearner.of(Gaussian, x).least_eta
    assert scale_variance(labelling(x, labels)) > TUNING.max_scale_variance
