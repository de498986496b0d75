"""Every route, and what it answers."""

import base64
import json
import math

import numpy as np
import pytest
from sklearn.datasets import make_moons

from streamclust import StreamClusterer, __version__
from streamclust.hierarchy.dendrogram import Dendrogram
from streamclust_connectors.interfaces import Revoked
from streamclust_connectors.service.recent_snapshots import MAX_SNAPSHOTS
from streamclust_connectors.sources import MemorySource
from tests.http.conftest import CENTRES, N, made, objects, points, problem, until


def finite(content):
    """Whether JSON, as text, holds only what JSON may."""

    def refuse(text):
        raise AssertionError(f"{text} is no JSON")

    return json.loads(content, parse_constant=refuse)


# -------------------------------------------------------------------- figures


def test_status(shared):
    status = finite(shared.client.get("/v1/status").text)
    assert status["version"] == __version__
    assert status["ready"] is True
    assert status["events"] == N
    assert status["n_clusters"] == shared.service.clusterer.n_clusters
    assert status["model_version"] == shared.service.clusterer.model.version
    assert status["features"] == ["x", "y"]
    assert (status["family"], status["source"]) == ("gaussian", "http")
    assert (status["lag"], status["lag_total"]) == ({}, None)
    assert status["memory_bytes"] > 1e6
    assert status["uptime_seconds"] >= 0


def test_lag_is_told_by_partition(start):
    records = [b'{"x": %d}' % i for i in range(20)]
    found = start(made(MemorySource({("t", 0): records, ("t", 1): []}, endless=True)))
    until(lambda: found.service.stats.events == 20)
    until(lambda: found.client.get("/v1/status").json()["lag"] == {"t-0": 0, "t-1": 0})
    assert found.client.get("/v1/status").json()["lag_total"] == 0


def test_health(start):
    found = start()
    assert found.client.get("/livez").json()["heartbeat_age_seconds"] < 30
    assert found.client.get("/readyz").json() == {"ready": True}
    found.service.stop()
    until(lambda: not found.service.stats.ready)
    assert problem(found.client.get("/readyz"), 503)["detail"]


def test_a_loop_that_hangs_is_not_alive(start):
    found = start(health={"max_age_seconds": 0.05})
    with found.service.lock:
        until(lambda: found.client.get("/livez").status_code == 503)
        assert "the last heartbeat" in problem(found.client.get("/livez"), 503)["detail"]
    until(lambda: found.client.get("/livez").status_code == 200)


def test_history_grows_by_the_second_and_can_be_continued(shared):
    client = shared.client
    until(lambda: len(client.get("/v1/history").json()["at"]) >= 2)
    history = finite(client.get("/v1/history").text)
    assert len({len(column) for column in history.values()}) == 1
    assert history["at"] == sorted(history["at"])
    later = client.get("/v1/history", params={"since": history["at"][0]}).json()
    assert later["at"][: len(history["at"]) - 1] == history["at"][1:]
    until(lambda: client.get("/v1/history").json()["events"][-1] == N)
    until(lambda: client.get("/v1/history").json()["shares"][-1])
    history = client.get("/v1/history").json()
    assert sum(history["shares"][-1].values()) == pytest.approx(1)


def test_novelty_is_that_of_new_events_and_unknown_while_none_come(start):
    found = start()
    sample, history = found.backend.sample, found.backend.history.since
    assert found.backend.history.since()["novelty"] in ([], [None])
    found.client.post("/v1/learn", json=objects(points()))
    until(lambda: any(history()["novelty"]))  # a sample is taken every second
    (known,) = np.flatnonzero([value is not None for value in history()["novelty"]])
    assert history()["novelty_high"][known] > history()["novelty"][known]
    for _ in range(3):
        sample()
    assert history()["novelty"][-3:] == history()["novelty_high"][-3:] == [None] * 3
    found.client.post("/v1/learn", json=objects(points(10)))
    until(lambda: sum(value is not None for value in history()["novelty"]) == 2)


# -------------------------------------------------------------------- clusters


