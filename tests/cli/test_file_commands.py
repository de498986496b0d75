"""From a file to a checkpoint, to predictions, to a picture."""

import base64
import bz2
import csv
import gzip
import io
import json
import os
import pty
import subprocess

import numpy as np
import pandas as pd
import pyarrow
import pytest
from pyarrow import parquet
from scipy.cluster.hierarchy import is_valid_linkage
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.checkpoint import read
from streamclust.hierarchy import Dendrogram
from streamclust_connectors.cli.advice import remarks
from streamclust_connectors.cli.cluster_plot import EventSample
from tests.cli.conftest import COMMAND

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


@pytest.mark.compiled
def test_embeddings_of_a_file_are_arrays_or_base64(tmp_path, invoke):
    rng = np.random.default_rng(0)
    of = rng.integers(3, size=1200)
    rows = (rng.normal(size=(3, 384))[of] + 0.5 * rng.normal(size=(1200, 384))).astype("<f4")
    packed = [base64.b64encode(row.tobytes()).decode() for row in rows]
    lines = [
        json.dumps({"id": i, "embedding": row.tolist() if i % 2 else packed[i]}) for i, row in enumerate(rows)
    ]
    bad = ['{"id": 1}', '{"id": 2, "embedding": [1, 2]}', '{"id": 3, "embedding": "AAA"}']
    (tmp_path / "e.jsonl").write_text("\n".join([*lines, *bad]))
    fitted = invoke("fit", tmp_path / "e.jsonl", "--vector", "embedding", "--key", "id")
    assert "3 clusters of 1,200 events" in fitted.stdout
    assert "3 events could not be learnt" in fitted.stderr
    model = StreamClusterer.load(tmp_path / "e.jsonl.checkpoint")
    assert len(model.feature_names) == 384
    assert adjusted_rand_score(of, model.predict_many(rows).astype(int)) == 1.0


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


def test_values_that_cannot_be_read_are_told(tmp_path, points, invoke):
    rows, _ = points
    lines = [
        json.dumps({"x": x, "y": "ERR" if i % 100 == 50 else y}) for i, (x, y) in enumerate(rows.tolist())
    ]
    (tmp_path / "e.jsonl").write_text("\n".join(lines))
    done = invoke("fit", tmp_path / "e.jsonl")
    assert f"warning: {len(rows) // 100} values of y could not be read: missing" in done.stderr
    model = StreamClusterer.load(tmp_path / "e.jsonl.checkpoint")
    assert (model.n_seen, model.n_refused) == (len(rows), 0)


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
        ("", "has no events"),
        ("x,y\n", "has no events"),
        ("name\nOslo\nBergen\n", "--delimiter"),
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

    monkeypatch.setattr("streamclust_connectors.cli.file_commands.assignment_rows", broken)
    done = invoke("predict", files / "m", files / "events.csv", "-o", files / "found.csv", code=1)
    assert "No space left" in done.stderr
    assert not list(files.glob("found*"))


# -------------------------------------------------------------------- dialects


def table(rows, delimiter=",", decimal=".", header=("weight", "height"), quote=""):
    """Rows as text."""
    lines = [delimiter.join(header)] if header else []
    for row in rows:
        cells = (format(value, ".6f").replace(".", decimal) for value in row)
        lines.append(delimiter.join(f"{quote}{cell}{quote}" for cell in cells))
    return "\n".join(lines) + "\n"


