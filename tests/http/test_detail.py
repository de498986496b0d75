"""One cluster in detail, over HTTP."""

import json

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.families import FAMILIES
from streamclust_connectors.decode import Decoder
from streamclust_connectors.decode.fields import Fields
from streamclust_connectors.http.detail import copy_detail, features
from streamclust_connectors.http.past import PastClusters
from streamclust_connectors.service import Service
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource
from tests.http.conftest import CENTRES, QUICK, N, objects, points, problem, until
from tests.http.test_routes import finite


def detail(found, cluster):
    answer = found.client.get(f"/v1/clusters/{cluster}")
    answer.raise_for_status()
    return finite(answer.text)


def test_a_cluster_is_told_by_its_features_against_all_events(shared):
    clusterer = shared.service.clusterer
    for cluster in clusterer.clusters:
        found = detail(shared, cluster.id)
        assert found["alive"] is True
        expected = clusterer.describe(cluster.id)
        assert [f["name"] for f in found["features"]] == [f.name for f in expected]
        for told, feature in zip(found["features"], expected, strict=True):
            for name in ("mean", "std", "overall_mean", "overall_std", "distance", "shift"):
                assert told[name] == pytest.approx(getattr(feature, name))
        told = {f["name"]: f for f in found["features"]}
        nearest = CENTRES[np.abs(CENTRES - [told["x"]["mean"], told["y"]["mean"]]).sum(axis=1).argmin()]
        apart = [name for name, centre in zip("xy", nearest, strict=True) if centre == 20.0]
        assert not apart or (found["features"][0]["name"] == apart[0] and told[apart[0]]["shift"] > 1)


def test_recent_events_are_the_clusters_own(shared):
    for cluster in shared.service.clusterer.clusters:
        recent = detail(shared, cluster.id)["recent"]
        assert len(recent) == 5
        answer = shared.client.post("/v1/predict", json=[event["values"] for event in recent]).json()
        assert answer["cluster"] == [cluster.id] * 5
        assert [event["novelty"] for event in recent] == pytest.approx(answer["novelty"])
    newest = points()[-1].tolist()
    all_recent = [detail(shared, c.id)["recent"][0] for c in shared.service.clusterer.clusters]
    assert dict(zip("xy", newest, strict=True)) in [event["values"] for event in all_recent]


def test_typical_events_are_told_as_the_model_tells_them(shared):
    clusterer = shared.service.clusterer
    for cluster in clusterer.clusters:
        found = detail(shared, cluster.id)
        expected = clusterer.examples(cluster.id)
        assert [e["number"] for e in found["examples"]] == [e.number for e in expected]
        assert [e["values"] for e in found["examples"]] == [e.values for e in expected]
        assert [e["probability"] for e in found["examples"]] == [e.probability for e in expected]
        assert [e["id"] for e in found["examples"]] == [None] * len(expected)  # not of a source with keys
        other = found["border"]["cluster"]
        assert other == clusterer.representatives().neighbour(cluster.id)
        between = clusterer.border(cluster.id, other)
        assert [e["number"] for e in found["border"]["events"]] == [
            e.number for e in between if e.probability < 0.95
        ]


def test_typical_events_have_their_keys_and_times(start):
    rows = points(600)
    messages = [
        json.dumps({"x": x, "y": y, "who": f"user {i}", "at": 1e9 + i}).encode()
        for i, (x, y) in enumerate(rows.tolist())
    ]
    source = MemorySource({("clicks", 0): messages[:300], ("clicks", 1): messages[300:]})
    service = Service(
        source,
        ListSink(),
        StreamClusterer(warmup=50),
        decoder=Decoder(Fields(key="who", time="at")),
        policy=QUICK,
    )
    found = start(service)
    until(lambda: service.clusterer.n_seen == 600)
    for cluster in service.clusterer.clusters:
        told = detail(found, cluster.id)["examples"]
        assert len(told) == 5
        for example in told:
            _, partition, offset = example["id"].split("-")
            place = 300 * int(partition) + int(offset)
            assert example["key"] == f"user {place}"
            assert example["time"] == 1e9 + place
            assert list(example["values"].values()) == rows[place].tolist()


def test_how_well_a_cluster_is_known_is_told(shared):
    for cluster in shared.service.clusterer.clusters:
        told, known = detail(shared, cluster.id)["posterior"], cluster.posterior
        assert told["mean_error"] == {str(name): error for name, error in known.mean_error.items()}
        for name in ("events", "degrees_of_freedom", "share_error", "probability"):
            assert told[name] == pytest.approx(getattr(known, name))
    levels = shared.client.get("/v1/levels").json()["levels"]
    assert sum(level["probability"] for level in levels) == pytest.approx(1.0)


def test_a_cluster_is_named(api):
    cluster = api.service.clusterer.clusters[1].id
    path = f"/v1/clusters/{cluster}/name"
    assert api.client.put(path, json={"name": " night shift "}).json() == {
        "id": cluster,
        "name": "night shift",
    }
    assert detail(api, cluster)["name"] == "night shift"
    listed = {c["id"]: c["name"] for c in api.client.get("/v1/clusters").json()["clusters"]}
    assert {i for i, name in listed.items() if name} == {cluster}
    for bad in ({"name": "x" * 81}, {"name": 7}, {}, {"name": "x", "more": 1}):
        problem(api.client.put(path, json=bad), 422)
    assert (
        "no cluster 4711"
        in problem(api.client.put("/v1/clusters/4711/name", json={"name": "x"}), 404)["detail"]
    )
    assert api.client.put(path, json={"name": "night\nshift"}).json()["name"] == "night shift"
    assert api.client.put(path, json={"name": " "}).json()["name"] is None
    assert api.client.put(path, json={"name": None}).json()["name"] is None
    assert detail(api, cluster)["name"] is None