def test_clusters(shared):
    content = finite(shared.client.get("/v1/clusters").text)
    clusterer = shared.service.clusterer
    assert content["model_version"] == clusterer.model.version
    assert [c["id"] for c in content["clusters"]] == [c.id for c in clusterer.clusters]
    assert [c["weight"] for c in content["clusters"]] == sorted(
        (c["weight"] for c in content["clusters"]), reverse=True
    )
    assert sum(c["share"] for c in content["clusters"]) == pytest.approx(1)
    for cluster in content["clusters"]:
        mean = np.array([cluster["mean"]["x"], cluster["mean"]["y"]])
        assert np.abs(CENTRES - mean).max(axis=1).min() < 1
        assert np.shape(cluster["covariance"]) == (2, 2)
        assert cluster["age"] == N - cluster["born"]
        assert cluster["trend"] <= 1
        assert shared.client.get(f"/v1/clusters/{cluster['id']}").json()["mean"] == cluster["mean"]
    assert "/v1/events" in problem(shared.client.get("/v1/clusters/4711"), 404)["detail"]
    problem(shared.client.get("/v1/clusters/one"), 422)


def test_levels(shared):
    levels = finite(shared.client.get("/v1/levels").text)["levels"]
    assert [level["n_clusters"] for level in levels] == [3, 2, 1]
    assert [level["n_clusters"] for level in levels if level["shown"]] == [3]
    assert levels[-1]["persistence"] is None
    two = shared.client.get("/v1/clusters?level=2").json()["clusters"]
    assert len(two) == 2
    assert sum(cluster["share"] for cluster in two) == pytest.approx(1.0)
    body = objects(CENTRES)
    found = shared.client.post("/v1/predict?level=2", json=body).json()
    assert set(found["cluster"]) == {cluster["id"] for cluster in two}
    assert "from 1 to 3, got 9" in problem(shared.client.get("/v1/clusters?level=9"), 404)["detail"]
    problem(shared.client.get("/v1/clusters?level=0"), 422)
    problem(shared.client.post("/v1/predict?level=some", json=body), 422)


def test_the_picture_and_the_history_of_a_level(shared):
    two = {
        cluster["id"]: cluster["share"]
        for cluster in shared.client.get("/v1/clusters?level=2").json()["clusters"]
    }
    picture = finite(shared.client.get("/v1/view?level=2").text)
    assert {cluster["id"]: cluster["share"] for cluster in picture["clusters"]} == pytest.approx(
        two, abs=0.02
    )
    assert sorted(len(cluster["ellipses"]) for cluster in picture["clusters"]) == [1, 2]
    assert set(picture["leaves"]["cluster"]) == set(two)
    until(lambda: any(shared.client.get("/v1/history").json()["shares"]))
    plain, level = (shared.client.get(f"/v1/history{query}").json() for query in ("", "?level=2"))
    assert plain.keys() == level.keys()
    assert {int(name): share for name, share in level["shares"][-1].items()} == pytest.approx(two, abs=0.02)
    assert len(plain["shares"][-1]) == 3
    for route in ("view", "history"):
        assert "from 1 to 3, got 9" in problem(shared.client.get(f"/v1/{route}?level=9"), 404)["detail"]
        problem(shared.client.get(f"/v1/{route}?level=0"), 422)


def test_a_cluster_of_several_components_is_one_cluster(start):
    """Two moons, each of several components: routes speak of two clusters, and tell their components."""
    rows, _ = make_moons(2000, noise=0.07, random_state=0)
    found = start()
    found.client.post("/v1/learn", json=objects(rows)).raise_for_status()
    content = finite(found.client.get("/v1/clusters").text)["clusters"]
    assert len(content) == found.client.get("/v1/status").json()["n_clusters"] == 2
    for cluster in content:
        parts = cluster["components"]
        assert len(parts) > 1
        assert sum(part["weight"] for part in parts) == pytest.approx(cluster["weight"])
        assert [part["weight"] for part in parts] == sorted((p["weight"] for p in parts), reverse=True)
        assert {np.shape(part["covariance"]) for part in parts} == {(2, 2)}
        means = objects(np.array([part["mean"] for part in parts]))
        assert found.client.get(f"/v1/clusters/{cluster['id']}").json()["components"] == parts
        assert set(found.client.post("/v1/predict", json=means).json()["cluster"]) == {cluster["id"]}
    drawn = found.client.get("/v1/view").json()["clusters"]
    assert all(len(cluster["ellipses"]) > 1 and cluster["outline"] for cluster in drawn)
    assert sorted(c["id"] for c in drawn) == sorted(c["id"] for c in content)


