"""Sources other than Kafka and files: memory, standard input, HTTP, and synthetic events."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from queue import Empty, Queue
from threading import Thread
from time import sleep
from typing import IO, Any

import msgspec

from streamclust_connectors.interfaces import Assigned, Batch, Extent, Message, Partition, Record, Revoked
from streamclust_connectors.synthetic import Drift

MAX_POLL_RECORDS = 5000
"""Maximal number of records per poll."""


class MemorySource:
    """A source whose partitions are lists of records; for tests.

    The first poll assigns all partitions. The next polls follow `script`: they raise an exception, return Assigned or
    Revoked, or for None return nothing. Later polls return at most `size` records of one partition.
    """

    remote = connecting = False

    def __init__(
        self,
        partitions: Mapping[Partition, Sequence[bytes | Record | None]],
        size: int = MAX_POLL_RECORDS,
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
        """The next step of the script; after its end, records of the partition with the largest lag."""
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
        """Extent of the list."""
        records = self.partitions[partition]
        if not records:
            return Extent(0, 0)
        return Extent(records[0].offset, records[-1].offset + 1)

    def seek(self, partition: Partition, offset: int) -> None:
        """Deliver from this record on."""
        self.at[partition] = offset
        self._awaited.discard(partition)

    def pause(self) -> None:
        """Deliver nothing until `resume`."""
        self.paused = True

    def resume(self) -> None:
        """Deliver again."""
        self.paused = False

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Record the committed offsets."""
        self.committed.update(positions)

    def lag(self) -> dict[Partition, int]:
        """Number of records not delivered yet."""
        return {name: max(0, self.extent(name).end - at) for name, at in self.at.items()}

    def unread(self) -> dict[Partition, str]:
        """Nothing: a list delivers whatever it has."""
        return {}

    @property
    def finished(self) -> bool:
        """Whether all records were delivered."""
        return not (self.endless or self.script or self._awaited or any(self.lag().values()))

    def close(self) -> None:
        """Record that the source was closed."""
        self.closed = True


class IteratorSource:
    """One partition whose records come from an iterator that can be restarted: a file, or a generator.

    Offsets count the records. `seek` restarts the iterator and skips records.
    """

    remote = connecting = False

    def __init__(self, name: str, size: int = MAX_POLL_RECORDS) -> None:
        self.partition: Partition = (name, 0)
        self.size = size
        self.finished = False
        self._at = 0
        self._values: Iterator[bytes] | None = None
        self._announced = self._paused = False

    def values(self) -> Iterator[bytes]:
        """All records, from the first."""
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
        """Records as a batch; if `more` was requested and there are none, the source has ended."""
        found = [Message(self._at + i, value) for i, value in enumerate(values)]
        self._at += len(found)
        self.finished = more and not found
        return [Batch(self.partition, found)] if found else []

    def extent(self, partition: Partition) -> Extent:
        """From 0 to an unknown end."""
        return Extent(0, sys.maxsize)

    def seek(self, partition: Partition, offset: int) -> None:
        """Restart the iterator and skip to the offset."""
        self._values = iter(self.values())
        self._at = sum(1 for _ in islice(self._values, offset))

    def pause(self) -> None:
        """Stop reading until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Read again."""
        self._paused = False

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Do nothing: a file stores no offsets."""

    def unread(self) -> dict[Partition, str]:
        """Nothing: an iterator delivers whatever it has."""
        return {}

    def lag(self) -> dict[Partition, int]:
        """Empty: the lag is unknown."""
        return {}

    def close(self) -> None:
        """Release the iterator."""
        self._values = None


class StandardInput(IteratorSource):
    """Lines of standard input. They cannot be read again: a restart continues with later lines.

    A thread reads the lines, so that a poll can time out and return the lines read so far.
    """

    def __init__(self, stream: IO[bytes] | None = None, size: int = 500) -> None:
        super().__init__("stdin", size)
        self.stream = stream or sys.stdin.buffer
        self._read: Queue[bytes | None] = Queue(maxsize=10 * size)
        self._reader = Thread(target=self._fill, name="streamclust-stdin", daemon=True)

    def _fill(self) -> None:
        for line in lines(self.stream):
            self._read.put(line)
        self._read.put(None)

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """The lines read so far, after waiting for the first of them."""
        if not self._announced or self._paused or self.finished or not self._reader.ident:
            return super().poll(seconds)
        lines: list[bytes] = []
        while len(lines) < self.size:
            try:
                line = self._read.get(timeout=0 if lines else seconds)
            except Empty:
                return self._batch(lines, more=False)
            if line is None:
                self._read.put(None)  # the next poll finds the end
                return self._batch(lines, more=True)
            lines.append(line)
        return self._batch(lines, more=True)

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue counting from this offset: earlier lines cannot be read again."""
        self._at = offset
        if not self._reader.ident:
            self._reader.start()


def lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines that are not empty, stripped."""
    return (line for line in map(bytes.strip, file) if line)


class SyntheticSource(IteratorSource):
    """Synthetic clusters that drift, appear, split and vanish; the options are those of `synthetic.Drift`."""

    def __init__(self, n_features: int = 2, size: int = MAX_POLL_RECORDS, **options: Any) -> None:
        super().__init__("synthetic", size)
        self.n_features = n_features
        self.options = options

    def values(self) -> Iterator[bytes]:
        """The events as JSON objects with members x0, x1, ..."""
        names = [f"x{i}" for i in range(self.n_features)]
        for events, _ in Drift(self.n_features, **self.options).batches(self.size):
            for row in events.tolist():
                yield msgspec.json.encode(dict(zip(names, row, strict=True)))


class HttpSource(IteratorSource):
    """Source of events sent by HTTP. It delivers none by `poll`; the offset of its partition counts them."""

    def __init__(self) -> None:
        super().__init__("requests")

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """Assign the partition; later wait and return nothing."""
        if not self._announced:
            return super().poll(seconds)
        sleep(seconds)
        return []

    def seek(self, partition: Partition, offset: int) -> None:
        """Do nothing: there is nothing to read."""
