"""The `streamclust` command. Each command imports what it needs when it runs, so that help comes at once."""

from __future__ import annotations

import typer

from streamclust_connectors.cli import (
    config,
    demo,
    files,
    inspection,
    letters,
    producing,
    running,
    snapshots,
    spark,
    version,
    warming,
)
from streamclust_connectors.cli.errors import MEANING, Commands

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Streaming clustering that learns the number of clusters, in bounded memory, for ever.",
    epilog="\n\n".join(
        ("Exit codes:", *(f"{code.value:>3}  {meaning}" for code, meaning in MEANING.items()))
    ),
)
app.callback()(version.shared)
for part in (running, producing, demo, files, spark, inspection, warming, version):
    app.add_typer(part.app)
app.add_typer(snapshots.app, name="snapshot")
app.add_typer(letters.app, name="dlq")
app.add_typer(config.app, name="config")


def main() -> None:
    """Run the command line."""
    app(prog_name="streamclust")
