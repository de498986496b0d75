"""fit, predict: clusters of a file, and the clusters that the events of another belong to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust_connectors.cli.errors import BadData
from streamclust_connectors.cli.fitting import Refused, check_known, fitted, look
from streamclust_connectors.cli.options import (
    Config,
    Decimal,
    Delimiter,
    Encoding,
    Exclude,
    Family,
    Features,
    HalfLife,
    Header,
    Key,
    Null,
    Seed,
    Set,
    Time,
    Vector,
    Weight,
    examples,
    results,
    settings_from,
)
from streamclust_connectors.cli.writing import assigned, form_of, written

if TYPE_CHECKING:
    from streamclust import StreamClusterer
    from streamclust_connectors.cli.reading import Looked

app = typer.Typer()

Kind = Annotated[str | None, typer.Option(help="csv, jsonl or parquet; what FILE's name says, if not given.")]


def existing(path: Path) -> Path:
    """Refuse a file that is not there."""
    if str(path) != "-" and (path.is_dir() or not path.exists()):
        raise typer.BadParameter(f"{path} is a directory" if path.is_dir() else f"{path} does not exist")
    return path


File = Annotated[
    Path,
    typer.Argument(
        callback=existing,
        help="Events: .csv, .tsv, .jsonl or .parquet, also compressed (.gz); - is standard input.",
    ),
]  # fmt: skip


@app.command(
    epilog=examples(
        "streamclust fit events.csv",
        "streamclust fit events.csv.gz --exclude id --labels labels.csv --plot clusters.png",
        "streamclust fit export.txt --kind csv --delimiter tab --decimal , --encoding latin-1",
        "streamclust fit events.jsonl --vector payload.vector --key id --output model.checkpoint",
        "streamclust fit counts.parquet --family poisson --features clicks,views --time at --half-life 3600",
        "zcat events.csv.gz | streamclust fit - --kind csv",
    )
)
def fit(
    file: File,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The checkpoint to write; beside FILE, if not given."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Write the cluster of each row: .csv, .jsonl or .parquet."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the clusters over the two features that tell them apart best.")
    ] = None,
    family: Family = None,
    features: Features = None,
    exclude: Exclude = None,
    vector: Vector = None,
    key: Key = None,
    time: Time = None,
    weight: Weight = None,
    half_life: HalfLife = None,
    seed: Seed = None,
    kind: Kind = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    header: Header = None,
    null: Null = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """Find the clusters of a file; they go into a checkpoint, a summary to the terminal.

    How a CSV file is written is found in its first lines, unless told. Columns that are not numbers are left out.
    """
    flags = origin(file, kind) | {"engine.family": family, "engine.half_life": half_life, "engine.seed": seed}
    flags |= dialect(delimiter, decimal, encoding, header, null)
    settings = settings_from(config, given, flags | fields(features, exclude, vector, key, time, weight))
    if labels is not None and not file.is_file():
        raise typer.BadParameter("needs a file, which can be read twice", param_hint="--labels")
    form = form_of(labels, option="--labels")
    target = output or Path("stdin.checkpoint" if str(file) == "-" else f"{file}.checkpoint")
    model, sample = fitted(settings, file, target)
    console = results()
    console.print(f"checkpoint {target}", soft_wrap=True, markup=False)
    if labels is not None:
        write_assignments(model, look(settings, quiet=True), labels, form, settings.decode.key is not None)
        console.print(f"labels {labels}", soft_wrap=True, markup=False)
    if plot is not None:
        from streamclust_connectors.cli.picture import draw

        draw(model, sample, plot)
        console.print(f"plot {plot}", soft_wrap=True, markup=False)


@app.command(
    epilog=examples(
        "streamclust predict events.csv.checkpoint new.csv",
        "streamclust predict model.checkpoint new.jsonl --format jsonl --output found.jsonl",
        "streamclust predict model.checkpoint new.csv --output found.parquet",
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
        str | None, typer.Option("--format", help="csv, jsonl or parquet; what OUTPUT's name says, else csv.")
    ] = None,
    key: Key = None,
    vector: Vector = None,
    features: Features = None,
    kind: Kind = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    header: Header = None,
    null: Null = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """The cluster of each event, how probable it is, and how novel the event (-log p). Rows count from 1.

    Fields are found as they were when the checkpoint was made, unless told otherwise.

    An event that cannot be read has an empty row.
    """
    from streamclust.checkpoint import read
    from streamclust.streaming import StreamClusterer

    written_as = form_of(output, form)
    state = read(checkpoint)
    model = StreamClusterer.from_state(state)
    if model.model is None:
        raise BadData(f"{checkpoint} has learnt no events: there are no clusters to choose from")
    remembered = {
        n: v for n, v in state.values.get("decode", {}).items() if n in ("events", "vector", "key", "format")
    }
    if all(isinstance(name, str) for name in model.feature_names):
        remembered["features"] = list(model.feature_names)
    flags = {f"decode.{name}": value for name, value in remembered.items()} | origin(file, kind)
    flags |= {n: v for n, v in fields(features, vector=vector, key=key).items() if v is not None}
    flags |= dialect(delimiter, decimal, encoding, header, null)
    settings = settings_from(config, given, flags)
    looked = look(settings, predicting=key is None)
    check_known(model, looked, file)
    keyed = looked.decoder.fields.key is not None
    write_assignments(model, looked, output, written_as, keyed)


def origin(file: Path, kind: str | None) -> dict[str, Any]:
    """Settings of the source from the command's flags, overriding those of a service."""
    if str(file) == "-" and kind is None:
        raise typer.BadParameter("say what comes from standard input: csv or jsonl", param_hint="--kind")
    return {"source.path": file, "source.kind": kind or ""}


def dialect(
    delimiter: str | None,
    decimal: str | None,
    encoding: str | None,
    header: bool | None,
    null: list[str] | None,
) -> dict[str, Any]:
    """Settings of the CSV dialect from the command's flags."""
    given = {"delimiter": delimiter, "decimal": decimal, "encoding": encoding, "header": header, "null": null}
    return {f"source.{name}": value for name, value in given.items()}


def fields(
    features: str | None = None,
    exclude: str | None = None,
    vector: str | None = None,
    key: str | None = None,
    time: str | None = None,
    weight: str | None = None,
) -> dict[str, Any]:
    """Settings of the fields of an event from the command's flags."""
    given = {
        "features": features,
        "exclude": exclude,
        "vector": vector,
        "key": key,
        "time": time,
        "weight": weight,
    }
    return {f"decode.{name}": value for name, value in given.items()}


# -------------------------------------------------------------------- writing


def write_assignments(
    model: StreamClusterer, looked: Looked, path: Path | None, form: str, keyed: bool
) -> None:
    """Write the cluster of each event of a file."""
    from streamclust_connectors.cli.reading import progressed

    refused = Refused()
    with written(path, form, keyed) as put:
        batches = progressed("assigning", looked.batches(model), looked.source, model, quiet=path is None)
        for decoded in batches:
            rows = assigned(decoded, model, keyed)
            for row in rows:
                if row["error"] is not None:
                    refused.add(row["row"], row["error"])
            put(rows)
    refused.tell("could not be read")
