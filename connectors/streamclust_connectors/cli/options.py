"""Options shared by several commands, and the settings made from them."""

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
        "--config", "-c", envvar="STREAMCLUST_CONFIG", help="TOML file with settings.", dir_okay=False
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Any setting, for example engine.half_life=50000. Can be repeated.",
    ),
]
Input = Annotated[Path | None, typer.Option("--input", "-i", help="File to read; - for standard input.")]
Servers = Annotated[
    str | None, typer.Option("--bootstrap-servers", "-b", help="Brokers: host:port,host:port.")
]
TopicName = Annotated[str | None, typer.Option("--topic", "-t", help="Kafka topic.")]
Family = Annotated[str | None, typer.Option(help=help_of("family"))]
HalfLife = Annotated[float | None, typer.Option(help=help_of("half_life"))]
Clusters = Annotated[
    str | None,
    typer.Option("--clusters", help="Number of clusters to show, or the least and the most: 10, 5-12."),
]
Detail = Annotated[str | None, typer.Option(help=help_of("detail"))]
Seed = Annotated[int | None, typer.Option(help=help_of("seed"))]
Features = Annotated[
    str | None, typer.Option(help="Features to use, separated by commas: x,y. Default: all.")
]
Exclude = Annotated[str | None, typer.Option(help="Columns to ignore, separated by commas: id,city.")]
Delimiter = Annotated[
    str | None,
    typer.Option(help="CSV: the delimiter, for example ; or tab. CSV options are detected by default."),
]
Decimal = Annotated[str | None, typer.Option(help="CSV: the decimal mark, . or ,")]
Encoding = Annotated[str | None, typer.Option(help="CSV: utf-8, latin-1, utf-16, ...")]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="CSV: whether the first row holds column names.")
]
Null = Annotated[
    list[str] | None,
    typer.Option(help="CSV: another text for a missing value, besides NA, ? and others. Can be repeated."),
]
Vector = Annotated[
    str | None,
    typer.Option(help="Path of the vector in an event (object, array or base64 of float32): payload.vector."),
]
Key = Annotated[str | None, typer.Option(help="Path of the event's key, which is copied to the output.")]
Time = Annotated[str | None, typer.Option(help="Path of the event's time: a number, or a date (ISO 8601).")]
Weight = Annotated[str | None, typer.Option(help="Path of the event's weight.")]


def settings_from(
    config: Path | None = None, given: list[str] | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Settings from flags, --set, the environment and a file, in this order; keys of `flags`: "kafka.topic"."""
    from streamclust_connectors.settings import load

    overrides: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(
                f"{text!r} is not of the form KEY=VALUE, for example engine.half_life=50000",
                param_hint="--set",
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
            raise typer.BadParameter(
                f"{name}: {step} already has a value, so it cannot be a section", param_hint="--set"
            )
    content[last] = value


def examples(*lines: str) -> str:
    """Examples at the end of a help text; each is a paragraph, so that lines are not joined."""
    return "\n\n".join(("Examples:", *lines))


def messages() -> Console:
    """A console on standard error, for progress and remarks."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def results() -> Console:
    """A console on standard output, for results."""
    from rich.console import Console

    return Console(highlight=False)
