"""The engine's parts: the watch, the present, births, the schedule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamclust.engine import Engine, EngineSettings, schedule
from streamclust.engine.event_ring import side_by_side
from streamclust.engine.leaf_shares import WithStrays, as_of_now, drifted, p_value_of_shares
from streamclust.engine.newborn import newborn
from streamclust.engine.schedule import NEVER
from streamclust.engine.shard import Shard
from streamclust.engine.tuning import TUNING
from streamclust.engine.watched_events import WatchedEvents, watched_in
from streamclust.refit.dp_means.online import lead
from streamclust.tree import SummaryTree
from streamclust_connectors.synthetic import SyntheticMixture
from tests.streams import clustered

# ---------------------------------------------------------------- watch


@given(
    st.integers(1, 3 * TUNING.window_events), st.lists(st.integers(1, 3 * TUNING.window_events), max_size=5)
)
def test_what_is_watched_does_not_depend_on_batches(n, cuts):
    rows = np.arange(float(n))[:, None]
    whole, parts = WatchedEvents(1), WatchedEvents(1)
    whole.see(rows, 0)
    for piece in np.split(rows, sorted({c for c in cuts if c < n})):
        parts.see(piece, int(piece[0, 0]))
    np.testing.assert_array_equal(whole.latest(), parts.latest())
    chosen = set(watched_in(np.arange(n // TUNING.block_events + 1)).tolist())
    expected = [i for i in range(n) if i < TUNING.window_events or i in chosen][-TUNING.window_events :]
    np.testing.assert_array_equal(whole.latest()[:, 0], expected)
    np.testing.assert_array_equal(whole.numbers(), expected)


@given(st.integers(2, 64))
def test_one_event_in_each_block_is_watched_whatever_the_period_of_the_stream(period):
    numbers = watched_in(np.arange(64 * period))
    np.testing.assert_array_equal(numbers // TUNING.block_events, np.arange(64 * period))
    assert np.bincount(numbers % period, minlength=period).min() >= 30  # of 64


def test_two_watches_become_one():
    first, second = WatchedEvents(1), WatchedEvents(1)
    first.see(np.zeros((10, 1)), 0, np.full(10, 2.0))
    second.see(np.ones((4, 1)), 0)
    first.refill(side_by_side(first.kept(), 10, second.kept(), 4), WatchedEvents.due(14))
    np.testing.assert_array_equal(first.latest()[:, 0], [0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(first.weights(), np.where(first.latest()[:, 0], 1, 2))


# ---------------------------------------------------------------- the present


@pytest.mark.compiled
@pytest.mark.parametrize("d", [2, 8])
def test_a_stationary_stream_does_not_drift_and_a_moved_one_does(d):
    rows, _ = clustered(60_000, d, k=6, seed=1)
    tree = SummaryTree(d, max_leaves=256)
    tree.insert(rows)
    latest = rows[-32_768::8]
    weight = np.ones(len(latest))
    assert p_value_of_shares(tree, latest, weight) > 1e-4
    assert drifted(tree, latest + 0.5, weight)
    assert drifted(tree, latest[latest[:, 0] > np.median(latest[:, 0])], weight[: len(latest) // 2])


@pytest.mark.compiled
def test_the_present_weighs_leaves_by_the_latest_events():
    rows, labels = clustered(20_000, 2, k=4, seed=3, spread=20.0)
    tree = SummaryTree(2, max_leaves=64)
    tree.insert(rows)
    now = as_of_now(tree, rows[labels == 1], np.ones((labels == 1).sum()))
    assert now.total.weight[0] == pytest.approx(20_000, rel=0.01)
    np.testing.assert_allclose(now.total.mean[0], rows[labels == 1].mean(axis=0), atol=0.5)


# ---------------------------------------------------------------- births


@pytest.mark.compiled
def test_the_present_of_what_forgets_is_no_older_than_its_memory():
    rng = np.random.default_rng(0)
    late = np.arange(6000) >= 3000
    labels = np.where(late, rng.random(6000) < 0.75, rng.random(6000) < 0.1)
    engine = Engine(1, EngineSettings(half_life=300.0, background=False))
    engine.learn(rng.normal(size=(6000, 1)) + 9.0 * labels[:, None])
    kept = np.exp2(-np.arange(6000)[::-1] / 300.0)
    shares = engine.queries.clusters().weight / engine.queries.clusters().weight.sum()
    assert shares.max() == pytest.approx(kept[labels].sum() / kept.sum(), abs=0.05)


@pytest.fixture
def engine():
    rng = np.random.default_rng(0)
    engine = Engine(2, EngineSettings(background=False))
    engine.learn(rng.normal(size=(1000, 2)) + 20.0 * rng.integers(2, size=(1000, 1)))
    return engine


def test_a_group_of_outsiders_is_a_birth_and_scattered_ones_are_not(engine):
    rng = np.random.default_rng(1)
    group = rng.normal(size=(12, 2)) + np.array([0.0, 40.0])
    scattered = rng.uniform(-500, 500, size=(12, 2))
    born = newborn(engine.model, np.concatenate([group, scattered]))
    assert len(born) == 1
    np.testing.assert_allclose(born.mean[0], group.mean(axis=0))
    assert np.linalg.eigvalsh(born.covariance[0]).min() > 0
    assert len(newborn(engine.model, group[:3])) == 0


def test_leaders_take_what_is_within_reach():
    points = np.array([[0.0], [3.0], [1.0], [10.0], [9.5], [4.9]])
    assert lead(points, 4.0).tolist() == [0, 1, 0, 2, 2, 1]


@pytest.mark.compiled
@pytest.mark.parametrize("penalty", [None, 100.0])
def test_a_new_cluster_is_shown_before_any_refit_found_it(penalty):
    rng = np.random.default_rng(0)
    told = []
    engine = Engine(2, EngineSettings(background=False, birth_penalty=penalty), told.append)
    old = rng.normal(size=(12 * TUNING.look_events, 2))
    engine.learn(old)
    before = len(told)
    new = (
        rng.normal(size=(TUNING.look_events, 2))
        + np.where(rng.random(TUNING.look_events) < 0.5, 0.0, 30.0)[:, None]
    )
    engine.learn(new)
    assert [change.kind for change in told[before:]] == ["born"]
    assert told[before].at < len(old) + 100  # by its first events
    assert engine.model.predict(np.array([[30.0, 30.0]])) == [engine.model.ids[-1]]
    engine.learn(np.tile(new, (2, 1)))
    assert engine.counters.change_due == NEVER
    assert [change.kind for change in told[before:]] == ["born"]  # the refit has confirmed it in silence


# ---------------------------------------------------------------- schedule and shards


def test_refits_come_often_at_first_and_then_as_evidence_grows():
    n, at = 0, []
    while n < 1_000_000:
        n = schedule.next_refit(n, evidence=n, warmup=100, every=20_000)
        at.append(n)
    assert at[:5] == [100, 200, 400, 800, 1600]
    gaps = np.diff(at)
    assert all(gaps[i] <= gaps[i + 1] for i in range(len(gaps) - 1))
    assert at[-1] == at[-2] + at[-2] // 2
    assert schedule.next_refit(4000, evidence=4000, warmup=100, every=20_000, quiet=True) == 16_000
    assert schedule.next_refit(40_000, evidence=100, warmup=100, every=20_000, quiet=True) == 60_000
    for every in (
        2_000,
        20_000,
    ):  # a full sample shows a refit of quiet clusters little that the last did not see
        assert schedule.next_refit(40_000, 40_000, 100, every, quiet=True, full=True) == 160_000
    assert schedule.next_refit(40_000, 40_000, 100, 20_000, quiet=False, full=True) == 60_000
    forgetting = schedule.next_refit(1_000_000, evidence=10_000, warmup=100, every=20_000)
    assert forgetting == 1_020_000


def test_clusters_are_quiet_once_a_refit_of_several_has_changed_none():
    assert schedule.quiet(4096, n_clusters=3, ids_changed=False)
    assert not schedule.quiet(4096, n_clusters=3, ids_changed=True)
    assert not schedule.quiet(4096, n_clusters=1, ids_changed=False)
    assert not schedule.quiet(4095, n_clusters=3, ids_changed=False)


def test_shards_are_summarised_apart_and_clustered_together():
    rows, labels = clustered(2000, 2, k=4, seed=5, spread=20.0)
    engine = Engine(2, EngineSettings(background=False))
    for part in range(4):
        engine.learn(rows[labels == part], shard=("topic", part))
    engine.settle()
    assert len(engine.shards) == 4
    assert engine.model.result.n_clusters == 4
    assert engine.shards.merged_tree().total.weight[0] == pytest.approx(2000)


def test_a_shard_can_move_to_another_engine():
    rows, labels = clustered(2000, 2, k=2, seed=5, spread=20.0)
    here, there = (Engine(2, EngineSettings(background=False)) for _ in range(2))
    here.learn(rows[labels == 0], shard="a")
    here.learn(rows[labels == 1], shard="b")
    part = here.release("b")
    assert isinstance(part, Shard)
    there.adopt("b", part)
    there.learn(rows[labels == 1][:10], shard="b")
    assert there.shards["b"].tree.n_events == (labels == 1).sum() + 10
    assert here.shards.merged_tree().n_events == (labels == 0).sum()
    with pytest.raises(ValueError, match="already"):
        there.adopt("b", part)


def test_engines_of_different_settings_do_not_merge():
    one, other = Engine(2, EngineSettings()), Engine(2, EngineSettings(half_life=5.0))
    with pytest.raises(ValueError, match="same settings"):
        one.merge(other)


# ---------------------------------------------------------------- strays


def test_strays_take_the_place_of_what_the_sample_has_of_their_kind(engine):
    tree = engine.shards.merged_tree()
    few = np.random.default_rng(2).normal(size=(4, 2)) + 300.0
    tree.insert(few)
    strays = np.random.default_rng(3).normal(size=(50, 2)) + 300.0
    points, weight = WithStrays(tree, engine.model.large, strays).sample()
    assert weight.sum() == pytest.approx(1004)
    far = points[:, 0] > 200
    assert far.sum() == 50
    assert weight[far].sum() == pytest.approx(4.0)
    unchanged = WithStrays(tree, engine.model.large, strays[:2]).sample()
    np.testing.assert_array_equal(unchanged[0], tree.sample()[0])


@pytest.mark.compiled
def test_rare_clusters_are_told_apart():
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(8, 8)) * 8.0
    share = np.r_[np.full(5, 0.199), np.full(3, 0.005 / 3)]
    labels = rng.choice(8, size=200_000, p=share / share.sum())
    rows = centres[labels] + rng.normal(size=(200_000, 8))
    engine = Engine(8, EngineSettings(background=False))
    engine.learn(rows)
    engine.settle()
    large, rare = np.split(engine.model.predict(centres), [5])
    assert len(set(large.tolist())) == 5
    assert not set(large.tolist()) & set(rare.tolist())
    assert len(set(rare.tolist())) >= 2  # the leaves' samples alone show all three as one


@pytest.mark.compiled
def test_rare_clusters_of_other_shapes_than_the_large_ones_are_told_apart():
    """The prior learnt from the large clusters expects other covariances: under it all rare ones pay as one."""
    found = 0
    for seed in range(6):
        rng, mixture = np.random.default_rng(seed), SyntheticMixture(8, 8, 2.0, seed=seed)
        share = np.r_[np.full(5, 0.994), np.full(3, 0.01)] / 5
        labels = rng.choice(8, size=100_000, p=share / share.sum())
        noise = rng.normal(size=(100_000, 8))
        rows = mixture.centroids[labels] + np.einsum("nij,nj->ni", mixture.roots[labels], noise)
        engine = Engine(8, EngineSettings(background=False))
        engine.learn(rows)
        engine.settle()
        shared = np.zeros((8, 100))
        np.add.at(shared, (labels, np.unique(engine.model.predict(rows), return_inverse=True)[1]), 1)
        own = shared[5:].argmax(axis=1)
        most = shared[[5, 6, 7], own]
        found += np.sum((2 * most > shared[5:].sum(axis=1)) & (2 * most > shared[:, own].sum(axis=0)))
    assert found >= 6  # of 18
