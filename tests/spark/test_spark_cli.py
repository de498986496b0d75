"""streamclust spark-summarize: a lake of Parquet or CSV files becomes a checkpoint."""

import csv

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from streamclust import StreamClusterer
from streamclust_connectors.cli import app
from tests.spark.conftest import NAMES
from tests.spark.test_summaries import assert_total


def invoke(*arguments, code=0):
    done = CliRunner().invoke(app, [str(a) for a in arguments], prog_name="streamclust")
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done


@pytest.fixture
def lake(tmp_path, points):
    """The same rows as Parquet and as CSV, with two bad ones in the CSV file."""
    rows = points[0][:2000]
    for kind in ("parquet", "csv"):
        (tmp_path / kind).mkdir()
    for i, part in enumerate(np.array_split(rows, 2)):
        table = pa.table(dict(zip(NAMES, part.T, strict=True)) | {"name": ["somebody"] * len(part)})
        parquet.write_table(table, tmp_path / "parquet" / f"{i}.parquet")
        with (tmp_path / "csv" / f"{i}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["name", *NAMES])
            writer.writerows(["somebody", *row] for row in part.tolist())
            if i:
                writer.writerows([["astray", "east", 1, 2], ["lost", 1, "", 2]])
    return tmp_path


def test_a_parquet_lake(spark, lake, points):
    output = lake / "model.checkpoint"
    done = invoke("spark-summarize", lake / "parquet", "--output", output, "--seed", 3)
    assert "4 clusters of 2,000 events" in done.stdout
    assert "2,000 rows in 2 partitions" in done.stdout
    model = StreamClusterer.load(output)
    assert model.feature_names == tuple(NAMES)
    assert_total(model.tree, points[0][:2000])
    assert "4 clusters" in invoke("inspect", output).stdout
    found = invoke("predict", output, lake / "csv" / "0.csv").stdout.splitlines()
    assert [int(line.split(",")[1]) for line in found[1:]] == model.predict_many(points[0][:1000]).tolist()


def test_a_csv_lake_with_bad_rows(spark, lake, points):
    output, refused = lake / "model.checkpoint", lake / "refused"
    done = invoke("spark-summarize", lake / "csv", "--kind", "csv", "-o", output, "--refused", refused)
    assert "2 of 2,002 rows refused for lack of usable numbers; see" in done.stderr
    model = StreamClusterer.load(output)
    assert model.n_refused == 2
    assert_total(model.tree, points[0][:2000])
    rows = {row["name"]: row for row in spark.read.parquet(str(refused)).collect()}
    assert (rows["astray"]["x"], rows["astray"]["refused_because"]) == (
        "east",
        "x is missing or not a number",
    )
    assert rows["lost"]["refused_because"] == "y is missing or not a number"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["nowhere"], 3, "nowhere cannot be read as parquet"),
        (["parquet", "--features", "x,who"], 3, "there is no column 'who'; the columns are x, y, z, name"),
        (["parquet", "--features", "name"], 3, "none of the 2,000 rows"),
        (["parquet", "--kind", "avro"], 2, "must be parquet or csv"),
        (["parquet", "--output", "no/such/place"], 2, "there is no directory"),
        (["parquet", "--spark", "nonsense"], 2, "is not of the form KEY=VALUE"),
    ],
)
def test_what_cannot_be_summarised_is_told_in_a_sentence(spark, lake, arguments, code, told):
    done = invoke("spark-summarize", lake / arguments[0], *arguments[1:], code=code)
    assert told in " ".join(done.stderr.replace("│", " ").split())


def test_without_java_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = invoke("spark-summarize", "lake", code=1)
    assert (
        f"Spark needs Java 17 or newer, but none was found in JAVA_HOME, which is {tmp_path}" in done.stderr
    )
