"""fit, predict: clusters of a file, and the clusters that the events of another belong to."""

from __future__ import annotations

import csv
import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamclust_connectors.cli.errors import BadData
from streamclust_connectors.cli.options import (
    Config,
    Family,
    Features,
    Key,
    Seed,
    Set,
    Time,
    Vector,
    Weight,
    examples,
    messages,
    results,
    settings_from,
)

if TYPE_CHECKING:
    from streamclust import StreamClusterer
    from streamclust_connectors.decode import Decoded
    from streamclust_connectors.settings import Settings

app = typer.Typer()

BATCH = 5000
TOLD = 3
"""So many of the events that could not be used are told about."""

Kind = Annotated[str | None, typer.Option(help="csv, jsonl or parquet; what FILE's name says, if not given.")]
File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Events: .csv, .jsonl or .parquet.")]


@app.command(
    epilog=examples(
        "streamclust fit events.csv",
        "streamclust fit events.jsonl --vector payload.vector --key id --output model.checkpoint",
        "streamclust fit counts.parquet --family poisson --features clicks,views --time at --half-life 3600",
    )
)
def fit(
    file: File,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The checkpoint to write; beside FILE, if not given."),
    ] = None,
    family: Family = None,
    features: Features = None,
    vector: Vector = None,
    key: Key = None,
    time: Time = None,
    weight: Weight = None,
    half_life: Annotated[
        float | None, typer.Option(help="An event's weight halves after so many events, or so much time.")
    ] = None,
    seed: Seed = None,
    kind: Kind = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """Find the clusters of a file; they go into a checkpoint, a summary to the terminal."""
    flags = origin(file, kind) | {"engine.family": family, "engine.half_life": half_life, "engine.seed": seed}
    settings = settings_from(config, given, flags | fields(features, vector, key, time, weight))
    from streamclust import StreamClusterer
    from streamclust.checkpoint import write

    target = output or file.with_name(file.name + ".checkpoint")
    model = StreamClusterer(**settings.engine.model_dump())
    failures: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # refused events are told about below
        for decoded in progressed("learning", decoded_batches(settings, model), model):
            failures += [f"row {f.record.offset + 1}: {f.reason}" for f in decoded.failures]
            refused = model.refusals(decoded.vectors, decoded.weights, decoded.times) if len(decoded) else {}
            failures += [f"row {decoded.records[i].offset + 1}: {reason}" for i, reason in refused.items()]
            kept = decoded.without(set(refused)) if refused else decoded
            if len(kept):
                model.learn_many(kept.vectors, kept.weights, kept.times)
    tell(failures, "could not be learnt")
    if not model.n_seen:
        raise BadData(
            f"none of the events of {file} could be learnt; choose the columns that are numbers with --features"
        )
    with messages().status("the last refit"):
        model.settle()
    state = model.to_state({"files": [[str(file), model.n_seen + len(failures)]]})
    state.values["decode"] = settings.decode.model_dump(mode="json")
    write(target, state)
    from streamclust_connectors.cli.tables import clusters

    console = results()
    console.print(clusters(model))
    console.print(f"checkpoint {target}", soft_wrap=True, markup=False)


@app.command(
    epilog=examples(
        "streamclust predict events.csv.checkpoint new.csv",
        "streamclust predict model.checkpoint new.jsonl --format jsonl --output found.jsonl",
    )
)
def predict(
    checkpoint: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A checkpoint: of fit, or of a service.")
    ],
    file: File,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; standard output, if not given.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="csv or jsonl; what OUTPUT's name says, else csv.")
    ] = None,
    key: Key = None,
    vector: Vector = None,
    features: Features = None,
    kind: Kind = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """The cluster of each event, how probable it is, and how novel the event (-log p). Rows count from 1.

    Fields are found as they were when the checkpoint was made, unless told otherwise.

    An event that cannot be read has an empty row.
    """
    from streamclust.checkpoint import read
    from streamclust.streaming import StreamClusterer

    written_as = form or ("jsonl" if output is not None and output.suffix in (".jsonl", ".ndjson") else "csv")
    if written_as not in ("csv", "jsonl"):
        raise typer.BadParameter(f"{written_as!r} is neither csv nor jsonl", param_hint="--format")
    state = read(checkpoint)
    remembered = {f"decode.{name}": value for name, value in state.values.get("decode", {}).items()}
    flags = remembered | {n: v for n, v in fields(features, vector, key).items() if v is not None}
    settings = settings_from(config, given, flags | origin(file, kind))
    model = StreamClusterer.from_state(state)
    if model.model is None:
        raise BadData(f"{checkpoint} has learnt no events: there are no clusters to choose from")
    failures: list[str] = []
    keyed = settings.decode.key is not None
    with opened(output) as target:
        put = writer(target, written_as, keyed)
        batches = decoded_batches(settings, model)
        for decoded in progressed("predicting", batches, model, quiet=output is None):
            for row in assigned(decoded, model, keyed):
                if row["error"] is not None:
                    failures.append(f"row {row['row']}: {row['error']}")
                put(row)
    tell(failures, "could not be read")


