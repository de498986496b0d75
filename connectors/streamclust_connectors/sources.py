"""Sources beside Kafka: memory, JSON lines, CSV, Parquet, standard input, and events made up on the spot."""

from __future__ import annotations

import csv
import math
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from time import sleep
from typing import IO, Any

import msgspec

from streamclust_connectors.ports import Assigned, Batch, Extent, Message, Partition, Record, Revoked
from streamclust_connectors.synthetic import Drift

BATCH = 5000
"""Records of one poll, at most."""


class MemorySource:
    """Partitions that are lists of records. For tests: it ends, fails and pauses where it is told to.

    All partitions are assigned by the first poll. `script` holds what the next do instead of delivering records: an
    exception is raised, Assigned and Revoked are reported, None delivers nothing. Then records follow, at most `size`
    of one partition a poll.
    """

    def __init__(
        self,
        partitions: Mapping[Partition, Sequence[bytes | Record | None]],
        size: int = BATCH,
        script: Iterable[Exception | Assigned | Revoked | None] = (),
        endless: bool = False,
    ) -> None:
        self.partitions: dict[Partition, list[Record]] = {
            name: [
                r if not (r is None or isinstance(r, bytes)) else Message(i, r) for i, r in enumerate(records)
            ]
            for name, records in partitions.items()
        }
        self.size = size
        self.script = deque([Assigned(tuple(partitions)), *script])
        self.endless = endless
        self.at: dict[Partition, int] = {}
        self.committed: dict[Partition, int] = {}
        self.paused = False
        self.closed = False
        self._awaited: set[Partition] = set()

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """What the script says, then records of the partition that is farthest behind."""
        if self.script:
            step = self.script.popleft()
            if isinstance(step, Exception):
                raise step
            if isinstance(step, Assigned):
                self._awaited |= set(step.partitions)
            if isinstance(step, Revoked):
                self.at = {name: at for name, at in self.at.items() if name not in step.partitions}
            return [] if step is None else [step]
        if self.paused or not any(self.lag().values()):
            return []
        name = max(self.lag().items(), key=lambda item: item[1])[0]
        records = self.partitions[name]
        start = next(i for i, record in enumerate(records) if record.offset >= self.at[name])
        found = records[start : start + self.size]
        self.at[name] = found[-1].offset + 1
        return [Batch(name, found)]

    def extent(self, partition: Partition) -> Extent:
        """All records of the list."""
        records = self.partitions[partition]
        if not records:
            return Extent(0, 0)
        return Extent(records[0].offset, records[-1].offset + 1)

    def seek(self, partition: Partition, offset: int) -> None:
        """Begin at this record."""
        self.at[partition] = offset
        self._awaited.discard(partition)

    def pause(self) -> None:
        """Deliver nothing."""
        self.paused = True

    def resume(self) -> None:
        """Deliver again."""
        self.paused = False

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Remember what was told."""
        self.committed.update(positions)

    def lag(self) -> dict[Partition, int]:
        """Records still to come."""
        return {name: max(0, self.extent(name).end - at) for name, at in self.at.items()}

    @property
    def finished(self) -> bool:
        """Whether the lists are at their ends."""
        return not (self.endless or self.script or self._awaited or any(self.lag().values()))

    def close(self) -> None:
        """Remember it."""
        self.closed = True


class IteratorSource:
    """One partition whose records come from an iterator that can be begun anew: a file, or a generator.

    Offsets count the records. To seek is to begin anew and skip.
    """

    def __init__(self, name: str, size: int = BATCH) -> None:
        self.partition: Partition = (name, 0)
        self.size = size
        self.finished = False
        self._at = 0
        self._values: Iterator[bytes] | None = None
        self._announced = self._paused = False

    def values(self) -> Iterator[bytes]:
        """The records from the first on."""
        raise NotImplementedError

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """The next records."""
        if not self._announced:
            self._announced = True
            return [Assigned((self.partition,))]
        if self._paused or self._values is None:
            return []
        return self._batch(list(islice(self._values, self.size)), more=True)

    def _batch(self, values: Sequence[bytes], more: bool) -> Sequence[Batch]:
        """Records as a batch; without any, where `more` was asked for, the source has ended."""
        found = [Message(self._at + i, value) for i, value in enumerate(values)]
        self._at += len(found)
        self.finished = more and not found
        return [Batch(self.partition, found)] if found else []

    def extent(self, partition: Partition) -> Extent:
        """Nobody knows where it ends before it has."""
        return Extent(0, sys.maxsize)

    def seek(self, partition: Partition, offset: int) -> None:
        """Begin anew and skip."""
        self._values = iter(self.values())
        self._at = sum(1 for _ in islice(self._values, offset))

    def pause(self) -> None:
        """Read nothing."""
        self._paused = True

    def resume(self) -> None:
        """Read on."""
        self._paused = False

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Nobody asks a file how far it was read."""

    def lag(self) -> dict[Partition, int]:
        """Unknown."""
        return {}

    def close(self) -> None:
        """Let the iterator go."""
        self._values = None


