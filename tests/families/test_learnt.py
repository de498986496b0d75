"""The learnt prior: θ steps never raise F, whatever the units; the least loss is reached; quadrature agrees."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import dblquad

from streamclust.families import FAMILIES, DiagonalGaussian, Gaussian, SphericalGaussian
from streamclust.families.learnt import MIN_ETA_FACTOR, PriorLearner
from streamclust.families.resolution import MIN_BLUR_DEVIATIONS, blur_of, step_variance
from streamclust.moments import Moments
from streamclust.tree import SummaryTree
from tests.naive import learnt as naive

KINDS = [Gaussian, DiagonalGaussian, SphericalGaussian]


def grouped(seed, n=60, d=3, k=4, rounded=None):
    """Points and the moments of k groups of them, some of one or two points."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    x = (
        rng.normal(size=(n, d)) * rng.uniform(0.5, 2, size=(k, d))[labels]
        + 4.0 * rng.normal(size=(k, d))[labels]
    )
    if rounded is not None:
        x = np.round(x, rounded)
    return x, labels


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10_000), n=st.integers(5, 80), d=st.integers(1, 6), k=st.integers(1, 5))
def test_a_step_never_raises_the_free_energy(kind, seed, n, d, k):
    x, labels = grouped(seed, max(n, k), d, k, rounded=seed % 2)
    clusters = Moments.rows_of_points(x).to_groups(labels, kind=kind.scatter)
    learner = PriorLearner.of(kind, x)
    family = learner.start(clusters)
    before = learner.loss(family, clusters)
    for _ in range(4):
        family = learner.improved(family, clusters, rounds=1)
        after = learner.loss(family, clusters)
        assert np.isfinite(after)
        assert after <= before
        before = after


@pytest.mark.parametrize("kind", [Gaussian, DiagonalGaussian])
@given(seed=st.integers(0, 10_000), powers=st.lists(st.floats(-8, 8), min_size=3, max_size=3))
def test_units_and_origin_change_the_loss_by_their_constant(kind, seed, powers):
    x, labels = grouped(seed)
    scale = 10.0 ** np.array(powers)
    offset = np.array([3.0, -50.0, 700.0]) * scale
    losses = []
    for points in (x, x * scale + offset):
        clusters = Moments.rows_of_points(points).to_groups(labels, kind=kind.scatter)
        learner = PriorLearner.of(kind, points)
        losses.append(learner.loss(learner.improved(learner.start(clusters), clusters, 4), clusters))
    expected = losses[0] + len(x) * np.log(scale).sum()
    assert losses[1] == pytest.approx(expected, abs=1e-5 * len(x))


@pytest.mark.parametrize("seed", range(3))
def test_the_least_loss_is_that_of_a_general_optimiser(seed):
    x, labels = grouped(seed, n=50, d=2, k=5)
    clusters = Moments.rows_of_points(x).to_groups(labels, kind="full")
    learner = PriorLearner.of(Gaussian, x)
    family = learner.improved(learner.start(clusters), clusters, rounds=200)
    groups = [x[labels == c] for c in range(5)]
    twin = naive.loss(
        family.xi0, family.eta0, family.B0 / family.eta0, groups, learner.m0, learner.variance, learner.blur
    )
    assert learner.loss(family, clusters) == pytest.approx(twin, rel=1e-9)
    low = MIN_ETA_FACTOR * learner.strength
    best = naive.least_loss(groups, learner.m0, learner.variance, learner.blur, low, max(2 * low, len(x)))
    assert twin <= best + 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_the_evidence_with_a_blur_is_that_of_quadrature(kind):
    x = np.array([0.3, 1.1, -0.4])
    learner = PriorLearner.of(kind, x[:, None])
    clusters = Moments.rows_of_points(x[:, None]).to_groups(None, kind=kind.scatter)
    B0 = {Gaussian: [[1.5]], DiagonalGaussian: [1.5], SphericalGaussian: 1.5}[kind]
    family = kind(0.3, np.array([0.2]), 2.0, B0, blur=np.array([0.4]))
    shape = 2.0 / 2 if kind is not SphericalGaussian else 2.0  # of the Gamma, with rate B0 / 2

    def joint(mu, omega):
        prior = (1.5 / 2) ** shape * omega ** (shape - 1) * np.exp(-omega * 1.5 / 2)
        prior *= np.sqrt(0.3 * omega / (2 * np.pi)) * np.exp(-0.3 * omega / 2 * (mu - 0.2) ** 2)
        squares = ((x - mu) ** 2).sum() + len(x) * 0.4
        return prior * (omega / (2 * np.pi)) ** (len(x) / 2) * np.exp(-omega / 2 * squares)

    integral = sum(
        dblquad(joint, 0, 60, a, b, epsabs=1e-12)[0] for a, b in pairwise([-400, -12, 12, 400])
    )  # Γ(1) = Γ(2) = 1
    assert family.log_marginal(clusters)[0] == pytest.approx(np.log(integral), abs=1e-6)
    assert learner.n_features == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_with_a_blur_is_that_of_blurred_events(kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    blur = np.array([0.3, 0.02])
    learner = PriorLearner.of(kind, x)
    sharp = PriorLearner(kind, learner.m0, learner.variance, np.zeros(2))
    blurred = PriorLearner(kind, learner.m0, learner.variance, blur)
    scatter = {"full": np.diag(blur), "diagonal": blur, "scalar": np.asarray(blur.sum())}[kind.scatter]
    events = Moments(np.ones(40), x, np.broadcast_to(scatter, (40, *scatter.shape)).copy(), kind.scatter)
    S = (
        np.diag([1.0, 2.0])
        if kind is Gaussian
        else np.array([1.0, 2.0])
        if kind is DiagonalGaussian
        else np.asarray(1.5)
    )
    one, other = sharp.family(0.1, 12.0, S), blurred.family(0.1, 12.0, S)
    labels = np.arange(40) % 3
    by_hand = events.to_groups(labels)
    by_blur = Moments.rows_of_points(x).to_groups(labels, kind=kind.scatter)
    np.testing.assert_allclose(one.log_marginal(by_hand), other.log_marginal(by_blur), rtol=1e-12)
    np.testing.assert_allclose(
        one.labelling_cost(one.posterior(by_hand), events),
        other.labelling_cost(other.posterior(by_blur), x),
        rtol=1e-9,
    )


@given(st.lists(st.tuples(st.integers(0, 12), st.floats(0.1, 3.0)), min_size=1, max_size=60))
def test_steps_are_those_of_brute_force(rows):
    values, weight = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    expected = naive.step_variance(values, weight, values.var())
    assert step_variance(values, weight, values.var()) == pytest.approx(expected, abs=1e-9)
    scaled = step_variance(1000.0 * values - 5.0, 3.0 * weight, 1e6 * values.var())
    assert scaled == pytest.approx(1e6 * expected, rel=1e-9, abs=1e-3)


def test_what_ties_is_blurred():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 4))
    x[:, 1] = np.round(x[:, 1] * 4) / 4
    x[:, 2] *= rng.random(4000) < 0.01
    x[:, 3] = 5.0
    step = np.sqrt(12 * blur_of(x, np.ones(4000), x.var(axis=0)))
    assert step[0] < 1e-3
    assert step[1] == pytest.approx(0.25, rel=0.2)
    assert step[2] == pytest.approx(np.sqrt(12) * x[:, 2].std(), rel=0.03)
    assert np.isfinite(PriorLearner.of(Gaussian, x).blur).all()
    assert np.all(PriorLearner.of(Gaussian, x).variance > 0)


