"""Options that several commands have, and the settings they make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust.parameters import help_of

if TYPE_CHECKING:
    from rich.console import Console

    from streamclust_connectors.settings import Settings

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="STREAMCLUST_CONFIG", help="A TOML file with settings.", dir_okay=False
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="KEY=VALUE", help="Any setting, as engine.half_life=50000. Can be repeated."
    ),
]
Input = Annotated[Path | None, typer.Option("--input", "-i", help="A file to read; - is standard input.")]
Servers = Annotated[
    str | None, typer.Option("--bootstrap-servers", "-b", help="Brokers, as host:port,host:port.")
]
TopicName = Annotated[str | None, typer.Option("--topic", "-t", help="The Kafka topic to read.")]
Family = Annotated[str | None, typer.Option(help=help_of("family"))]
HalfLife = Annotated[float | None, typer.Option(help=help_of("half_life"))]
Seed = Annotated[int | None, typer.Option(help=help_of("seed"))]
Features = Annotated[
    str | None, typer.Option(help="The features that count, with commas: x,y. All, if not given.")
]
Exclude = Annotated[str | None, typer.Option(help="Columns that do not count, with commas: id,city.")]
Delimiter = Annotated[
    str | None, typer.Option(help="CSV: ; or tab, ...; found in the file, as all of these, if not given.")
]
Decimal = Annotated[str | None, typer.Option(help="CSV: the decimal mark, . or ,")]
Encoding = Annotated[str | None, typer.Option(help="CSV: utf-8, latin-1, utf-16, ...")]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="CSV: whether the first row has names.")
]
Null = Annotated[
    list[str] | None,
    typer.Option(help="CSV: one more cell that means missing, as NA and ? do. Can be repeated."),
]
Vector = Annotated[
    str | None,
    typer.Option(
        help="Where an event has its numbers, an object, an array or base64 of float32: payload.vector."
    ),
]
Key = Annotated[str | None, typer.Option(help="The field that says what an event is about.")]
Time = Annotated[
    str | None, typer.Option(help="The field that has an event's time: a number, or a date (ISO 8601).")
]
Weight = Annotated[str | None, typer.Option(help="The field that has an event's weight.")]


def settings_from(
    config: Path | None = None, given: list[str] | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Settings by flags, --set, the environment and a file. Flags are named as settings are: "kafka.topic"."""
    from streamclust_connectors.settings import load

    overrides: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(
                f"{text!r} is not KEY=VALUE, as engine.half_life=50000 is", param_hint="--set"
            )
        put(overrides, name.strip(), value)
    for name, value in (flags or {}).items():
        if value is not None:
            put(overrides, name, value)
    return load(config, overrides)


def put(content: dict[str, Any], name: str, value: object) -> None:
    """Set a value under a dotted name.

    >>> content = {}
    >>> put(content, "kafka.topic", "events")
    >>> content
    {'kafka': {'topic': 'events'}}
    """
    *path, last = name.split(".")
    for step in path:
        content = content.setdefault(step, {})
        if not isinstance(content, dict):
            raise typer.BadParameter(f"{name}: {step} has a value of its own already", param_hint="--set")
    content[last] = value


def examples(*lines: str) -> str:
    """The end of a help text. Each line is a paragraph: that is what keeps it a line."""
    return "\n\n".join(("Examples:", *lines))


def messages() -> Console:
    """A console on standard error: progress and remarks, never results."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def results() -> Console:
    """A console on standard output."""
    from rich.console import Console

    return Console(highlight=False)
