"""The `streamclust` command. Each command imports its modules when it runs, so that help is fast."""

from __future__ import annotations

import typer

from streamclust_connectors.cli import (
    config,
    dead_letters,
    demo,
    file_commands,
    inspection,
    produce,
    relay_commands,
    service_commands,
    snapshots,
    spark,
    version,
    warm,
)
from streamclust_connectors.cli.errors import EXIT_CODE_MEANINGS, CommandGroup

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Streaming clustering that learns the number of clusters, in bounded memory.",
    epilog="\n\n".join(
        ("Exit codes:", *(f"{code.value:>3}  {meaning}" for code, meaning in EXIT_CODE_MEANINGS.items()))
    ),
)
app.callback()(version.shared)
for module in (
    service_commands,
    relay_commands,
    produce,
    demo,
    file_commands,
    spark,
    inspection,
    warm,
    version,
):
    app.add_typer(module.app)
app.add_typer(snapshots.app, name="snapshot")
app.add_typer(dead_letters.app, name="dlq")
app.add_typer(config.app, name="config")


def main() -> None:
    """Run the command line."""
    app(prog_name="streamclust")
