"""Command spark-summarize: learns the clusters of a data lake with Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust.parameters import help_of
from streamclust_connectors.cli.errors import BadData
from streamclust_connectors.cli.options import (
    Config,
    Family,
    Features,
    Seed,
    Set,
    Time,
    Weight,
    examples,
    messages,
    results,
    settings_from,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from streamclust import StreamClusterer
    from streamclust_connectors.spark import FrameSummary

app = typer.Typer()

KINDS = ("parquet", "csv")
SAMPLE_ROWS = 1000
"""Number of CSV rows read to find the numeric columns."""


@app.command(
    "spark-summarize",
    epilog=examples(
        "streamclust spark-summarize lake/events --features x,y --output model.checkpoint",
        "streamclust spark-summarize 's3a://bucket/*.csv' --kind csv --master spark://host:7077 --refused refused",
        "streamclust inspect model.checkpoint",
    ),
)
def spark_summarize(
    lake: Annotated[
        str, typer.Argument(help="Parquet or CSV files: a path, directory or pattern for Spark.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Checkpoint to write.")] = Path(
        "lake.checkpoint"
    ),
    features: Features = None,
    family: Family = None,
    weight: Weight = None,
    time: Time = None,
    half_life: Annotated[float | None, typer.Option(help=f"{help_of('half_life')} Needs --time.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="parquet or csv (with a header); by default csv if LAKE ends in .csv, else parquet."
        ),
    ] = None,
    refused: Annotated[
        str | None,
        typer.Option(help="Path for rows without usable numbers, with the reasons, as Parquet."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(envvar="SPARK_MASTER", help="Spark's master; by default all cores of this machine."),
    ] = None,
    spark_option: Annotated[
        list[str] | None,
        typer.Option("--spark", metavar="KEY=VALUE", help="A Spark setting. Can be repeated."),
    ] = None,
    seed: Seed = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """Find the clusters of a data lake: summarise each partition, merge the summaries, and refit once."""
    flags = {
        "engine.family": family,
        "engine.half_life": half_life,
        "engine.seed": seed,
        "decode.features": features,
    }
    settings = settings_from(config, given, flags | {"decode.weight": weight, "decode.time": time})
    form = checked(lake, kind, output)
    spark = start(master, spark_option or [])
    from streamclust_connectors.spark import clusterer_of, summary

    engine = settings.engine.model_dump()
    frame = read(spark, lake, form, {weight, time})
    columns = chosen(frame, settings.decode.features, {weight, time})
    bound = {} if engine["max_leaves"] is None else {"max_leaves": engine["max_leaves"]}
    with progress(spark):
        made = summary(
            frame, columns, family=engine["family"], weight=weight, time=time, half_life=engine["half_life"],
            refused=refused, seed=engine["seed"], max_directions=engine["max_directions"], scale=engine["scale"],
            **bound,
        )  # fmt: skip
    warn_refused(made.n_rows, made.n_refused, refused)
    if not made.tree.n_events:
        raise BadData(
            f"none of the {made.n_rows:,} rows of {lake} could be used; choose numeric columns with --features"
        )
    with messages().status("refit"):
        model = clusterer_of(made.tree, list(columns), made.sketch, **engine)
    save(model, made, lake, settings.decode.model_dump(mode="json") | {"features": list(columns)}, output)


def checked(lake: str, kind: str | None, output: Path) -> str:
    """The format of the files; refuses flags that would otherwise fail after Spark's work."""
    form = kind or ("csv" if lake.rstrip("*").endswith(".csv") else "parquet")
    if form not in KINDS:
        raise typer.BadParameter(f"must be parquet or csv, got {form!r}", param_hint="--kind")
    if not output.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no directory {output.absolute().parent}", param_hint="--output")
    return form


