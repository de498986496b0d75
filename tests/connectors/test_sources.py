"""Files and generators as sources, files as sinks."""

import gzip
import io
import json
import math
import os
import weakref
from decimal import Decimal
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pandas as pd
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from streamclust import StreamClusterer
from streamclust_connectors.cli.service_factory import create_service
from streamclust_connectors.files import sources as file_sources
from streamclust_connectors.files.csv_dialect import DialectOptions
from streamclust_connectors.files.sources import CsvSource, LinesSource, ParquetSource
from streamclust_connectors.interfaces import Batch, Output
from streamclust_connectors.service import Service
from streamclust_connectors.settings import load
from streamclust_connectors.sinks import LinesSink, ListSink
from streamclust_connectors.sources import (
    StandardInput,
    SyntheticSource,
)
from streamclust_connectors.state_directory import StateDirectory

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
        store = StateDirectory(tmp_path / "state")
        service = Service(LinesSource(tmp_path / "a.jsonl"), ListSink(), StreamClusterer(), store)
        service.run()
        assert service.stats.events == expected
        store.close()
        if not expected:
            with (tmp_path / "a.jsonl").open("a") as file:
                file.write('{"x": 1, "y": 2}\n{"x": 1, "y": 3}\n')


def test_cells_of_a_csv(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n,3\nfour,5\nfour,1e999\n")
    sink = ListSink()
    service = Service(CsvSource(tmp_path / "a.csv"), sink, StreamClusterer())
    service.run()
    assert service.stats.events == 3
    assert service.clusterer.n_invalid == {"x": 1}
    refused = [json.loads(letter.value) for letter in sink.outputs["dead-letters"]]
    assert refused == [{"x": "four", "y": "1e999"}]


def everything(source):
    """The records of a source, by its polls."""
    (partition,) = source.poll(0)[0].partitions
    return lambda skip=0: (
        source.seek(partition, skip)
        or [
            record
            for _ in iter(lambda: source.finished, True)
            for part in source.poll(0)
            for record in part.records
        ]
    )


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_csv_goes_on_where_it_was_left(tmp_path, ending):
    """Also after rows of a wrong length, quoted line ends and empty lines, in blocks of any size."""
    rows = [f'{i};"a ""{i}""{ending}b";{i},5' for i in range(3000)]
    rows[7], rows[8], rows[2999] = "1;2", "", "1;2;3;4"
    (tmp_path / "a.csv").write_bytes(ending.join(["x;y;z", *rows]).encode())
    read = everything(CsvSource(tmp_path / "a.csv", size=70))()
    assert len(read) == 2999
    values = [json.loads(record.value) for record in read]
    assert [record.offset for record in read if isinstance(values[record.offset], str)] == [7, 2998]
    assert values[100] == {"x": 101.0, "y": f'a "101"{ending}b', "z": 101.5}
    for skip in (0, 7, 8, 1500, 2998):
        again = CsvSource(tmp_path / "a.csv", size=70)
        (partition,) = again.poll(0)[0].partitions
        again.seek(partition, skip)
        (batch,) = again.poll(0)
        assert list(batch.records) == read[skip : skip + 70]


@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=3, max_size=3), min_size=2, max_size=30
    ),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from([".", ","]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
    st.booleans(),
)
def test_a_dialect_that_is_told_gives_the_numbers_back(rows, delimiter, decimal, encoding, header):
    lines = [delimiter.join(["größe", "b", "c"])] * header
    for row in rows:
        cells = ("NA" if value is None else repr(value).replace(".", decimal) for value in row)
        lines.append(delimiter.join(f'"{cell}"' for cell in cells))
    options = DialectOptions(delimiter, decimal, encoding, header)
    with TemporaryDirectory() as where:
        path = Path(where) / "a.csv"
        path.write_bytes("\n".join(lines).encode(encoding))
        found = [
            list(json.loads(value).values()) for value in CsvSource(path, dialect_options=options).values()
        ]
    assert found == rows


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_pipe_is_read_once(tmp_path, compress):
    os.mkfifo(tmp_path / "pipe")
    content = compress(b"x;y\n" + b"1,5;2\n" * 20_000)
    writer = Thread(target=(tmp_path / "pipe").write_bytes, args=(content,))
    writer.start()
    source = CsvSource(tmp_path / "pipe")
    assert source.columns == ("x", "y")
    values = list(source.values())
    writer.join()
    source.close()
    assert values == [b'{"x":1.5,"y":2.0}'] * 20_000


def test_values_of_parquet(tmp_path):
    table = pyarrow.table(
        {
            "d": [Decimal("1.50"), None],
            "inf": [math.inf, 1.0],
            "at": pyarrow.array([1, 2], pyarrow.timestamp("ns")),
            "yes": [True, False],
            "kind": pyarrow.array(["a", "b"]).dictionary_encode(),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    first, second = map(json.loads, ParquetSource(tmp_path / "a.parquet").values())
    assert first == {"d": 1.5, "inf": "inf", "at": "1970-01-01T00:00:00", "yes": True, "kind": "a"}
    assert (second["d"], second["inf"]) == (None, 1.0)


def test_columns_of_a_file_that_are_text_are_left_out_by_the_service(tmp_path, caplog):
    (tmp_path / "a.csv").write_text("city;x;y\n" + "Oslo;1,5;2\n" * 30)
    settings = load(overrides={"source": {"path": tmp_path / "a.csv"}, "output": {"kind": "none"}})
    running = create_service(settings)
    running.run()
    assert (running.stats.events, running.clusterer.feature_names) == (30, ("x", "y"))
    assert "ignored columns that are not numeric: city" in caplog.text


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


@pytest.mark.parametrize("rows_read", [1, 200])
def test_a_csv_file_that_was_read_is_in_no_thread_of_pyarrow(tmp_path, monkeypatch, rows_read):
    """Such a thread aborts the process if it ends at that moment; it held the file after one in ten readings."""
    held = []

    class Watched(file_sources.PrefixedStream):
        def __init__(self, *parts):
            super().__init__(*parts)
            held.append(weakref.ref(self))

    monkeypatch.setattr(file_sources, "PrefixedStream", Watched)
    (tmp_path / "a.csv").write_text("x,y\n" + "1.5,2.5\n" * 200)
    for _ in range(100):
        values = CsvSource(tmp_path / "a.csv").values()
        assert len(list(islice(values, rows_read))) == rows_read
        del values
        assert held[-1]() is None
