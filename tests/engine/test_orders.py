"""The same mixture in any order, and the sum of its weights."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.batch import StreamEstimator
from streamclust.checkpoint.files import decode, encode
from streamclust.engine import Engine, EngineSettings
from streamclust_connectors.synthetic import Drift
from tests.conftest import INTERPRETED

pytestmark = pytest.mark.compiled

EVENTS = 65_536
"""The watched events reach back over half of them: clusters that are not among those would be retired."""
FIRST_REFITS = 12_288


def grid(k, apart=9.0):
    """k centres, the nearest of them `apart` from each other."""
    side = int(np.ceil(np.sqrt(k)))
    return apart * np.stack(np.divmod(np.arange(k), side), axis=1)


def order(kind, k, n, rng, block=1000, period=None):
    """The cluster of each of n events; in turns, of as many sources as `period` says, the clusters' number if not."""
    i = np.arange(n)
    return {
        "turns": i % (period or k) % k,
        "blocks": i // block % k,
        "sorted": i * k // n,
        "random": rng.permutation(i % k),
    }[kind]


def events(kind, k, n=EVENTS, seed=0, block=1000, period=None):
    rng = np.random.default_rng(seed)
    labels = order(kind, k, n, rng, block, period)
    return grid(k)[labels] + rng.normal(size=(n, 2)), labels


def check_stationary(kind, k, drift="follow", seed=0, period=None):
    """The right clusters, their shares within 2%, and nothing that happens to them after the first refits."""
    rows, labels = events(kind, k, seed=seed, period=period)
    model = StreamClusterer(drift=drift, seed=seed)
    model.learn_many(rows)
    assert model.n_clusters == k
    assert adjusted_rand_score(labels, model.predict_many(rows)) > 0.99
    late = [change for change in model.events if change.at > FIRST_REFITS]
    if kind == "blocks":  # the first absence of a source may be taken for its end, until it returns
        gone = [change for change in late if change.kind == "died"]
        assert len(gone) <= 1
        assert [change.kind for change in late] == ["died", "returned"] * len(gone)
        assert all(set(change.children) == set(gone[0].parents) for change in late[1:])
    else:
        assert late == []
    share = {cluster.id: cluster.share for cluster in model.clusters}
    found = [share[name] for name in model.predict_many(grid(k)).tolist()]
    np.testing.assert_allclose(found, np.bincount(labels) / len(labels), atol=0.02)


@settings(max_examples=5, deadline=None)
@given(st.integers(2, 64), st.integers(2, 16), st.sampled_from(["turns", "random"]), st.integers(0, 100))
@example(2, 2, "turns", 0)
@example(8, 8, "turns", 0)
@example(34, 34, "turns", 0)
@example(64, 16, "turns", 0)
def test_sources_in_turns_or_at_random_are_the_same_mixture(period, k, kind, seed):
    check_stationary(kind, min(k, period), seed=seed, period=period)


@pytest.mark.parametrize("drift", ["follow", "ignore"])
@pytest.mark.parametrize("k", [2, 5, 8])
def test_blocks_shorter_than_the_watched_window_are_the_same_mixture(k, drift):
    check_stationary("blocks", k, drift)


# ---------------------------------------------------------------- what is finite


def found(kind, k, n, seed=0, block=5000):
    """What `fit` makes of the events, back in the order in which they are sorted by cluster."""
    rows, labels = events(kind, k, n, seed, block)
    model = StreamEstimator(seed=seed).fit(rows)
    assert model.n_clusters_ == k
    assert model.clusters_.weight.sum() == pytest.approx(n)
    assert adjusted_rand_score(labels, model.labels_) >= 0.98
    np.testing.assert_allclose(model.clusters_.weight / n, 1 / k, atol=0.02)
    return model


@settings(max_examples=1, deadline=None)
@given(st.integers(0, 1000))
@example(0)
def test_a_file_has_the_same_clusters_in_any_order(seed):
    models = [found(kind, 8, 80_000, seed) for kind in ("sorted", "blocks", "turns", "random")]
    probe, _ = events("random", 8, 8000, seed + 1)
    for one, other in combinations(models, 2):
        assert adjusted_rand_score(one.predict(probe), other.predict(probe)) >= 0.98


@settings(max_examples=4, deadline=None)
@given(st.integers(2, 16), st.sampled_from(["turns", "blocks", "sorted", "random"]), st.integers(0, 1000))
@example(13, "sorted", 0)
def test_what_ignores_drift_finds_any_number_of_clusters_in_any_order(k, kind, seed):
    found(kind, k, EVENTS, seed, block=1000)