@pytest.mark.parametrize(("family", "shape"), [("diagonal", (2,)), ("spherical", ()), ("poisson", None)])
def test_covariances_are_as_the_family_has_them(start, family, shape):
    found = start(family=family)
    rows = np.abs(points(200)).round()
    found.client.post("/v1/learn", json=objects(rows)).raise_for_status()
    cluster = found.client.get("/v1/clusters").json()["clusters"][0]
    assert cluster["covariance"] is None if shape is None else np.shape(cluster["covariance"]) == shape


def test_a_trend_is_the_share_gained_of_late(start):
    found = start()
    found.client.post("/v1/learn", json=objects(points()))
    found.backend.sample()
    known = {c.id: c.share for c in found.service.clusterer.clusters}
    clusters = found.client.get("/v1/clusters").json()["clusters"]
    before = found.backend.history.shares_before(found.backend._now())
    assert [c["trend"] for c in clusters] == [
        c["share"] - before.get(c["id"], 0.0 if before else c["share"]) for c in clusters
    ]
    assert {c["id"]: c["share"] for c in clusters} == known


def test_what_was_just_learnt_is_seen(start):
    """Readings are kept for a second, but not beyond what a caller has taught."""
    found = start()
    for n in (1, 2, 3):
        found.client.post("/v1/learn", json={"x": n, "y": 0}).raise_for_status()
        assert sum(c["weight"] for c in found.client.get("/v1/clusters").json()["clusters"]) == n
        assert sum(found.client.get("/v1/view").json()["leaves"]["weight"]) == n


def test_view(shared):
    view = finite(shared.client.get("/v1/view").text)
    assert len(view["labels"]) == 2
    assert sum(view["explained"]) == pytest.approx(1)
    assert {len(column) for column in view["leaves"].values()} == {len(view["leaves"]["x"])}
    assert sum(view["leaves"]["weight"]) == pytest.approx(N)
    chosen = shared.client.get("/v1/view", params={"x": "y", "y": "x"}).json()
    assert chosen["labels"] == ["y", "x"]
    assert chosen["explained"] is None
    assert "no feature 'z'" in problem(shared.client.get("/v1/view?x=z&y=x"), 404)["detail"]
    alone = [shared.client.get("/v1/view", params={axis: "x"}).json() for axis in ("x", "y")]
    assert [one["labels"] for one in alone] == [["x", ""], ["", "x"]]
    assert alone[0]["leaves"]["x"] == alone[1]["leaves"]["y"] == chosen["leaves"]["y"]
    assert set(alone[0]["leaves"]["y"]) == set(alone[1]["leaves"]["x"]) == {0.0}


def test_events_and_where_to_go_on(shared):
    client = shared.client
    everything = client.get("/v1/events", params={"limit": 1000}).json()
    told = everything["events"]
    expected = [change.to_dict() for change in shared.service.clusterer.events]
    assert [{k: v for k, v in event.items() if k != "seq"} for event in told] == expected
    assert [event["seq"] for event in told] == list(range(1, len(told) + 1))
    first = client.get("/v1/events", params={"limit": 1}).json()
    assert (first["events"], first["next"]) == (told[:1], 1)
    assert client.get("/v1/events", params={"after": 1}).json()["events"] == told[1:]
    assert client.get("/v1/events", params={"after": len(told)}).json() == {"events": [], "next": len(told)}
    for wrong in ({"after": -1}, {"limit": 0}, {"limit": 1001}, {"after": "x"}):
        assert problem(client.get("/v1/events", params=wrong), 422)["errors"]


def test_before_anything_is_learnt(start):
    client = start().client
    assert client.get("/v1/clusters").json() == {"model_version": None, "clusters": []}
    assert client.get("/v1/events").json() == {"events": [], "next": 0}
    assert client.get("/v1/view").json()["leaves"]["x"] == []
    assert client.get("/v1/status").json()["model_version"] is None
    assert client.post("/v1/predict", json=[{"x": 1}, {}]).json() == {
        "model_version": None,
        "cluster": [None, None],
        "probability": [None, None],
        "novelty": [None, None],
    }
    assert "no event has been learnt" in problem(client.post("/v1/snapshots"), 409)["detail"]


