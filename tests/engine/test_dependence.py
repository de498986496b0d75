"""Streams whose events depend on each other: how far, and that decisions about clusters heed it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from streamclust import StreamClusterer
from streamclust._kernels.engine.dependence import block_bends
from streamclust.checkpoint import encode
from streamclust.engine.dependence import BlockCurve, group_evidence, run_time
from streamclust.engine.model import Seen
from tests.naive import dependence as naive

CENTRES = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0], [12.0, 12.0], [24.0, 6.0]])


def ar(rng, n, d, time):
    """An AR(1) process of unit variance and this correlation time."""
    rho = np.exp(-1.0 / time)
    noise = rng.normal(size=(n, d)) * np.sqrt(1 - rho**2)
    noise[0] = rng.normal(size=d)
    return lfilter([1.0], [1.0, -rho], noise, axis=0)


def wandering(seed, n, time):
    """Five sources, picked at random, each of which wanders within its cluster."""
    rng = np.random.default_rng(seed)
    source = rng.integers(5, size=n)
    rows = CENTRES[source]
    for s in range(5):
        own = source == s
        rows[own] += ar(rng, int(own.sum()), 2, time)
    return rows, source


def bits(model):
    return encode(model.to_state())


def sequence(seed, n, d, time):
    rng = np.random.default_rng(seed)
    return ar(rng, n, d, time) if time else rng.normal(size=(n, d))


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 3), st.integers(1, 4))
def test_second_differences_are_those_of_the_definition(seed, n, d, k):
    rng = np.random.default_rng(seed)
    cell, rows = rng.integers(k + 1, size=n), rng.normal(size=(n, d))
    bend, number, within, own = block_bends(cell, rows, k, 5)
    expected = naive.block_bends(cell, rows, k, 5)
    np.testing.assert_allclose(bend, expected[0], atol=1e-12)
    np.testing.assert_array_equal(number, expected[1])
    inside = [rows[cell == c] for c in range(k)]
    squares = sum(((part - part.mean(axis=0)) ** 2).sum() for part in inside if len(part))
    free = sum(len(part) - 1 for part in inside if len(part))
    assert within == pytest.approx(squares / max(free * d, 1))
    total = sum(map(len, inside))
    assert own == pytest.approx(sum(len(part) ** 2 for part in inside) / total if total else 0.0)


@given(st.integers(0, 10_000), st.floats(-5, 5), st.floats(-100, 100))
def test_steady_drift_is_no_wandering(seed, slope, offset):
    """A straight line through each cell's events changes no second difference."""
    rows = sequence(seed, 300, 2, 10)
    cell = np.zeros(300, dtype=np.int64)
    drifting = rows + offset + slope * np.arange(300)[:, None] * [1.0, -0.5]
    still, moving = (BlockCurve.of(Seen(cell, x), 1) for x in (rows, drifting))
    np.testing.assert_allclose(moving.variance, still.variance, rtol=1e-6, atol=1e-9)


def test_independent_events_count_in_full():
    """In 60 of 60 sequences: a false dependence would make decisions late."""
    for seed in range(60):
        rows = sequence(seed, 2048, 2, 0)
        cell = np.random.default_rng(1000 + seed).integers(5, size=2048)
        assert BlockCurve.of(Seen(cell, rows), 5).correlation_time() == 1.0


@pytest.mark.parametrize("time", [3, 10, 30])
def test_the_correlation_time_is_found(time):
    """Within a factor of three; it is 2 τ for an AR(1) process."""
    found = []
    for seed in range(5):
        rows = sequence(seed, 4096, 2, time)
        cell = np.zeros(len(rows), dtype=np.int64)
        found.append(BlockCurve.of(Seen(cell, rows), 1).correlation_time())
    assert 2 * time / 3 < np.median(found) < 2 * time * 3


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_few_events_tell_of_no_dependence(n):
    rows, cell = np.ones((n, 2)), np.zeros(n, dtype=np.int64)
    assert BlockCurve.of(Seen(cell, rows), 1).correlation_time() == 1.0
    assert group_evidence(rows, cell) == 1.0
    assert run_time(cell) == 1.0


