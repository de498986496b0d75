r"""The dialect of a text table: delimiter, decimal mark, encoding and header, as told or as its first lines show.

>>> found = sniff(b"weight;height\n1,5;170\n2,5;180\n", Told())
>>> found.delimiter, found.decimal, found.names
(';', ',', ('weight', 'height'))
>>> found.described
"delimiter ';', decimal mark ','"
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

DELIMITERS = ",;\t|"
WORDS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
"""Delimiters that are hard to type, or to see."""
NULLS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "none", "?", "-")
"""Cells that say a value is missing."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
FALLBACK = "latin-1"
"""The encoding of text that is not UTF-8."""


@dataclass(frozen=True)
class Told:
    """Dialect as given by the user; None where it is to be detected."""

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: bool | None = None
    nulls: tuple[str, ...] = ()
    """More cells that say a value is missing."""


@dataclass(frozen=True)
class Dialect:
    """How a text table is written."""

    delimiter: str
    decimal: str
    encoding: str
    header: bool
    names: tuple[str, ...]
    """Names of all columns: not empty, and distinct."""
    counting: str | None = None
    """Index of an unnamed column of row numbers, which is not a feature."""
    repeated: tuple[str, ...] = ()
    """Names that occurred more than once in the header."""

    @property
    def described(self) -> str:
        """Differences from plain CSV, as text."""
        parts = []
        if self.delimiter != ",":
            parts.append(f"delimiter {self.delimiter!r}")
        if self.decimal != ".":
            parts.append(f"decimal mark {self.decimal!r}")
        if self.encoding != "utf-8":
            parts.append(f"encoding {self.encoding}")
        if not self.header:
            parts.append(f"no header (columns are {self.names[0]} to {self.names[-1]})")
        return ", ".join(parts)


def sniff(sample: bytes, told: Told, whole: bool = True) -> Dialect:
    """Detect the dialect from the first bytes of a table; unless `whole`, the last line may be incomplete."""
    encoding = encoding_of(sample, told.encoding)
    text = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf-8" else encoding)().decode(sample)
    delimiter = delimiter_of(text, whole) if told.delimiter is None else told.delimiter
    rows = split(text, delimiter, whole)
    decimal = decimal_of(rows) if told.decimal is None else told.decimal
    header = has_header(rows, decimal) if told.header is None else told.header
    first, body = (rows[0] if rows else []), rows[1 if header else 0 :]
    nameless = header and bool(body) and len(first) == usual_width(body) - 1  # as R writes its row names
    given = ["", *first] if nameless else first
    names = distinct([name or f"column {i + 1}" for i, name in enumerate(given)])
    if not header:
        names = [f"x{i}" for i in range(len(first))]
    counting = header and bool(given) and not given[0] and counts_rows([row[0] for row in body])
    repeated = tuple(n for n, times in Counter(given).items() if n and times > 1) if header else ()
    return Dialect(
        delimiter, decimal, encoding, header, tuple(names), names[0] if counting else None, repeated
    )


# -------------------------------------------------------------------- encoding


def encoding_of(sample: bytes, told: str | None) -> str:
    """The encoding by its byte order mark, UTF-8 where that can be read, else Latin-1."""
    if told is not None:
        try:
            name = codecs.lookup(told).name
        except LookupError:
            raise ValueError(
                f"there is no encoding {told!r}; --encoding takes utf-8, latin-1, cp1252, utf-16, ..."
            ) from None
        return {"iso8859-1": "latin-1", "utf-8-sig": "utf-8"}.get(name, name)
    for mark, name in BOMS:
        if sample.startswith(mark):
            return name
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return FALLBACK
    return "utf-8"


# -------------------------------------------------------------------- rows


def split(text: str, delimiter: str, whole: bool) -> list[list[str]]:
    """The rows of the sample, their cells without spaces around them; empty lines are left out."""
    rows = [
        [cell.strip() for cell in row]
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    ]
    if not whole and len(rows) > 1:
        rows.pop()  # which may have been cut
    return [row for row in rows if row]


def delimiter_of(text: str, whole: bool) -> str:
    """The delimiter that gives rows of one length and cells that are numbers; for one column, any that is not used."""
    best, delimiter = (0.0, 0), ";" if "," in text else ","
    for candidate in DELIMITERS:
        rows = split(text, candidate, whole)
        width = usual_width(rows)
        if not rows or len(rows[0]) < 2 or width < 2:
            continue
        body = [row for row in rows[1:] if len(row) == width]
        cells = [cell for row in body for cell in row]
        numeric = sum(bool(is_number(c) or COMMA_NUMBER.fullmatch(c) or c in NULLS) for c in cells)
        score = (len(body) / max(1, len(rows) - 1) + numeric / max(1, len(cells)), width)
        if score > best:
            best, delimiter = score, candidate
    return delimiter


def usual_width(rows: Sequence[Sequence[str]]) -> int:
    """The number of cells that most rows have."""
    return Counter(map(len, rows)).most_common(1)[0][0] if rows else 0


def decimal_of(rows: Sequence[Sequence[str]]) -> str:
    """A comma if more numbers are written with a comma than with a point."""
    cells = [cell for row in rows for cell in row]
    commas = sum(bool(COMMA_NUMBER.fullmatch(cell)) for cell in cells)
    return "," if commas > sum("." in cell and is_number(cell) for cell in cells) else "."


# -------------------------------------------------------------------- header


def has_header(rows: Sequence[Sequence[str]], decimal: str) -> bool:
    """Whether the first row has names: text above numbers or, where no column is like that, no numbers at all."""
    if not rows:
        return True
    first, body = rows[0], rows[1:]
    for i, cell in enumerate(first):
        below = [row[i] for row in body if len(row) > i and row[i] not in NULLS]
        numbers = sum(is_number(c, decimal) for c in below)
        if cell not in NULLS and not is_number(cell, decimal) and 2 * numbers > len(below):
            return True
    return not any(is_number(cell, decimal) for cell in first)


def is_number(cell: str, decimal: str = ".") -> bool:
    """Whether a cell is a number.

    >>> is_number("1.5e3"), is_number("1,5", decimal=","), is_number("1_5"), is_number("inf")
    (True, True, False, False)
    """
    return bool(NUMBER.fullmatch(cell if decimal == "." else cell.replace(decimal, ".")))


def counts_rows(cells: Sequence[str]) -> bool:
    """Whether cells are 0, 1, 2, ... or 1, 2, 3, ..."""
    return len(cells) > 1 and any(
        all(cell == str(start + i) for i, cell in enumerate(cells)) for start in (0, 1)
    )


def distinct(names: Sequence[str]) -> list[str]:
    """Make names distinct.

    >>> distinct(["x", "y", "x", "x"])
    ['x', 'y', 'x_2', 'x_3']
    """
    found: dict[str, None] = {}
    taken = set(names)
    for name in names:
        number, unique = 1, name
        while unique in found or (number > 1 and unique in taken):
            number += 1
            unique = f"{name}_{number}"
        found[unique] = None
    return list(found)
