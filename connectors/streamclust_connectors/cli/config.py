"""Commands config check and config show."""

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
    """Check the settings: exit code 0 if a service can run with them, else 2 and one line per error."""
    settings = settings_from(config, given)
    settings.check()
    typer.echo(f"the settings are valid: from {settings.source_kind} to {settings.output_kind}")


@app.command(
    epilog=examples(
        "streamclust config show > service.toml",
    )
)
def show(
    config: Config = None,
    given: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print all settings with their values as TOML, without secrets. The output is a template for a settings file."""
    from streamclust_connectors.settings import redacted, to_toml

    settings = settings_from(config, given)
    typer.echo(json.dumps(redacted(settings), indent=2) if as_json else to_toml(settings), nl=as_json)
