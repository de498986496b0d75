"""Laws that every family obeys, whatever the data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from streamclust.families import FAMILIES
from streamclust.moments import Moments

CONTINUOUS = ("gaussian", "diagonal", "spherical")
every_family = pytest.mark.parametrize("name", FAMILIES)


def table(name, d, fewest=2, most=12):
    """Tables of points that the family can have produced."""
    if name == "bernoulli":
        element = st.integers(0, 1)
    elif name in CONTINUOUS:
        element = st.integers(-4000, 4000).map(lambda v: v / 64)
    else:
        element = st.integers(0, 30)
    return st.integers(fewest, most).flatmap(lambda n: arrays(float, (n, d), elements=element))


@st.composite
def scenes(draw, name):
    """(family, points, weights, labels): two clusters of weighted points, every one in some cluster."""
    x = draw(table(name, draw(st.integers(1, 3))))
    if name in CONTINUOUS:
        x = x + draw(st.sampled_from([0.0, 0.0, 1e6]))
    w = draw(arrays(float, len(x), elements=st.sampled_from([0.25, 0.5, 1.0, 2.0, 7.0])))
    z = draw(arrays(np.int64, len(x), elements=st.integers(0, 1)))
    return FAMILIES[name].informed(x), x, w, z


def clusters_of(family, x, w, z):
    return Moments.rows_of_points(x, w).to_groups(z, 2, kind=family.scatter)


def of_points(family, x, w):
    return Moments.of_points(x, w, kind=family.scatter)


def rounding(family, *rows):
    """What rounding may do to an evidence, per unit of weight.

    Points on a line leave a full scatter with few digits across it, and the determinant loses as many.
    """
    worst = 1.0
    for moments in rows if family.name == "gaussian" else ():
        for B in family.posterior(moments).B:
            deviation = np.sqrt(np.diagonal(B))
            worst = max(worst, np.linalg.cond(B / np.outer(deviation, deviation)))
    return 1e-9 + 1e-15 * worst


@every_family
@given(data=st.data())
def test_cost_of_a_row_is_the_sum_over_its_points(name, data):
    family, x, w, z = data.draw(scenes(name))
    posterior = family.posterior(clusters_of(family, x, w, z))
    whole = family.labelling_cost(posterior, of_points(family, x, w))
    each = family.labelling_cost(posterior, Moments.rows_of_points(x, w))
    assert_allclose(each, w[:, None] * family.labelling_cost(posterior, x), rtol=1e-9, atol=1e-9)
    slack = 100 * rounding(family, clusters_of(family, x, w, z)) * (1 + np.abs(each).sum())
    assert_allclose(whole[0], each.sum(axis=0), rtol=0, atol=slack)


@every_family
@given(data=st.data())
def test_log_density_of_a_row_is_the_mean_over_its_points(name, data):
    family, x, w, z = data.draw(scenes(name))
    parameters = family.parameters(family.posterior(clusters_of(family, x, w, z)))
    whole = family.log_density(parameters, of_points(family, x, w))
    each = family.log_density(parameters, x)
    slack = 100 * rounding(family, clusters_of(family, x, w, z)) * (1 + np.abs(each).max())
    assert_allclose(whole[0], w @ each / w.sum(), rtol=0, atol=slack)


@every_family
@given(data=st.data())
def test_evidence_and_posterior_do_not_see_the_order(name, data):
    family, x, w, _ = data.draw(scenes(name))
    order = data.draw(st.permutations(range(len(x))))
    one_way, other = of_points(family, x, w), of_points(family, x[order], w[order])
    slack = rounding(family, one_way) * (np.abs(family.log_marginal(one_way)).max() + w.sum() + 1)
    assert_allclose(family.log_marginal(one_way), family.log_marginal(other), rtol=0, atol=slack)
    for a, b in zip(family.posterior(one_way), family.posterior(other), strict=True):
        assert_allclose(a, b, rtol=1e-6, atol=10 * rounding(family, one_way) * np.abs(a).max())


@every_family
@given(data=st.data())
def test_evidence_is_the_product_of_predictives(name, data):
    """Of points of weight 1, in the order they came: the chain rule."""
    family, x, *_ = data.draw(scenes(name))
    rows = Moments.stack(
        [Moments.empty(1, x.shape[1], family.scatter)]
        + [of_points(family, x[:i], np.ones(i)) for i in range(1, len(x) + 1)]
    )
    chain = np.diagonal(family.predictive(family.posterior(rows[:-1]), x))
    whole = family.log_marginal(rows)[-1] + family.log_base(x).sum()
    slack = rounding(family, rows) * len(x) * (1 + np.abs(chain).sum())
    assert_allclose(whole, chain.sum(), rtol=0, atol=slack)


@every_family
@given(data=st.data())
def test_merging_loses_bregman_information(name, data):
    """|a|φ(a) + |b|φ(b) - |ab|φ(ab) >= 0 and, for a with itself, 0."""
    family, x, w, z = data.draw(scenes(name))
    clusters = clusters_of(family, x, w, z)
    a, b = clusters[0], clusters[1]

    def lost(a, b):
        parts = [rows.weight * family.generator(rows) for rows in (a, b, a + b)]
        return (parts[0] + parts[1] - parts[2])[0], 1e-9 * (1 + sum(np.abs(p[0]) for p in parts))

    loss, slack = lost(a, b)
    assert loss >= -slack
    loss, slack = lost(a, a)
    assert abs(loss) <= slack


@every_family
@given(data=st.data())
def test_expected_cost_is_never_below_the_predictive_code_length(name, data):
    """Jensen: -E[log p(x|θ)] >= -log E[p(x|θ)], once the constants left out are put back."""
    family, x, w, z = data.draw(scenes(name))
    posterior = family.posterior(clusters_of(family, x, w, z))
    left_out = x.shape[1] / 2 * np.log(np.pi) if name in CONTINUOUS else -family.log_base(x)[:, None]
    cost = family.labelling_cost(posterior, x) + left_out
    slack = rounding(family, clusters_of(family, x, w, z)) * (1 + np.abs(cost))
    assert np.all(cost >= -family.predictive(posterior, x) - slack)


@every_family
@given(data=st.data())
def test_weights_count_copies(name, data):
    family, x, _, _ = data.draw(scenes(name))
    twice = of_points(family, np.concatenate([x, x]), np.ones(2 * len(x)))
    doubled = of_points(family, x, np.full(len(x), 2.0))
    evidence = family.log_marginal(twice)
    slack = rounding(family, twice) * (np.abs(evidence).max() + 2 * len(x))
    assert_allclose(evidence, family.log_marginal(doubled), rtol=0, atol=slack)


@every_family
@given(data=st.data())
def test_informed_priors_are_proper_and_pass_their_own_check(name, data):
    x = data.draw(table(name, data.draw(st.integers(1, 4)), fewest=1, most=6))
    for rule in ("bkm", "agglomerative", "nearest"):
        family = FAMILIES[name].informed(x, rule)
        family.check(x)
        row = Moments.of_points(x, kind=family.scatter)
        assert np.isfinite(family.log_marginal(row)[0])
        assert np.all(np.isfinite(family.predictive(family.posterior(row), x)))
