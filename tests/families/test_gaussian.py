import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from streamclust.families import DiagonalGaussian, FlatGaussian, Gaussian, SphericalGaussian
from streamclust.families.gaussian import GaussianParameters
from streamclust.moments import Moments
from tests.naive import families as naive

D = 3
M0 = np.array([0.3, -0.2, 1.0])
B0 = np.array([[1.0, 0.3, 0.1], [0.3, 2.0, -0.4], [0.1, -0.4, 0.7]])
FULL = Gaussian(0.2, M0, 3.5, B0)
DIAGONAL = DiagonalGaussian(0.2, M0, 1.5, np.diag(B0))
SPHERICAL = SphericalGaussian(0.2, M0, 0.8, 1.7)
ALL = [FULL, DIAGONAL, SPHERICAL]


@pytest.fixture
def points():
    return np.random.default_rng(3).normal(size=(7, D)) * [1.0, 2.0, 0.5] + 0.7


def clusters_of(family, points, labels):
    return Moments.rows_of_points(points).to_groups(np.asarray(labels), kind=family.scatter)


LABELS = [0, 0, 1, 1, 1, 0, 1]
MINE = [[i for i, z in enumerate(LABELS) if z == k] for k in (0, 1)]


def test_log_marginal_is_the_product_of_student_t_predictives(points):
    slow = {
        "gaussian": lambda x: naive.gaussian_log_marginal(x, 0.2, M0, 3.5, B0),
        "diagonal": lambda x: naive.diagonal_log_marginal(x, 0.2, M0, 1.5, np.diag(B0)),
        "spherical": lambda x: naive.spherical_log_marginal(x, 0.2, M0, 0.8, 1.7),
    }
    for family in ALL:
        fast = family.log_marginal(clusters_of(family, points, LABELS))
        assert_allclose(fast, [slow[family.name](points[m]) for m in MINE], rtol=1e-11)


@pytest.mark.compiled
def test_log_marginal_in_one_dimension_is_the_integral_over_mean_and_precision():
    x, family = np.array([0.2, 1.1, -0.4]), Gaussian(0.5, np.array([0.1]), 2.5, np.array([[1.3]]))

    mean, log_precision = np.meshgrid(np.linspace(-30, 30, 6001), np.linspace(-12, 5, 801))
    precision, deviation = np.exp(log_precision), np.exp(-log_precision / 2)
    log_joint = stats.norm.logpdf(mean, 0.1, deviation / np.sqrt(0.5)) + log_precision
    log_joint += stats.gamma.logpdf(precision, 2.5 / 2, scale=2 / 1.3)
    log_joint += sum(stats.norm.logpdf(v, mean, deviation) for v in x)
    evidence = np.exp(log_joint).sum() * (60 / 6000) * (17 / 800)
    for one in (
        family,
        DiagonalGaussian(0.5, np.array([0.1]), 2.5, np.array([1.3])),
        SphericalGaussian(0.5, np.array([0.1]), 1.25, 1.3),
    ):
        row = Moments.of_points(x[:, None], kind=one.scatter)
        assert_allclose(one.log_marginal(row), np.log(evidence), rtol=1e-6)


def test_labelling_cost_is_the_expected_log_density_under_the_posterior(points):
    for family in ALL:
        cost = family.labelling_cost(family.posterior(clusters_of(family, points, LABELS)), points)
        for k, i in itertools.product((0, 1), range(len(points))):
            x, mine = points[i], points[MINE[k]]
            if family is FULL:
                slow = naive.gaussian_cost(x, *naive.normal_wishart(mine, 0.2, M0, 3.5, B0))
            elif family is DIAGONAL:
                slow = naive.diagonal_cost(x, mine, 0.2, M0, 1.5, np.diag(B0))
            else:
                slow = naive.spherical_cost(x, *naive.spherical_posterior(mine, 0.2, M0, 0.8, 1.7))
            assert_allclose(cost[i, k], slow, rtol=1e-11)


def test_labelling_cost_against_draws_from_the_posterior(points):
    """-E[log N(x|θ)] by Monte Carlo: 20,000 Wisharts; the cost leaves out (D/2) log π."""
    rng = np.random.default_rng(4)
    row = Moments.of_points(points)
    xi, m, eta, B = (v[0] for v in FULL.posterior(row)[:4])
    precision = stats.wishart.rvs(eta, np.linalg.inv(B), size=20_000, random_state=rng)
    x = points[0]
    factor = np.linalg.cholesky(np.linalg.inv(precision) / xi)
    deviation = x - (m + np.einsum("sij,sj->si", factor, rng.normal(size=(20_000, D))))
    log_density = 0.5 * (
        np.linalg.slogdet(precision)[1]
        - D * np.log(2 * np.pi)
        - np.einsum("si,sij,sj->s", deviation, precision, deviation)
    )
    cost = FULL.labelling_cost(FULL.posterior(row), x[None])[0, 0]
    assert abs(cost + D / 2 * np.log(np.pi) + log_density.mean()) < 5 * log_density.std() / np.sqrt(20_000)


