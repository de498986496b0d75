"""From a file to a checkpoint, to predictions, to a picture."""

import csv
import io
import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from scipy.cluster.hierarchy import is_valid_linkage
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.checkpoint import read
from streamclust.hierarchy import Dendrogram

JSONL = ("--vector", "payload.vector", "--key", "id")


def test_fit_inspect_predict_export(files, points, command, invoke, monkeypatch):
    """The whole way; the first half of it in processes of their own, as a user would go it."""
    rows, labels = points
    fitted = command("fit", "events.csv", "--key", "name")
    assert "3 clusters of 600 events" in fitted.stdout
    assert "checkpoint events.csv.checkpoint" in fitted.stdout
    model = StreamClusterer.load(files / "events.csv.checkpoint")
    assert model.n_seen == len(rows)
    assert model.feature_names == ("x", "y")

    monkeypatch.chdir(files)
    inspected = json.loads(invoke("inspect", "events.csv.checkpoint", "--json").stdout)
    assert inspected["events"] == len(rows)
    assert inspected["clusters"] == model.n_clusters == 3
    assert inspected["lifecycle"]["counts"]["born"] == len([e for e in model.events if e.kind == "born"])
    assert inspected["positions"] == {"files": [["events.csv", len(rows)]]}

    predicted = list(
        csv.DictReader(io.StringIO(command("predict", "events.csv.checkpoint", "events.csv").stdout))
    )
    assert [row["key"] for row in predicted] == [f"event {i}" for i in range(len(rows))]
    assert adjusted_rand_score(labels, [row["cluster"] for row in predicted]) == 1.0
    found = model.assign_many(rows)
    np.testing.assert_array_equal([float(row["novelty"]) for row in predicted], found.novelty)
    np.testing.assert_array_equal([float(row["probability"]) for row in predicted], found.probability)

    for name in ("tree.json", "tree.nwk", "tree.npy", "tree.png"):
        invoke("snapshot", "export", "events.csv.checkpoint", name)
    tree = Dendrogram.from_dict(json.loads((files / "tree.json").read_text()))
    assert tree.stop == 3
    assert tree.leaves.weight.sum() == pytest.approx(len(rows))
    assert (files / "tree.nwk").read_text() == tree.to_newick() + "\n"
    linkage = np.load(files / "tree.npy")
    assert is_valid_linkage(linkage)
    np.testing.assert_array_equal(linkage, tree.to_linkage())
    assert (files / "tree.png").read_bytes().startswith(b"\x89PNG")


def test_every_format_gives_the_same_clusters(files, points, invoke):
    rows, _ = points
    parquet.write_table(pyarrow.table({"x": rows[:, 0], "y": rows[:, 1]}), files / "events.parquet")
    invoke("fit", files / "events.csv", "--features", "x,y", "-o", files / "a")
    invoke("fit", files / "events.jsonl", *JSONL, "-o", files / "b")
    invoke("fit", files / "events.parquet", "-o", files / "c")
    (files / "events.parquet").rename(files / "nameless")
    invoke("fit", files / "nameless", "--kind", "parquet", "-o", files / "d")
    totals = [StreamClusterer.load(files / name).snapshot().to_dict() for name in "abcd"]
    assert totals[0] == totals[1] == totals[2] == totals[3]


def test_bad_events_are_told_and_left_out(files, points, invoke):
    rows, _ = points
    done = invoke("fit", files / "events.jsonl", *JSONL)
    assert f"row {len(rows) + 1}: " in done.stderr
    assert f"row {len(rows) + 2}: feature 'x' must be a number" in done.stderr
    assert "2 events could not be learnt" in done.stderr
    assert StreamClusterer.load(files / "events.jsonl.checkpoint").n_seen == len(rows)
    out = files / "found.jsonl"
    invoke("predict", files / "events.jsonl.checkpoint", files / "events.jsonl", "-o", out)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["row"] for row in found] == list(range(1, len(rows) + 3))
    assert [row["key"] for row in found[:3]] == [0, 1, 2]
    assert all(row["cluster"] is None and row["error"] for row in found[-2:])
    assert not any("error" in row for row in found[:-2])


def test_fit_takes_settings_weights_and_times(files, invoke):
    (files / "w.csv").write_text("x,n,t\n" + "".join(f"{i % 7},{1 + i % 3},{i}\n" for i in range(300)))
    more = (
        "--weight",
        "n",
        "--time",
        "t",
        "--half-life",
        "1e9",
        "--seed",
        "3",
        "--set",
        "engine.max_leaves=64",
    )
    invoke("fit", files / "w.csv", *more, "--family", "spherical")
    state = read(files / "w.csv.checkpoint").values
    assert state["parameters"]["family"] == "spherical"
    assert (state["parameters"]["max_leaves"], state["parameters"]["seed"]) == (64, 3)
    assert state["schema"]["names"] == ["x"]
    model = StreamClusterer.load(files / "w.csv.checkpoint")
    assert sum(c.weight for c in model.clusters) == pytest.approx(
        sum(1 + i % 3 for i in range(300)), rel=1e-4
    )


def test_fit_ignores_where_a_service_would_read(files, invoke, monkeypatch):
    monkeypatch.setenv("STREAMCLUST_SOURCE__KIND", "kafka")
    monkeypatch.setenv("STREAMCLUST_KAFKA__TOPIC", "events")
    invoke("fit", files / "events.csv", "--features", "x,y")


def test_predict_needs_a_feature_that_is_known(files, invoke):
    invoke("fit", files / "events.csv", "--features", "x,y", "-o", files / "m")
    (files / "other.jsonl").write_text('{"z": 1}\n{"x": 1}\n{"x": 1, "y": 2, "z": 3}\n[1, 2]\n')
    done = invoke(
        "predict", files / "m", files / "other.jsonl", "--format", "jsonl", "--set", "decode.features="
    )
    first, second, third, fourth = (json.loads(line) for line in done.stdout.splitlines())
    assert "none of the features x, y" in first["error"]
    assert second["cluster"] is not None
    assert third["cluster"] is not None
    assert "none of the features" in fourth["error"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "none of the events"),
        ("name\nOslo\nBergen\n", "--features"),
        ("x\n1e200\n", "none of the events"),
        ("x\n\x00\n", "none of the events"),
    ],
)
def test_a_file_of_nothing_that_can_be_learnt(tmp_path, invoke, content, sentence):
    (tmp_path / "bad.csv").write_text(content)
    assert sentence in invoke("fit", tmp_path / "bad.csv", code=3).stderr
    assert not (tmp_path / "bad.csv.checkpoint").exists()


@pytest.mark.parametrize("name", ["bad.csv", "bad.parquet"])
def test_a_file_that_is_not_what_its_name_says(tmp_path, invoke, name):
    (tmp_path / name).write_bytes(b"\xff\xfe\x00broken")
    assert f"cannot be read as {name[4:]}" in invoke("fit", tmp_path / name, code=3).stderr


def test_what_is_written_is_written_whole(files, invoke, monkeypatch):
    invoke("fit", files / "events.csv", "--features", "x,y", "-o", files / "m")

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("streamclust_connectors.cli.files.assigned", broken)
    done = invoke("predict", files / "m", files / "events.csv", "-o", files / "found.csv", code=1)
    assert "No space left" in done.stderr
    assert not list(files.glob("found*"))
