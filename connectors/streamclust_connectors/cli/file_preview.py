"""Reads the first rows of a file to find its dialect and numeric columns; checks column names; shows progress."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from streamclust_connectors.cli.errors import BadData
from streamclust_connectors.cli.options import messages
from streamclust_connectors.cli.tables import counted

if TYPE_CHECKING:
    from streamclust import StreamClusterer
    from streamclust_connectors.decode import Decoded, Decoder
    from streamclust_connectors.files.sources import FileSource
    from streamclust_connectors.settings import Settings

BATCH_ROWS = 5000
"""Rows read at a time; the first batch decides which columns are numbers."""
MAX_SHOWN_COLUMNS = 12
"""Number of column names listed in an error."""
ADVICE = (
    ("utf8", "give the encoding, for example --encoding latin-1"),
    ("codec", "give the encoding, for example --encoding latin-1"),
    ("straddling", "a quote is not closed, or a row is too long"),
)
"""Advice on a reader's error, by a word of its message."""


@dataclass
class FilePreview:
    """A file whose first rows have been read."""

    source: FileSource
    decoder: Decoder
    first: list[bytes]
    rest: Iterator[bytes]
    vectors: list[dict[Any, Any]]
    """Features of the first rows, one mapping per row."""
    notes: list[str]
    """Detected properties of the file, as messages."""
    warning: str | None
    """Warning about ignored columns; None if there are none."""

    @property
    def features(self) -> tuple[Any, ...]:
        """Names of the features of the first rows, in the file's order."""
        found = dict.fromkeys(chain.from_iterable(self.vectors))
        return tuple(dict.fromkeys([*(name for name in self.source.columns or () if name in found), *found]))

    @property
    def members(self) -> list[str]:
        """All member names of the first events, features or not."""
        from streamclust_connectors.decode import Decoder
        from streamclust_connectors.interfaces import Message

        everything = Decoder(replace(self.decoder.fields, features=None, exclude=()))
        found = everything.decode([Message(i, value) for i, value in enumerate(self.first)])
        return [str(name) for name in dict.fromkeys(chain.from_iterable(found.vectors))]

    def batches(self, model: StreamClusterer) -> Iterator[Decoded]:
        """All events of the file, in batches."""
        from streamclust_connectors.interfaces import Message

        values, start = chain(self.first, self.rest), 0
        with reading_errors(self.source, lambda: start):
            while batch := [Message(start + i, value) for i, value in enumerate(islice(values, BATCH_ROWS))]:
                yield self.decoder.decode(batch, model.feature_names)
                start += len(batch)


def preview_file(
    source: FileSource, reader: Decoder, settings: Settings, predicting: bool = False
) -> FilePreview:
    """Read the first rows of a file, and decide how all are decoded.

    Columns that are not numeric are ignored; if `decode.features` names one, that is an error. The family "mixed" takes
    text, but no dates, as categories. If `predicting`, events need not have the key.
    """
    from streamclust_connectors.decode import Decoder, non_numeric_names
    from streamclust_connectors.interfaces import Message

    with reading_errors(source, lambda: 0):
        columns, rest = source.columns, source.values()
        first = list(islice(rest, BATCH_ROWS))
    if columns is not None and settings.decode.vector is None and not predicting:
        check_names(settings, columns)
    records = [Message(i, value) for i, value in enumerate(first)]
    fields, form = reader.fields, settings.decode.format
    decoded = reader.decode(records)
    if predicting and not len(decoded) and fields.key is not None:
        fields = replace(fields, key=None)
        decoded = Decoder(fields, form).decode(records)
    vectors: list[dict[Any, Any]] = list(decoded.vectors)
    left_out, warning = non_numeric_names(vectors), None
    if left_out:
        cells = {n: next(v[n] for v in vectors if isinstance(v.get(n), (str, list, dict))) for n in left_out}
        if settings.engine.family == "mixed":
            cells = {n: cell for n, cell in cells.items() if not isinstance(cell, str) or is_date(cell)}
            left_out = tuple(cells)
    if left_out:
        if fields.features is not None and not predicting:
            raise bad_name(
                "features",
                f"column {left_out[0]!r} is not numeric: it contains {cells[left_out[0]]!r}"
                f"{categories_hint(cells[left_out[0]])}",
            )
        dates = [name for name, cell in cells.items() if is_date(cell)]
        hint = f"; to use the dates of {dates[0]} as event times: --time {dates[0]}" if dates else ""
        hint += next(filter(None, map(categories_hint, cells.values())), "")
        warning = f"ignored columns that are not numeric: {', '.join(map(str, left_out))}{hint}"
        fields = replace(fields, exclude=(*fields.exclude, *map(str, left_out)))
        vectors = [{n: v for n, v in vector.items() if n not in cells} for vector in vectors]
    return FilePreview(source, Decoder(fields, form), first, rest, vectors, dialect_notes(source), warning)