def test_predictive_is_scipys_student_t(points):
    new = points[:3] + 1.0
    for family in ALL:
        fast = family.predictive(family.posterior(clusters_of(family, points, LABELS)), new)
        for k, i in itertools.product((0, 1), range(3)):
            mine = points[MINE[k]]
            if family is FULL:
                slow = naive.gaussian_predictive(new[i], *naive.normal_wishart(mine, 0.2, M0, 3.5, B0))
            elif family is DIAGONAL:
                slow = naive.diagonal_predictive(new[i], mine, 0.2, M0, 1.5, np.diag(B0))
            else:
                slow = naive.spherical_predictive(new[i], *naive.spherical_posterior(mine, 0.2, M0, 0.8, 1.7))
            assert_allclose(fast[i, k], slow, rtol=1e-11)


@pytest.mark.parametrize("family", ALL, ids=lambda f: f.name)
def test_predictive_is_the_ratio_of_evidences(family, points):
    row, new = Moments.of_points(points, kind=family.scatter), points[:1] + 0.5
    more = row + Moments.of_points(new, kind=family.scatter)
    ratio = family.log_marginal(more) - family.log_marginal(row)
    assert_allclose(family.predictive(family.posterior(row), new)[0], ratio, rtol=1e-10)


def test_log_density_is_scipys_normal_averaged(points):
    mean = np.array([[0.0, 1.0, 0.5], [1.0, 1.0, 1.0]])
    covariance = {
        "gaussian": np.stack([B0, np.eye(D)]),
        "diagonal": np.array([[1.0, 2.0, 0.5], [1.0, 1.0, 3.0]]),
        "spherical": np.array([0.7, 2.0]),
    }
    for family in ALL:
        parameters = GaussianParameters(mean, covariance[family.name])
        fast = family.log_density(parameters, Moments.of_points(points, kind=family.scatter))
        for k in (0, 1):
            c = parameters.covariance[k]
            matrix = c if np.ndim(c) == 2 else np.diag(np.broadcast_to(c, D))
            assert_allclose(fast[0, k], stats.multivariate_normal.logpdf(points, mean[k], matrix).mean())


def test_parameters_are_posterior_means(points):
    row = Moments.of_points(points)
    posterior = FULL.posterior(row)
    precision = stats.wishart(posterior.eta[0], np.linalg.inv(posterior.B[0])).mean()
    assert_allclose(FULL.parameters(posterior).covariance[0], np.linalg.inv(precision))
    posterior = SPHERICAL.posterior(row)
    mean = stats.gamma(posterior.a[0], scale=2 / posterior.b[0]).mean()
    assert_allclose(SPHERICAL.parameters(posterior).covariance, 1 / mean)


def test_a_row_of_weight_zero_gives_the_prior():
    for family in ALL:
        empty = Moments.empty(2, D, family.scatter)
        posterior = family.posterior(empty)
        assert_allclose(posterior.mean, np.stack([M0, M0]))
        assert_allclose(family.log_marginal(empty), 0.0, atol=1e-12)
        assert_allclose(family.labelling_cost(posterior, empty), 0.0)


# ---------------------------------------------------------------- bounds


# ---------------------------------------------------------------- precision and the flat limit


