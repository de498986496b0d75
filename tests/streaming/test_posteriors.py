"""Posteriors of clusters: errors against simulation, ellipses against F, probabilities against the path."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from streamclust import StreamClusterer
from streamclust.families import FAMILIES
from streamclust.streaming.posteriors import mean_errors, posterior_of, rate_errors, squared_radius
from tests.streams import two_kinds


@given(st.floats(4.0, 1e6), st.floats(0.01, 0.999))
def test_the_radius_is_the_quantile_of_hotellings_t_squared(n, probability):
    slow = 2 * (n - 1) / (n - 2) * stats.f.ppf(probability, 2, n - 2)
    assert squared_radius(n, probability) == pytest.approx(slow, rel=1e-6)


@given(st.floats(0.0, 1.0), st.floats(1.0, 1e6))
def test_errors_of_rates_are_those_of_their_posteriors(share, n):
    found = rate_errors("bernoulli", np.array([share]), n)[0]
    assert found == pytest.approx(stats.beta(0.5 + n * share, 0.5 + n * (1 - share)).std(), rel=1e-9)
    found = rate_errors("poisson", np.array([share]), n)[0]
    assert found == pytest.approx(stats.gamma(0.5 + n * share, scale=1 / n).std(), rel=1e-9)


def test_means_are_as_far_off_as_is_said():
    rng = np.random.default_rng(0)
    n, repeats = 12, 4000
    x = rng.normal(size=(repeats, n, 1))
    errors = np.array([mean_errors(each.var(axis=0), 1, float(n))[0] for each in x])
    t = x.mean(axis=1)[:, 0] / errors
    assert stats.kstest(t, stats.t(n - 1).cdf).pvalue > 1e-3


def test_ellipses_hold_the_mean_as_often_as_is_said():
    rng = np.random.default_rng(1)
    names, inside = ("x", "y"), 0
    for _ in range(2000):
        rows = rng.normal(size=(10, 2)) @ np.array([[2.0, 0.0], [1.0, 0.5]])
        found = posterior_of("gaussian", names, rows.mean(axis=0), np.cov(rows.T, bias=True), 0.5, 20.0, 1.0)
        outline = found.ellipse("x", "y", 0.9) - found.mean
        rim = outline @ np.linalg.inv(np.cov(rows.T))
        reach = np.einsum("ij,ij->i", rim, outline)
        assert np.ptp(reach) < 1e-9 * reach[0]
        inside += found.mean @ np.linalg.inv(np.cov(rows.T)) @ found.mean <= reach[0]
    assert abs(inside / 2000 - 0.9) < 4 * np.sqrt(0.09 / 2000)


def test_what_an_ellipse_needs_is_said():
    known = posterior_of("gaussian", ("x", "y"), np.zeros(2), np.eye(2), 0.5, 100.0, 1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        known.ellipse("x", "y", 1.0)
    with pytest.raises(ValueError, match="more than 3 independent events"):
        posterior_of("gaussian", ("x", "y"), np.zeros(2), np.eye(2), 0.5, 4.0, 1.0).ellipse("x", "y")
    with pytest.raises(ValueError, match="no ellipse for counts"):
        posterior_of("poisson", ("x", "y"), np.ones(2), None, 0.5, 100.0, 1.0).ellipse("x", "y")
    one = posterior_of("gaussian", ("x",), np.zeros(1), np.zeros(1), 1.0, 1.0, 1.0)
    assert one.mean_error == {"x": np.inf}
    assert np.isnan(one.degrees_of_freedom)


@pytest.mark.compiled
def test_clusters_have_posteriors():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(4000, 2)) * [1.0, 3.0] + 30.0 * (rng.random((4000, 1)) < 0.25)
    model = StreamClusterer()
    model.learn_many(rows)
    large, small = model.clusters
    assert large.posterior.probability > 0.999
    assert large.posterior.events > 2.5 * small.posterior.events
    for cluster in (large, small):
        known = cluster.posterior
        deviation = np.sqrt(np.diag(cluster.covariance))
        assert list(known.mean_error.values()) == pytest.approx(deviation / np.sqrt(known.events), rel=0.02)
        assert known.share_error == pytest.approx(
            np.sqrt(0.25 * 0.75 / (4 * small.posterior.events)), rel=0.1
        )
        assert known.degrees_of_freedom == pytest.approx(known.events - 1)
        assert np.abs(known.ellipse(0, 1).mean(axis=0) - list(cluster.mean.values())).max() < 1.0
    assert [line.share_error for line in model.describe()] == [
        c.posterior.share_error for c in (large, small)
    ]
    assert "there with probability" not in str(model.describe())


@pytest.mark.compiled
def test_repeated_events_tell_no_more():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(500, 2)) + 30.0 * rng.integers(2, size=(500, 1))
    once, often = StreamClusterer(), StreamClusterer()
    once.learn_many(rows)
    often.learn_many(np.repeat(rows, 10, axis=0))
    errors = [model.clusters[0].posterior.share_error for model in (once, often)]
    assert errors[1] > errors[0] / 2  # ten times as many would have a third of it


@pytest.mark.compiled
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_finite_errors(family):
    rows = two_kinds(family, seed=4)
    model = StreamClusterer(family=family)
    model.learn_many(rows)
    for cluster in model.clusters:
        assert np.isfinite(list(cluster.posterior.mean_error.values())).all()
        assert 0.0 <= cluster.posterior.probability <= 1.0


@pytest.mark.compiled
def test_probabilities_of_numbers_of_clusters_are_those_of_the_merges():
    rng = np.random.default_rng(5)
    model = StreamClusterer(detail="fine")
    model.learn_many(rng.normal(size=(3000, 2)) + 8.0 * rng.integers(4, size=(3000, 1)))
    path = model.path
    evidence = [-path.log_odds[: path.n_finest - k].sum() for k in range(1, path.n_finest + 1)]
    np.testing.assert_allclose(path.probability, special.softmax(evidence), atol=1e-12)
    assert [level.probability for level in model.levels] == path.probability[::-1].tolist()
    for k in range(path.n_finest):
        first = next(t for t, pair in enumerate(path.children) if k in pair)
        assert path.separation[k] == pytest.approx(special.expit(path.log_odds[first]))