DIALECTS = {
    "plain.csv": lambda rows: table(rows).encode(),
    "semicolons.csv": lambda rows: table(rows, ";").encode(),
    "decimal commas.csv": lambda rows: table(rows, ";", ",").encode(),
    "quoted commas.csv": lambda rows: table(rows, ",", ",", quote='"').encode(),
    "tabs.tsv": lambda rows: table(rows, "\t", ",").encode(),
    "pipes.csv": lambda rows: table(rows, "|").encode(),
    "quoted.csv": lambda rows: table(rows, quote='"').encode(),
    "spaces.csv": lambda rows: table(rows, ", ").encode(),
    "mark.csv": lambda rows: table(rows).encode("utf-8-sig"),
    "wide.csv": lambda rows: table(rows, ";", ",").encode("utf-16"),
    "windows.csv": lambda rows: table(rows).replace("\n", "\r\n").encode(),
    "zipped.csv.gz": lambda rows: gzip.compress(table(rows).encode()),
    "zipped.tsv.bz2": lambda rows: bz2.compress(table(rows, "\t").encode()),
    "index.csv": lambda rows: "".join(
        f"{i - 1 if i else ''},{line}\n" for i, line in enumerate(table(rows).splitlines())
    ).encode(),
    "row names.csv": lambda rows: "".join(
        f"{i},{line}\n" if i else f"{line}\n" for i, line in enumerate(table(rows).splitlines())
    ).encode(),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_is_read_as_plain_csv_is(tmp_path, points, invoke, name):
    rows, _ = points
    (tmp_path / name).write_bytes(DIALECTS[name](rows[:120]))
    done = invoke("fit", tmp_path / name, "-o", tmp_path / "m")
    assert "could not be learnt" not in done.stderr
    model = StreamClusterer.load(tmp_path / "m")
    assert model.feature_names == ("weight", "height")
    plain = StreamClusterer(feature_order=("weight", "height"))
    plain.learn_many([{"weight": x, "height": y} for x, y in rows[:120].tolist()])
    plain.settle()
    assert model.centers == plain.centers


def test_columns_are_shown_in_the_files_order_though_the_first_rows_lack_some(tmp_path, invoke):
    (tmp_path / "a.csv").write_text("b,c,a\nNA,1,2\n3,NA,1\n" + "5,4,6\n" * 20)
    done = invoke("fit", tmp_path / "a.csv")
    shown = [done.stdout.find(f"{name}=") for name in "bca"]
    assert min(shown) > 0
    assert shown == sorted(shown)
    assert invoke("inspect", tmp_path / "a.csv.checkpoint").stdout.find("b=") > 0


def test_what_was_found_out_about_a_file_is_said(tmp_path, points, invoke):
    rows, _ = points
    text = table(rows, ";", ",", header=("größe", "höhe"))
    (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
    done = invoke("fit", tmp_path / "a.csv")
    assert "note: read with delimiter ';', decimal mark ',', encoding latin-1" in done.stderr
    assert StreamClusterer.load(tmp_path / "a.csv.checkpoint").feature_names == ("größe", "höhe")
    told = ("--delimiter", "semicolon", "--decimal", ",", "--encoding", "latin-1", "--header")
    assert invoke("fit", tmp_path / "a.csv", *told).stdout == done.stdout


def test_missing_cells_no_header_and_names_twice(tmp_path, invoke):
    (tmp_path / "a.csv").write_text("1,2,a\n2,NA,b\n?,3,c\n4, - ,d\n5,none here,e\n")
    done = invoke("fit", tmp_path / "a.csv", "--null", "none here")
    assert "no header (columns are x0 to x2)" in done.stderr
    assert "not numeric: x2" in done.stderr
    model = StreamClusterer.load(tmp_path / "a.csv.checkpoint")
    assert (model.n_seen, model.feature_names) == (5, ("x0", "x1"))
    (tmp_path / "b.csv").write_text("x,y,x\n1,2,3\n4,5,6\n")
    assert "several columns are named x" in invoke("fit", tmp_path / "b.csv").stderr
    assert StreamClusterer.load(tmp_path / "b.csv.checkpoint").feature_names == ("x", "y", "x_2")


def test_rows_of_a_wrong_length_are_refused_by_their_numbers(tmp_path, invoke):
    rows = [f"{i},{i % 3}" for i in range(9000)]
    rows[3], rows[6000], rows[8999] = "1", "1,2,3", "1,2,3,4"
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    done = invoke(
        "fit", tmp_path / "a.csv", "--labels", tmp_path / "l.jsonl", "--set", "engine.max_leaves=32"
    )
    assert "row 4: the row has 1 cell, but 2 columns are expected (see --delimiter): 1\n" in done.stderr
    assert "3 events could not be learnt" in done.stderr
    found = [json.loads(line) for line in (tmp_path / "l.jsonl").read_text().splitlines()]
    assert [row["row"] for row in found] == list(range(1, 9001))
    assert [row["row"] for row in found if row["cluster"] is None] == [4, 6001, 9000]


@pytest.mark.parametrize(
    ("content", "options", "sentence", "code"),
    [
        ("x,y\n" + "1,2\n" * 50_000 + "1,é\n", (), "--encoding latin-1", 3),
        ("x,y\n1,2\n", ("--encoding", "martian"), "no encoding 'martian'", 3),
        ("x,y\n1,2\n", ("--delimiter", "two"), "source.delimiter", 2),
        ("x,y\n1,2\n", ("--decimal", "x"), "source.decimal", 2),
        ('x,y\n1,"2\n' + "3,4\n" * 400_000, (), "a quote is not closed", 3),
        ("length,width\n1,2\n", ("--features", "lenght"), "did you mean 'length'?", 2),
        ("length,width\n1,2\n", ("--exclude", "z"), "the columns are length, width", 2),
        ("length,width\n1,2\n", ("--key", "lenth"), "--key: there is no column 'lenth'", 2),
        ("city,x\nOslo,2\n", ("--features", "x,city"), "column 'city' is not numeric: it contains 'Oslo'", 2),
    ],
)
def test_what_is_not_understood_is_refused_with_the_option(
    tmp_path, invoke, content, options, sentence, code
):
    (tmp_path / "a.csv").write_bytes(content.encode("latin-1"))
    assert sentence in invoke("fit", tmp_path / "a.csv", *options, code=code).stderr
    assert not (tmp_path / "a.csv.checkpoint").exists()


def test_a_feature_that_no_event_has_is_an_error(tmp_path, invoke):
    (tmp_path / "a.jsonl").write_text('{"length": 1, "width": 2}\n' * 3)
    done = invoke("fit", tmp_path / "a.jsonl", "--features", "length,widht", code=2)
    assert "did you mean 'width'?" in done.stderr


# -------------------------------------------------------------------- columns


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.jsonl"])
def test_columns_that_are_not_numbers_are_left_out(tmp_path, points, invoke, name):
    rows, _ = points
    frame = pd.DataFrame(rows[:150], columns=["y", "x"])
    frame["city"], frame["on"] = "Oslo", pd.date_range("2026-01-01", periods=150, freq="h")
    frame["id"] = range(1000, 1150)
    if name == "a.jsonl":
        frame.to_json(tmp_path / name, orient="records", lines=True, date_format="iso")
    else:
        getattr(frame, f"to_{name[2:]}")(tmp_path / name, index=False)
    done = invoke("fit", tmp_path / name, "-o", tmp_path / "m")
    assert done.stderr.count("warning") == 1
    assert (
        "ignored columns that are not numeric: city, on; to use the dates of on as event times: --time on"
        in done.stderr
    )
    assert "id looks like a row number" in done.stderr
    assert 'to use text as categories: family "mixed"' in done.stderr
    timed = invoke("fit", tmp_path / name, "--exclude", "id,city", "--time", "on", "--half-life", "720000")
    assert timed.stderr == ""
    model = StreamClusterer.load(tmp_path / f"{name}.checkpoint")
    assert model.feature_names == ("y", "x")
    decayed = (0.5 ** (np.arange(150) * 3600 / 720_000)).sum()
    assert sum(c.weight for c in model.clusters) == pytest.approx(decayed, rel=1e-6)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.jsonl"])
def test_the_mixed_family_takes_columns_of_text_as_categories(tmp_path, invoke, name):
    frame, labels = shop(900)
    if name == "a.jsonl":
        frame.to_json(tmp_path / name, orient="records", lines=True)
    else:
        getattr(frame, f"to_{name[2:]}")(tmp_path / name, index=False)
    done = invoke(
        "fit", tmp_path / name, "--family", "mixed", "-o", tmp_path / "m", "--labels", tmp_path / "l.csv"
    )
    assert "ignored" not in done.stderr
    model = StreamClusterer.load(tmp_path / "m")
    assert set(model.categories["channel"]) == {"web", "shop", "phone"}
    told = pd.read_csv(tmp_path / "l.csv")
    assert adjusted_rand_score(labels, told["cluster"]) > 0.99
    again = invoke("predict", tmp_path / "m", tmp_path / name).stdout
    assert again == (tmp_path / "l.csv").read_text()
    numbers = invoke("fit", tmp_path / name, "-o", tmp_path / "n", "--labels", tmp_path / "n.csv")
    assert "ignored columns that are not numeric: channel" in numbers.stderr
    assert adjusted_rand_score(labels, pd.read_csv(tmp_path / "n.csv")["cluster"]) < 0.7


def shop(n):
    """Three clusters; two of them differ by their channel and little else."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=n)
    frame = pd.DataFrame({"x": rng.normal(size=n) + 9.0 * (labels == 2), "y": rng.normal(size=n)})
    frame["channel"] = np.array(["web", "shop", "phone"])[labels]
    frame["floor"] = np.array(["low", "high", "high"])[labels]
    return frame, labels


def test_predict_takes_new_values_and_gaps_of_categories(tmp_path, invoke):
    frame, _ = shop(900)
    frame.to_csv(tmp_path / "a.csv", index=False)
    invoke("fit", tmp_path / "a.csv", "--family", "mixed", "-o", tmp_path / "m")
    (tmp_path / "b.csv").write_text("channel,x,y\nfax,9,0\n,9,0\nweb,,\n")
    done = invoke("predict", tmp_path / "m", tmp_path / "b.csv")
    found = pd.read_csv(io.StringIO(done.stdout))
    assert found["cluster"].notna().all()
    assert found["cluster"][0] == found["cluster"][1] != found["cluster"][2]
    assert "has no floor; treated as missing values" in done.stderr


def test_the_mixed_family_takes_files_of_numbers_alone(files, points, invoke):
    _, labels = points
    fit = ("fit", files / "events.csv", "--family", "mixed", "--key", "name")
    invoke(*fit, "-o", files / "m", "--labels", files / "l.csv")
    assert adjusted_rand_score(labels, pd.read_csv(files / "l.csv")["cluster"]) == 1.0


def test_predict_needs_neither_key_nor_time_nor_weight(tmp_path, points, invoke):
    rows, _ = points
    frame = pd.DataFrame(rows, columns=["y", "x"])
    frame.assign(id="007", n=2, at=1.0).to_csv(tmp_path / "a.csv", index=False)
    invoke("fit", tmp_path / "a.csv", "--key", "id", "--weight", "n", "--time", "at", "-o", tmp_path / "m")
    keyed = list(csv.DictReader(io.StringIO(invoke("predict", tmp_path / "m", tmp_path / "a.csv").stdout)))
    assert {row["key"] for row in keyed} == {"007"}
    frame.to_csv(tmp_path / "b.csv", index=False)
    frame.to_json(tmp_path / "b.jsonl", orient="records", lines=True)
    for name in ("b.csv", "b.jsonl"):
        done = invoke("predict", tmp_path / "m", tmp_path / name)
        bare = list(csv.DictReader(io.StringIO(done.stdout)))
        assert [row["cluster"] for row in bare] == [row["cluster"] for row in keyed]
        assert done.stderr == ""
    assert (
        "no column 'id'"
        in invoke("predict", tmp_path / "m", tmp_path / "b.csv", "--key", "id", code=2).stderr
    )
    frame.drop(columns="x").to_csv(tmp_path / "c.csv", index=False)
    assert (
        "has no x; treated as missing values" in invoke("predict", tmp_path / "m", tmp_path / "c.csv").stderr
    )
    (tmp_path / "d.csv").write_text("u,v\n1,2\n")
    assert "none of the features y, x" in invoke("predict", tmp_path / "m", tmp_path / "d.csv", code=3).stderr


# -------------------------------------------------------------------- results


@pytest.mark.parametrize("name", ["l.csv", "l.jsonl", "l.parquet"])
def test_labels_are_what_predict_says(files, invoke, name):
    done = invoke("fit", files / "events.csv", "--key", "name", "-o", files / "m", "--labels", files / name)
    assert f"labels {files / name}" in done.stdout
    invoke("predict", files / "m", files / "events.csv", "-o", files / f"again-{name}")
    assert (files / name).read_bytes() == (files / f"again-{name}").read_bytes()
    if name == "l.parquet":
        frame = pd.read_parquet(files / name)
        assert frame.columns.tolist() == ["row", "key", "cluster", "probability", "novelty"]
        assert frame["row"].tolist() == list(range(1, 601))


def test_a_picture_is_drawn_of_the_features_that_tell_most(files, points, invoke, monkeypatch):
    rows, _ = points
    noise = np.random.default_rng(0).normal(size=len(rows))
    pd.DataFrame({"noise": noise, "x": rows[:, 0], "y": rows[:, 1]}).to_csv(files / "n.csv", index=False)
    drawn = []
    plot = StreamClusterer.plot
    monkeypatch.setattr(
        StreamClusterer,
        "plot",
        lambda self, features, **more: drawn.append(features) or plot(self, features, **more),
    )
    invoke("fit", files / "n.csv", "--plot", files / "n.png")
    assert drawn == [("x", "y")]
    assert (files / "n.png").read_bytes().startswith(b"\x89PNG")
    (files / "one.csv").write_text("x\n1\n2\n3\n")
    assert "needs two features" in invoke("fit", files / "one.csv", "--plot", files / "o.png", code=3).stderr


def test_a_sample_is_uniform():
    sample = EventSample(size=400)
    for start in range(0, 100_000, 1000):
        sample.add([{"x": start + i} for i in range(1000)], ())
    found = np.sort([vector["x"] for vector in sample.vectors])
    assert len(found) == 400
    assert (
        np.abs(found / 100_000 - (np.arange(400) + 0.5) / 400).max() < 1.63 / 20
    )  # Kolmogorov-Smirnov at 1%


def test_standard_input(tmp_path, points, command):
    rows, _ = points
    text = table(rows[:200], ";", ",")
    done = command("fit", "-", "--kind", "csv", "-o", "m", input=text)
    assert "of 200 events" in done.stdout
    assert "standard input needs --kind" in command("fit", "-", code=2, input=text).stderr
    assert (
        "read twice" in command("fit", "-", "--kind", "csv", "--labels", "x.csv", code=2, input=text).stderr
    )


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        (np.random.default_rng(0).normal(size=(300, 2)), (), "300 events formed only one cluster"),
        (np.random.default_rng(0).normal(size=(60, 12)), (), "60 events are too few for 12 features"),
        (np.random.default_rng(0).integers(2, size=(300, 3)), (), None),
        (np.arange(600.0).reshape(300, 2) // 2 + np.random.default_rng(0).normal(size=(300, 2)) * [0, 1], (),
         "x0 looks like a row number"),
    ],
)  # fmt: skip
def test_a_poor_result_comes_with_advice(tmp_path, invoke, rows, options, sentence):
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",")
    done = invoke("fit", tmp_path / "a.csv", *options)
    if sentence is not None:
        assert f"note: {sentence}" in done.stderr
    assert "1 clusters" not in done.stdout


class Result:
    """What is asked of a model."""

    def __init__(self, n_clusters, n_seen, names):
        self.n_clusters, self.n_seen, self.feature_names, self.sketch = n_clusters, n_seen, names, None


@pytest.mark.parametrize(
    ("k", "n", "vectors", "family", "sentences"),
    [
        (3, 1000, [{"x": 0.5}], "gaussian", []),
        (1, 1000, [{"x": 0}, {"x": 1}], "gaussian", ["try --family bernoulli"]),
        (1, 1000, [{"x": 0}, {"x": 7}], "gaussian", ["try --family poisson"]),
        (1, 1000, [{"x": 0}, {"x": 7}], "poisson", ["another --family"]),
        (11, 100, [{"x": 0.5, "s": 1}, {"x": 0.2, "s": 1}, {"x": 0.7, "s": 1}], "gaussian",
         ["11 clusters of 100 events are probably too many: fewer than 10 events per cluster", "--exclude s"]),
        (10, 100, [{"x": 0.5}], "gaussian", []),
    ],
)  # fmt: skip
def test_what_the_data_suggest(k, n, vectors, family, sentences):
    found = remarks(Result(k, n, tuple(vectors[0])), family, vectors)
    assert len(found) == bool(sentences)
    assert all(sentence in found[0] for sentence in sentences)


def test_progress_is_for_people(tmp_path, points):
    rows, _ = points
    (tmp_path / "a.csv").write_text(table(np.tile(rows, (40, 1))))
    arguments = [COMMAND, "fit", tmp_path / "a.csv"]
    piped = subprocess.run(arguments, capture_output=True, check=True)
    assert piped.stderr == b""
    master, slave = pty.openpty()
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=slave) as process:
        os.close(slave)
        shown = b""
        try:
            while part := os.read(master, 65536):
                shown += part
        except OSError:  # the other end is closed
            pass
        process.communicate()
    os.close(master)
    assert b"/s" in shown
    assert b"learning: " in shown