def test_only_who_has_the_token_names_clusters(start, monkeypatch):
    monkeypatch.setenv("STREAMCLUST_HTTP__TOKEN", "secret")
    found = start()
    problem(found.client.put("/v1/clusters/0/name", json={"name": "x"}), 401)
    found.client.headers["Authorization"] = "Bearer secret"
    found.client.post("/v1/learn", json={"x": 1}).raise_for_status()
    found.client.put("/v1/clusters/0/name", json={"name": "x"}).raise_for_status()


def test_its_share_over_time_ends_with_the_present(shared):
    for cluster in shared.service.clusterer.clusters:
        found = detail(shared, cluster.id)
        history = found["history"]
        assert history["events"] == sorted(set(history["events"]))
        assert (history["events"][-1], history["share"][-1]) == (N, pytest.approx(found["share"]))
        assert all(0 <= share <= 1 for share in history["share"])


def test_its_lifecycle_is_what_concerns_it(shared):
    events = shared.client.get("/v1/events", params={"limit": 1000}).json()["events"]
    for cluster in shared.service.clusterer.clusters:
        lifecycle = detail(shared, cluster.id)["lifecycle"]
        assert lifecycle == [e for e in events if cluster.id in dict(e["parents"] + e["children"])]
        assert lifecycle[0]["at"] == cluster.born


def test_a_cluster_that_died_has_a_past_and_one_that_never_was_has_none(api):
    lineage = api.service.clusterer.lineage
    past = lineage.born(N, 1, 20.0)
    lineage.history.add(N + 1, {past: 5.0, 0: 15.0})
    lineage.history.add(N + 900, {0: 15.0})
    lineage.retire(N, 2, past, 20.0)
    api.client.post("/v1/learn", json={"x": 1, "y": 1})  # so that nothing older is remembered
    found = detail(api, past)
    assert (found["id"], found["alive"]) == (past, False)
    assert [change["kind"] for change in found["lifecycle"]] == ["born", "died"]
    assert found["history"] == {"events": [N + 1], "share": [0.25]}
    assert "no cluster 4711" in problem(api.client.get("/v1/clusters/4711"), 404)["detail"]


def test_a_cluster_that_died_is_told_as_it_was(start):
    found = start(half_life=150)
    rows = points(900)
    found.client.post("/v1/learn", json=objects(rows)).raise_for_status()
    lost = found.client.post("/v1/predict", json={"x": 20, "y": 0}).json()["cluster"][0]
    before = detail(found, lost)
    assert before["alive"]
    others = rows[np.abs(rows - CENTRES[1]).sum(axis=1) > 9]
    for _ in range(20):
        found.client.post("/v1/learn", json=objects(others)).raise_for_status()
        if not (after := detail(found, lost))["alive"]:
            break
    assert not after["alive"]
    last = after["last"]
    assert 900 <= last["at"] < found.service.clusterer.n_seen
    assert {f["name"]: round(f["mean"]) for f in last["features"]} == {"x": 20, "y": 0}
    assert last["share"] <= before["share"]
    assert found.client.get(f"/v1/clusters/{after['lifecycle'][0]['children'][0][0]}").status_code == 200


def test_only_so_many_past_clusters_are_remembered(api, monkeypatch):
    monkeypatch.setattr("streamclust_connectors.http.past.MAX_PAST_CLUSTERS", 2)
    past, seen = PastClusters(), copy_detail(api.service.clusterer)
    ids = [cluster.id for cluster in seen.clusters]
    past.update(seen)
    past.update(seen._replace(clusters=[]))
    assert [i for i in ids if past.get(i)] == ids[1:]
    assert past.get(ids[1])["features"] == features(seen.profiles, ids[1])
    past.update(seen)  # they are back
    assert [i for i in ids if past.get(i)] == []


def test_before_anything_is_learnt_there_is_no_cluster(start):
    problem(start().client.get("/v1/clusters/0"), 404)


def test_what_was_just_learnt_is_told(start):
    found = start()
    for n in (1, 2, 3):
        found.client.post("/v1/learn", json={"x": n, "y": 0}).raise_for_status()
        told = detail(found, 0)
        assert told["weight"] == n
        assert told["recent"][0]["values"] == {"x": n, "y": 0}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_told(start, family):
    found = start(family=family)
    rows = np.abs(points(200)).round()
    rows = np.minimum(rows, 1) if family == "bernoulli" else rows
    found.client.post("/v1/learn", json=objects(rows)).raise_for_status()
    for cluster in found.client.get("/v1/clusters").json()["clusters"]:
        told = detail(found, cluster["id"])
        assert {feature["name"] for feature in told["features"]} == {"x", "y"}
        numbers = [value for feature in told["features"] for key, value in feature.items() if key != "name"]
        assert np.isfinite(numbers).all()
        assert json.dumps(told["mean"]) == json.dumps(cluster["mean"])
