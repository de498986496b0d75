r"""The dialect of a CSV file: delimiter, decimal mark, encoding and header, given or detected from the first lines.

>>> found = detect_dialect(b"weight;height\n1,5;170\n2,5;180\n", DialectOptions())
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
DELIMITER_NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
"""Names for delimiters that are hard to type."""
NULLS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "none", "?", "-")
"""Cells that mean a missing value."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
FALLBACK_ENCODING = "latin-1"
"""Assumed encoding of text that is not UTF-8."""


@dataclass(frozen=True)
class DialectOptions:
    """Dialect given by the user; None for properties to detect."""

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: bool | None = None
    nulls: tuple[str, ...] = ()
    """Further cells that mean a missing value."""


@dataclass(frozen=True)
class Dialect:
    """Dialect of a CSV file."""

    delimiter: str
    decimal: str
    encoding: str
    header: bool
    names: tuple[str, ...]
    """Names of all columns, not empty and distinct."""
    row_numbers: str | None = None
    """Name of a column without header that holds row numbers; it is no feature."""
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


def detect_dialect(sample: bytes, given: DialectOptions, whole: bool = True) -> Dialect:
    """Detect the dialect from the first bytes of a file; unless they are the `whole` file, the last line may be cut."""
    encoding = encoding_of(sample, given.encoding)
    text = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf-8" else encoding)().decode(sample)
    delimiter = delimiter_of(text, whole) if given.delimiter is None else given.delimiter
    rows = split(text, delimiter, whole)
    decimal = decimal_of(rows) if given.decimal is None else given.decimal
    header = has_header(rows, decimal) if given.header is None else given.header
    first, body = (rows[0] if rows else []), rows[1 if header else 0 :]
    nameless = header and bool(body) and len(first) == usual_width(body) - 1  # as written by R with row names
    cells = ["", *first] if nameless else first
    names = distinct([name or f"column {i + 1}" for i, name in enumerate(cells)])
    if not header:
        names = [f"x{i}" for i in range(len(first))]
    numbered = header and bool(cells) and not cells[0] and counts_rows([row[0] for row in body])
    repeated = tuple(n for n, times in Counter(cells).items() if n and times > 1) if header else ()
    return Dialect(
        delimiter, decimal, encoding, header, tuple(names), names[0] if numbered else None, repeated
    )


# -------------------------------------------------------------------- encoding


def encoding_of(sample: bytes, given: str | None) -> str:
    """The given encoding, else by the byte order mark, else UTF-8 if that is valid, else Latin-1."""
    if given is not None:
        try:
            name = codecs.lookup(given).name
        except LookupError:
            raise ValueError(
                f"there is no encoding {given!r}; --encoding accepts utf-8, latin-1, cp1252, utf-16, ..."
            ) from None
        return {"iso8859-1": "latin-1", "utf-8-sig": "utf-8"}.get(name, name)
    for mark, name in BOMS:
        if sample.startswith(mark):
            return name
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return FALLBACK_ENCODING
    return "utf-8"


# -------------------------------------------------------------------- rows


def split(text: str, delimiter: str, whole: bool) -> list[list[str]]:
    """Rows of the sample with stripped cells, without empty lines."""
    rows = [
        [cell.strip() for cell in row]
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    ]
    if not whole and len(rows) > 1:
        rows.pop()  # may be incomplete
    return [row for row in rows if row]


def delimiter_of(text: str, whole: bool) -> str:
    """The delimiter with most rows of equal length and most numeric cells; for one column, any unused delimiter."""
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
    """Most frequent number of cells per row."""
    return Counter(map(len, rows)).most_common(1)[0][0] if rows else 0


def decimal_of(rows: Sequence[Sequence[str]]) -> str:
    """Decimal mark: a comma if more numbers have a comma than a point."""
    cells = [cell for row in rows for cell in row]
    commas = sum(bool(COMMA_NUMBER.fullmatch(cell)) for cell in cells)
    return "," if commas > sum("." in cell and is_number(cell) for cell in cells) else "."


# -------------------------------------------------------------------- header


def has_header(rows: Sequence[Sequence[str]], decimal: str) -> bool:
    """Whether the first row holds names: a column has text above numbers, or the row has no numbers at all."""
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
