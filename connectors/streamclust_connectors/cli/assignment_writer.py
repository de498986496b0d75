"""Writes the cluster of each event as CSV, JSON lines or Parquet; a file appears when it is complete."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from streamclust import StreamClusterer
    from streamclust_connectors.decode import Decoded

FORMS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
"""Output format by the ending of the file's name."""
Rows = list[dict[str, Any]]
Put = Callable[[Rows], object]


def form_of(path: Path | None, given: str | None = None, option: str = "--format") -> str:
    """Output format: as given, else from the file's name, else CSV."""
    form = given or ("csv" if path is None else FORMS.get(path.suffix.lower(), "csv"))
    if form not in FORMS.values():
        raise typer.BadParameter(f"must be csv, jsonl or parquet, got {form!r}", param_hint=option)
    if form == "parquet" and path is None:
        raise typer.BadParameter("Parquet needs a file; give one with --output", param_hint=option)
    return form


@contextmanager
def row_writer(path: Path | None, form: str, keyed: bool) -> Iterator[Put]:
    """A function that writes rows to a file, which appears when it is complete, or to standard output."""
    names = ["row", *(["key"] if keyed else []), "cluster", "probability", "novelty"]
    if path is None:
        yield text_writer(sys.stdout, form, names)
        return
    part = path.with_name(path.name + ".part")
    try:
        if form == "parquet":
            with parquet_writer(part, names) as put:
                yield put
        else:
            with part.open("w", newline="", encoding="utf-8") as file:
                yield text_writer(file, form, names)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def text_writer(file: IO[str], form: str, names: list[str]) -> Put:
    """A writer of CSV or JSON lines; in JSON lines, events that could not be read have an error."""
    if form == "jsonl":
        return lambda rows: file.writelines(json.dumps(json_row(row, names)) + "\n" for row in rows)
    table = csv.writer(file)
    table.writerow(names)
    return lambda rows: table.writerows([row[name] for name in names] for row in rows)


def json_row(row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Members of a row to write as JSON."""
    return {name: row[name] for name in names} | ({} if row["error"] is None else {"error": row["error"]})


@contextmanager
def parquet_writer(path: Path, names: list[str]) -> Iterator[Put]:
    """A writer of Parquet with one row group per batch; keys become text."""
    import pyarrow
    from pyarrow import parquet

    kinds = {"row": pyarrow.int64(), "key": pyarrow.string(), "cluster": pyarrow.int64()}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in names])

    def columns(rows: Rows) -> dict[str, list[Any]]:
        found = {name: [row[name] for row in rows] for name in names}
        if "key" in found:
            found["key"] = [None if key is None else str(key) for key in found["key"]]
        return found

    with parquet.ParquetWriter(path, schema) as table:
        yield lambda rows: table.write_table(pyarrow.table(columns(rows), schema=schema))


# -------------------------------------------------------------------- rows


def assignment_rows(decoded: Decoded, model: StreamClusterer, keyed: bool) -> Rows:
    """One row per event, in the order of the file."""
    blank = {"cluster": None, "probability": None, "novelty": None, "error": None}
    rows = [{"row": f.record.offset + 1, "key": None} | blank | {"error": f.reason} for f in decoded.failures]
    keys = decoded.keys if keyed and decoded.keys is not None else [None] * len(decoded)
    for i, (found, error) in enumerate(assignments(decoded.vectors, model)):
        row = {"row": decoded.records[i].offset + 1, "key": keys[i]} | blank | {"error": error}
        rows.append(row | dict(zip(("cluster", "probability", "novelty"), found, strict=False)))
    return sorted(rows, key=lambda row: row["row"])


def assignments(
    vectors: list[Any] | NDArray[np.float64], model: StreamClusterer
) -> list[tuple[tuple[Any, ...], str | None]]:
    """Assignment of each event, or its error."""
    known = set(model.feature_names)
    if not len(vectors):
        return []
    if isinstance(vectors, list) and not all(known & vector.keys() for vector in vectors):
        return [assign_one(vector, model, known) for vector in vectors]
    try:
        found = model.assign_many(vectors)
    except (TypeError, ValueError):
        return [assign_one(vector, model, known) for vector in vectors]
    assert found is not None
    rows = zip(*(column.tolist() for column in found), strict=True)
    return [
        (row, None) if row[0] is not None else assign_one(vectors[i], model, known)
        for i, row in enumerate(rows)
    ]


def assign_one(
    vector: dict[Any, Any] | NDArray[np.float64], model: StreamClusterer, known: set[Any]
) -> tuple[tuple[Any, ...], str | None]:
    """Assignment of one event."""
    if isinstance(vector, dict) and not known & vector.keys():
        return (), f"event has none of the features {', '.join(map(str, model.feature_names))}"
    try:
        found = model.assign_many([vector] if isinstance(vector, dict) else vector[None])
    except (TypeError, ValueError) as error:
        return (), str(error).removeprefix("row 0: ")
    assert found is not None
    if found.cluster[0] is None:
        refused = model.check([vector] if isinstance(vector, dict) else vector[None]).refused
        return (), str(refused.get(0, "no value can be read"))
    return tuple(column.tolist()[0] for column in found), None
