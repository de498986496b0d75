"""Files and generators as sources, files as sinks."""

import io
import json
import os

import pandas as pd
import pytest

from streamclust import StreamClusterer
from streamclust_connectors.ports import Batch, Output
from streamclust_connectors.service import Service
from streamclust_connectors.shared_state import SharedState
from streamclust_connectors.sinks import LinesSink, ListSink
from streamclust_connectors.sources import (
    CsvSource,
    LinesSource,
    ParquetSource,
    StandardInput,
    SyntheticSource,
)

ROWS = [{"x": float(i % 5), "y": i / 2} for i in range(40)]


def files(where):
    frame = pd.DataFrame(ROWS)
    frame.to_csv(where / "a.csv", index=False)
    frame.to_parquet(where / "a.parquet")
    (where / "a.jsonl").write_text("\n\n".join(map(json.dumps, ROWS)) + "\n")


@pytest.mark.parametrize(
    ("kind", "name"), [(LinesSource, "a.jsonl"), (CsvSource, "a.csv"), (ParquetSource, "a.parquet")]
)
def test_files(tmp_path, kind, name):
    files(tmp_path)
    read = StreamClusterer()
    for row in ROWS:
        read.learn_one(row, shard=(name, 0))
    service = Service(kind(tmp_path / name, size=7), ListSink(), StreamClusterer())
    service.run()
    assert service.clusterer.n_seen == len(ROWS)
    assert service.clusterer.clusters[0].mean == pytest.approx(read.clusters[0].mean)


def test_a_file_goes_on_where_it_was_left(tmp_path):
    files(tmp_path)
    for expected in (40, 0, 2):
        store = SharedState(tmp_path / "state")
        service = Service(LinesSource(tmp_path / "a.jsonl"), ListSink(), StreamClusterer(), store)
        service.run()
        assert service.stats.events == expected
        store.close()
        if not expected:
            with (tmp_path / "a.jsonl").open("a") as file:
                file.write('{"x": 1, "y": 2}\n{"x": 1, "y": 3}\n')


def test_cells_of_a_csv(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n,3\nfour,5\n1e999,6\n")
    sink = ListSink()
    service = Service(CsvSource(tmp_path / "a.csv"), sink, StreamClusterer())
    service.run()
    assert service.stats.events == 2
    refused = [json.loads(letter.value) for letter in sink.outputs["dead-letters"]]
    assert refused == [{"x": "four", "y": 5.0}, {"x": "1e999", "y": 6.0}]


def test_standard_input():
    source = StandardInput(io.BytesIO(b'{"x": 1}\n\n{"x": 2}\noops\n'))
    service = Service(source, ListSink(), StreamClusterer())
    service.run()
    assert (service.stats.events, service.stats.dead_letters) == (2, 1)


def test_standard_input_that_is_idle_keeps_no_poll_waiting():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as pipe:
        source = StandardInput(stream)
        (partition,) = source.poll(0)[0].partitions
        source.seek(partition, 0)
        assert source.poll(0.01) == []
        assert not source.finished
        pipe.write(b'{"x": 1}\n')
        (batch,) = source.poll(10.0)
        assert [record.value for record in batch.records] == [b'{"x": 1}']
        pipe.close()
        assert source.poll(10.0) == []
        assert source.finished


def test_synthetic_events_are_the_same_every_time():
    def values(skip):
        source = SyntheticSource(3, size=50, n_events=120, seed=5)
        (partition,) = source.poll(0)[0].partitions
        source.seek(partition, skip)
        found = []
        while not source.finished:
            for part in source.poll(0):
                assert isinstance(part, Batch)
                found += part.records
        return found

    everything = values(0)
    assert len(everything) == 120
    assert values(70) == everything[70:]
    assert set(json.loads(everything[0].value)) == {"x0", "x1", "x2"}


def test_lines_are_written(tmp_path):
    sink = LinesSink(tmp_path / "out.jsonl", channels=("assignments", "dead-letters"))
    assert not sink.wants("lifecycle")
    sink.emit("assignments", [Output(b'{"id":"a"}')])
    sink.emit("dead-letters", [Output(b"\xff", None, [("why", b"because")])])
    sink.commit({})
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines[0] == {"channel": "assignments", "id": "a"}
    assert (lines[1]["value"], lines[1]["headers"]) == ("/w==", {"why": "because"})
    sink.close()