def test_a_feature_that_never_changes_does_no_harm():
    rows = np.column_stack([sequence(0, 500, 1, 10), np.zeros(500)])
    time = BlockCurve.of(Seen(np.zeros(500, dtype=np.int64), rows), 1).correlation_time()
    assert 5 < time < 100
    assert group_evidence(np.ones((500, 2)), np.zeros(500, dtype=np.int64)) <= 1.0


def test_outsiders_in_a_row_are_few_independent_events():
    way = np.cumsum(np.full((200, 2), 0.05), axis=0) + sequence(0, 200, 2, 50)
    group = np.zeros(200, dtype=np.int64)
    assert group_evidence(way, group) < 0.1
    assert group_evidence(sequence(0, 200, 2, 0), group) == 1.0


@pytest.mark.parametrize("options", [{}, {"refit": "dp-means"}, {"refit": "dp-means", "birth_penalty": 36.0}])
@pytest.mark.parametrize("time", [10, 100, 300])
def test_wandering_sources_are_no_change(time, options):
    rows, source = wandering(1, 30_000, time)
    model = StreamClusterer(**options)
    model.learn_many(rows[:10_000])
    before = len(model.events)
    model.learn_many(rows[10_000:])
    assert model.n_clusters == 5
    assert len(model.events) - before <= 2
    labels = np.array(model.predict_many(rows[-2000:]))
    pairs = {(int(a), int(b)) for a, b in zip(labels, source[-2000:], strict=True)}
    assert len(pairs) == 5
    assert model.effective_events < len(rows) / (time / 2)


@pytest.mark.parametrize("times", [10, 20, 50])
def test_events_many_times_in_a_row_count_for_what_they_tell(times):
    """The first events are all equal: that tells of as many events as there are, and of no more."""
    rng = np.random.default_rng(1)
    rows = np.repeat(CENTRES[rng.integers(5, size=400)] + rng.normal(size=(400, 2)), times, axis=0)
    model = StreamClusterer()
    for first in range(0, len(rows), 1000):
        model.learn_many(rows[first : first + 1000])
        n = min(first + 1000, len(rows))
        assert n / times / 10 <= model.effective_events <= n / times * 3
    assert model.n_clusters == 5


def test_independent_streams_have_all_their_events():
    rng = np.random.default_rng(0)
    model = StreamClusterer()
    assert model.effective_events == 0.0
    model.learn_many(CENTRES[rng.integers(5, size=9000)] + rng.normal(size=(9000, 2)))
    assert model.effective_events == 9000.0


@pytest.mark.parametrize(("refit", "time"), [("bkm", 10), ("dp-means", 0.01)])
def test_a_change_of_wandering_sources_is_found(refit, time):
    """A place where no source has been before is a change, however the sources wander."""
    rows, _ = wandering(2, 20_000, time)
    moved, _ = wandering(3, 20_000, time)
    model = StreamClusterer(refit=refit)
    model.learn_many(rows)
    old = {cluster.id for cluster in model.clusters}
    moved += np.array([60.0, 0.0])
    model.learn_many(moved)
    new = set(model.predict_many(moved[-1000:]))
    assert len(old) == len(new) == 5
    assert not old & new


def test_clusters_that_report_in_runs_are_not_retired():
    rng = np.random.default_rng(0)
    source = np.repeat(rng.integers(5, size=60), 1000)
    model = StreamClusterer()
    model.learn_many(CENTRES[source] + rng.normal(size=(len(source), 2)))
    assert [change.kind for change in model.events if change.at > 20_000] == []


@given(st.lists(st.integers(1, 5999), max_size=4))
def test_batching_of_dependent_events_is_invisible(cuts):
    rows, _ = wandering(4, 6000, 30)
    whole, parts = StreamClusterer(), StreamClusterer()
    whole.learn_many(rows)
    for part in np.split(rows, sorted(cuts)):
        parts.learn_many(part)
    assert bits(whole) == bits(parts)


def test_a_restart_of_a_dependent_stream_is_invisible(tmp_path):
    rows, _ = wandering(5, 12_000, 100)
    whole = StreamClusterer()
    whole.learn_many(rows)
    first = StreamClusterer()
    first.learn_many(rows[:7001])
    first.save(tmp_path / "half")
    again = StreamClusterer.load(tmp_path / "half")
    again.learn_many(rows[7001:])
    assert bits(whole) == bits(again)