def origin(file: Path, kind: str | None) -> dict[str, Any]:
    """Flags that say what is read, whatever a service would read."""
    return {"source.path": file, "source.kind": kind or ""}


def fields(
    features: str | None,
    vector: str | None,
    key: str | None,
    time: str | None = None,
    weight: str | None = None,
) -> dict[str, Any]:
    """Flags that say where an event's parts are."""
    given = {"features": features, "vector": vector, "key": key, "time": time, "weight": weight}
    return {f"decode.{name}": value for name, value in given.items()}


# -------------------------------------------------------------------- reading


def decoded_batches(settings: Settings, model: StreamClusterer) -> Iterator[Decoded]:
    """The events of a file, some at a time."""
    from streamclust_connectors.cli.wiring import decoder, file_source
    from streamclust_connectors.ports import Message

    file, kind = settings.source.path or Path(), settings.source_kind
    reader, values = decoder(settings), file_source(file, kind).values()
    start = 0
    try:
        while batch := [Message(start + i, value) for i, value in enumerate(islice(values, BATCH))]:
            yield reader.decode(batch, model.feature_names)
            start += len(batch)
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        if type(error).__module__.startswith("streamclust"):
            raise
        raise BadData(f"{file} cannot be read as {kind} after row {start}: {error}") from None


def progressed(
    title: str, batches: Iterable[Decoded], model: StreamClusterer, quiet: bool = False
) -> Iterator[Decoded]:
    """Batches, with a line on the terminal that says how far it is."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    console = messages()
    with Progress(
        *columns, console=console, transient=True, disable=quiet or not console.is_terminal
    ) as progress:
        task, done = progress.add_task(title, total=None), 0
        for batch in batches:
            yield batch
            done += len(batch)
            progress.update(task, description=f"{title}: {done:,} events, {model.n_clusters} clusters")


def tell(failures: list[str], what: str) -> None:
    """Say how many events were left out, and why the first ones were."""
    for failure in failures[:TOLD]:
        typer.echo(f"warning: {failure}", err=True)
    if failures:
        typer.echo(f"warning: {len(failures):,} events {what}", err=True)


# -------------------------------------------------------------------- writing


def assigned(decoded: Decoded, model: StreamClusterer, keyed: bool) -> list[dict[str, Any]]:
    """A row for each event, in the order of the file."""
    blank = {"cluster": None, "probability": None, "novelty": None, "error": None}
    rows = [{"row": f.record.offset + 1, "key": None} | blank | {"error": f.reason} for f in decoded.failures]
    keys = decoded.keys if keyed and decoded.keys is not None else [None] * len(decoded)
    for i, (found, error) in enumerate(assignments(decoded.vectors, model)):
        row = {"row": decoded.records[i].offset + 1, "key": keys[i]} | blank | {"error": error}
        rows.append(row | dict(zip(("cluster", "probability", "novelty"), found, strict=False)))
    return sorted(rows, key=lambda row: row["row"])


def assignments(vectors: Any, model: StreamClusterer) -> list[tuple[tuple[Any, ...], str | None]]:  # noqa: ANN401
    """What is found for each event, or why nothing is."""
    known = set(model.feature_names)
    if not len(vectors):
        return []
    if isinstance(vectors, list) and not all(known & vector.keys() for vector in vectors):
        return [one(vector, model, known) for vector in vectors]
    try:
        found = model.assign_many(vectors)
    except (TypeError, ValueError):
        return [one(vector, model, known) for vector in vectors]
    assert found is not None
    return [(row, None) for row in zip(*(column.tolist() for column in found), strict=True)]


def one(vector: Any, model: StreamClusterer, known: set[Any]) -> tuple[tuple[Any, ...], str | None]:  # noqa: ANN401
    """What is found for one event."""
    if isinstance(vector, dict) and not known & vector.keys():
        return (), f"it has none of the features {', '.join(map(str, model.feature_names))}"
    try:
        found = model.assign_many([vector] if isinstance(vector, dict) else vector[None])
    except (TypeError, ValueError) as error:
        return (), str(error).removeprefix("row 0: ")
    assert found is not None
    return tuple(column.tolist()[0] for column in found), None


@contextmanager
def opened(path: Path | None) -> Iterator[IO[str]]:
    """A file that appears when it is complete, or standard output."""
    if path is None:
        yield sys.stdout
        return
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", newline="", encoding="utf-8") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def writer(target: IO[str], form: Literal["csv", "jsonl"] | str, keyed: bool) -> Any:  # noqa: ANN401
    """A function that writes a row."""
    names = ["row", *(["key"] if keyed else []), "cluster", "probability", "novelty"]
    if form == "jsonl":
        return lambda row: target.write(json.dumps({n: row[n] for n in names} | _error(row)) + "\n")
    table = csv.writer(target)
    table.writerow(names)
    return lambda row: table.writerow([row[name] for name in names])


def _error(row: dict[str, Any]) -> dict[str, str]:
    return {} if row["error"] is None else {"error": row["error"]}
