"""The family of mixed tables: its parts add up, its two forms of cost agree, and independent columns change nothing."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from streamclust.families import Gaussian, Multinomial
from streamclust.families.learners import learner_of
from streamclust.families.mixed import NUMBER, mixed
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import fit_points

COLUMNS = (NUMBER, 0, 0, 0, NUMBER, 1, 1)


def table(seed, n=60, columns=COLUMNS, missing=0.1):
    """Rows of these columns; some categories are missing."""
    rng = np.random.default_rng(seed)
    groups = np.array(columns)
    rows = np.zeros((n, len(columns)))
    rows[:, groups == NUMBER] = rng.normal(size=(n, (groups == NUMBER).sum()))
    for g in range(groups.max() + 1):
        at = np.flatnonzero(groups == g)
        there = rng.random(n) >= missing
        rows[there, at[rng.integers(len(at), size=there.sum())]] = 1.0
    return rows


def grouped(points, k=3):
    return Moments.rows_of_points(points).to_groups(np.arange(len(points)) % k, k, kind="full")


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_both_forms_of_the_cost_agree_and_leaves_cost_what_their_points_do(seed):
    points = table(seed)
    family = mixed(COLUMNS).informed(points)
    posterior = family.posterior(grouped(points))
    cost = family.labelling_cost(posterior, points)
    assert_allclose(family.cost_form(posterior).cost(points), cost, rtol=1e-9, atol=1e-9)
    rows = grouped(points, 7)
    whole = family.labelling_cost(posterior, rows)
    assert_allclose(family.cost_form(posterior).cost(rows), whole, rtol=1e-8, atol=1e-8)
    for i in range(7):
        assert_allclose(whole[i], cost[np.arange(len(points)) % 7 == i].sum(axis=0), rtol=1e-8, atol=1e-8)


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_a_table_is_as_likely_as_its_parts(seed):
    points = table(seed)
    family = mixed(COLUMNS).informed(points)
    clusters = grouped(points)
    numbers = Moments.rows_of_points(points[:, [0, 4]]).to_groups(np.arange(60) % 3, 3, kind="full")
    expected = Gaussian.informed(points[:, [0, 4]]).log_marginal(numbers)
    for at, values in (([1, 2, 3], 3), ([5, 6], 2)):
        part = Moments.rows_of_points(points[:, at]).to_groups(np.arange(60) % 3, 3, kind="none")
        expected = expected + Multinomial(0.5 / values).log_marginal(part)
    assert_allclose(family.log_marginal(clusters), expected, rtol=1e-9)


def test_evidence_adds_up_event_by_event():
    """The chain rule: predictive densities multiply to the marginal likelihood."""
    points = table(5, n=12)
    family = mixed(COLUMNS).informed(points)
    total, rows = 0.0, Moments.rows_of_points(points)
    for i in range(len(points)):
        before = rows[:i].to_groups(None, kind="full") if i else Moments.empty(1, len(COLUMNS))
        total += float(family.predictive(family.posterior(before), points[i : i + 1])[0, 0])
    constant = len(points) * 0.0
    assert_allclose(total + constant, family.log_marginal(rows.to_groups(None, kind="full"))[0], rtol=1e-9)


@pytest.mark.compiled
@given(st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_learning_the_prior_never_raises_the_free_energy(seed):
    points = table(seed, n=90)
    learner = learner_of(mixed(COLUMNS), points)
    clusters = grouped(points)
    family = learner.start(clusters)

    def loss(prior):
        return learner.cost(prior) - float(prior.log_marginal(clusters).sum())

    before = loss(family)
    for _ in range(3):
        family = learner.improved(family, clusters)
        assert loss(family) <= before + 1e-9 * abs(before)
        before = loss(family)


@pytest.mark.compiled
def test_a_table_without_numbers_is_clustered_by_its_categories():
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=800)
    share = np.array([[0.9, 0.05, 0.05], [0.05, 0.05, 0.9]])
    values = [np.array([rng.choice(3, p=share[k]) for k in truth]) for _ in range(6)]
    rows = np.hstack([np.eye(3)[v] for v in values])
    found = fit_points(mixed(tuple(np.repeat(np.arange(6), 3))), rows)
    assert found.n_clusters == 2
    assert adjusted_rand_score(truth, found.labels) > 0.9


@pytest.mark.compiled
@pytest.mark.parametrize(("n_columns", "n_values"), [(1, 2), (3, 2), (10, 2), (5, 12), (20, 4)])
def test_independent_categories_leave_the_clusters_as_they_were(n_columns, n_values):
    """In nine of ten draws; here in both of two."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        truth = rng.integers(3, size=1500)
        x = np.array([[0.0, 0.0], [7.0, 0.0], [0.0, 7.0]])[truth] + rng.normal(size=(1500, 2))
        shares = rng.dirichlet(np.ones(n_values), size=n_columns)
        values = [rng.choice(n_values, p=share, size=1500) for share in shares]
        rows = np.hstack([x, *(np.eye(n_values)[v] for v in values)])
        columns = (NUMBER, NUMBER, *np.repeat(np.arange(n_columns), n_values).tolist())
        found = fit_points(mixed(columns), rows)
        assert found.n_clusters == 3
        assert adjusted_rand_score(truth, found.labels) > 0.99


def test_rows_that_are_no_mixed_table_are_refused():
    kind = mixed(COLUMNS)
    good = table(0)
    kind.check(good)
    for column, value, message in ((0, np.nan, "finite"), (1, 0.5, "0 or 1"), (1, 2.0, "0 or 1")):
        bad = good.copy()
        bad[3, column] = value
        with pytest.raises(ValueError, match=message):
            kind.check(bad)
    bad = good.copy()
    bad[2, 1:4] = 1.0
    with pytest.raises(ValueError, match="more than one value"):
        kind.check(bad)


def test_a_family_can_be_pickled():
    points = table(1)
    family = mixed(COLUMNS).informed(points)
    twin = pickle.loads(pickle.dumps(family))
    assert type(twin) is type(family)
    assert_allclose(twin.log_marginal(grouped(points)), family.log_marginal(grouped(points)))
