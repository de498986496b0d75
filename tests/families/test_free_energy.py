import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from streamclust.families import (
    FAMILIES,
    BernoulliProduct,
    DiagonalGaussian,
    Finite,
    FlatGaussian,
    Gaussian,
    Infinite,
    Multinomial,
    Poisson,
    Uninformative,
    family,
    scoring,
)
from streamclust.families.gaussian import GaussianParameters
from streamclust.moments import Moments
from tests.naive import families as naive

GOLDEN = json.loads((Path(__file__).parent.parent / "golden.json").read_text())
X, Z = np.array(GOLDEN["X"]), np.array(GOLDEN["z"])
PRIOR = GOLDEN["prior"]
GAUSSIAN = Gaussian(PRIOR["xi0"], np.array(PRIOR["m0"]), PRIOR["eta0"], np.array(PRIOR["B0"]))
CLUSTERS = Moments.rows_of_points(X).to_groups(Z, kind="full")
FINITE, INFINITE = Finite(PRIOR["phi0"]), Infinite(PRIOR["phi0"])
LEAVES = Moments.rows_of_points(X).to_groups(np.array(GOLDEN["leaf_of"]), kind="full")


# ---------------------------------------------------------------- reference values


def test_golden_free_energies():
    assert_allclose(FINITE.free_energy(GAUSSIAN, CLUSTERS), GOLDEN["F19"], rtol=1e-12)
    assert_allclose(INFINITE.free_energy(GAUSSIAN, CLUSTERS), GOLDEN["F23"], rtol=1e-12)
    flat, mixture = scoring("uninformative", GAUSSIAN, X)
    assert_allclose(flat.log_volume, PRIOR["logV"], rtol=1e-12)
    assert_allclose(mixture.free_energy(flat, CLUSTERS), GOLDEN["F32_corrected"], rtol=1e-12)


def test_golden_labelling_costs():
    flat, uninformative = scoring("uninformative", GAUSSIAN, X)
    for mixture, one, key in (
        (FINITE, GAUSSIAN, "labelcost_finite"),
        (INFINITE, GAUSSIAN, "labelcost_dp"),
        (uninformative, flat, "labelcost_flat"),
    ):
        assert_allclose(mixture.labelling_cost(one, CLUSTERS, X), GOLDEN[key], rtol=1e-11)


def test_golden_leaves():
    assert_allclose(LEAVES.weight, GOLDEN["leaf_n"])
    assert_allclose(LEAVES.mean, GOLDEN["leaf_mean"])
    assert_allclose(LEAVES.scatter, GOLDEN["leaf_scatter"], atol=1e-12)
    cost = FINITE.labelling_cost(GAUSSIAN, CLUSTERS, LEAVES, GAUSSIAN.posterior(CLUSTERS))
    assert_allclose(cost, GOLDEN["leaf_cost_finite"], rtol=1e-11)


def test_golden_terms_and_merge():
    assert_allclose(FINITE.cluster_terms(GAUSSIAN, CLUSTERS), GOLDEN["cluster_terms_finite"], rtol=1e-12)
    gain = FINITE.free_energy(GAUSSIAN, CLUSTERS.total()) - FINITE.free_energy(GAUSSIAN, CLUSTERS)
    assert_allclose(gain, GOLDEN["merge_deltaF_finite"], rtol=1e-11)


@pytest.mark.parametrize(
    ("key", "one", "energy"),
    [("multinomial", Multinomial(), "F39"), ("bernoulli", BernoulliProduct(), "F45")],
)
def test_golden_discrete(key, one, energy):
    golden = GOLDEN[key]
    x = np.array(golden["X"], dtype=float)
    clusters = Moments.rows_of_points(x).to_groups(np.array(golden["z"]))
    mixture = Finite(golden["phi0"])
    reported = mixture.free_energy(one, clusters) - one.log_base(x).sum()  # (39) has the coefficients in
    assert_allclose(reported, golden[energy], rtol=1e-12)
    assert_allclose(mixture.labelling_cost(one, clusters, x), golden["labelcost"], rtol=1e-11)


def test_golden_chunky_densities():
    """The mixture's log-likelihood of points, and chunky EM's bound and responsibilities of leaves."""
    chunky = GOLDEN["chunky"]
    share = np.log(chunky["pi"])
    parameters = GaussianParameters(np.array(chunky["mu"]), np.array(chunky["C"]))
    at_points = np.logaddexp.reduce(share + GAUSSIAN.log_density(parameters, X), axis=1)
    assert_allclose(at_points.sum(), chunky["point_loglik_sum"], rtol=1e-12)
    at_leaves = share + GAUSSIAN.log_density(parameters, LEAVES)
    assert_allclose(LEAVES.weight @ np.logaddexp.reduce(at_leaves, axis=1), chunky["F"], rtol=1e-12)
    q = np.exp(at_leaves - np.logaddexp.reduce(at_leaves, axis=1, keepdims=True))
    assert_allclose(q, chunky["q"], rtol=1e-10)


# ---------------------------------------------------------------- independent computations


def naive_evidence():
    prior = (PRIOR["xi0"], np.array(PRIOR["m0"]), PRIOR["eta0"], np.array(PRIOR["B0"]))
    return sum(naive.gaussian_log_marginal(X[k == Z], *prior) for k in (0, 1))