@pytest.mark.parametrize("apart", [0.0, 100.0, 1e6])
def test_a_rounded_feature_has_its_step_however_far_apart_its_clusters_are(apart):
    rng = np.random.default_rng(1)
    x = np.round(rng.normal(size=3000) * 2 + apart * rng.integers(3, size=3000))
    step = np.sqrt(12 * step_variance(x, np.ones(3000), float(x.var())))
    assert step == pytest.approx(1.0, rel=0.25)


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(3))
def test_the_resolution_of_a_tree_stays_as_the_stream_grows(seed):
    rng = np.random.default_rng([seed, 5])
    n = 64_000
    group = rng.integers(3, size=n)
    x = rng.normal(size=(n, 4)) + 20.0 * group[:, None]
    x[:, 1] = np.round(x[:, 1] * 4) / 4
    x[:, 2] *= rng.random(n) < 0.6
    x[:, 3] = np.floor(x[:, 3])
    tree = SummaryTree(4, max_leaves=256, seed=seed)
    steps = []
    for start, stop in ((0, 1000), (1000, 4000), (4000, 16_000), (16_000, n)):
        tree.insert(x[start:stop])
        learner = PriorLearner.of(Gaussian, tree)
        steps.append(np.sqrt(12 * (learner.blur - MIN_BLUR_DEVIATIONS**2 * learner.variance)))
    free, quarters, zeros, whole = np.array(steps).T
    assert np.all(free < 0.02)
    assert quarters.max() < 1.2 * quarters.min()
    assert whole.max() < 1.2 * whole.min()
    assert (
        zeros.max() < 2.0 * zeros.min()
    )  # the density beside the zeros is that of 16 events, which errs by a quarter
    assert np.all((quarters > 0.2) & (quarters < 0.3))
    assert np.all((whole > 0.8) & (whole < 2.0))


@pytest.mark.parametrize("name", ["gaussian", "diagonal", "spherical"])
def test_few_events_share_a_covariance_and_many_have_their_own(name):
    rng = np.random.default_rng(1)
    kind = FAMILIES[name]

    def eta(n, same):
        labels = np.arange(6 * n) // n
        size = np.ones(6) if same else np.array([0.1, 0.3, 1.0, 3.0, 10.0, 30.0])
        x = rng.normal(size=(6 * n, 3)) * size[labels, None] + 100.0 * labels[:, None]
        clusters = Moments.rows_of_points(x).to_groups(labels, kind=kind.scatter)
        learner = PriorLearner.of(kind, x)
        return learner.eta(learner.improved(learner.start(clusters), clusters, 30)) / learner.strength

    assert eta(200, same=True) > 20
    assert eta(200, same=False) == pytest.approx(MIN_ETA_FACTOR, rel=0.2)
