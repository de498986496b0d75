"""The API of a service with a model for each key."""

import msgspec
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamclust_connectors.decode import Decoder, Fields
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.service.key_models import KeyModels, KeyStore
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource
from tests.http.conftest import starting, until

P, Q = ("in", 0), ("in", 1)
POLICY = Policy(poll=0.01, checkpoint_every=0.0, stop_at_end=False)


def rows_of(n, n_clusters, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) + 15.0 * rng.integers(n_clusters, size=n)[:, None]


def messages(rows, key):
    return [msgspec.json.encode({"customer": key, "x": x, "y": y}) for x, y in rows.tolist()]


@pytest.fixture
def keyed(tmp_path):
    """A service that has learnt two keys in one partition, one of them in another partition too."""
    one = messages(rows_of(60, 2, 1), "anna") + messages(rows_of(60, 1, 2), "bert & co")
    other = messages(rows_of(10, 1, 3), "bert & co")
    models = KeyModels({"warmup": 20}, tmp_path, max_models=1)
    source = MemorySource({P: one, Q: other})
    service = Service(source, ListSink(), models, KeyStore(models), Decoder(Fields(key="customer")), POLICY)
    with starting() as start:
        started = start(service)
        until(lambda: models.n_seen == 130 and models.n_live <= 1)
        yield started


def test_keys_are_listed_with_their_events_and_clusters(keyed):
    found = keyed.client.get("/v1/keys").json()
    assert found == {
        "keys": [
            {"key": "anna", "partition": 0, "events": 60, "n_clusters": 2},
            {"key": "bert & co", "partition": 0, "events": 60, "n_clusters": 1},
            {"key": "bert & co", "partition": 1, "events": 10, "n_clusters": 1},
        ],
        "next": None,
    }
    first = keyed.client.get("/v1/keys", params={"limit": 1}).json()
    assert ([one["key"] for one in first["keys"]], first["next"]) == (["anna"], "anna")
    rest = keyed.client.get("/v1/keys", params={"limit": 2, "after": "anna"}).json()
    assert [one["partition"] for one in rest["keys"]] == [0, 1]


def test_clusters_of_a_key(keyed):
    found = keyed.client.get("/v1/clusters", params={"key": "anna"}).json()
    assert (found["key"], found["partition"], found["events"], len(found["clusters"])) == ("anna", 0, 60, 2)
    assert {one["kind"] for one in found["lifecycle"]} <= {"born", "split", "merged", "died", "returned"}
    assert set(found["clusters"][0]["mean"]) == {"x", "y"}
    assert keyed.client.get("/v1/clusters", params={"key": "nobody"}).status_code == 404
    assert keyed.client.get("/v1/clusters").status_code == 422


def test_a_key_of_several_partitions_needs_its_partition(keyed):
    problem = keyed.client.get("/v1/clusters", params={"key": "bert & co"})
    assert problem.status_code == 409
    assert "partitions 0, 1" in problem.json()["detail"]
    found = keyed.client.get("/v1/clusters", params={"key": "bert & co", "partition": 1}).json()
    assert found["events"] == 10


def test_events_are_predicted_by_the_model_of_their_key(keyed):
    body = [{"x": 0.0, "y": 0.0}, {"x": 15.0, "y": 15.0}]
    found = keyed.client.post("/v1/predict", params={"key": "anna"}, json=body).json()
    assert len(set(found["cluster"])) == 2
    assert found["model_version"] >= 1
    assert keyed.client.post("/v1/predict", params={"key": "nobody"}, json=body).status_code == 404
    assert keyed.client.post("/v1/predict", params={"key": "anna"}, content=b"?").status_code == 422


def test_status_metrics_and_health(keyed):
    status = keyed.client.get("/v1/status").json()
    assert (status["keys"], status["events"], status["ready"]) == (3, 130, True)
    assert keyed.client.get("/readyz").status_code == 200
    metrics = {
        sample.name: sample.value
        for family in text_string_to_metric_families(keyed.client.get("/metrics").text)
        for sample in family.samples
        if not sample.labels
    }
    assert metrics["streamclust_keys"] == 3
    assert metrics["streamclust_keys_in_memory"] <= 1
    assert metrics["streamclust_evicted_keys_total"] >= 2
    assert metrics["streamclust_events_total"] == 130