def test_partitions_may_all_have_gone_elsewhere(start):
    values = [b'{"x": %d, "y": %d}' % (i % 7, i % 5) for i in range(100)]
    source = MemorySource({("t", 0): values}, endless=True)
    service = made(source)
    service.partitions.store = Elsewhere()
    found = start(service)
    until(lambda: service.stats.events == 100)
    source.script.append(Revoked((("t", 0),)))
    until(lambda: not service.clusterer.shards)
    problem(found.client.get("/readyz"), 503)
    problem(found.client.post("/v1/snapshots"), 409)
    found.backend._model_copy.clear()
    found.backend.sample()
    for route in ("/v1/clusters", "/v1/view", "/v1/history", "/v1/status"):
        assert found.client.get(route).status_code == 200, route
    assert found.client.post("/v1/predict", json={"x": 1, "y": 1}).status_code == 200


class Elsewhere:
    """A store from which nothing comes back."""

    transactional = False

    def latest(self):
        return None

    def find(self, partition):
        return None

    def save(self, state):
        pass

    def hand_over(self, partition, place, summary):
        pass


# -------------------------------------------------------------------- snapshots


def test_snapshots(api):
    client = api.client
    assert client.get("/v1/snapshots").json() == []
    taken = client.post("/v1/snapshots")
    assert taken.status_code == 201
    summary = taken.json()
    assert (summary["version"], summary["events"], summary["method"]) == (1, N, "rbhc")
    kept = finite(client.get(taken.headers["location"]).text)
    assert {name: kept[name] for name in summary} == summary
    tree = Dendrogram.from_dict(kept["dendrogram"])
    expected = api.service.clusterer.snapshot()
    assert np.array_equal(tree.children, expected.children)
    assert sorted(tree.ids[tree.cut_nodes(summary["n_clusters"])]) == sorted(
        api.service.clusterer.model.names
    )
    assert client.post("/v1/snapshots", json={"method": "abc"}).json()["method"] == "abc"
    assert client.post("/v1/snapshots", json={}).json()["version"] == 3
    assert [each["version"] for each in client.get("/v1/snapshots").json()] == [1, 2, 3]
    problem(client.get("/v1/snapshots/99"), 404)
    problem(client.get("/v1/snapshots/last"), 422)
    for wrong in (b'{"method": "ward"}', b'{"methode": "abc"}', b"[", b"3", b"\xff"):
        problem(client.post("/v1/snapshots", content=wrong), 422)


def test_changes_between_two_snapshots(api):
    client, clusterer = api.client, api.service.clusterer
    client.post("/v1/snapshots").raise_for_status()
    before = clusterer.snapshot()
    client.post("/v1/learn", json=objects(points() + 900.0)).raise_for_status()
    client.post("/v1/snapshots").raise_for_status()
    found = finite(client.get("/v1/snapshots/2/changes", params={"since": 1}).text)
    assert (found["since"]["version"], found["until"]["version"]) == (1, 2)
    expected = clusterer.compare(before, clusterer.snapshot())
    assert [line["words"] for line in found["clusters"]] == [line.words() for line in expected]
    assert [tuple(line["kinds"]) for line in found["clusters"]] == [line.kinds for line in expected]
    assert any("new" in line["kinds"] for line in found["clusters"])
    features = [None if line.feature is None else str(line.feature) for line in expected]
    assert [line["feature"] for line in found["clusters"]] == features
    problem(client.get("/v1/snapshots/2/changes", params={"since": 9}), 404)
    problem(client.get("/v1/snapshots/9/changes", params={"since": 1}), 404)
    problem(client.get("/v1/snapshots/2/changes"), 422)


def test_snapshots_of_a_signal_are_listed(api):
    """As those of the schedule are, though `streamclust serve` sends them nowhere."""
    api.service.request_snapshot()
    until(lambda: api.service.snapshots.all)
    (found,) = api.client.get("/v1/snapshots").json()
    assert found["events"] == api.service.clusterer.n_seen
    assert api.client.get(f"/v1/snapshots/{found['version']}").json()["dendrogram"]["children"]


def test_old_snapshots_are_let_go(start):
    found = start()
    found.client.post("/v1/learn", json=[{"x": 1}, {"x": 2}])
    for _ in range(MAX_SNAPSHOTS + 2):
        found.client.post("/v1/snapshots").raise_for_status()
    versions = [each["version"] for each in found.client.get("/v1/snapshots").json()]
    assert versions == list(range(3, MAX_SNAPSHOTS + 3))


