"""The models of a partition's keys on disk: a SQLite file, which takes models and offset in one transaction.

    keys/events-3.sqlite         models of the keys of partition 3, and the offset up to which they have learnt it
    keys/events-3.sqlite.lock    locked while a process uses the file

A process that was killed leaves the file as of its last transaction. Another that gets the partition while the first
still runs, frozen perhaps, waits for the lock: nobody else writes the file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from streamclust.checkpoint import CheckpointError, State
from streamclust_connectors.interfaces import Partition, SavedPosition, Transient

FORMAT = 1
"""Version of the file's layout."""
COMPRESSION_LEVEL = 1
BUSY_SECONDS = 2.0
"""Time to wait for another process's transaction."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS models (key TEXT PRIMARY KEY, events INTEGER, clusters INTEGER, body BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS place (
    one INTEGER PRIMARY KEY CHECK (one = 0), format INTEGER, position TEXT, events INTEGER
);
"""


class SavedModel(NamedTuple):
    """A key's model as it is written."""

    key: str
    events: int
    clusters: int
    body: bytes


class KnownKey(NamedTuple):
    """A key, with the number of events and clusters of its model when it was last written."""

    key: str
    events: int
    clusters: int


def packed(state: State) -> bytes:
    """A state in few bytes: a header as JSON, then the arrays, deflated; an archive takes five times as long."""
    arrays = {name: np.ascontiguousarray(array) for name, array in state.arrays.items()}
    header = {
        "arrays": [[name, array.dtype.str, array.shape] for name, array in arrays.items()],
        "values": state.values,
    }
    text = json.dumps(header).encode()
    parts = [len(text).to_bytes(8, "little"), text, *(array.tobytes() for array in arrays.values())]
    return zlib.compress(b"".join(parts), COMPRESSION_LEVEL)


def unpacked(body: bytes) -> State:
    """The state that `packed` wrote; CheckpointError for anything else.

    >>> unpacked(packed(State({"a": np.arange(3.0)}, {"n": 1}))).arrays["a"].tolist()
    [0.0, 1.0, 2.0]
    """
    try:
        content = zlib.decompress(body)
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        arrays: dict[str, Any] = {}
        for name, kind, shape in header["arrays"]:
            dtype, count = np.dtype(kind), int(np.prod(shape, dtype=np.int64))
            arrays[name] = np.frombuffer(content, dtype, count, start).reshape(shape).copy()
            start += count * dtype.itemsize
        return State(arrays, header["values"])
    except Exception as error:  # damaged data may raise anything
        raise CheckpointError(f"a saved model cannot be read: {type(error).__name__}: {error}") from error


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as OSError, Transient or CheckpointError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            raise Transient(f"{path} is in use: {error}") from error
        number = errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EIO
        raise OSError(number, str(error), str(path)) from error
    except sqlite3.DatabaseError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


class KeyDatabase:
    """The models of one partition's keys; Transient if another process uses the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise Transient(f"{path} is still in use by another process") from None
        try:
            with sqlite_errors(path):
                self._database = sqlite3.connect(path, BUSY_SECONDS, check_same_thread=False)
                self._database.executescript(SCHEMA)
            self.position, self.events = read_place(self._database, path)
        except BaseException:
            os.close(self._lock)
            raise

    def read(self, key: str) -> State | None:
        """The model of a key; None if it has none."""
        with sqlite_errors(self.path):
            row = self._database.execute("SELECT body FROM models WHERE key = ?", (key,)).fetchone()
        return None if row is None else unpacked(row[0])

    def has(self, key: str) -> bool:
        """Whether a key has a model."""
        with sqlite_errors(self.path):
            ask = "SELECT 1 FROM models WHERE key = ?"
            return self._database.execute(ask, (key,)).fetchone() is not None

    def write(self, position: SavedPosition, events: int, models: Iterable[SavedModel]) -> None:
        """Write models with the offset up to which they have learnt, all or nothing."""
        with sqlite_errors(self.path), self._database:
            self._database.executemany("INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?)", models)
            self._database.execute(
                "INSERT OR REPLACE INTO place VALUES (0, ?, ?, ?)", (FORMAT, json.dumps(position), events)
            )
        self.position, self.events = position, events

    def keys(self, n: int, after: str = "") -> list[KnownKey]:
        """The next n keys after one, in their order."""
        ask = "SELECT key, events, clusters FROM models WHERE key > ? ORDER BY key LIMIT ?"
        with sqlite_errors(self.path):
            return [KnownKey(*row) for row in self._database.execute(ask, (after, n))]

    def __len__(self) -> int:
        with sqlite_errors(self.path):
            return int(self._database.execute("SELECT count(*) FROM models").fetchone()[0])

    def close(self) -> None:
        """Close the file, and let others have it."""
        self._database.close()
        os.close(self._lock)


def read_place(database: sqlite3.Connection, path: Path) -> tuple[SavedPosition | None, int]:
    """Position and number of events of a file; CheckpointError if a later version has written it."""
    with sqlite_errors(path):
        found = database.execute("SELECT format, position, events FROM place").fetchone()
    if found is None:
        return None, 0
    if found[0] != FORMAT:
        raise CheckpointError(f"{path} is of format {found[0]}, this version reads format {FORMAT}")
    return SavedPosition(*json.loads(found[1])), int(found[2])


def saved_position(path: Path) -> SavedPosition | None:
    """Position in a file that another process may use; None without."""
    if not path.exists():
        return None
    with sqlite_errors(path), closing(sqlite3.connect(path, BUSY_SECONDS)) as database:
        database.executescript(SCHEMA)
        return read_place(database, path)[0]


def database_path(directory: Path, partition: Partition) -> Path:
    """File of a partition."""
    return directory / "keys" / f"{quote(partition[0], safe='')}-{partition[1]}.sqlite"
