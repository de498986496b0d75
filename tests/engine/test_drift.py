"""The ladder of windows: what differs, since when, and how the clusters follow."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust._kernels.engine.windows import (
    ORDINARY_DEVIATIONS,
    at_rest,
    block_sums,
    ladder_statistics,
    mean_statistics,
)
from streamclust.engine import Engine, EngineSettings
from streamclust.engine.cluster_updates import moved
from streamclust.engine.drift import fit, p_value, p_values
from streamclust.engine.results import reach
from streamclust.engine.tuning import TUNING
from streamclust.engine.watched_events import WatchedEvents
from streamclust.lineage import Change
from streamclust_connectors.synthetic import Drift
from tests.streams import clustered


@pytest.fixture(scope="module")
def published():
    """The model of three clusters 12 deviations apart."""
    model = StreamClusterer()
    model.learn_many(sample(1200, 0))
    return model.model.published


def sample(n, seed, offset=0.0):
    rng = np.random.default_rng(seed)
    return 12.0 * np.eye(3, 2)[rng.integers(3, size=n)] + rng.normal(size=(n, 2)) + offset


def sums(model, rows, weight=None):
    weight = np.ones(len(rows)) if weight is None else weight
    return block_sums(*model.see(rows), weight, len(model.rows) + 1, len(rows))[0]


def test_points_are_seen_as_the_slow_way_sees_them(published):
    rows = np.vstack([sample(50, 1), [[400.0, 0.0]]])
    cell, whitened = published.see(rows)
    near, far = published.nearest(rows), published.outside(rows)
    assert_array_equal(cell, np.where(far, 3, near.component))
    assert far[-1]
    assert not whitened[far].any()
    assert_allclose((whitened[~far] ** 2).sum(axis=1) / 2, near.distance[~far], rtol=1e-9)
    assert (near.distance[~far] <= reach(2)).all()


def test_sums_are_those_of_blocks_from_the_newest_back(published):
    rows, weight = sample(10, 2), np.arange(1.0, 11.0)
    cell, whitened = published.see(rows)
    blocks = block_sums(cell, whitened, weight, 4, 4)
    assert blocks.shape == (2, 4, 6)  # the two oldest are in no whole block
    for block, part in zip(blocks, (slice(6, 10), slice(2, 6)), strict=True):
        for c in range(4):
            w, y = weight[part][cell[part] == c], whitened[part][cell[part] == c]
            assert_allclose(block[c], [w.sum(), (w**2).sum(), *w @ y, *w @ y**2], atol=1e-12)


def test_statistics_of_two_windows_are_those_of_their_means(published):
    new, old = sample(300, 3), sample(500, 4, offset=0.2)
    every, largest, cells = mean_statistics(sums(published, new), sums(published, old), TUNING.min_sample)
    gaps = []
    for c in range(3):
        one, two = (see.whitened[see.cell == c] for see in (published.see(new), published.see(old)))
        n, m = len(one), len(two)
        variance = np.maximum(1.0, (n * one.var(axis=0) + m * two.var(axis=0)) / (n + m))
        gaps.append((n * m / (n + m) * (one.mean(axis=0) - two.mean(axis=0)) ** 2 / variance).sum())
    assert_allclose([every, largest, cells], [sum(gaps), max(gaps), 3])


def test_weights_count_by_their_effective_number(published):
    new, old = sample(300, 3), sample(500, 4)
    one = mean_statistics(sums(published, new), sums(published, old), TUNING.min_sample)
    many = mean_statistics(sums(published, new, np.full(300, 7.0)), sums(published, old), TUNING.min_sample)
    assert_allclose(one, many)


@pytest.mark.compiled
def test_windows_of_one_stream_differ_as_rarely_as_chance_says(published):
    p = np.array(
        [
            p_value(sums(published, sample(256, 2 * i)), sums(published, sample(256, 2 * i + 1)))
            for i in range(300)
        ]
    )
    assert (p < 0.1).mean() < 0.15
    assert p.min() > TUNING.rare_p_value
    assert (
        p_value(sums(published, sample(256, 1)), sums(published, sample(256, 2, offset=0.7)))
        < TUNING.rare_p_value
    )


def test_shares_are_no_drift(published):
    rows = sample(2000, 8)
    first = rows[published.see(rows).cell == 0]
    assert p_value(sums(published, first), sums(published, rows)) > TUNING.rare_p_value


def test_statistics_of_the_ladder_are_those_of_its_windows(published):
    rows = sample(20 * 16, 9)
    blocks = block_sums(*published.see(rows), np.ones(len(rows)), 4, 16)
    found = ladder_statistics(blocks, 2.0)
    assert len(found) == 4  # 1, 2, 4 and 8 of 20 blocks, each against as many
    for i, row in enumerate(found):
        n = 16 << i
        new, old = sums(published, rows[-n:]), sums(published, rows[-2 * n : -n])
        assert_allclose(row, mean_statistics(new, old, 2.0))


@pytest.mark.parametrize("df", [1, 2, 3, 10, 100, 10_000])
def test_what_is_ordinary_is_no_reason_to_move(df):
    largest = df + ORDINARY_DEVIATIONS * np.sqrt(2 * df)
    assert p_values(np.array([[largest, largest, 1.0]]), df)[0] > 10 * TUNING.rare_p_value


@pytest.mark.compiled
def test_windows_are_at_rest_only_where_no_p_value_is_small(published):
    told = []
    for seed in range(40):
        rows = sample(8 * TUNING.look_sample_events, seed)
        rows[-TUNING.look_sample_events * (seed % 4) :] += 0.02 * seed
        blocks = block_sums(*published.see(rows), np.ones(len(rows)), 4, TUNING.look_sample_events)
        told.append(at_rest(blocks[0], blocks, 0.01, TUNING.min_sample))
        if told[-1]:
            ladder = p_values(ladder_statistics(blocks, TUNING.min_sample), 2)
            assert min(fit(blocks[0]), *ladder) >= TUNING.rare_p_value
    assert 0 < sum(told) < len(told)
    apart = block_sums(
        *published.see(sample(256, 0, offset=90.0)), np.ones(256), 4, TUNING.look_sample_events
    )
    assert not at_rest(apart[0], apart, 0.01, TUNING.min_sample)


@pytest.mark.compiled
def test_sums_of_watched_events_are_kept_as_if_summed_anew(published):
    watch, seen = WatchedEvents(2), 0
    for n in (300, 2048, 2048, 8192, 100, 2048, 40_000, 2048):
        watch.see(sample(n, n), seen)
        seen += n
        rows, weight = watch.latest(), watch.weights()
        anew = block_sums(*published.see(rows), weight, 4, TUNING.look_sample_events)
        assert_array_equal(watch.sums_by(published, TUNING.look_sample_events), anew)


def test_an_empty_window_tells_nothing(published):
    assert p_value(np.zeros((4, 6)), sums(published, sample(256, 1))) == 1.0


@pytest.mark.compiled
def test_watched_events_are_labelled_once_and_as_if_anew(published):
    watch = WatchedEvents(2)
    for i in range(4):
        watch.see(sample(2500, i), 2500 * i)
        for kept, anew in zip(watch.seen_by(published), published.see(watch.latest()), strict=True):
            assert_array_equal(kept, anew)
    assert len(watch) == TUNING.window_events


def test_clusters_move_to_where_their_events_are(published):
    rows = sample(TUNING.look_sample_events, 7, offset=2.0)
    model = moved(published, rows, np.ones(len(rows)))
    assert model.moved
    assert_allclose(
        np.sort(model.clusters.mean, axis=0), np.sort(published.clusters.mean + 2.0, axis=0), atol=0.5
    )
    assert_allclose(model.clusters.covariance, published.clusters.covariance)  # shapes stay
    assert model.published.clusters.mean is not model.clusters.mean


def shifted(n, at, offset):
    rows, _ = clustered(n, 2, k=4, seed=2, spread=15.0)
    rows[at:] += offset
    return rows


def means(model):
    return dict(zip(model.model.names.tolist(), model.model.clusters.mean, strict=True))


@pytest.mark.compiled
def test_clusters_follow_a_move_without_a_new_id():
    told: list[Change] = []
    model = StreamClusterer(on_event=told.append)
    rows = shifted(14_000, 8000, 2.5)
    model.learn_many(rows[:8000])
    before = means(model)
    assert model.to_state().values["begin"] == 0
    told.clear()
    model.learn_many(rows[8000:])
    assert not told
    after = means(model)
    assert sorted(after) == sorted(before)
    for name, mean in after.items():
        assert_allclose(mean, before[name] + 2.5, atol=0.3)
    assert model.to_state().values["begin"] >= 7000


@pytest.mark.compiled
def test_where_drift_is_ignored_clusters_do_not_move():
    model = StreamClusterer(drift="ignore")
    model.learn_many(shifted(12_000, 8000, 2.5))
    values = model.to_state().values
    assert (values["begin"], values["moving"]) == (0, False)
    assert not model.model.moved


@pytest.mark.compiled
def test_a_rare_cluster_outlives_a_change():
    """Of the 1,024 events that a refit reads after a change, about four are its."""
    rng = np.random.default_rng(4)
    rows = shifted(30_000, 24_000, 2.5)
    rare = np.arange(len(rows)) % 256 == 7
    rows[rare] = 90.0 + 0.5 * rng.normal(size=(rare.sum(), 2))
    model = StreamClusterer()
    model.learn_many(rows[:24_000])
    model.settle()
    own = model.predict_one({0: 90.0, 1: 90.0})
    assert model.n_clusters == 5
    model.learn_many(rows[24_000:])
    assert model.n_clusters == 5
    assert model.predict_one({0: 90.0, 1: 90.0}) == own


@pytest.mark.compiled
def test_a_part_that_leaves_takes_its_latest_events_with_it():
    engine = Engine(2, EngineSettings(background=False))
    rows = shifted(9000, 6000, 2.5)
    engine.learn(rows[:4000], shard="stays")
    engine.learn(rows[4000:], shard="leaves")
    assert engine.counters.begin > 0
    engine.release("leaves")
    assert engine.counters.begin == len(engine.shards.recent.ring) == 0
    engine.settle()
    engine.learn(rows[:3000], shard="stays")
    assert engine.model.membership.weight.sum() == pytest.approx(7000, rel=0.5)


@pytest.mark.compiled
def test_the_present_is_what_is_kept_of_all_its_events():
    """The latest 2,048 in a row, and before those one in eight, which stands for eight."""
    engine = Engine(2, EngineSettings(background=False))
    engine.learn(shifted(22_000, 16_000, 2.5))
    rows, weight, covered = engine.present.rows()
    present = engine.n_seen - engine.counters.begin
    assert covered
    assert TUNING.look_events + TUNING.block_events < present <= 6300
    assert len(rows) == pytest.approx(
        TUNING.look_events + (present - TUNING.look_events) / TUNING.block_events, abs=2
    )
    assert weight.sum() == pytest.approx(present, abs=2 * TUNING.block_events)
    assert_array_equal(rows[-TUNING.look_events :], shifted(22_000, 16_000, 2.5)[-TUNING.look_events :])
    assert set(weight[: -TUNING.look_events].tolist()) == {float(TUNING.block_events)}


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [5, 6])
def test_clusters_that_vanish_while_others_move_are_retired(seed):
    stream = Drift(2, n_events=7500, splits=0, seed=seed)  # two vanish at event 5,000
    model = StreamClusterer()
    for rows, _ in stream.batches(500):
        model.learn_many(rows)
    died = [change.at for change in model.lineage if change.kind == "died"]
    assert len(died) == 2
    assert min(died) > 5000
    assert model.n_clusters == 8


def test_a_thin_cluster_that_moves_sideways_keeps_its_events():
    rng = np.random.default_rng(3)
    label = rng.integers(2, size=2000)
    rows = rng.normal(size=(2000, 2)) * np.where(label, 0.02, 1.0)[:, None] ** [0.0, 1.0]
    rows[label == 0, 1] += 8.0
    thin = np.array([0.0, 0.02]) * label[:, None]  # a deviation of the thin one
    model = StreamClusterer()
    model.learn_many(rows)
    following = moved(model.model, rows - 3.0 * thin, np.ones(len(rows)))
    farther = rows - 13.0 * thin
    assert adjusted_rand_score(label, following.predict(farther)) == 1.0
    as_thin_as_it_was = replace(following, moved=False)
    assert adjusted_rand_score(label, as_thin_as_it_was.predict(farther)) < 0.5
    assert_array_equal(following.see(rows).cell, as_thin_as_it_was.see(rows).cell)