# -------------------------------------------------------------------- predicting


def test_predict_says_what_the_clusterer_would(shared):
    rows = points(50, seed=1)
    expected = shared.service.clusterer.assign_many(rows)
    bodies = (
        objects(rows),
        [{"y": e["y"], "x": e["x"], "unknown": 3} for e in objects(rows)],
        {"vectors": rows.tolist()},
        {"vectors": rows[:, ::-1].tolist(), "features": ["y", "x"]},
    )
    for body in bodies:
        found = finite(shared.client.post("/v1/predict", json=body).text)
        assert found["model_version"] == shared.service.clusterer.model.version
        assert found["cluster"] == expected.cluster.tolist()
        assert found["probability"] == pytest.approx(expected.probability)
        assert found["novelty"] == pytest.approx(expected.novelty)


def test_predicting_changes_nothing(shared):
    before = shared.service.clusterer.to_state().values
    shared.client.post("/v1/predict", json={"x": 1, "new": 2})
    assert shared.service.clusterer.to_state().values == before
    assert shared.client.get("/v1/status").json()["features"] == ["x", "y"]


def test_missing_features_are_integrated_out(shared):
    found = shared.client.post("/v1/predict", json=[{"x": 20}, {"x": 20, "y": None}, {}]).json()
    expected = shared.service.clusterer.predict_one({"x": 20.0})
    assert found["cluster"][:2] == [expected, expected]
    assert all(math.isfinite(novelty) for novelty in found["novelty"])


def test_nothing_is_predicted_of_nothing(shared):
    for body in ([], {"vectors": []}):
        found = shared.client.post("/v1/predict", json=body).json()
        assert (found["cluster"], found["probability"], found["novelty"]) == ([], [], [])


def test_an_event_beyond_every_measure_has_null_for_its_novelty(shared):
    text = shared.client.post("/v1/predict", json={"x": 1e119, "y": -1e119}).text
    assert finite(text)["cluster"][0] in shared.service.clusterer.model.names


# -------------------------------------------------------------------- learning


def test_learning_by_request_is_learning(start):
    """However the events are cut into requests, and whichever form they have."""
    rows = points()
    found = start()
    for i, chunk in enumerate(np.array_split(rows, 7)):
        body = objects(chunk) if i % 2 else {"vectors": chunk.tolist(), "features": ["x", "y"]}
        assert found.client.post("/v1/learn", json=body).json() == {"learnt": len(chunk), "refused": []}
    alone = StreamClusterer(warmup=50)
    alone.learn_many(objects(rows), shard=("requests", 0))
    theirs = found.service.clusterer
    assert [(c.id, c.weight, c.mean) for c in theirs.clusters] == [
        (c.id, c.weight, c.mean) for c in alone.clusters
    ]
    assert found.service.stats.events == N
    assert found.service.partitions.positions == {("requests", 0): N}


def test_one_event(start):
    found = start()
    assert found.client.post("/v1/learn", json={"x": 1, "y": 2}).json() == {"learnt": 1, "refused": []}
    assert found.client.post("/v1/predict", json={"x": 1, "y": 2}).json()["cluster"] == [0]


def test_what_cannot_be_learnt_is_refused_and_the_rest_learnt(start):
    found = start()
    events = [{"x": 1, "y": 1}, {"x": "east"}, {"x": 1e300, "y": 1}, {}, 7, [1, 2], {"x": 2, "y": 2}]
    answer = found.client.post("/v1/learn", json=events).json()
    assert answer["learnt"] == 3
    assert [refusal["index"] for refusal in answer["refused"]] == [1, 3, 4, 5]
    assert "'east'" in answer["refused"][0]["reason"]
    assert found.service.clusterer.n_seen == 3
    status = found.client.get("/v1/status").json()
    assert (status["events"], status["refused"], status["invalid"]) == (3, 4, {"x": 1})


def test_nothing_is_learnt_of_nothing(start):
    found = start()
    for _ in range(2):  # before there are features, and after
        for body in ([], {"vectors": []}, {"vectors": [], "features": ["x"]}):
            assert found.client.post("/v1/learn", json=body).json() == {"learnt": 0, "refused": []}
        assert found.client.post("/v1/learn", json={"vectors": [[], []]}).status_code in (200, 409)
        found.client.post("/v1/learn", json={"x": 1}).raise_for_status()
    assert found.service.clusterer.n_seen == 2


