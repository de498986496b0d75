"""Running posteriors: what the published clusters learn between refits."""

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.engine.cluster_updates import with_latest
from tests.streams import clustered


def learnt(n, k=3, **options):
    rows, labels = clustered(n, 2, k=k, seed=5, spread=12.0)
    model = StreamClusterer(**options)
    model.learn_many(rows)
    return model, rows, labels


def test_clusters_learn_the_events_nearest_to_them():
    model = learnt(1000)[0].model
    old, (rows, _) = model.current.clusters, clustered(200, 2, k=3, seed=5, spread=12.0)
    far = np.vstack([rows, [[1e4, 1e4]]])  # outside every cluster: changes none
    found = with_latest(
        model, far, np.ones(201), model.see(far).cell, fresh=500.0, present=3000.0, total=3000.0
    )
    assert found.weight.sum() == pytest.approx(3000.0)
    nearest = model.nearest(rows).component
    for k in range(len(old)):
        own = rows[nearest == k]
        before, more = 2500.0 * old.weight[k] / old.weight.sum(), 500.0 * len(own) / len(rows)
        mean = (before * old.mean[k] + more * own.mean(axis=0)) / (before + more)
        assert found.weight[k] == pytest.approx(before + more)
        np.testing.assert_allclose(found.mean[k], mean)
        gaps = np.subtract([old.mean[k], own.mean(axis=0)], mean)
        spread = (
            before * (old.covariance[k] + np.outer(gaps[0], gaps[0]))
            + more * (np.cov(own.T, bias=True) + np.outer(gaps[1], gaps[1]))
        ) / (before + more)
        np.testing.assert_allclose(found.covariance[k], spread)


def test_events_outside_every_cluster_change_none():
    model = learnt(1000)[0].model
    apart = np.full((5, 2), 1e4)
    found = with_latest(
        model, apart, np.ones(5), model.see(apart).cell, fresh=5.0, present=2000.0, total=2000.0
    )
    old = model.current.clusters
    np.testing.assert_allclose(found.weight, old.weight * 2000.0 / old.weight.sum())
    np.testing.assert_array_equal(found.mean, old.mean)


@pytest.mark.compiled
@pytest.mark.parametrize(
    "options", [{}, {"refit": "chunky-em"}, {"family": "diagonal"}, {"drift": "ignore"}], ids=str
)
def test_weights_in_use_are_those_of_all_events_seen(options):
    """14 looks after the last refit; the share of a cluster has changed meanwhile in neither."""
    model, rows, labels = learnt(30_720, k=4, **options)
    clusters = model.model.clusters
    assert clusters.weight.sum() == pytest.approx(len(rows), rel=1e-9)
    assert model.model.running is not None
    for c in range(4):
        own = model.model.names.tolist().index(
            model.predict_one(dict(enumerate(rows[labels == c].mean(axis=0))))
        )
        assert clusters.weight[own] == pytest.approx((labels == c).sum(), rel=0.05)


@pytest.mark.compiled
def test_a_new_share_is_learnt_between_refits():
    """Clusters swap their shares right after a refit, within the clusters that there are."""
    rng = np.random.default_rng(3)
    kind = np.concatenate([rng.random(21_000) < 0.1, rng.random(9_720) < 0.5]).astype(float)
    rows = np.column_stack([20.0 * kind, np.zeros(len(kind))]) + rng.normal(size=(len(kind), 2))
    model = StreamClusterer(drift="ignore", refit_every=10**9)
    model.learn_many(rows)
    share = model.predict_proba_one({})  # of an event of which nothing is known
    second = model.predict_one({0: 20.0, 1: 0.0})
    assert share[second] == pytest.approx(kind[: len(kind) // 1024 * 1024].mean(), abs=0.02)


@pytest.mark.compiled
def test_families_of_counts_learn_too():
    rng = np.random.default_rng(1)
    rows = rng.poisson(np.where(rng.random((5000, 1)) < 0.5, [[2.0, 30.0]], [[30.0, 2.0]])).astype(float)
    model = StreamClusterer(family="poisson")
    model.learn_many(rows)
    assert model.model.running is not None
    assert model.model.clusters.weight.sum() == pytest.approx(4096, rel=1e-9)  # as of the last look


def test_a_row_that_no_cluster_can_have_produced_belongs_to_the_nearest(monkeypatch):
    """Its density is 0 in double precision under every cluster: the probability is not 0 / 0."""
    model = StreamClusterer()
    model.learn_many(np.random.default_rng(0).normal(size=(500, 2)))
    monkeypatch.setattr(
        type(model.model), "log_joint", lambda self, rows: np.full((len(rows), len(self.rows)), -np.inf)
    )
    assert model.assign_many(model.check(np.zeros((3, 2)))).probability.tolist() == [1.0, 1.0, 1.0]
