"""Commands config check, config show and config schemas."""

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


@app.command(
    epilog=examples(
        "streamclust config schemas --set kafka.topic=events --format avro",
    )
)
def schemas(
    config: Config = None,
    given: Set = None,
    format: Annotated[
        str | None, typer.Option(help="avro, protobuf or json-schema; default: output.format.")
    ] = None,
) -> None:
    """Print the schemas of the outputs as JSON: for each subject, the body by which it is registered."""
    from streamclust_connectors.cli.service_factory import flat_records
    from streamclust_connectors.registry.schemas import SCHEMA_TYPES, schema_text
    from streamclust_connectors.settings import ConfigError

    settings = settings_from(config, given)
    wanted = format or settings.output.format
    if wanted not in SCHEMA_TYPES:
        raise ConfigError(f"format {wanted!r} has no schemas; use {', '.join(SCHEMA_TYPES)}")
    found = {
        f"{settings.topics[channel]}-value": {
            "schemaType": SCHEMA_TYPES[wanted],
            "schema": schema_text(wanted, record),
        }
        for channel, record in flat_records(settings.model).items()
        if channel in settings.topics
    }
    typer.echo(json.dumps(found, indent=2))