def test_rows_that_cannot_be_learnt(start):
    found = start()
    answer = found.client.post("/v1/learn", json={"vectors": [[None, 1], [1e300, 1], [1, 2], [None, 3]]})
    assert answer.json() == {"learnt": 4, "refused": []}
    assert found.service.clusterer.n_seen == 4
    assert found.service.clusterer.n_invalid == {0: 1}


def test_new_features_widen_what_is_known(api):
    assert api.client.post("/v1/learn", json={"x": 1, "y": 1, "z": 1}).json()["learnt"] == 1
    assert api.client.get("/v1/status").json()["features"] == ["x", "y", "z"]
    problem(api.client.post("/v1/predict", json={"vectors": [[1, 1]]}), 409)
    assert api.client.post("/v1/predict", json={"vectors": [[1, 1, 1]]}).status_code == 200
    assert len(api.client.get("/v1/clusters").json()["clusters"][0]["mean"]) == 3


def test_features_cannot_become_too_many(start):
    found = start(http={"max_features": 3})
    for body in ({"a": 1, "b": 2}, [{"a": 1, "b": 2, "c": 3}, {"a": 5, "b": None}]):
        assert found.client.post("/v1/learn", json=body).status_code == 200
    for body in ({"d": 1}, [{"a": 1}, {"b": 2, "e": 3}], {"vectors": [[1]], "features": ["z"]}):
        assert "max_features" in problem(found.client.post("/v1/learn", json=body), 409)["detail"]
    assert found.service.clusterer.n_seen == 3
    assert found.client.post("/v1/predict", json={"d": 1}).status_code == 200


def test_features_may_be_fixed(start):
    found = start(missing="error")
    found.client.post("/v1/learn", json=objects(points(60))).raise_for_status()
    answer = found.client.post("/v1/learn", json=[{"x": 1}, {"x": 1, "y": 1, "z": 1}]).json()
    assert (answer["learnt"], len(answer["refused"])) == (0, 2)
    for body in ({"x": 1}, {"x": 1, "y": 1, "z": 1}, {"vectors": [[1, None]]}):
        problem(found.client.post("/v1/predict", json=body), 422)
    assert found.client.post("/v1/predict", json={"x": 1, "y": 1}).status_code == 200


def test_features_of_rows_without_names_are_called_by_number(start):
    found = start()
    rows = points(60)
    found.client.post("/v1/learn", json={"vectors": rows.tolist()}).raise_for_status()
    assert found.client.get("/v1/status").json()["features"] == ["0", "1"]
    named = found.client.post("/v1/predict", json={"1": rows[0, 1], "0": rows[0, 0]}).json()
    assert named == found.client.post("/v1/predict", json={"vectors": rows[:1].tolist()}).json()
    assert found.client.post("/v1/learn", json={"0": 1, "1": 2}).json()["learnt"] == 1
    assert found.client.get("/v1/status").json()["features"] == ["0", "1"]


def test_events_of_another_source_are_not_mixed_with_those_of_requests(start):
    found = start(made(MemorySource({("t", 0): [b'{"x": 1}']}, endless=True)))
    until(lambda: found.service.stats.events == 1)
    assert "streamclust serve" in problem(found.client.post("/v1/learn", json={"x": 1}), 409)["detail"]
    assert found.service.clusterer.n_seen == 1
    assert found.client.post("/v1/predict", json={"x": 1}).json()["cluster"] == [0]


def test_a_service_that_stops_learns_no_more(start):
    found = start()
    found.service.stop()
    until(lambda: not found.service.stats.ready)
    problem(found.client.post("/v1/learn", json={"x": 1}), 503)
    assert found.service.clusterer.n_seen == 0