@pytest.mark.parametrize("phi0", [0.3, 1.0, 2.0])
def test_finite_is_the_joint_of_points_and_labels_drawn_in_turn(phi0):
    slow = -naive_evidence() - naive.dirichlet_sequence(Z, 2, phi0)
    assert_allclose(Finite(phi0).free_energy(GAUSSIAN, CLUSTERS), slow, rtol=1e-11)


@pytest.mark.parametrize("phi0", [0.3, 1.0, 2.0])
def test_infinite_is_the_chinese_restaurant(phi0):
    slow = -naive_evidence() - naive.restaurant_sequence(Z, phi0)
    assert_allclose(Infinite(phi0).free_energy(GAUSSIAN, CLUSTERS), slow, rtol=1e-11)


def test_uninformative_is_the_corrected_32():
    x = np.random.default_rng(5).normal(size=(14, 3))
    z = np.arange(14) % 2
    flat, mixture = scoring("uninformative", Gaussian.informed(x), x)
    slow = naive.flat_free_energy(x, z, 2, np.log(np.ptp(x, axis=0)).sum())
    fast = mixture.free_energy(flat, Moments.rows_of_points(x).to_groups(z, kind="full"))
    assert_allclose(fast, slow, rtol=1e-11)


def test_partitions_of_the_restaurant_sum_to_one():
    """exp(-F) without evidence, summed over all partitions of four events."""
    empty = Poisson()

    def partitions(n, used=0):
        if n == 0:
            yield []
        else:
            for c in range(used + 1):
                for rest in partitions(n - 1, max(used, c + 1)):
                    yield [c, *rest]

    total = 0.0
    for z in partitions(4):
        clusters = Moments.rows_of_points(np.zeros((4, 1))).to_groups(np.array(z))
        energy = Infinite(1.7).free_energy(empty, clusters) + empty.log_marginal(clusters).sum()
        total += np.exp(-energy)
    assert_allclose(total, 1.0)


# ---------------------------------------------------------------- traps


def test_uninformative_is_infinite_where_a_cluster_has_d_points_or_fewer():
    flat, mixture = scoring("uninformative", GAUSSIAN, X)
    clusters = Moments.rows_of_points(X).to_groups(np.array([0, 0, *[1] * 8]), kind="full")
    assert mixture.free_energy(flat, clusters) == np.inf
    assert list(mixture.viable(clusters)) == [False, True]
    cost = mixture.labelling_cost(flat, clusters, X)
    assert np.all(cost.argmin(axis=1) == 1)


def test_a_decayed_cluster_is_refused_by_the_infinite_mixture():
    faded = CLUSTERS.scale(np.array([0.01, 1.0]))
    assert list(INFINITE.viable(faded)) == [False, True]
    with pytest.raises(ValueError, match=r"weight 0\.05, below 1; dissolve"):
        INFINITE.free_energy(GAUSSIAN, faded)
    assert np.isfinite(FINITE.free_energy(GAUSSIAN, faded))


def test_a_single_cluster_of_little_weight_is_scored_by_the_infinite_mixture():
    """There is nothing that it could be dissolved into; the less it weighs, the less it may seem to be worth."""
    whole = CLUSTERS.total()
    terms = [
        INFINITE.cluster_terms(GAUSSIAN, whole.scale(w / whole.weight))[0] for w in (1e-6, 0.01, 0.5, 1.0)
    ]
    assert np.isfinite(terms).all()
    assert terms == sorted(terms)


def test_empty_clusters():
    with_empty = Moments.stack([CLUSTERS, Moments.empty(1, 2)])
    assert FINITE.free_energy(GAUSSIAN, with_empty) > FINITE.free_energy(GAUSSIAN, CLUSTERS)
    assert list(FINITE.viable(with_empty)) == [True, True, False]
    cost = INFINITE.labelling_cost(GAUSSIAN, with_empty, X)
    assert np.all(np.isposinf(cost[:, 2]))
    nothing = Moments.empty(1, 2)
    assert_allclose(INFINITE.labelling_cost(GAUSSIAN, with_empty, nothing), 0.0)


# ---------------------------------------------------------------- lookups


def test_scoring_by_name():
    assert scoring("finite", GAUSSIAN, X) == (GAUSSIAN, Finite(2.0))
    assert scoring("infinite", Multinomial(), X)[1] == Infinite(1.0)
    assert scoring("finite", GAUSSIAN, X, phi0=0.5)[1] == Finite(0.5)
    flat, mixture = scoring(Uninformative(), GAUSSIAN, X)
    assert isinstance(flat, FlatGaussian)
    assert scoring(mixture, flat, X) == (flat, mixture)
    with pytest.raises(ValueError, match="one of finite, infinite, uninformative, got 'both'"):
        scoring("both", GAUSSIAN, X)
    with pytest.raises(ValueError, match="needs the gaussian family, got diagonal"):
        scoring("uninformative", DiagonalGaussian.informed(X), X)
    with pytest.raises(ValueError, match="phi0 must be positive, got 0"):
        Finite(0.0)


def test_families_by_name():
    for name, cls in FAMILIES.items():
        assert family(name) is cls
        assert cls.name == name
    assert family(GAUSSIAN) is GAUSSIAN
    assert family(Gaussian) is Gaussian
    with pytest.raises(ValueError, match="unknown family 'gauss'; the families are gaussian, diagonal"):
        family("gauss")
    with pytest.raises(TypeError, match="a name or a Family"):
        family(3)
