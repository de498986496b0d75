"""config: look at the settings before they are used."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from streamclust_connectors.cli.options import Config, Set, examples, settings_from

app = typer.Typer(no_args_is_help=True, help="Check and show the settings.")


@app.command(
    epilog=examples(
        "streamclust config check --config service.toml",
        "STREAMCLUST_KAFKA__TOPIC=events streamclust config check",
    )
)
def check(config: Config = None, given: Set = None) -> None:
    """Check settings: exit code 0 if a service can run with them, else 2 and a line for each error."""
    settings = settings_from(config, given)
    settings.check()
    typer.echo(f"the settings are fine: from {settings.source_kind} to {settings.output_kind}")


@app.command(
    epilog=examples(
        "streamclust config show > service.toml",
    )
)
def show(
    config: Config = None,
    given: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print every setting with its value, secrets hidden: a TOML file to start from."""
    from streamclust_connectors.settings import redacted, to_toml

    settings = settings_from(config, given)
    typer.echo(json.dumps(redacted(settings), indent=2) if as_json else to_toml(settings), nl=as_json)
