"""Learnt priors of counts: steps never raise F, evidences are exact, the least loss is reached."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import polygamma

from streamclust._kernels.families import rising as kernels
from streamclust._kernels.families.rising import rising
from streamclust.families import BernoulliProduct, Multinomial, Poisson
from streamclust.families.learners import learner_of
from streamclust.families.learnt_discrete import MIN_PSEUDO_COUNT
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import fit_points, point_steps, refit_bkm
from streamclust.tree import SummaryTree
from tests.naive import learnt_discrete as naive
from tests.parts import from_python

trigamma = from_python(kernels.trigamma)
KINDS = [Multinomial, BernoulliProduct, Poisson]


def grouped(kind, seed, n=60, d=4, k=4):
    """Points and the moments of k groups of them."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    if kind is BernoulliProduct:
        points = (rng.random((n, d)) < rng.beta(0.7, 0.7, size=(k, d))[labels]) * 1.0
    else:
        points = rng.poisson(rng.gamma(0.7, 4.0, size=(k, d))[labels]).astype(float)
    return points, Moments.rows_of_points(points).to_groups(labels)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10_000), n=st.integers(5, 60), d=st.integers(1, 6), k=st.integers(1, 5))
def test_a_step_never_raises_the_free_energy(kind, seed, n, d, k):
    points, clusters = grouped(kind, seed, n, d, k)
    learner = learner_of(kind, points)
    family = learner.start(clusters)
    before = learner.loss(family, clusters)
    for _ in range(4):
        family = learner.improved(family, clusters, rounds=1)
        after = learner.loss(family, clusters)
        assert np.isfinite(after)
        assert after <= before
        before = after


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_least_loss_is_that_of_a_general_optimiser(kind, seed):
    points, clusters = grouped(kind, seed, n=80, d=3, k=6)
    learner = learner_of(kind, points)
    family = learner.improved(learner.start(clusters), clusters, rounds=60)
    best = naive.least(
        lambda counts: learner.loss(learner.family(np.maximum(counts, MIN_PSEUDO_COUNT)), clusters),
        learner.counts(learner.start(clusters)),
    )
    assert learner.loss(family, clusters) <= best + 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_minimised_is_the_families_own_evidence(kind):
    points, clusters = grouped(kind, 0)
    learner = learner_of(kind, points)
    family = learner.improved(learner.start(clusters), clusters)
    seen = Moments.stack([clusters, learner.anchor])
    logs = np.log(learner.strength(learner.counts(family)))
    scanned = learner.scan(learner.counts(family), seen, float(logs.mean())).loss.sum()
    assert scanned == pytest.approx(learner.loss(family, clusters), rel=1e-10)


def test_evidences_are_those_of_the_chain_rule():
    psi0, words = np.array([0.3, 2.0, 0.05]), [0, 1, 1, 0, 2, 1]
    counts = np.bincount(words, minlength=3)[None] * 1.0
    one = Moments.rows_of_points(counts).to_groups(None)
    assert Multinomial(psi0).log_marginal(one)[0] == pytest.approx(naive.multinomial(words, psi0))
    events = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    ones, zeros = np.array([0.4, 2.0]), np.array([3.0, 0.1])
    found = BernoulliProduct(ones, zeros0=zeros).log_marginal(Moments.rows_of_points(events).to_groups(None))
    assert found[0] == pytest.approx(naive.bernoulli(events, ones, zeros))


def test_evidences_sum_to_one_over_all_events():
    kinds = BernoulliProduct(np.array([0.4, 2.0]), zeros0=np.array([3.0, 0.1]))
    events = np.array(np.meshgrid([0.0, 1], [0.0, 1])).reshape(2, -1).T
    assert np.exp(kinds.log_marginal(Moments.rows_of_points(events))).sum() == pytest.approx(1.0)
    counts = np.arange(2000.0)[:, None]
    poisson = Poisson(np.array([2.5]), np.array([0.3]))
    logs = poisson.log_marginal(Moments.rows_of_points(counts)) + poisson.log_base(counts)
    assert np.exp(logs).sum() == pytest.approx(1.0)