def test_a_busy_loop_is_told(api, monkeypatch):
    monkeypatch.setattr("streamclust_connectors.http.backend.LOCK_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr("streamclust_connectors.http.cached_value.LOCK_TIMEOUT_SECONDS", 0.05)
    with api.service.lock:
        for answer in (
            api.client.post("/v1/learn", json={"x": 1, "y": 1}),
            api.client.post("/v1/snapshots"),
        ):
            assert "the service loop was busy" in problem(answer, 503)["detail"]
            assert answer.headers["retry-after"] == "1"
        assert api.client.post("/v1/predict", json={"x": 1, "y": 1}).status_code == 200
        assert api.client.get("/v1/status").status_code == 200


# -------------------------------------------------------------------- what is read wrongly


@pytest.mark.parametrize("route", ["/v1/learn", "/v1/predict"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"nonsense", "invalid"),
        (b'{"x": NaN}', "invalid"),
        (b'{"x": Infinity}', "invalid"),
        (b'{"x": 1}\xff', ""),
        (b'"\xff"', ""),
        (b"3", "the body must be"),
        (b'"x"', "the body must be"),
        (b"null", "the body must be"),
        (b"[" * 100_000, "deep"),
        (b'{"x":' * 100_000, "deep"),
        (b'{"vectors": ' + b"[" * 100_000, ""),
        (b'{"vectors": [[1, "2"]]}', "$.vectors"),
        (b'{"vectors": [[1, true]]}', "$.vectors"),
        (b'{"vectors": [1, 2]}', "$.vectors"),
        (b'{"vectors": [[1, 2], [1]]}', "the same length"),
        (b'{"vectors": [[1, 2]], "features": ["x"]}', "names"),
        (b'{"vectors": [[1, 2]], "features": ["x", "x"]}', "must be distinct"),
        (b'{"vectors": [[1, 2]], "weights": [1]}', "weights"),
        (b'{"vectors": [[1e400, 2]]}', ""),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_whole(shared, route, body, said):
    assert said in problem(shared.client.post(route, content=body), 422)["detail"]
    assert shared.service.clusterer.n_seen == N


@pytest.mark.parametrize("route", ["/v1/learn", "/v1/predict"])
def test_vectors_must_fit_the_features_known(shared, route):
    said = problem(shared.client.post(route, json={"vectors": [[1, 2, 3]]}), 409)["detail"]
    assert "3 numbers, but there are 2 features" in said
    assert shared.service.clusterer.n_seen == N


def test_packed_vectors_may_be_named_and_mixed_with_arrays(shared):
    packed = [base64.b64encode(np.float32([x, y]).tobytes()).decode() for x, y in [(0.5, 20.0), (20.0, 0.5)]]
    table = {"features": ["y", "x"], "vectors": [packed[0], [20.0, 0.5], packed[1], [0.5, 20.0]]}
    found = shared.client.post("/v1/predict", json=table).json()["cluster"]
    plain = shared.client.post("/v1/predict", json=[{"x": 20, "y": 0.5}, {"x": 0.5, "y": 20}]).json()[
        "cluster"
    ]
    assert found == plain + plain[::-1]
    assert len(set(plain)) == 2


def test_what_is_no_number_is_missing(api):
    wrong = [
        {"x": "1", "y": 1},
        {"x": [1], "y": 1},
        {"x": {"a": 1}, "y": 1},
        {"x": 1e300, "y": 1},
        {"x": 10**400, "y": 1},
        {"x": -(10**30), "y": "b"},
    ]
    for event in wrong:
        known = {name: value for name, value in event.items() if type(value) is int and abs(value) < 1e120}
        answers = [api.client.post("/v1/predict", json=x).json()["cluster"] for x in (event, known)]
        assert answers[0] == answers[1]
        answer = api.client.post("/v1/learn", json=[event, {"x": 1, "y": 1}, {"x": event["x"]}]).json()
        assert answer["learnt"] == 2 + (event["x"] in known.values())


def test_events_with_text_are_learnt_and_predicted(start):
    found = start()
    rng = np.random.default_rng(0)
    events = [
        {"x": float(rng.normal(9.0 * k)), "channel": f"c{k}", "paid": bool(rng.integers(2)), "note": None}
        for k in rng.integers(3, size=600).tolist()
    ]
    assert found.client.post("/v1/learn", json=events).json() == {"learnt": 600, "refused": []}
    model = found.service.clusterer
    assert (model.n_clusters, set(model.categories)) == (3, {"channel", "paid"})
    asked = [*events[:20], {"channel": "c1"}, {"channel": "new"}, {"x": "ERR", "channel": "c2"}]
    answer = found.client.post("/v1/predict", json=asked).json()["cluster"]
    assert answer == model.predict_many(asked).tolist()
    assert answer[-2] is None
    for path in ("/v1/status", "/v1/clusters", "/v1/levels", "/v1/changes"):
        assert found.client.get(path).status_code in (200, 404)
    first = found.client.get("/v1/clusters").json()["clusters"][0]["id"]
    assert found.client.get(f"/v1/clusters/{first}").status_code == 200
    found.client.post("/v1/snapshots", json={}).raise_for_status()


def test_counts_cannot_be_negative(start):
    found = start(family="poisson")
    found.client.post("/v1/learn", json=[{"x": i % 5} for i in range(60)]).raise_for_status()
    problem(found.client.post("/v1/predict", json={"x": -1}), 422)
    assert found.client.post("/v1/learn", json={"x": -1}).json()["learnt"] == 0


def test_there_is_nothing_elsewhere(start):
    client = start().client
    assert "/docs" in problem(client.get("/v2/clusters"), 404)["detail"]
    answer = client.delete("/v1/clusters")
    assert "DELETE" in problem(answer, 405)["detail"]
    assert answer.headers["allow"] == "GET, HEAD"
    assert client.put("/v1/snapshots").headers["allow"] == "GET, HEAD, POST"
    assert client.get("/v1/learn").headers["allow"] == "POST"


# -------------------------------------------------------------------- HEAD


def test_head_is_get_without_the_body(shared):
    client, paths = shared.client, shared.app.openapi()["paths"]
    shared.client.post("/v1/snapshots").raise_for_status()
    asked = [path for path, methods in paths.items() if "get" in methods]
    assert "/v1/clusters/{id}" in asked
    asked = [path.replace("{id}", "0").replace("{version}", "1") for path in asked]
    varying = {"date", "content-length"}
    for path in [*asked, "/", "/docs", "/openapi.json", "/static/style.css", "/v1/nothing-here"]:
        head, get = client.head(path), client.get(path)
        assert head.status_code == get.status_code, path
        assert head.content == b""
        assert get.content
        assert int(head.headers["content-length"]) > 0
        told = [{n: v for n, v in answer.headers.items() if n not in varying} for answer in (head, get)]
        assert told[0] == told[1]
    for path in ("/v1/learn", "/v1/predict"):
        assert client.head(path).status_code == 405


def test_head_of_a_stream_ends(shared):
    head = shared.client.head("/v1/events", headers={"Accept": "text/event-stream"})
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/event-stream")


@pytest.mark.compiled
def test_embeddings_come_in_a_field_as_arrays_or_base64(start):
    rng = np.random.default_rng(0)
    d, centres = 384, rng.normal(size=(3, 384))
    of = rng.integers(3, size=1500)
    rows = (centres[of] + 0.5 * rng.normal(size=(1500, d))).astype("<f4")
    found = start(vector="payload.embedding", scale="unit")
    packed = [base64.b64encode(row.tobytes()).decode() for row in rows]
    body = [{"id": i, "payload": {"embedding": row}} for i, row in enumerate(packed)]
    assert found.client.post("/v1/learn", json=body).json() == {"learnt": 1500, "refused": []}
    plain = {"payload": {"embedding": rows[0].tolist()}}
    one = found.client.post("/v1/predict", json=plain).json()["cluster"]
    many = found.client.post("/v1/predict", json={"vectors": packed}).json()["cluster"]
    assert one == many[:1]
    assert len(set(zip(many, of.tolist(), strict=True))) == 3
    status = found.client.get("/v1/status").json()
    assert (status["n_clusters"], len(status["features"])) == (3, d)
    cluster = found.client.get("/v1/clusters").json()["clusters"][0]
    assert len(cluster["mean"]) == len(cluster["covariance"]) == d
    assert len(found.client.get("/v1/view").json()["clusters"]) == 3
    assert len(found.client.get(f"/v1/clusters/{one[0]}").json()["features"]) == d
    for bad in ({"id": 1}, {"payload": {"embedding": "AAA"}}, {"payload": {"embedding": ["1"]}}):
        problem(found.client.post("/v1/learn", json=bad), 422)
    short = found.client.post("/v1/learn", json={"payload": {"embedding": [1.0, 2.0]}})
    assert "2 numbers" in problem(short, 409)["detail"]
    zeros = found.client.post("/v1/learn", json={"payload": {"embedding": [0.0] * d}}).json()
    assert "no angle" in zeros["refused"][0]["reason"]
