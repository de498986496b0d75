"""Engines that are merged know the clusters of both."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamclust import StreamClusterer
from streamclust.engine.event_ring import side_by_side
from streamclust.engine.tuning import TUNING
from streamclust.engine.watched_events import WatchedEvents

CENTRES = np.array([[0, 0], [12, 0], [0, 12], [12, 12], [24, 6]], dtype=float)
HERE, THERE = (0, 1), (2, 3, 4)


def events(rng, n, clusters=range(5)):
    centres = CENTRES[list(clusters)]
    return centres[rng.integers(len(centres), size=n)] + rng.normal(size=(n, 2))


def pair(n_here, n_there, **settings):
    rng = np.random.default_rng(0)
    here, there = StreamClusterer(**settings), StreamClusterer(**settings)
    here.learn_many(events(rng, n_here, HERE))
    there.learn_many(events(rng, n_there, THERE))
    return rng, here, there


def assert_all_there(model, rng):
    """Five clusters now, each at its place, and the same after more events of all; none has died."""
    ids = model.predict_many(CENTRES).tolist()
    assert len(set(ids)) == model.n_clusters == 5
    model.learn_many(events(rng, 20_000))
    assert model.predict_many(CENTRES).tolist() == ids
    assert model.n_clusters == 5
    assert {change.kind for change in model.events} <= {"born", "split"}


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("n_here", "n_there", "settings"),
    [
        (20_000, 20_000, {}),
        (3000, 3000, {}),
        (5000, 60_000, {}),
        (60_000, 5000, {}),
        (20_000, 20_000, {"half_life": 10_000}),
    ],
)
def test_after_a_merge_the_clusters_of_both_are_there(n_here, n_there, settings):
    rng, here, there = pair(n_here, n_there, **settings)
    here.merge(there)
    shares = {cluster.id: cluster.share for cluster in here.clusters}
    of_here = sum(shares[cluster] for cluster in set(here.predict_many(CENTRES[list(HERE)]).tolist()))
    assert of_here == pytest.approx(n_here / (n_here + n_there), abs=0.02)
    assert_all_there(here, rng)


@pytest.mark.compiled
@pytest.mark.parametrize("shard", [0, "another"])
def test_after_learning_a_tree_its_clusters_are_there_too(shard):
    rng, here, there = pair(20_000, 20_000)
    here.shards.learn_tree(there.tree, [0, 1], shard=shard)
    assert_all_there(here, rng)


@pytest.mark.compiled
def test_after_adopting_a_shard_its_clusters_are_there_too():
    rng, here, there = pair(20_000, 20_000)
    here.shards.adopt("there", there.shards.release(0))
    here.learn_many(events(rng, 500))
    assert_all_there(here, rng)


@pytest.mark.compiled
def test_a_leader_of_two_shards_has_the_clusters_of_both():
    rng, here, there = pair(20_000, 20_000)
    leader = StreamClusterer()
    for name, member in (("here", here), ("there", there)):
        leader.shards.replace(name, member.shards.export(0))
    leader.sharing.catch_up()
    assert_all_there(leader, rng)


@given(st.integers(0, 40_000), st.integers(0, 40_000))
def test_watched_events_of_both_sides_are_in_proportion_and_in_order(n, n_other):
    sides = []
    for sign, length in ((1.0, n), (-1.0, n_other)):
        watch = WatchedEvents(n_features=1)
        watch.see(sign * np.arange(1.0, length + 1)[:, None], first=0)
        sides.append(watch)
    ours, theirs = sides
    total = n + n_other
    ours.refill(side_by_side(ours.kept(), n, theirs.kept(), n_other), WatchedEvents.due(total))
    value = ours.latest()[:, 0]
    assert len(value) == min(WatchedEvents.due(total), TUNING.window_events)
    for sign, length in ((1.0, n), (-1.0, n_other)):
        own = sign * value > 0
        stood_for = ours.stands_for()[own].sum()
        expected = ours.stands_for().sum() * length / max(total, 1)
        assert stood_for == pytest.approx(expected, abs=8 + 5 * np.sqrt(8 * min(length, 4096)))
        assert (np.diff(np.abs(value[own])) >= 0).all()
    assert (np.diff(ours.last(ours.at)) >= 0).all()
    assert not len(value) or ours.last(ours.at)[-1] <= total - 1
