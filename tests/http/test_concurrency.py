"""Asked while it learns: answers belong together, and what is learnt is what would have been."""

import threading

import httpx
import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust_connectors.sources import MemorySource
from tests.conftest import INTERPRETED
from tests.http.conftest import made, objects, points, until

ROUTES = ("/v1/clusters", "/v1/view", "/v1/events", "/v1/history", "/v1/status", "/metrics")
TOTAL = 600 if INTERPRETED else 10_000


class Askers:
    """Threads that ask until told to stop, and what they were answered."""

    def __init__(self, url):
        self.over, self.failures, self.answers = threading.Event(), [], 0
        asks = [lambda c, route=route: c.get(route) for route in ROUTES]
        body = {"vectors": points(50).tolist()}
        asks += [lambda c: c.post("/v1/predict", json=body), lambda c: c.post("/v1/snapshots")]
        self.threads = [threading.Thread(target=self.ask, args=(url, ask)) for ask in asks]

    def ask(self, url, ask):
        with httpx.Client(base_url=url, timeout=180) as client:
            while not self.over.is_set():
                answer = ask(client)
                self.answers += 1
                if answer.status_code >= 400 and answer.status_code not in (409, 503):
                    self.failures.append(answer.text)
                    return

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(60)


def same(one, other):
    a, b = one.to_state(), other.to_state()
    return a.arrays.keys() == b.arrays.keys() and all(
        np.array_equal(a.arrays[name], b.arrays[name]) for name in a.arrays
    )


def test_a_source_is_learnt_the_same_however_much_is_asked_meanwhile(start):
    values = [b'{"x": %r, "y": %r}' % tuple(row) for row in points(TOTAL).tolist()]
    api = start(made(MemorySource({("t", 0): values}, size=500, endless=True)))
    with Askers(api.url) as askers:
        until(lambda: api.service.stats.events == TOTAL)
        until(lambda: askers.answers > 50)
    assert askers.failures == []
    alone = StreamClusterer(warmup=50)
    alone.learn_many(objects(points(TOTAL)), shard=("t", 0))
    assert same(api.service.clusterer, alone)


def test_several_teach_at_once_and_nothing_is_lost(start):
    api = start()
    parts = np.array_split(points(TOTAL), 4)
    learnt = []

    def teach(rows):
        with httpx.Client(base_url=api.url, timeout=180) as client:
            for chunk in np.array_split(rows, 10):
                answer = client.post("/v1/learn", json=objects(chunk))
                learnt.append(answer.json()["learnt"])

    with Askers(api.url) as askers:
        teachers = [threading.Thread(target=teach, args=(rows,)) for rows in parts]
        for teacher in teachers:
            teacher.start()
        for teacher in teachers:
            teacher.join(60)
    assert askers.failures == []
    assert sum(learnt) == TOTAL == api.service.clusterer.n_seen
    total = api.service.clusterer.tree.total
    assert total.weight[0] == pytest.approx(TOTAL)
    assert total.mean[0] == pytest.approx(points(TOTAL).mean(axis=0))


def test_predictions_while_features_appear(start):
    """A model, and the features it knows, are of one moment."""
    api = start()
    api.client.post("/v1/learn", json=objects(points(100))).raise_for_status()
    over, failures = threading.Event(), []

    def predict():
        with httpx.Client(base_url=api.url, timeout=180) as client:
            while not over.is_set():
                answer = client.post("/v1/predict", json=[{"x": 1, "y": 2}, {"y": 3, "f3": 1, "zz": 7}])
                if answer.status_code != 200 or None in answer.json()["cluster"]:
                    failures.append(answer.text)

    asker = threading.Thread(target=predict)
    asker.start()
    for i in range(12):
        api.client.post("/v1/learn", json={"x": 1, "y": 1, f"f{i}": i}).raise_for_status()
    over.set()
    asker.join(60)
    assert failures == []
    assert len(api.client.get("/v1/status").json()["features"]) == 14
