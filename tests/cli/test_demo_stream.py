"""The demo's stream: what happens in it, and when its events come."""

import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from streamclust import StreamClusterer
from streamclust_connectors.cli.demo_stream import DELIVERY_SECONDS, DemoStream, PacedSource, shape, track
from streamclust_connectors.interfaces import Assigned, Batch


class Time:
    """A clock that stands still but for those who sleep."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def paced(n, rate, time):
    source = PacedSource(lambda: DemoStream(n), rate, time, time.sleep)
    (assigned,) = source.poll(0.5)
    assert assigned == Assigned((source.partition,))
    assert source.poll(0.5) == []  # until it is told where to begin
    source.seek(source.partition, 0)
    return source


def test_a_track_is_where_it_should_be_at_both_its_ends():
    path = track(0.2, 0.7, (1, 2), (5, -6), shape(1.0, 1.0))
    for moment, place in ((0.2, (1, 2)), (0.7, (5, -6))):
        assert_allclose(path.origin + moment * path.path, place)


def test_a_shape_has_these_deviations_however_it_is_turned():
    root = shape(3.0, 0.5, turned=0.7)
    assert_allclose(np.sort(np.linalg.eigvalsh(root @ root.T)), [0.25, 9.0])


def test_events_come_at_their_pace():
    time = Time()
    source = paced(1000, 100.0, time)
    got = []
    while not source.finished:
        for batch in source.poll(0.5):
            assert isinstance(batch, Batch)
            got += batch.records
            assert len(got) <= 100.0 * (time.now - 100.0) + 1e-6
    assert time.now == pytest.approx(110.0, abs=3 * DELIVERY_SECONDS)
    assert [record.offset for record in got] == list(range(1000))
    rows = [list(json.loads(record.value).values()) for record in got]
    assert_allclose(rows, np.concatenate([events for events, _ in DemoStream(1000).batches(5000)]))


def test_it_tells_how_far_it_is_behind():
    time = Time()
    source = paced(1000, 100.0, time)
    source.poll(0.5)
    time.now += 2.0
    assert source.lag() == {source.partition: pytest.approx(200 + 100 * DELIVERY_SECONDS, abs=1)}
    source.poll(0.5)
    assert source.lag() == {source.partition: pytest.approx(0, abs=1)}


def test_without_a_pace_everything_is_due():
    time = Time()
    source = paced(700, math.inf, time)
    (batch,) = source.poll(0.5)
    assert len(batch.records) == 700
    assert source.poll(0.5) == []
    assert source.finished
    assert time.now == 100.0
    assert source.lag() == {}


def test_every_event_is_observed_once_before_it_is_delivered():
    time = Time()
    source = paced(300, 1000.0, time)
    rows, labels, delivered = [], [], 0

    def observe(events, clusters):
        assert len(rows) == delivered
        rows.extend(events.tolist())
        labels.extend(clusters)

    source.observer = observe
    while not source.finished:
        for batch in source.poll(0.5):
            delivered += len(batch.records)
    ((events, truth),) = DemoStream(300).batches(5000)
    assert_allclose(rows, events)
    assert labels == truth.tolist()


@pytest.mark.compiled
def test_all_that_can_become_of_a_cluster_does():
    model = StreamClusterer()
    for events, _ in DemoStream(240_000).batches(5000):
        model.learn_many(events)
    later = [change.kind for change in model.events if change.at > 1000]
    assert set(later) == {"born", "split", "merged", "died"}
    assert len(later) <= 6  # and little else
    assert model.n_clusters == 6
