"""Hierarchies from checkpoints and from what a service sent."""

import json

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.checkpoint import Checkpoints
from streamclust_connectors.service.outputs import snapshot


@pytest.fixture(scope="module")
def model(points):
    found = StreamClusterer(background=False)
    found.learn_many([{"x": x, "y": y} for x, y in points[0].tolist()], shard=("events", 0))
    return found


@pytest.fixture
def kept(tmp_path, model):
    """A directory with two checkpoints, a file with two snapshots, and one alone."""
    store = Checkpoints(tmp_path / "state" / "0")
    for offset in (10, 600):
        store.save(model.to_state({"next": [["events", 0, offset]]}))
    sent = [
        snapshot(model.snapshot(method).to_dict(), model, {("events", 0): 600}).value
        for method in ("rbhc", "abc")
    ]
    lines = [b'{"channel":"lifecycle","id":"x"}', *(b'{"channel":"snapshots",' + value[1:] for value in sent)]
    (tmp_path / "found.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (tmp_path / "one.json").write_text(json.dumps(model.snapshot("bhc").to_dict()))
    (tmp_path / "other.json").write_text('{"nothing": "of ours"}')
    return tmp_path


def test_all_are_listed(kept, invoke):
    text = invoke("snapshot", "ls", kept).stdout
    assert [word for word in text.split() if word in ("checkpoint", "snapshot")] == [
        *("snapshot", "snapshot"),  # found.jsonl
        "snapshot",  # one.json
        *("checkpoint", "checkpoint"),
    ]
    assert "000000000002.checkpoint" in text
    assert "found.jsonl:3" in text


def test_one_is_chosen_and_shown(kept, invoke, model):
    shown = invoke("snapshot", "show", kept / "state").stdout
    assert "3 clusters of" in shown
    assert "000000000002.checkpoint" in shown
    for cluster in model.clusters:
        assert f"{cluster.share:.1%}" in shown
    assert "found.jsonl:2" in invoke("snapshot", "show", kept / "found.jsonl", "--index", "0").stdout
    assert "5 clusters of" in invoke("snapshot", "show", kept / "one.json", "-k", "5").stdout
    assert "abc" in invoke("snapshot", "show", kept / "state", "--method", "abc").stdout


def test_what_was_sent_is_exported_as_it_was(kept, invoke, model, tmp_path):
    invoke("snapshot", "export", kept / "found.jsonl", tmp_path / "tree.json", "--index", "0")
    assert json.loads((tmp_path / "tree.json").read_text()) == model.snapshot("rbhc").to_dict()
    invoke("snapshot", "export", kept / "one.json", tmp_path / "odd.name", "--format", "linkage")
    np.testing.assert_array_equal(np.load(tmp_path / "odd.name"), model.snapshot("bhc").to_linkage())


def test_a_snapshot_sent_without_scatter_can_be_shown(kept, invoke, model):
    content = json.loads(snapshot(model.snapshot("rbhc").to_dict(), model, {}).value)
    content["dendrogram"]["scatter"] = None
    (kept / "bare.json").write_text(json.dumps(content))
    assert "3 clusters of" in invoke("snapshot", "show", kept / "bare.json").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["show", "other.json"], 3, "no checkpoint and no snapshot"),
        (["show", "broken.json"], 3, "is not JSON"),
        (["show", "wrong.json"], 3, "not a stored dendrogram"),
        (["show", "fresh.checkpoint"], 3, "has learnt no events"),
        (["show", "state", "--index", "7"], 2, "must be between -2 and 1"),
        (["show", "state", "--method", "ward"], 2, "must be rbhc, abc or bhc"),
        (["show", "one.json", "-k", "100000"], 2, "got 100000"),
        (["export", "state", "tree.gif"], 2, "unknown format"),
        (["export", "state", "tree.png", "--format", "gif"], 2, "unknown format"),
        (["show", "nowhere"], 2, "does not exist"),
    ],
)
def test_what_cannot_be_shown(kept, invoke, monkeypatch, arguments, code, sentence):
    monkeypatch.chdir(kept)
    (kept / "broken.json").write_text("{")
    (kept / "wrong.json").write_text('{"children": [[0, 1]], "weight": [1.0]}')
    StreamClusterer().save(kept / "fresh.checkpoint")
    assert sentence in invoke("snapshot", *arguments, code=code).output


def test_inspect_finds_the_latest_and_knows_a_partition_from_a_clusterer(kept, invoke, model):
    text = invoke("inspect", kept / "state").stdout
    assert "000000000002.checkpoint" in text
    assert '{"next": [["events", 0, 600]]}' in text
    assert "3 clusters of 600 events" in text
    from copy import deepcopy

    from streamclust.checkpoint import write

    write(kept / "part.checkpoint", deepcopy(model).shards.release(("events", 0)))
    found = json.loads(invoke("inspect", kept / "part.checkpoint", "--json").stdout)
    assert found["kind"] == "one partition, handed over"
    assert found["events"] == 600
    assert "one partition" in invoke("inspect", kept / "part.checkpoint").stdout
    (kept / "empty").mkdir()
    assert "no checkpoint in" in invoke("inspect", kept / "empty", code=3).stderr