def test_what_ignores_drift_retires_nothing_and_stays_so_after_a_restart():
    rows, _ = events("sorted", 8, 80_000)
    model = StreamClusterer(drift="ignore")
    for part in np.split(rows, 8):
        model.learn_many(part)
        model = StreamClusterer.from_state(decode(encode(model.to_state())))
    assert model.drift == "ignore"
    assert not [change for change in model.events if change.kind == "died"]
    assert model.n_clusters == 8
    early = dict(enumerate(rows[0].tolist()))
    assert model.tail_one(early) > 0.001  # as good as any, though none like it came of late


def test_partial_fit_follows_unless_told_otherwise():
    rows, _ = events("sorted", 4, 60_000)
    rows = np.concatenate(
        [rows, np.tile(rows[-10_000:], (20, 1)) + np.random.default_rng(1).normal(size=(200_000, 2)) / 9]
    )
    following, ignoring = (StreamEstimator(drift=drift).partial_fit(rows) for drift in ("follow", "ignore"))
    assert following.n_clusters_ < ignoring.n_clusters_ == 4


def test_there_are_two_ways_to_take_drift():
    with pytest.raises(ValueError, match="drift must be 'follow' or 'ignore', got 'forget'"):
        StreamClusterer(drift="forget")


# ---------------------------------------------------------------- soon


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([(2, 50), (8, 200)]))
def test_clear_clusters_are_told_apart_after_a_few_events(seed, size):
    d, n = size
    rng = np.random.default_rng(seed)
    centres = 30.0 * np.array([np.eye(1, d)[0], np.eye(1, d, 1)[0], np.zeros(d)])
    model = StreamClusterer()
    model.learn_many(centres[rng.permutation(np.arange(n) % 3)] + rng.normal(size=(n, d)))
    assert model.n_clusters == 3
    assert len(set(model.predict_many(centres).tolist())) == 3


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1, 2, 5]))
def test_one_cluster_stays_one_however_few_the_events(seed, d):
    engine = Engine(d, EngineSettings(background=False))
    engine.learn(np.random.default_rng(seed).normal(size=(400, d)))
    assert len(engine.model.ids) == 1


# ---------------------------------------------------------------- weights


@settings(max_examples=3 if INTERPRETED else 8, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from([None, 3000.0, 30_000.0]),
    st.booleans(),
    st.sampled_from([8.0, 60.0]),
)
def test_weights_add_up_to_what_was_learnt(seed, half_life, weighted, distance):
    """Through moves, births, a split, deaths, refits and retirements."""
    n = 45_000
    rng = np.random.default_rng(seed)
    weight = rng.exponential(5.0, size=n) if weighted else np.ones(n)
    model = StreamClusterer(half_life=half_life, max_leaves=64, seed=seed, refit_every=5000)
    done, learnt = 0, 0.0
    for rows, _ in Drift(2, n_events=n, distance=distance, seed=seed).batches(1500):
        part = weight[done : done + len(rows)]
        done += len(rows)
        model.learn_many(rows, weight=part)
        decay = np.ones(len(rows)) if half_life is None else np.exp2(-np.arange(len(rows))[::-1] / half_life)
        learnt = (
            learnt * (1.0 if half_life is None else np.exp2(-len(rows) / half_life)) + (decay * part).sum()
        )
        clusters = model.clusters
        assert sum(cluster.weight for cluster in clusters) == pytest.approx(learnt, rel=1e-9)
        assert sum(cluster.share for cluster in clusters) == pytest.approx(1.0)
        assert all(cluster.weight > 0 for cluster in clusters)


@pytest.mark.parametrize("seed", range(8))
def test_a_cluster_of_two_percent_that_appears_is_born_soon(seed):
    """Of its first events a few are watched: they must not pass for the usual share of events outside all clusters."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=8.0, size=(11, 8))
    known, late = np.append(np.full(10, 0.1), 0.0), np.append(np.full(10, 0.098), 0.02)
    model = StreamClusterer(background=False)
    model.learn_many(centres[rng.choice(11, size=20_000, p=known)] + rng.normal(size=(20_000, 8)))
    before = set(model.lineage.born_at)
    model.learn_many(centres[rng.choice(11, size=5000, p=late)] + rng.normal(size=(5000, 8)))
    (cluster,) = set(model.predict_many(centres[10:] + rng.normal(size=(1, 8))).tolist())
    assert cluster not in before
