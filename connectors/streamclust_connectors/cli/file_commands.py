"""Commands fit and predict: learn the clusters of a file, and assign the events of another to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust_connectors.cli.assignment_writer import assignment_rows, form_of, row_writer
from streamclust_connectors.cli.errors import BadData
from streamclust_connectors.cli.fit_file import (
    RefusalLog,
    check_known,
    field_names,
    fit_checkpoint,
    open_file,
)
from streamclust_connectors.cli.options import (
    Clusters,
    Config,
    Decimal,
    Delimiter,
    Detail,
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

if TYPE_CHECKING:
    from streamclust import StreamClusterer
    from streamclust_connectors.cli.file_preview import FilePreview

app = typer.Typer()

Kind = Annotated[str | None, typer.Option(help="csv, jsonl or parquet; by default from FILE's name.")]


def existing(path: Path) -> Path:
    """Refuse a path that is no file."""
    if str(path) != "-" and (path.is_dir() or not path.exists()):
        raise typer.BadParameter(f"{path} is a directory" if path.is_dir() else f"{path} does not exist")
    return path


File = Annotated[
    Path,
    typer.Argument(
        callback=existing,
        help="File of events: .csv, .tsv, .jsonl or .parquet, also compressed (.gz); - for standard input.",
    ),
]  # fmt: skip


@app.command(
    epilog=examples(
        "streamclust fit events.csv",
        "streamclust fit events.csv.gz --exclude id --labels labels.csv --plot clusters.png",
        "streamclust fit export.txt --kind csv --delimiter tab --decimal , --encoding latin-1",
        "streamclust fit events.csv --clusters 10 --labels labels.csv",
        "streamclust fit events.jsonl --vector payload.vector --key id --output model.checkpoint",
        "streamclust fit counts.parquet --family poisson --features clicks,views --time at --half-life 3600",
        "zcat events.csv.gz | streamclust fit - --kind csv",
    )
)
def fit(
    file: File,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Checkpoint to write; by default FILE.checkpoint."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Write the cluster of each row to this file: .csv, .jsonl or .parquet."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Plot the clusters over the two features that separate them best.")
    ] = None,
    family: Family = None,
    features: Features = None,
    exclude: Exclude = None,
    vector: Vector = None,
    key: Key = None,
    time: Time = None,
    weight: Weight = None,
    half_life: HalfLife = None,
    clusters: Clusters = None,
    detail: Detail = None,
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
    """Find the clusters of a file, write a checkpoint and print a summary.

    The dialect of a CSV file is detected from its first lines, unless options give it. Columns that are not numeric
    are ignored, unless the family is "mixed": it takes text as categories.
    """
    flags = origin(file, kind) | {"engine.family": family, "engine.half_life": half_life, "engine.seed": seed}
    flags |= {"engine.n_clusters": number_of_clusters(clusters), "engine.detail": detail}
    flags |= dialect(delimiter, decimal, encoding, header, null)
    settings = settings_from(config, given, flags | fields(features, exclude, vector, key, time, weight))
    if labels is not None and not file.is_file():
        raise typer.BadParameter(
            "needs FILE to be a regular file, since it is read twice", param_hint="--labels"
        )
    form = form_of(labels, option="--labels")
    target = output or Path("stdin.checkpoint" if str(file) == "-" else f"{file}.checkpoint")
    model, sample = fit_checkpoint(settings, file, target)
    console = results()
    console.print(f"checkpoint {target}", soft_wrap=True, markup=False)
    if labels is not None:
        write_assignments(
            model, open_file(settings, quiet=True), labels, form, settings.decode.key is not None
        )
        console.print(f"labels {labels}", soft_wrap=True, markup=False)
    if plot is not None:
        from streamclust_connectors.cli.cluster_plot import plot_clusters

        plot_clusters(model, sample, plot)
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
        Path, typer.Argument(exists=True, dir_okay=False, help="Checkpoint of fit or of a service.")
    ],
    file: File,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; by default standard output.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="csv, jsonl or parquet; by default from OUTPUT's name, else csv."),
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
    """Assign each event of a file to a cluster, with probability and novelty (-log p). Rows are numbered from 1.

    Fields are read as when the checkpoint was written, unless options say otherwise.

    An event that cannot be read gets an empty row.
    """
    from streamclust.checkpoint import read
    from streamclust.streaming import StreamClusterer

    written_as = form_of(output, form)
    state = read(checkpoint)
    model = StreamClusterer.from_state(state)
    if model.model is None:
        raise BadData(f"{checkpoint} has no clusters: it has learnt no events")
    remembered = {
        n: v for n, v in state.values.get("decode", {}).items() if n in ("events", "vector", "key", "format")
    }
    names = field_names(model)
    if all(isinstance(name, str) for name in names):
        remembered["features"] = names
    flags = {f"decode.{name}": value for name, value in remembered.items()} | origin(file, kind)
    flags["engine.family"] = "mixed" if model.categories else model.family
    flags |= {n: v for n, v in fields(features, vector=vector, key=key).items() if v is not None}
    flags |= dialect(delimiter, decimal, encoding, header, null)
    settings = settings_from(config, given, flags)
    preview = open_file(settings, predicting=key is None)
    check_known(model, preview, file)
    keyed = preview.decoder.fields.key is not None
    write_assignments(model, preview, output, written_as, keyed)


def number_of_clusters(text: str | None) -> int | list[int] | None:
    """A number, or the least and the most: 10, 5-12.

    >>> number_of_clusters("10"), number_of_clusters("5-12")
    (10, [5, 12])
    """
    if text is None:
        return None
    numbers = text.replace(" ", "").split("-")
    if len(numbers) > 2 or not all(part.isdecimal() for part in numbers):
        raise typer.BadParameter(
            f"must be a number or a range such as 5-12, got {text!r}", param_hint="--clusters"
        )
    return int(text) if len(numbers) == 1 else [int(part) for part in numbers]


def origin(file: Path, kind: str | None) -> dict[str, Any]:
    """Settings of the source from the command's flags, overriding those of a service."""
    if str(file) == "-" and kind is None:
        raise typer.BadParameter("standard input needs --kind csv or --kind jsonl", param_hint="--kind")
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
    """Settings of an event's fields from the command's flags."""
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
    model: StreamClusterer, preview: FilePreview, path: Path | None, form: str, keyed: bool
) -> None:
    """Write the cluster of each event of a file."""
    from streamclust_connectors.cli.file_preview import with_progress

    refused = RefusalLog()
    with row_writer(path, form, keyed) as put:
        batches = with_progress(
            "assigning", preview.batches(model), preview.source, model, quiet=path is None
        )
        for decoded in batches:
            rows = assignment_rows(decoded, model, keyed)
            for row in rows:
                if row["error"] is not None:
                    refused.add(row["row"], row["error"])
            put(rows)
    refused.print("could not be read")
