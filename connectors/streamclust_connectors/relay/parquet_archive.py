"""Writes outputs to Parquet files, each record once: the names of the files tell how far they reach."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from streamclust_connectors.interfaces import Partition, Record, Transient
from streamclust_connectors.output_records import (
    LifecycleOutput,
    LifecycleRow,
    columns,
    lifecycle_row,
    text_key,
)
from streamclust_connectors.relay.output_topics import OutputTopics

log = logging.getLogger(__name__)

ROWS_PER_FILE = 100_000
SECONDS_PER_FILE = 60.0
ARROW_TYPES: dict[str, Callable[[], pa.DataType]] = {
    "string": pa.string,
    "long": pa.int64,
    "double": pa.float64,
}
FILE_NAME = re.compile(r"(\d+)-(\d+)-(\d+)\.parquet")
"""Partition, first offset and offset after the last."""

Read = Callable[[bytes], Any]


def arrow_schema(record: type[msgspec.Struct]) -> pa.Schema:
    """Columns of a file, after those that say where the message was."""
    fields = [pa.field("message_partition", pa.int32()), pa.field("message_offset", pa.int64())]
    fields.append(pa.field("message_time", pa.timestamp("ms", tz="UTC")))
    for column in columns(record):
        kind = ARROW_TYPES[column.kind]()
        fields.append(pa.field(column.name, pa.list_(kind) if column.is_list else kind))
    return pa.schema(fields)


class TopicFiles:
    """The files of one topic's outputs."""

    def __init__(self, directory: Path, record: type[msgspec.Struct], read: Read) -> None:
        self.directory, self._read = directory, read
        self._is_lifecycle = record is LifecycleOutput
        self.schema = arrow_schema(LifecycleRow if self._is_lifecycle else record)
        self._rows: dict[int, list[dict[str, Any]]] = {}
        self._spans: dict[int, tuple[int, int]] = {}
        self.files = 0
        directory.mkdir(parents=True, exist_ok=True)
        for unfinished in directory.glob("*.part"):
            unfinished.unlink()

    def position(self, partition: int) -> int:
        """Offset after the last record that is in a file."""
        names = [FILE_NAME.fullmatch(path.name) for path in self.directory.iterdir()]
        return max((int(name[3]) for name in names if name and int(name[1]) == partition), default=0)

    def add(self, partition: int, records: Sequence[Record]) -> None:
        """Keep records for the next file."""
        rows = self._rows.setdefault(partition, [])
        for record in records:
            first, _ = self._spans.get(partition, (record.offset, 0))
            if record.value is not None:
                rows += self._rows_of(partition, record, record.value)
            self._spans[partition] = first, record.offset + 1
        if len(rows) >= ROWS_PER_FILE:
            self.write(partition)

    def _rows_of(self, partition: int, record: Record, value: bytes) -> list[dict[str, Any]]:
        try:
            content = self._read(value)
        except Transient:
            raise
        except Exception as error:  # written by others
            log.warning(
                "%s: a message at offset %d cannot be read: %s", self.directory.name, record.offset, error
            )
            return []
        where = {
            "message_partition": partition,
            "message_offset": record.offset,
            "message_time": record.timestamp,
        }
        return [where | self._row(one) for one in (content if isinstance(content, list) else [content])]

    def _row(self, content: dict[str, Any]) -> dict[str, Any]:
        if self._is_lifecycle and "parent_weights" not in content:  # JSON has pairs of cluster and weight
            content = msgspec.structs.asdict(lifecycle_row(msgspec.convert(content, LifecycleOutput)))
        if "key" in content:
            content = content | {"key": text_key(content["key"])}
        return content

    def write(self, partition: int) -> None:
        """Write the kept rows of a partition to a file, which appears whole."""
        rows, span = self._rows.pop(partition, []), self._spans.pop(partition, None)
        if not rows or span is None:
            return
        path = self.directory / f"{partition}-{span[0]:020}-{span[1]:020}.parquet"
        part = path.with_suffix(".part")
        pq.write_table(pa.Table.from_pylist(rows, self.schema), part, compression="zstd")
        part.replace(path)
        self.files += 1

    def discard(self) -> None:
        """Forget the kept rows."""
        self._rows.clear()
        self._spans.clear()

    def write_all(self) -> None:
        """Write the kept rows of every partition."""
        for partition in list(self._rows):
            self.write(partition)


class ParquetArchive:
    """Writes topics of outputs to files, a directory for each; a restart goes on behind the last file."""

    def __init__(
        self,
        topics: OutputTopics,
        files: Mapping[str, TopicFiles],
        seconds_per_file: float = SECONDS_PER_FILE,
    ) -> None:
        self.topics, self.files, self.seconds = topics, files, seconds_per_file
        self.stopping = False
        self._due = time.monotonic() + seconds_per_file

    def start(self) -> None:
        """Go on behind the last files; rows that were kept are read again."""
        for files in self.files.values():
            files.discard()
        self.topics.seek({name: self._position(name) for name in self.topics.partitions()})

    def _position(self, name: Partition) -> int:
        return self.files[name[0]].position(name[1])

    def run_once(self, seconds: float = 0.5) -> None:
        """Keep the records of one poll, and write the files that are due."""
        for (topic, number), records in self.topics.poll(seconds):
            self.files[topic].add(number, records)
        if time.monotonic() >= self._due:
            self.finish()

    def finish(self) -> None:
        """Write everything that is kept."""
        for files in self.files.values():
            files.write_all()
        self._due = time.monotonic() + self.seconds
