"""Missing values: drawn from the model, the same however events are batched, and no evidence of clusters."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.checkpoint.files import encode
from streamclust.checkpoint.state import engine_from_state, engine_state
from streamclust.engine.engine import Engine
from streamclust.engine.event_ring import side_by_side
from streamclust.engine.imputation import Gaps, imputed, supported, uniforms
from streamclust.engine.model import Model
from streamclust.engine.projection import Projection
from streamclust.engine.rollback import attempt
from streamclust.engine.settings import EngineSettings
from streamclust.engine.watched_events import WatchedEvents
from streamclust.families import Finite, Gaussian
from streamclust.moments import Moments
from streamclust.refit.partition import Partition
from tests.naive import imputing as naive

pytestmark = pytest.mark.compiled

CENTRES = np.array([[0, 0, 0], [12, 0, 0], [0, 12, 6], [12, 12, 0], [24, 6, 12]], float)


def events(n, gone=0.2, seed=0):
    """Five clusters, each value missing with this probability, and the cluster of each event."""
    rng = np.random.default_rng(seed)
    of = rng.integers(5, size=n)
    rows = CENTRES[of] + rng.normal(size=(n, 3)) @ np.array([[1, 0.6, 0], [0, 1, 0.4], [0, 0, 1]])
    missing = rng.random(rows.shape) < gone
    missing[missing.all(axis=1)] = False
    missing[0] = False
    return np.where(missing, np.nan, rows), of


def engine_of(rows, weight=()):
    """An engine that has learnt rows that may lack values."""
    engine = Engine(rows.shape[1], EngineSettings(background=False))
    Projection(engine).learn(rows, np.asarray(weight, dtype=float), np.empty(0))
    return engine


def bits(model):
    return encode(model.to_state())


def gaussian_model(mean, covariance, weight):
    """A model of Gaussian clusters of these moments."""
    clusters = Moments(weight, mean, covariance * weight[:, None, None], "full")
    family = Gaussian.informed(mean, "bkm")
    return Model(1, 10, Partition(family, Finite(1.0), np.zeros(0, int), clusters, 0.0, 1.0), (0, 1))


# -------------------------------------------------------------------- draws


@given(st.integers(0, 2**32), st.integers(2, 5))
@settings(deadline=None, max_examples=25)
def test_values_are_drawn_as_the_slow_twin_draws_them(seed, d):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2, d, d)) + 2 * np.eye(d)
    model = gaussian_model(rng.normal(size=(2, d)), root @ root.transpose(0, 2, 1), np.array([700.0, 300.0]))
    mean, covariance = model.gaussians
    rows = (
        mean[rng.integers(2, size=20)] + rng.normal(size=(20, d)) / 4
    )  # near: farther ones are taken as nearer
    missing = rng.random((20, d)) < 0.5
    missing[missing.all(axis=1), 0] = False
    number = rng.integers(2**40, size=20)
    u = uniforms(number, 3, d + 1)
    filled = imputed(model, np.where(missing, np.nan, rows), missing, number, 3)
    for i in range(20):
        expected = naive.drawn(rows[i], missing[i], u[i], model.log_share, mean, covariance)
        np.testing.assert_allclose(filled[i], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("gone", [0.2, 0.5])
def test_draws_leave_moments_as_they_are(gone):
    covariance = np.array([[[4.0, 1.5], [1.5, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    model = gaussian_model(np.array([[0.0, 0.0], [40.0, 40.0]]), covariance, np.array([5e5, 5e5]))
    rng = np.random.default_rng(0)
    rows = rng.multivariate_normal([0, 0], covariance[0], size=40_000)
    missing = rng.random(rows.shape) < gone
    missing[missing.all(axis=1)] = False
    filled = imputed(model, rows, missing, np.arange(40_000), 0)
    np.testing.assert_allclose(filled.mean(axis=0), [0, 0], atol=0.05)
    np.testing.assert_allclose(np.cov(filled.T), covariance[0], atol=0.1)
    assert len(np.unique(filled)) == filled.size  # no value twice: no atoms


def test_far_events_are_not_extrapolated():
    covariance = np.array([[[1.0, 0.99], [0.99, 1.0]]] * 2)
    model = gaussian_model(np.array([[0.0, 0.0], [3.0, 3.0]]), covariance, np.array([500.0, 500.0]))
    filled = imputed(model, np.array([[1e6, np.nan]]), np.array([[False, True]]), np.array([0]), 0)
    assert abs(filled[0, 1]) < 20


@pytest.mark.parametrize("family", ["poisson", "bernoulli", "multinomial"])
def test_missing_counts_are_drawn_as_counts(family):
    rng = np.random.default_rng(0)
    of = rng.integers(2, size=3000)
    if family == "bernoulli":
        rows = (rng.random((3000, 8)) < np.where(of[:, None] == np.arange(8) % 2, 0.95, 0.05)).astype(float)
    else:
        rows = rng.poisson(np.where(of[:, None] == np.arange(8) % 2, 30.0, 5.0)).astype(float)
    y = np.where(rng.random(rows.shape) < 0.3, np.nan, rows)
    y[0] = rows[0]
    model = StreamClusterer(family=family, missing="impute", background=False)
    model.learn_many(y)
    model.settle()
    assert model.n_clusters == 2
    assert adjusted_rand_score(of, model.predict_many(rows)) > 0.98
    points, _ = model.shards.tree(0).sample()
    assert np.all((points >= 0) & (points == np.rint(points)))
    means = np.array([list(cluster.mean.values()) for cluster in model.clusters])
    expected = np.array([rows[of == k].mean(axis=0) for k in (0, 1)])
    order = np.argsort(means[:, 0]), np.argsort(expected[:, 0])
    np.testing.assert_allclose(means[order[0]], expected[order[1]], rtol=0.2, atol=0.05)


# -------------------------------------------------------------------- the number of clusters


@pytest.mark.parametrize(
    ("gone", "options"),
    [(0.05, {}), (0.2, {}), (0.5, {}), (0.2, {"mixture": "uninformative"}), (0.2, {"refit": "chunky-em"})],
)
def test_missing_values_make_no_clusters(gone, options):
    rows, of = events(5000, gone)
    model = StreamClusterer(background=False, **options)
    model.learn_many(rows)
    model.settle()
    assert model.n_clusters == 5
    complete, own = events(2000, 0.0, seed=1)
    assert adjusted_rand_score(own, model.predict_many(complete)) > 0.98
    assert adjusted_rand_score(of, model.predict_many(rows)) > 0.99 - gone


def test_features_that_are_never_seen_together():
    rows, _ = events(5000, 0.0)
    rows[np.arange(5000), np.random.default_rng(1).integers(2, size=5000)] = np.nan
    rows[0] = 0.0
    model = StreamClusterer(background=False)
    model.learn_many(rows)
    model.settle()
    assert model.n_clusters <= 10


def test_components_of_filled_values_are_not_supported():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(900, 2)) + np.where(np.arange(900) < 450, 0.0, 10.0)[:, None]
    missing = np.zeros(rows.shape, dtype=bool)
    missing[::3, 1] = True
    rows[:300:3, 1] = 10 + rng.normal(size=100)  # as a wrong model would draw them: no event lies at (0, 10)
    clusters = [rows[450:], rows[:450][~missing[:450, 1]], rows[:300:3]]
    moments = Moments.stack([Moments.of_points(part, None, "full") for part in clusters])
    family = Gaussian.informed(rows, "bkm")
    model = Model(1, 900, Partition(family, Finite(1.0), np.zeros(0, int), moments, 0.0, 1.0), (0, 1, 2))
    assert supported(model, Gaps(rows, missing, np.ones(900))).tolist() == [True, True, False]


# -------------------------------------------------------------------- laws


@given(st.lists(st.integers(1, 900), min_size=1, max_size=8), st.booleans())
@settings(deadline=None, max_examples=4)
def test_batching_is_invisible(sizes, joins_late):
    rows, _ = events(1800, 0.3)
    if joins_late:
        rows[:500, 2] = np.nan
        rows[np.isnan(rows).all(axis=1), 0] = 1.0
    whole, parts = StreamClusterer(background=False), StreamClusterer(background=False)
    whole.learn_many(rows)
    done, i = 0, 0
    while done < len(rows):
        size = sizes[i % len(sizes)]
        parts.learn_many(rows[done : done + size], shard=0)
        done, i = done + size, i + 1
    assert bits(whole) == bits(parts)


@pytest.mark.parametrize("half_life", [None, 500.0])
def test_one_by_one_or_together_in_shards(half_life):
    rows, _ = events(900, 0.3)
    many, one = (StreamClusterer(background=False, half_life=half_life) for _ in range(2))
    for start in range(0, 900, 60):
        many.learn_many(rows[start : start + 60], shard=start % 120)
        for row in rows[start : start + 60].tolist():
            one.learn_one({i: x for i, x in enumerate(row) if x == x}, shard=start % 120)
    assert bits(many) == bits(one)


@pytest.mark.parametrize("at", [150, 4500])
def test_restart_is_invisible(tmp_path, at):
    rows, _ = events(5000, 0.3)
    whole = StreamClusterer(background=False)
    whole.learn_many(rows)
    first = StreamClusterer(background=False)
    first.learn_many(rows[:at])
    first.save(tmp_path / "x")
    second = StreamClusterer.load(tmp_path / "x")
    second.learn_many(rows[at:])
    assert bits(whole) == bits(second)


def test_older_checkpoints_have_no_missing_values():
    rows, _ = events(1000, 0.3)
    state = engine_state(engine_of(rows))
    for name in [name for name in state.arrays if name.endswith(".missing")]:
        del state.arrays[name]
    for part in state.values["shards"]:
        del part["learnt_here"]
    engine = engine_from_state(state)
    assert engine.shards.recent.gaps() is None
    Projection(engine).learn(events(3000, 0.3, seed=1)[0], np.empty(0), np.empty(0))
    assert engine.n_seen == 4000


def test_the_tree_of_few_events_is_built_anew():
    rows, _ = events(3000, 0.3)
    engine = engine_of(rows, np.random.default_rng(0).uniform(0.5, 2.0, size=3000))
    before = engine.shards[0].tree
    engine.settle()
    part = engine.shards[0]
    assert part.tree is not before
    assert part.tree.n_events == 3000
    expected = Moments.of_points(part.watch.latest(), part.watch.weights(), "full")
    np.testing.assert_allclose(part.tree.total.weight, expected.weight)
    np.testing.assert_allclose(part.tree.total.mean, expected.mean)
    np.testing.assert_allclose(part.tree.total.scatter, expected.scatter, rtol=1e-9, atol=1e-6)
    np.testing.assert_array_equal(np.where(part.watch.latest_missing(), np.nan, part.watch.latest()), rows)


def test_an_attempt_that_fails_puts_back_what_was_drawn():
    rows, _ = events(1500, 0.3)
    engine = engine_of(rows)
    trees = copy.copy([part.tree for part in engine.shards.values()])
    drawn = (
        engine.shards.recent.watched_rows().copy(),
        engine.shards.recent.latest()[0].copy(),
        engine.shards.recent.strays.latest().copy(),
    )
    other = gaussian_model(np.full((2, 3), 50.0), np.array([np.eye(3)] * 2), np.array([750.0, 750.0]))

    def publish_and_fail():
        engine.shards.impute(other)
        assert not np.array_equal(engine.shards.recent.watched_rows(), drawn[0])
        raise ValueError("no")

    attempt(engine.stream, publish_and_fail)
    assert [part.tree for part in engine.shards.values()] == trees
    kept = (
        engine.shards.recent.watched_rows(),
        engine.shards.recent.latest()[0],
        engine.shards.recent.strays.latest(),
    )
    assert all(np.array_equal(a, b) for a, b in zip(kept, drawn, strict=True))


def test_a_ring_knows_which_values_were_missing():
    one, other = WatchedEvents(2), WatchedEvents(2)
    rows, missing = np.arange(8.0).reshape(4, 2), np.array([[0, 0], [1, 0], [0, 0], [0, 1]], dtype=bool)
    one.see(rows[:1], 0)
    assert one.missing is None
    one.see(rows[1:], 1, missing=missing[1:])
    np.testing.assert_array_equal(one.latest_missing(), missing)
    other.see(rows, 0)
    one.refill(side_by_side(one.kept(), 4, other.kept(), 4), count=8)
    merged = np.stack([missing, np.zeros((4, 2), dtype=bool)], axis=1).reshape(8, 2)  # the two alternate
    np.testing.assert_array_equal(one.latest_missing(), merged)
    one.reorder(np.array([1, 0]))
    np.testing.assert_array_equal(one.latest_missing(), merged[:, ::-1])
    one.widen(np.array([7.0]), unknown=True)
    assert one.latest_missing()[:, 2].all()
    other.widen(np.array([7.0]))
    assert other.missing is None
