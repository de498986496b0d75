"""Options that several commands have, and the settings they make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
Servers = Annotated[
    str | None, typer.Option("--bootstrap-servers", "-b", help="Brokers, as host:port,host:port.")
]
TopicName = Annotated[str | None, typer.Option("--topic", "-t", help="The Kafka topic to read.")]
Family = Annotated[
    str | None, typer.Option(help="What a cluster is: gaussian, diagonal, spherical, multinomial, ...")
]
Seed = Annotated[int | None, typer.Option(help="The same seed and events give the same clusters.")]
Features = Annotated[
    str | None, typer.Option(help="The features that count, with commas: x,y. All, if not given.")
]
Vector = Annotated[str | None, typer.Option(help="Where an event has its numbers: payload.vector.")]
Key = Annotated[str | None, typer.Option(help="The field that says what an event is about.")]
Time = Annotated[str | None, typer.Option(help="The field that has an event's time.")]
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
    """Set what a name with dots means.

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