class LinesSource(IteratorSource):
    """A file with an event on each line (JSON lines); empty lines are left out."""

    def __init__(self, path: str | Path, size: int = BATCH) -> None:
        super().__init__(Path(path).name, size)
        self.path = Path(path)

    def values(self) -> Iterator[bytes]:
        """The lines."""
        with self.path.open("rb") as file:
            yield from _lines(file)


class StandardInput(IteratorSource):
    """Lines of standard input. They come once: a restart goes on with what comes then.

    A thread reads them, so that a poll waits no longer than it is told to, and takes what there is.
    """

    def __init__(self, stream: IO[bytes] | None = None, size: int = 500) -> None:
        super().__init__("stdin", size)
        self.stream = stream or sys.stdin.buffer
        self._read: Queue[bytes | None] = Queue(maxsize=10 * size)
        self._reader = Thread(target=self._fill, name="streamclust-stdin", daemon=True)

    def _fill(self) -> None:
        for line in _lines(self.stream):
            self._read.put(line)
        self._read.put(None)

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """The lines that have come, after waiting for the first of them."""
        if not self._announced or self._paused or self.finished or not self._reader.ident:
            return super().poll(seconds)
        lines: list[bytes] = []
        while len(lines) < self.size:
            try:
                line = self._read.get(timeout=0 if lines else seconds)
            except Empty:
                return self._batch(lines, more=False)
            if line is None:
                self._read.put(None)  # for the next poll, which then finds nothing more
                return self._batch(lines, more=True)
            lines.append(line)
        return self._batch(lines, more=True)

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on counting from there: what was read before does not come again."""
        self._at = offset
        if not self._reader.ident:
            self._reader.start()


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    return (line for line in map(bytes.strip, file) if line)


class CsvSource(IteratorSource):
    """A CSV file with a header; a cell that is empty is missing, one that is no number stays text."""

    def __init__(self, path: str | Path, size: int = BATCH, **dialect: Any) -> None:  # noqa: ANN401
        super().__init__(Path(path).name, size)
        self.path = Path(path)
        self.dialect = dialect

    def values(self) -> Iterator[bytes]:
        """Each row as a JSON object."""
        with self.path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file, **self.dialect):
                yield msgspec.json.encode(
                    {name: _cell(text) for name, text in row.items() if name is not None}
                )


def _cell(text: str | None) -> float | str | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    return text if math.isinf(number) else number  # JSON has no infinity: as text it will be refused


class ParquetSource(IteratorSource):
    """A Parquet file, read a batch of rows at a time."""

    def __init__(self, path: str | Path, size: int = BATCH) -> None:
        super().__init__(Path(path).name, size)
        self.path = Path(path)

    def values(self) -> Iterator[bytes]:
        """Each row as a JSON object."""
        try:
            from pyarrow import parquet  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            raise ImportError("reading Parquet needs pyarrow: pip install pyarrow") from None
        with parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(self.size):
                yield from map(msgspec.json.encode, batch.to_pylist())


class SyntheticSource(IteratorSource):
    """Clusters that drift, appear, split and vanish: see `synthetic.Drift`, whose options these are."""

    def __init__(self, n_features: int = 2, size: int = BATCH, **options: Any) -> None:  # noqa: ANN401
        super().__init__("synthetic", size)
        self.n_features = n_features
        self.options = options

    def values(self) -> Iterator[bytes]:
        """The events as JSON objects of x0, x1, ..."""
        names = [f"x{i}" for i in range(self.n_features)]
        for events, _ in Drift(self.n_features, **self.options).batches(self.size):
            for row in events.tolist():
                yield msgspec.json.encode(dict(zip(names, row, strict=True)))


class Brought(IteratorSource):
    """Delivers nothing: events are brought to the service by request, and counted by the place of their partition."""

    def __init__(self) -> None:
        super().__init__("requests")

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """Wait."""
        if not self._announced:
            return super().poll(seconds)
        sleep(seconds)
        return []

    def seek(self, partition: Partition, offset: int) -> None:
        """There is nothing to read."""
