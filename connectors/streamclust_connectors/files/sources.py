"""Sources that read files in blocks: JSON lines, CSV in any dialect, Parquet; plain or compressed.

pyarrow reads CSV and Parquet. Each row becomes a JSON object, which is decoded like any other record.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

import msgspec

from streamclust_connectors.decode.fields import UNREADABLE_PREFIX
from streamclust_connectors.files.csv_dialect import NULLS, Dialect, DialectOptions, detect_dialect, is_number
from streamclust_connectors.sources import MAX_POLL_RECORDS, IteratorSource, lines

if TYPE_CHECKING:
    import pyarrow as pa
    from _typeshed import WriteableBuffer
    from pyarrow.csv import InvalidRow

STANDARD_INPUT = Path("-")
"""Path that means standard input."""
SAMPLE_BYTES = 1 << 16
MIN_SAMPLE_LINES = 20
MAX_SAMPLE_BYTES = 1 << 24
"""The dialect is detected from the first 64 KiB or, if these hold fewer than 20 lines, from up to 16 MiB."""
BLOCK_BYTES = 1 << 20
"""Bytes of CSV parsed at a time; the longest row must fit."""
MAX_RELEASE_SECONDS = 1.0
"""Maximal time to wait until pyarrow's threads have released a file."""
MAX_QUOTED_CHARACTERS = 60
"""Number of characters of a row that an error quotes."""
COMPRESSIONS: tuple[tuple[bytes, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ", lzma.open),
)
"""Magic bytes of compressed files, and the functions that open them."""
BOOLEANS = {"true": True, "false": False}

encode = msgspec.json.Encoder(enc_hook=str).encode


class FileSource(IteratorSource):
    """A file of events, decompressed if necessary; "-" is standard input."""

    def __init__(self, path: str | Path, size: int = MAX_POLL_RECORDS) -> None:
        super().__init__(Path(path).name, size)
        self.path = Path(path)
        self._raw: IO[bytes] | None = None
        self.once = self.path == STANDARD_INPUT or (self.path.exists() and not self.path.is_file())
        """Whether the file can be read only once: standard input, or a pipe."""
        self._open: IO[bytes] | None = None

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of a table's columns; None if events may have different members."""
        return None

    @property
    def fraction(self) -> float | None:
        """Fraction of the file that was read, from 0 to 1; None if unknown."""
        try:
            size = self.path.stat().st_size
            return None if self._raw is None else min(1.0, self._raw.tell() / max(1, size))
        except (OSError, ValueError):  # a pipe, or closed
            return None

    def close(self) -> None:
        """Close the file."""
        super().close()
        if self._raw is not None and self.path != STANDARD_INPUT:
            self._raw.close()

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The decompressed content."""
        if self.once:
            if self._open is None:
                self._raw = sys.stdin.buffer if self.path == STANDARD_INPUT else self.path.open("rb")
                self._open = decompressed(self._raw)
            yield self._open
            return
        with self.path.open("rb") as self._raw:
            yield decompressed(self._raw)


def decompressed(raw: IO[bytes]) -> IO[bytes]:
    """Open a binary stream; if its first bytes are those of a compressed file, decompress it."""
    start = raw.peek(8)[:8] if isinstance(raw, io.BufferedReader) else b""
    reader = next((reader for magic, reader in COMPRESSIONS if start.startswith(magic)), None)
    found: IO[bytes] = raw if reader is None else reader(raw)
    return found


class LinesSource(FileSource):
    """A file with one JSON event per line; empty lines are skipped."""

    def values(self) -> Iterator[bytes]:
        """The lines."""
        with self.opened() as file:
            for i, line in enumerate(lines(file)):
                yield line if i else line.removeprefix(b"\xef\xbb\xbf")


class CsvSource(FileSource):
    """A text table. Missing cells become null; cells that are no numbers, and the columns `as_text`, stay text.

    A row with too many or too few cells becomes a JSON string with an error message, which the decoder refuses.
    """

    def __init__(
        self,
        path: str | Path,
        size: int = MAX_POLL_RECORDS,
        dialect_options: DialectOptions | None = None,
        as_text: Collection[str] = (),
    ) -> None:
        super().__init__(path, size)
        self.dialect_options = dialect_options or DialectOptions()
        self.as_text = frozenset(as_text)
        self.dialect: Dialect | None = None
        self._sample = b""  # first bytes of a file that can be read only once

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        if self.dialect is None:
            with self.opened() as file:
                self._detect(file)
        assert self.dialect is not None
        return tuple(name for name in self.dialect.names if name != self.dialect.row_numbers)

    def _detect(self, file: IO[bytes]) -> bytes:
        """Detect the dialect; returns the bytes that were read for that."""
        sample, more = self._sample, True
        while (
            more
            and len(sample) < MAX_SAMPLE_BYTES
            and (len(sample) < SAMPLE_BYTES or sample.count(b"\n") < MIN_SAMPLE_LINES)
        ):
            part = file.read(SAMPLE_BYTES)
            sample, more = sample + part, bool(part)
        if self.once:
            self._sample = sample
        self.dialect = detect_dialect(sample, self.dialect_options, whole=not more)
        return sample

    def values(self) -> Iterator[bytes]:
        """Each row as a JSON object."""
        with self.opened() as file:
            sample = self._detect(file)
            assert self.dialect is not None
            if self.dialect.names:
                content = PrefixedStream(sample, file)
                released = weakref.ref(content)
                try:
                    yield from self._rows(content, max(BLOCK_BYTES, len(sample)), self.dialect)
                finally:
                    del content
                    wait_until(lambda: released() is None)

    def _rows(self, file: PrefixedStream, block: int, dialect: Dialect) -> Iterator[bytes]:
        arrow, csv = imported("pyarrow"), imported("pyarrow.csv")
        ragged: deque[Any] = (
            deque()
        )  # rows of a wrong length; pyarrow reports them before the rows around them

        def skip(row: InvalidRow) -> str:
            ragged.append(row)
            return "skip"

        batches = csv.open_csv(
            file,
            read_options=csv.ReadOptions(
                use_threads=False,  # needed for row numbers
                block_size=block,
                column_names=dialect.names,
                skip_rows_after_names=int(dialect.header),
                encoding="utf8" if dialect.encoding == "utf-8" else dialect.encoding,
            ),
            parse_options=csv.ParseOptions(
                delimiter=dialect.delimiter, newlines_in_values=True, invalid_row_handler=skip
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(dialect.names, arrow.string()), include_columns=self.columns
            ),
        )
        number = int(dialect.header)  # number of the latest row, as pyarrow counts
        for batch in batches:
            names = batch.schema.names
            columns = [self._cells(*named, dialect) for named in zip(names, batch.columns, strict=True)]
            for row in objects(names, columns):
                while ragged and ragged[0].number == number + 1:
                    number += 1
                    yield unreadable_row(ragged.popleft())
                number += 1
                yield row
        yield from map(unreadable_row, ragged)

    def _cells(self, name: str, column: pa.Array, dialect: Dialect) -> list[Any]:
        """Values of a column: numbers, None for missing cells, else text."""
        arrow, compute = imported("pyarrow"), imported("pyarrow.compute")
        text = compute.utf8_trim_whitespace(column)
        missing = compute.is_in(text, value_set=arrow.array([*NULLS, *self.dialect_options.nulls]))
        text = compute.if_else(missing, None, text)
        if name in self.as_text:
            return list(text.to_pylist())
        plain = text if dialect.decimal == "." else compute.replace_substring(text, dialect.decimal, ".")
        try:
            numbers = compute.cast(plain, arrow.float64())
            if not compute.any(compute.is_inf(numbers)).as_py():
                return list(numbers.to_pylist())
        except arrow.ArrowInvalid:
            pass
        pairs = zip(text.to_pylist(), plain.to_pylist(), strict=True)
        return [None if cell is None else cell_value(cell, number) for cell, number in pairs]


class ParquetSource(FileSource):
    """A Parquet file, read a batch of rows at a time."""

    _read_rows = 0
    _all_rows = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(imported("pyarrow.parquet").read_schema(self.path).names)

    @property
    def fraction(self) -> float | None:
        """Fraction of the rows that were read; None before the first."""
        return self._read_rows / self._all_rows if self._all_rows else None

    def values(self) -> Iterator[bytes]:
        """Each row as a JSON object."""
        parquet = imported("pyarrow.parquet")
        with parquet.ParquetFile(self.path) as file:
            self._read_rows, self._all_rows = 0, file.metadata.num_rows
            for batch in file.iter_batches(self.size):
                yield from objects(batch.schema.names, [plain_values(column) for column in batch.columns])
                self._read_rows += len(batch)


class PrefixedStream(io.RawIOBase):
    """A stream that returns `head`, which was already read, and then the rest."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = memoryview(head), rest

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer or a part of it; returns the number of bytes."""
        view = memoryview(buffer).cast("B")
        part = self._head[: len(view)] if self._head else self._rest.read(len(view))
        self._head = self._head[len(part) :]
        view[: len(part)] = part
        return len(part)


def wait_until(released: Callable[[], bool]) -> None:
    """Wait up to MAX_RELEASE_SECONDS until pyarrow has released a file.

    pyarrow releases it in a thread, which would abort the process if the interpreter exits at that moment.
    """
    end = time.monotonic() + MAX_RELEASE_SECONDS
    while not released() and time.monotonic() < end:
        time.sleep(0.001)


# -------------------------------------------------------------------- rows and cells


def objects(names: Collection[str], columns: list[list[Any]]) -> Iterator[bytes]:
    """Rows as JSON objects."""
    for row in zip(*columns, strict=True):
        yield encode(dict(zip(names, row, strict=True)))


def unreadable_row(row: InvalidRow) -> bytes:
    """Error message, as a JSON string, for an invalid row reported by pyarrow."""
    quoted = row.text[:MAX_QUOTED_CHARACTERS] + ("…" if len(row.text) > MAX_QUOTED_CHARACTERS else "")
    cells = f"{row.actual_columns} cell" + ("" if row.actual_columns == 1 else "s")
    return encode(
        f"{UNREADABLE_PREFIX}the row has {cells}, but {row.expected_columns} columns are expected "
        f"(see --delimiter): {quoted}"
    )


def cell_value(cell: str, number: str) -> float | bool | str:
    """Convert a cell to a number or a boolean; any other text is unchanged.

    A number that is too large stays text, and will be refused: JSON has no infinity.

    >>> cell_value("1,5", "1.5"), cell_value("TRUE", "TRUE"), cell_value("1e999", "1e999")
    (1.5, True, '1e999')
    """
    found = float(number) if is_number(number) else math.inf
    return BOOLEANS.get(cell.lower(), cell) if math.isinf(found) else found


def plain_values(column: pa.Array) -> list[Any]:
    """Values of a pyarrow column as JSON values."""
    arrow, types = imported("pyarrow"), imported("pyarrow.types")
    if types.is_decimal(column.type):
        column = column.cast(arrow.float64())
    elif types.is_timestamp(column.type):
        column = column.cast(arrow.timestamp("us", column.type.tz), safe=False)
    values = list(column.to_pylist())
    if types.is_floating(column.type):  # JSON has no infinity; as text it is refused
        return [str(v) if v in (math.inf, -math.inf) else v for v in values]
    return values


def imported(name: str) -> ModuleType:
    """Import a module of pyarrow."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise ImportError(
            "reading CSV and Parquet needs pyarrow; run: pip install 'streamclust[cli]'"
        ) from None
