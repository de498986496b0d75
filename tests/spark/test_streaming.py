"""Structured Streaming feeds a clusterer: every row counts once, through kills at the worst moments."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from streamclust import StreamClusterer
from streamclust.checkpoint import Checkpoints
from streamclust.checkpoint.files import encode
from streamclust_connectors.interfaces import DataLoss
from streamclust_connectors.spark import StreamingJob, assign
from tests.spark.conftest import NAMES, without
from tests.spark.job import OPTIONS, events, job
from tests.spark.test_summaries import assert_total

FILES = 5


@pytest.fixture
def files(tmp_path, points):
    """A directory of Parquet files, one of them with a bad row, and all the good rows."""
    rows = points[0][:4000].copy()
    rows[3300, 1] = np.nan
    (tmp_path / "events").mkdir()
    for i, part in enumerate(np.array_split(rows, FILES)):
        path = tmp_path / "events" / f"{i}.parquet"
        parquet.write_table(pa.table(dict(zip(NAMES, part.T, strict=True))), path)
        os.utime(path, (1e9 + i, 1e9 + i))  # Spark takes the oldest first
    return tmp_path / "events", np.delete(rows, 3300, axis=0)


def state_of(directory):
    """What a checkpoint holds, but for the name that Spark gave the query."""
    state = Checkpoints(directory / "model").latest()
    state.values["positions"]["spark"].pop("query")
    state.values.pop("library")
    return state


def run(learner, stream):
    query = learner.start(stream, availableNow=True)
    query.awaitTermination()


def run_until_killed(told):
    """Run the job in a process of its own; returns how it ended."""
    script = Path(__file__).with_name("job.py")
    process = subprocess.Popen(
        [sys.executable, script, json.dumps(told)], start_new_session=True, stderr=subprocess.DEVNULL
    )
    try:
        return process.wait(timeout=240)
    finally:  # the driver's Java dies with it: here, at once
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_killed_query_loses_nothing_and_counts_nothing_twice(spark, files, tmp_path):
    directory, good = files
    told = {"events": str(directory), "checkpoint": str(tmp_path / "state")}
    dies = {"die_before_saving": 1, "die_after_saving": 3}
    assert run_until_killed(told | dies) == -signal.SIGKILL
    assert state_of(tmp_path / "state").values["positions"]["spark"]["batch"] == 0
    assert run_until_killed(told | dies | {"die_before_saving": None}) == -signal.SIGKILL
    assert state_of(tmp_path / "state").values["positions"]["spark"]["batch"] == 3
    learner = job(tmp_path / "state")
    run(learner, events(spark, directory))
    assert learner.skipped == 1
    assert learner.batch == FILES - 1
    assert learner.clusterer.n_seen == len(good)
    assert_total(learner.clusterer.tree, good)
    refused = spark.read.parquet(str(tmp_path / "state" / "refused"))
    assert [row.asDict()["batch"] for row in refused.collect()] == [4]
    undisturbed = job(tmp_path / "other")
    run(undisturbed, events(spark, directory))
    assert encode(state_of(tmp_path / "other")) == encode(state_of(tmp_path / "state"))


def test_a_stream_is_learnt_in_batches_and_goes_on(spark, files, tmp_path):
    directory, good = files
    later = tmp_path / "later"
    later.mkdir()
    for file in sorted(directory.glob("*.parquet"))[3:]:
        shutil.move(file, later)
    counts = []

    def count(rows, batch):
        counts.append((batch, assign(rows, learner.clusterer).where("cluster is not null").count()))

    learner = job(tmp_path / "state", then=count)
    run(learner, events(spark, directory))
    assert counts == [(0, 800), (1, 800), (2, 800)]
    for file in later.glob("*.parquet"):
        shutil.move(file, directory)
    learner = job(tmp_path / "state", then=count)
    assert learner.clusterer.n_seen == 2400
    run(learner, events(spark, directory))
    assert [batch for batch, _ in counts] == [0, 1, 2, 3, 4]
    assert learner.clusterer.n_seen == len(good)
    assert learner.clusterer.n_refused == 1
    assert learner.clusterer.n_clusters == 4
    assert_total(learner.clusterer.tree, good)
    assert {cluster.last_seen for cluster in learner.clusterer.clusters} <= set(range(2, 4000))


def test_checkpoints_that_do_not_belong_together_are_refused(spark, files, tmp_path):
    directory, _ = files
    for place in ("a", "b"):
        run(job(tmp_path / place), events(spark, directory))
    shutil.copytree(tmp_path / "a" / "model", tmp_path / "c" / "model")
    with pytest.raises(DataLoss, match="up to 4 of another query"):
        job(tmp_path / "c").start(events(spark, directory))
    shutil.copytree(tmp_path / "b" / "query", tmp_path / "c" / "query")
    with pytest.raises(DataLoss, match="up to 4 of another query"):
        job(tmp_path / "c").start(events(spark, directory))
    shutil.rmtree(tmp_path / "c" / "model")
    (tmp_path / "c" / "query" / "commits" / "5.backup").touch()  # somebody else's
    with pytest.raises(
        DataLoss, match=r"has finished micro-batches up to 4, but the clusterer's in .* only up to -1"
    ):
        job(tmp_path / "c").start(events(spark, directory))
    learner = job(tmp_path / "c", on_data_loss="continue")
    run(learner, events(spark, directory))
    assert learner.clusterer.n_seen == 0


def test_micro_batches_that_come_again_are_skipped(frame, points, tmp_path):
    learner = StreamingJob(StreamClusterer(**OPTIONS), tmp_path, NAMES)
    first, second = frame(points[0][:300]), frame(points[0][300:600])
    learner.learn(first, 0)
    learner.learn(first, 0)
    again = StreamingJob(StreamClusterer(**OPTIONS), tmp_path, NAMES)
    again.learn(first, 0)
    again.learn(second, 1)
    again.learn(second.where("x > 1e9"), 2)
    assert (learner.skipped, again.skipped, again.batch) == (1, 1, 2)
    assert_total(again.clusterer.tree, points[0][:600])


def test_settings_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(ValueError, match="needs `time`"):
        StreamingJob(StreamClusterer(half_life=100.0), tmp_path, NAMES)
    with pytest.raises(ValueError, match="on_data_loss must be"):
        StreamingJob(StreamClusterer(), tmp_path, NAMES, on_data_loss="ignore")


def test_kafka_is_a_source_like_any_other(spark, kafka_source, cluster, points, tmp_path):
    if not isinstance(kafka_source, list):
        without(kafka_source)
    rows = points[0][:600]
    topic = cluster.topic("in", 2)
    values = [json.dumps(dict(zip(NAMES, row, strict=True))).encode() for row in rows.tolist()]
    values.insert(10, b"not JSON")
    for partition in (0, 1):
        cluster.write(topic, values[partition::2], partition)
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", cluster.address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .load()
        .selectExpr("value", "from_json(cast(value as string), 'x double, y double, z double') as event")
        .selectExpr("cast(value as string) as value", "event.*")
    )
    learner = job(tmp_path)
    run(learner, stream)
    assert learner.batch >= 3
    assert learner.clusterer.n_seen == 600
    assert_total(learner.clusterer.tree, rows)
    refused = spark.read.parquet(str(tmp_path / "refused")).collect()
    assert [row["value"] for row in refused] == ["not JSON"]
