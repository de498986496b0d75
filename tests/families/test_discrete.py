import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

from streamclust.families import BernoulliProduct, Multinomial, Poisson
from streamclust.families.discrete import BernoulliParameters, MultinomialParameters, PoissonParameters
from streamclust.moments import Moments
from tests.naive import families as naive

COUNTS = np.array([[3, 1, 0], [2, 2, 0], [0, 1, 3], [1, 0, 3], [4, 0, 1]], dtype=float)
BITS = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]], dtype=float)
A0, RATE0 = np.array([1.0, 0.5, 2.0]), np.array([0.4, 1.5, 0.9])
LABELS = np.array([0, 0, 1, 1, 0])

MULTINOMIAL = Multinomial(0.3)
BERNOULLI = BernoulliProduct(0.2)
POISSON = Poisson(A0, RATE0)
CASES = [
    (MULTINOMIAL, COUNTS, naive.multinomial_predictive, naive.multinomial_cost, (0.3,)),
    (BERNOULLI, BITS, naive.bernoulli_predictive, naive.bernoulli_cost, (0.2,)),
    (POISSON, COUNTS, naive.poisson_predictive, naive.poisson_cost, (A0, RATE0)),
]
each = pytest.mark.parametrize(
    ("family", "x", "predictive", "cost", "prior"), CASES, ids=lambda v: getattr(v, "name", "")
)


def clusters_of(x):
    return Moments.rows_of_points(x).to_groups(LABELS)


@each
def test_log_marginal_is_the_product_of_predictives(family, x, predictive, cost, prior):
    base = family.log_base(x)
    slow = [naive.sequential(predictive, x[k == LABELS], *prior) - base[k == LABELS].sum() for k in (0, 1)]
    assert_allclose(family.log_marginal(clusters_of(x)), slow, rtol=1e-11)


@each
def test_labelling_cost_point_by_point(family, x, predictive, cost, prior):
    fast = family.labelling_cost(family.posterior(clusters_of(x)), x)
    for i, k in itertools.product(range(len(x)), (0, 1)):
        assert_allclose(fast[i, k], cost(x[i], x[k == LABELS], *prior), rtol=1e-11, atol=1e-13)


@each
def test_predictive_is_scipys(family, x, predictive, cost, prior):
    fast = family.predictive(family.posterior(clusters_of(x)), x)
    for i, k in itertools.product(range(len(x)), (0, 1)):
        assert_allclose(fast[i, k], predictive(x[i], x[k == LABELS], *prior), rtol=1e-11)


def test_marginals_of_one_feature_by_quadrature():
    x = np.array([[2.0], [5.0], [3.0]])
    poisson = Poisson(1.5, 0.7)
    evidence = integrate.quad(
        lambda r: np.prod(stats.poisson.pmf(x[:, 0], r)) * stats.gamma.pdf(r, 1.5, scale=1 / 0.7), 0, 60
    )[0]
    row = Moments.of_points(x, kind="none")
    assert_allclose(poisson.log_marginal(row) + poisson.log_base(x).sum(), np.log(evidence), rtol=1e-7)
    bits = np.array([[1.0], [0.0], [1.0]])
    evidence = integrate.quad(lambda p: p**2 * (1 - p) * stats.beta.pdf(p, 1.4, 1.4), 0, 1)[0]
    assert_allclose(
        BernoulliProduct(1.4).log_marginal(Moments.of_points(bits, kind="none")), np.log(evidence), rtol=1e-7
    )


def test_predictives_sum_to_one():
    pairs = np.array([[i, 4 - i] for i in range(5)], dtype=float)
    row = Moments.of_points(pairs[:2], kind="none")
    assert_allclose(np.exp(MULTINOMIAL.predictive(MULTINOMIAL.posterior(row), pairs)).sum(), 1.0)
    bits = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    row = Moments.of_points(BITS, kind="none")
    assert_allclose(np.exp(BERNOULLI.predictive(BERNOULLI.posterior(row), bits)).sum(), 1.0)
    counts = np.arange(400.0)[:, None]
    family = Poisson(1.0, 0.5)
    row = Moments.of_points([[2.0], [4.0]], kind="none")
    assert_allclose(np.exp(family.predictive(family.posterior(row), counts)).sum(), 1.0)


def test_log_density_is_scipys():
    p = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    row = Moments.rows_of_points(COUNTS).total()
    bits = Moments.rows_of_points(BITS).total()
    for k in (0, 1):
        slow = np.mean([stats.multinomial.logpmf(x, int(x.sum()), p[k]) for x in COUNTS])
        fast = MULTINOMIAL.log_density(MultinomialParameters(p), row)[0, k]
        assert_allclose(fast + MULTINOMIAL.log_base(COUNTS).mean(), slow)
        slow = np.mean([stats.bernoulli.logpmf(x.astype(int), p[k]).sum() for x in BITS])
        assert_allclose(BERNOULLI.log_density(BernoulliParameters(p, 1 - p), bits)[0, k], slow)
        slow = np.mean([stats.poisson.logpmf(x, p[k]).sum() for x in COUNTS])
        fast = POISSON.log_density(PoissonParameters(p), row)[0, k]
        assert_allclose(fast + POISSON.log_base(COUNTS).mean(), slow)