@pytest.mark.parametrize("cls", [Gaussian, DiagonalGaussian, SphericalGaussian])
def test_far_from_the_origin_costs_are_those_at_home(cls, points):
    """Points on a grid of 1/64 are exact at 1e8: the same costs must come out."""
    home = np.round(points * 64) / 64
    away = home + 1e8
    answers = []
    for x in (home, away):
        family = cls.informed(x)
        clusters = clusters_of(family, x, LABELS)
        cost = family.labelling_cost(family.posterior(clusters), x)
        answers.append((cost, family.log_marginal(clusters), family.generator(clusters)))
    for near, far in zip(*answers, strict=True):
        assert_allclose(far, near, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cls", [Gaussian, DiagonalGaussian, SphericalGaussian])
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_a_change_of_units_moves_costs_by_a_constant(cls, scale, points):
    answers = []
    for x in (points, points * scale):
        family = cls.informed(x)
        clusters = clusters_of(family, x, LABELS)
        answers.append((family.labelling_cost(family.posterior(clusters), x), family.log_marginal(clusters)))
    (cost, evidence), (scaled_cost, scaled_evidence) = answers
    assert_allclose(scaled_cost - cost, D * np.log(scale), rtol=1e-9)
    sizes = np.array([len(m) for m in MINE])
    assert_allclose(scaled_evidence - evidence, -sizes * D * np.log(scale), rtol=1e-9)


def test_spherical_generator_gives_wards_cost(points):
    family = SphericalGaussian.informed(points)
    a, b = (Moments.of_points(points[m], kind="scalar") for m in MINE)
    lost = a.weight * family.generator(a) + b.weight * family.generator(b)
    lost -= (a + b).weight * family.generator(a + b)
    ward = ((a + b).trace - a.trace - b.trace) / 2
    assert_allclose(lost, ward)


def test_flat_is_the_limit_of_vanishing_priors(points):
    """(18) at ξ0 = 0, B0 = 0, η0 = -1 is (31)."""
    row = Moments.of_points(points)
    flat = FlatGaussian.informed(points)
    posterior = flat.posterior(row)
    assert_allclose(posterior.xi, 7)
    assert_allclose(posterior.eta, 6)
    assert_allclose(posterior.mean, row.mean)
    assert_allclose(posterior.B, row.scatter)
    assert_allclose(flat.log_volume, np.log(np.ptp(points, axis=0)).sum())


def test_flat_is_singular_for_few_or_flat_points(points):
    flat = FlatGaussian.informed(points)
    plane = points.copy()
    plane[:, 2] = plane[:, 0] - plane[:, 1]
    rows = Moments.stack([Moments.of_points(points[:3]), Moments.of_points(plane), Moments.of_points(points)])
    assert list(np.isneginf(flat.log_marginal(rows))) == [True, True, False]
    cost = flat.labelling_cost(flat.posterior(rows), points)
    assert np.all(np.isposinf(cost[:, :2]))
    assert np.all(np.isfinite(cost[:, 2]))
    assert np.all(np.isneginf(flat.predictive(flat.posterior(rows), points)[:, :2]))


@pytest.mark.parametrize(
    ("cls", "arguments", "message"),
    [
        (Gaussian, (0.1, np.zeros(2), 2.0, np.eye(3)), "must be"),
        (Gaussian, (0.1, np.zeros(2), 1.0, np.eye(2)), "eta0 > D - 1"),
        (Gaussian, (0.0, np.zeros(2), 2.0, np.eye(2)), "xi0 > 0"),
        (DiagonalGaussian, (0.1, np.zeros(2), 1.0, np.ones(3)), "must be"),
        (DiagonalGaussian, (0.1, np.zeros(2), 1.0, np.array([1.0, 0.0])), "positive"),
        (SphericalGaussian, (0.1, np.zeros(2), 0.5, 0.0), "positive"),
    ],
)
def test_impossible_priors_are_refused(cls, arguments, message):
    with pytest.raises(ValueError, match=message):
        cls(*arguments)


def test_a_scatter_too_coarse_is_refused(points):
    with pytest.raises(ValueError, match="does not hold"):
        FULL.posterior(Moments.of_points(points, kind="diagonal"))


def test_check_names_the_value_its_place_and_the_cure():
    for family in ALL:
        with pytest.raises(ValueError, match=r"finite, got nan in row 1, column 0; drop"):
            family.check(np.array([[0.0, 1.0], [np.nan, 2.0]]))
        assert_allclose(family.log_base(np.ones((2, 3))), 0.0)


@pytest.mark.parametrize("weight", [1.0, 0.37, -1.0])
def test_evidence_change_is_the_difference_of_two_evidences(weight):
    rng = np.random.default_rng(5)
    points = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 3)) + 4.0
    family = Gaussian.informed(points)
    cluster = Moments.of_points(points[:20])
    posterior = family.posterior(cluster)
    x = points[7]  # one of the cluster's own, so that it can be taken away as well
    quadratic = np.array([[((posterior.whitener[0] @ (x - posterior.mean[0])) ** 2).sum()]])
    point = Moments.of_points(x[None], [abs(weight)])
    changed = cluster + point if weight > 0 else cluster - point
    expected = family.log_marginal(changed) - family.log_marginal(cluster)
    np.testing.assert_allclose(family.evidence_change(posterior, quadratic, weight)[0], expected, rtol=1e-9)