def is_date(cell: object) -> bool:
    """Whether text is an ISO 8601 date."""
    try:
        return bool(datetime.fromisoformat(str(cell)))
    except ValueError:
        return False


def categories_hint(cell: object) -> str:
    """How to use a column that holds this; nothing if it is no text, or a date."""
    return (
        '; to use text as categories: family "mixed"' if isinstance(cell, str) and not is_date(cell) else ""
    )


def dialect_notes(source: FileSource) -> list[str]:
    """Messages about a dialect that differs from plain CSV."""
    dialect = getattr(source, "dialect", None)
    if dialect is None:
        return []
    notes = [f"read with {dialect.described}"] if dialect.described else []
    if dialect.row_numbers is not None:
        notes.append("the first column has no name and holds row numbers; it is ignored")
    if dialect.repeated:
        notes.append(f"several columns are named {', '.join(dialect.repeated)}; the later ones get numbers")
    return notes


# -------------------------------------------------------------------- errors


def check_names(settings: Settings, columns: Sequence[str]) -> None:
    """Refuse names of columns that do not exist."""
    given = settings.decode
    asked = {"features": given.features or (), "exclude": given.exclude}
    asked |= {name: (path,) for name in ("key", "time", "weight") if (path := getattr(given, name))}
    for option, names in asked.items():
        for name in names:
            if name not in columns and (
                option in ("features", "exclude") or name.split(".")[0] not in columns
            ):
                raise bad_name(option, unknown(name, columns))


def unknown(name: str, columns: Sequence[str]) -> str:
    """Message about a column that does not exist."""
    lower = {column.lower(): column for column in columns}
    close = difflib.get_close_matches(name.lower(), lower, 1)
    listed = ", ".join(map(str, columns[:MAX_SHOWN_COLUMNS])) + (
        ", ..." if len(columns) > MAX_SHOWN_COLUMNS else ""
    )
    near = f"did you mean {lower[close[0]]!r}?" if close else f"the columns are {listed}"
    return f"there is no column {name!r}; {near}"


def bad_name(option: str, sentence: str) -> Exception:
    """An error in an option that names columns."""
    from streamclust_connectors.settings import ConfigError

    return ConfigError(f"--{option}: {sentence}")


@contextmanager
def reading_errors(source: FileSource, row: Callable[[], int]) -> Iterator[None]:
    """Turn errors of a reader into BadData, with the row where it stopped."""
    try:
        yield
    except (UnicodeError, EOFError, csv.Error, ValueError) as error:
        if type(error).__module__.startswith("streamclust"):
            raise
        kind = type(source).__name__.removesuffix("Source").lower().replace("lines", "jsonl")
        advice = next((f"; {advice}" for word, advice in ADVICE if word in str(error).lower()), "")
        raise BadData(f"{source.path} cannot be read as {kind} after row {row()}: {error}{advice}") from None


# -------------------------------------------------------------------- progress


def with_progress(
    title: str, batches: Iterable[Decoded], source: FileSource, model: StreamClusterer, quiet: bool = False
) -> Iterator[Decoded]:
    """The batches, with a progress bar on the terminal: events, speed, clusters and remaining time."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    console = messages()
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20),
        TimeRemainingColumn(elapsed_when_finished=True),
    )  # fmt: skip
    with Progress(
        *columns, console=console, transient=True, disable=quiet or not console.is_terminal
    ) as progress:
        task, done, start = progress.add_task(title, total=None), 0, monotonic()
        for batch in batches:
            yield batch
            done += len(batch)
            rate = done / max(1e-9, monotonic() - start)
            fraction = source.fraction
            progress.update(
                task,
                total=None if fraction is None else 1.0,
                completed=fraction or 0.0,
                description=f"{title}: {counted(done, 'event')}, {rate:,.0f}/s, {counted(model.n_clusters, 'cluster')}",
            )
