"""Clusters that appear have an id after a few events, at any batching; outliers open none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamclust import StreamClusterer
from streamclust._kernels.engine.outside import watch_outside
from streamclust.checkpoint import encode
from streamclust.engine.outside_alarm import OutsideAlarm
from streamclust.engine.stream import Counters

CENTRES = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]])
NEW = np.array([12.0, 12.0])


def events(seed, n):
    rng = np.random.default_rng(seed)
    return CENTRES[rng.integers(3, size=n)] + rng.normal(size=(n, 2))


def takeover(seed, before=3000, after=100):
    rng = np.random.default_rng(seed)
    return np.vstack([events(seed, before), NEW + rng.normal(size=(after, 2))])


def slow(points, sampled, within, gain, loss, first_bar, level, bar):
    """`watch_outside` of one cluster at 0 of unit covariance, as its docstring says it."""
    since = -1
    for p, point in enumerate(points):
        if level == 0.0 and p not in sampled:
            continue
        if (point**2).sum() > within:
            if level == 0.0:
                since, bar = p, first_bar
            level += gain
            if level >= bar:
                return p + 1, level, bar, since
        else:
            level = max(0.0, level - loss)
    return len(points), level, bar, since


@given(st.integers(0, 10_000), st.integers(0, 60), st.floats(0, 1), st.sampled_from([0.0, 3.0]))
def test_the_alarm_is_the_one_of_the_definition(seed, n, share, level):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, 2)) + 9.0 * (rng.random((n, 1)) < share)
    sampled = np.flatnonzero(rng.random(n) < 0.3)
    state = np.array([level, 10.0, 0.0])
    none = np.zeros(0, dtype=bool)
    found = watch_outside(
        points, none, sampled, np.zeros((1, 2)), np.eye(2)[None], 20.0, 4.0, 0.7, 10.0, state
    )
    assert (found, *state) == pytest.approx(slow(points, set(sampled), 20.0, 4.0, 0.7, 10.0, level, 10.0))


@pytest.mark.compiled
@pytest.mark.parametrize(
    "options", [{}, {"birth_penalty": 60.0}, {"half_life": 500}, {"family": "spherical"}]
)
def test_a_cluster_that_takes_over_has_an_id_within_fifty_events(options):
    for seed in range(3):
        rows = takeover(seed, before=3000 + 331 * seed)
        model = StreamClusterer(background=False, **options)
        model.learn_many(rows[:-50])
        known = {cluster.id for cluster in model.clusters}
        assert model.predict_one({0: 12.0, 1: 12.0}) not in range(3)
        model.learn_many(rows[-50:])
        assert {cluster.id for cluster in model.clusters} == known  # one new id, and it stays


@pytest.mark.compiled
@pytest.mark.parametrize("family", ["multinomial", "bernoulli", "poisson"])
def test_so_have_clusters_of_counts(family):
    rng = np.random.default_rng(3)
    level = np.where(rng.random((4, 24)) < 0.4, 0.95, 0.05)

    def draw(clusters):
        p = level[clusters]
        if family == "bernoulli":
            return (rng.random(p.shape) < p).astype(float)
        if family == "poisson":
            return rng.poisson(8 * p).astype(float)
        return np.array([rng.multinomial(40, row / row.sum()) for row in p], dtype=float)

    model = StreamClusterer(family=family, background=False)
    model.learn_many(draw(rng.integers(3, size=3000)))
    known = set(model.predict_many(draw(np.arange(3).repeat(5))).tolist())
    assert len(known) == 3
    model.learn_many(draw(np.full(60, 3)))
    assert np.isin(model.predict_many(draw(np.full(20, 3))), list(known)).mean() < 0.3


@pytest.mark.compiled
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 100), st.lists(st.integers(1, 400), min_size=1, max_size=6))
def test_the_moment_does_not_depend_on_batches(seed, sizes):
    rows = takeover(seed, before=1500)
    whole, parts = StreamClusterer(background=False), StreamClusterer(background=False)
    whole.learn_many(rows)
    done = 0
    while done < len(rows):
        size = sizes[done % len(sizes)]
        parts.learn_many(rows[done : done + size])
        done += size
    assert encode(parts.to_state()) == encode(whole.to_state())


def ids(assigned):
    return [-1] if assigned is None else assigned.cluster.tolist()


@pytest.mark.compiled
def test_the_model_does_not_change_within_a_run():
    rows = takeover(1, before=1500)
    model, one = StreamClusterer(background=False), StreamClusterer(background=False)
    found, single = [], []
    for run in model.runs(model.check(rows)):
        found += ids(model.assign_many(run))
        model.learn(run)
    for row in rows:
        checked = one.check(row[None])
        single += ids(one.assign_many(checked))
        one.learn(checked)
    assert found == single


@pytest.mark.compiled
def test_one_event_over_and_over_opens_nothing():
    rows = events(0, 6000)
    rows[5000:5100] = [500.0, 500.0]
    model = StreamClusterer(background=False)
    model.learn_many(rows)
    assert model.n_clusters == 3
    assert all(change.at < 1000 for change in model.events)


def test_the_alarm_is_saved():
    counters = Counters(alarm=OutsideAlarm(7.5, 40.0, 123, 456))
    again = Counters.from_values({**counters.to_values(), "alarm": list(counters.alarm)})
    assert again == counters
    assert again.alarm.silenced().bar == 40.0