@given(st.floats(1e-3, 1e6), st.lists(st.floats(0, 1e4), min_size=1, max_size=5))
def test_rising_factorials_have_their_derivatives(prior, counts):
    value, slope, curvature = rising(np.array([prior]), np.array(counts)[:, None])
    assert trigamma(prior) == pytest.approx(polygamma(1, prior), rel=1e-11)
    expected = [sum(polygamma(i, prior + t) - polygamma(i, prior) for t in counts) for i in (0, 1)]
    size = [len(counts) * abs(polygamma(i, prior)) for i in (0, 1)]
    assert slope[0] == pytest.approx(expected[0], abs=1e-11 * (1 + size[0]))
    assert curvature[0] == pytest.approx(expected[1], abs=1e-11 * (1 + size[1]))
    assert value[0] >= 0 or prior < 2


# ---------------------------------------------------------------- whole searches


def planted(kind, seed, n, d, k):
    """Clusters that fixed pseudo-counts do not tell apart."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    if kind is BernoulliProduct:
        return (rng.random((n, d)) < rng.beta(1.0, 1.0, size=(k, d))[labels]) * 1.0, labels
    rate = rng.gamma(2.0, 1.0, size=(k, d))
    return rng.poisson(rate[labels]).astype(float), labels


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_finds_the_clusters_and_learns_their_prior(kind):
    points, _ = planted(kind, 0, 120, 20, 4)
    *_, last = point_steps(kind.name, points, prior="learnt")
    learner = learner_of(kind, points)
    family = last.result.family
    assert last.n_clusters == 4
    again = learner.improved(family, last.result.clusters, rounds=20)
    assert learner.loss(again, last.result.clusters) >= learner.loss(family, last.result.clusters) - 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_finds_them_cold_and_warm(kind):
    points, _ = planted(kind, 1, 3000, 12, 5)
    tree = SummaryTree(12, "none", max_leaves=256)
    tree.insert(points)
    cold = refit_bkm(kind.name, tree, prior="learnt")
    warm = refit_bkm(kind.name, tree, cold, prior="learnt")
    assert cold.n_clusters == warm.n_clusters == 5
    assert refit_bkm(kind.name, tree, cold.clusters, prior="learnt").n_clusters == 5


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_one_cluster(kind):
    points, _ = planted(kind, 5, 150, 12, 1)
    assert fit_points(kind.name, points, prior="learnt").n_clusters == 1


BAD = {
    "one event": np.array([[1.0, 0.0, 1.0]]),
    "one feature": np.ones((5, 1)),
    "all equal": np.ones((40, 3)),
    "all zeros": np.zeros((40, 3)),
    "one word each": np.repeat(np.eye(3), 10, axis=0),
    "fewer events than words": (np.random.default_rng(0).random((6, 200)) < 0.05) * 1.0,
    "a word that never occurs": np.column_stack([(np.random.default_rng(0).random((50, 3)) < 0.5) * 1.0, np.zeros(50)]),
    "duplicates by the thousand": np.repeat([[1.0, 0.0] * 6, [0.0, 1.0] * 6], 2000, axis=0),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BAD)
def test_bad_input_gives_a_sensible_partition(kind, name):
    points = BAD[name]
    expected = 2 if name == "duplicates by the thousand" else 1
    if (
        name == "one word each" and kind is BernoulliProduct
    ):  # absent words tell as well; to the others one word is few
        expected = 3
    found = fit_points(kind.name, points, prior="learnt")
    assert np.isfinite(found.free_energy)
    assert found.n_clusters == expected
    assert np.isfinite(found.log_predictive(points + 0.0)).all()
    assert np.isfinite(found.log_predictive(np.ones_like(points))).all()
    tree = SummaryTree(points.shape[1], "none", max_leaves=64)
    tree.insert(points)
    found = refit_bkm(kind.name, tree, prior="learnt")
    assert np.isfinite(found.free_energy)
    if name != "duplicates by the thousand":  # a sample of Kish size 2, too few to tell two clusters
        assert found.n_clusters == expected