def save(
    model: StreamClusterer, made: FrameSummary, lake: str, decode: Mapping[str, Any], output: Path
) -> None:
    """Write the checkpoint, and print the clusters."""
    from streamclust.checkpoint import write
    from streamclust_connectors.cli.tables import clusters, counted

    state = model.to_state({"lake": [lake, made.n_rows]})
    state.values["n_refused"] = made.n_refused
    state.values["decode"] = decode
    write(output, state)
    console = results()
    console.print(clusters(model))
    console.print(
        f"{counted(made.n_rows, 'row')} in {counted(made.partitions, 'partition')}, {made.bytes:,} bytes of summaries"
    )
    console.print(f"checkpoint {output}", soft_wrap=True, markup=False)


def start(master: str | None, given: list[str]) -> SparkSession:
    """Start a Spark session that logs errors only."""
    options = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(
                f"{text!r} is not of the form KEY=VALUE, for example spark.executor.memory=4g",
                param_hint="--spark",
            )
        options[name.strip()] = value
    try:
        from streamclust_connectors.spark.session import find_java, session
    except ImportError as error:
        raise ImportError(f"this command needs {error.name}; run: pip install 'streamclust[spark]'") from None
    find_java()
    with messages().status("starting Spark"):
        spark = session(master or "local[*]", options=options)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read(spark: SparkSession, lake: str, kind: str, numbers: set[str | None]) -> DataFrame:
    """The lake as a data frame; columns of CSV files are text, except weights and times."""
    from pyspark.errors import AnalysisException
    from pyspark.sql.functions import col

    try:
        if kind == "parquet":
            return spark.read.parquet(lake)
        frame = spark.read.csv(lake, header=True)
    except AnalysisException as error:
        raise BadData(f"{lake} cannot be read as {kind}: {str(error).splitlines()[0]}") from None
    known = {name: col(f"`{name}`").try_cast("double") for name in frame.columns if name in numbers}
    return frame.withColumns(known) if known else frame


def chosen(frame: DataFrame, names: Sequence[str] | None, others: set[str | None]) -> dict[str, Column]:
    """The named features, or all numeric columns except weight and time; text columns are cast to numbers."""
    from pyspark.sql.functions import col
    from pyspark.sql.types import NumericType, StringType

    types = {field.name: field.dataType for field in frame.schema.fields}
    text = [name for name, kind in types.items() if isinstance(kind, StringType)]
    if names is None:
        wanted = {name for name, kind in types.items() if isinstance(kind, NumericType)}
        wanted |= set(numeric(frame, [name for name in text if name not in others]))
        names = [name for name in types if name in wanted and name not in others]
    if missing := [name for name in names if name not in types]:
        raise BadData(f"there is no column {missing[0]!r}; the columns are {', '.join(types)}")
    if not names:
        raise BadData(f"none of the columns {', '.join(types)} is numeric")
    return {name: col(f"`{name}`").try_cast("double") if name in text else col(f"`{name}`") for name in names}


def numeric(frame: DataFrame, names: list[str]) -> list[str]:
    """Names of the text columns whose first rows are all numbers."""
    from pyspark.sql.functions import col, count

    counts = [count(col(f"`{name}`")) for name in names]
    counts += [count(col(f"`{name}`").try_cast("double")) for name in names]
    row = frame.limit(SAMPLE_ROWS).select(*counts).first() if names else None
    found = list(row or ())
    n = len(names)
    return [name for i, name in enumerate(names) if found[i] == found[n + i] > 0]


@contextmanager
def progress(spark: SparkSession) -> Iterator[None]:
    """Show the number of finished partitions on the terminal."""
    console = messages()
    tracker, over = spark.sparkContext.statusTracker(), threading.Event()

    def update() -> None:
        while not over.wait(0.5):
            for stage in tracker.getActiveStageIds():
                if info := tracker.getStageInfo(stage):
                    status.update(f"summarising: {info.numCompletedTasks:,} of {info.numTasks:,} partitions")

    with console.status("summarising") as status:
        thread = threading.Thread(target=update, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def warn_refused(rows: int, refused: int, where: str | None) -> None:
    """Print the number of refused rows, and where they were written."""
    from streamclust_connectors.cli.tables import counted

    if refused:
        kept = f"see {where}" if where else "use --refused PATH to keep them with the reasons"
        typer.echo(
            f"warning: {refused:,} of {counted(rows, 'row')} refused for lack of usable numbers; {kept}",
            err=True,
        )