def test_probability_zero_is_impossible_only_for_what_was_seen():
    p = BernoulliParameters(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]))
    assert_allclose(BERNOULLI.log_density(p, np.array([[0.0, 1.0], [1.0, 1.0]]))[:, 0], [0.0, -np.inf])


def test_a_zero_where_ones_weigh_next_to_infinitely_much_is_unlikely_but_not_impossible():
    ones = Moments(np.array([1e20]), np.ones((1, 2)), np.zeros((1, 0)), "none")
    density = BERNOULLI.predictive(BERNOULLI.posterior(ones), np.array([[1.0, 1.0], [0.0, 1.0]]))[:, 0]
    assert_allclose(density, [0.0, np.log(BERNOULLI.prior_zeros) - np.log(1e20)], atol=1e-12)


def test_parameters_are_posterior_means():
    row = Moments.of_points(COUNTS, kind="none")
    p = MULTINOMIAL.parameters(MULTINOMIAL.posterior(row)).probability
    assert_allclose(p[0], stats.dirichlet.mean(0.3 + COUNTS.sum(axis=0)))
    rate = POISSON.parameters(POISSON.posterior(row)).rate
    assert_allclose(rate[0], stats.gamma.mean(A0 + COUNTS.sum(axis=0), scale=1 / (RATE0 + 5)))


def test_decayed_counts_are_as_good_as_whole_ones():
    """A row scaled by 2 is the row of every point twice; scaled by 0.3 it still has finite evidence."""
    for family, x, *_ in CASES:
        row = Moments.of_points(x, kind="none")
        twice = Moments.of_points(np.concatenate([x, x]), kind="none")
        assert_allclose(family.log_marginal(row.scale(2.0)), family.log_marginal(twice))
        assert np.isfinite(family.log_marginal(row.scale(0.3))[0])


def test_a_mean_that_rounds_past_its_range_does_no_harm():
    past = Moments(np.array([1e6]), np.array([[1 + 2e-16, -1e-17]]), np.zeros((1, 0)), "none")
    assert_allclose(BERNOULLI.posterior(past).zeros[0, 0], 0.2)
    for family in (MULTINOMIAL, BERNOULLI, Poisson()):
        assert np.isfinite(family.log_marginal(past)[0])
        assert np.isfinite(family.generator(past)[0])


def test_generators_at_a_glance():
    counts = Moments(np.ones(1), np.array([[3.0, 1.0, 0.0]]), np.zeros((1, 0)), "none")
    t = 0.99 * np.array([3.0, 1.0, 0.0]) + 0.01 * 4 / 3
    assert_allclose(Multinomial().generator(counts), np.sum(t * np.log(t / 4)))
    t = np.array([3.0, 1.0, 0.0]) + 0.01
    assert_allclose(Poisson().generator(counts), np.sum(t * np.log(t) - t))
    bits = Moments(np.ones(1), np.array([[1.0, 0.25]]), np.zeros((1, 0)), "none")
    t = 0.99 * bits.mean[0] + 0.005
    assert_allclose(BernoulliProduct().generator(bits), np.sum(t * np.log(t) + (1 - t) * np.log(1 - t)))


def test_length_of_documents_does_not_part_them():
    a = Moments.of_points([[3.0, 1.0]], kind="none")
    b = Moments.of_points([[30.0, 10.0]], kind="none")
    family = Multinomial()
    lost = family.generator(a) + family.generator(b) - 2 * family.generator(a + b)
    assert_allclose(lost, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("family", "value", "message"),
    [
        (MULTINOMIAL, 2.5, r"counts \(0, 1, 2, \.\.\.\), got 2\.5 in row 1, column 2; round it"),
        (MULTINOMIAL, -1.0, r"got -1\.0 in row 1, column 2; shift or drop"),
        (POISSON, -2.0, r"poisson data must be counts .* got -2\.0 in row 1, column 2"),
        (POISSON, np.nan, r"finite, got nan in row 1, column 2; drop"),
        (BERNOULLI, 2.0, r"must be 0 or 1, got 2\.0 in row 1, column 2; threshold"),
        (BERNOULLI, np.inf, r"finite, got inf in row 1, column 2"),
    ],
)
def test_check_names_the_value_its_place_and_the_cure(family, value, message):
    x = np.zeros((2, 3))
    family.check(x)
    x[1, 2] = value
    with pytest.raises(ValueError, match=message):
        family.check(x)
    with pytest.raises(ValueError, match="row 1, column 2"):
        type(family).informed(x)


@pytest.mark.parametrize("cls", [Multinomial, BernoulliProduct, Poisson])
def test_impossible_priors_are_refused(cls):
    with pytest.raises(ValueError, match="must be positive, got 0"):
        cls(0.0)
