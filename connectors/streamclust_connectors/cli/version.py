"""version: what is installed."""

from __future__ import annotations

from typing import Annotated

import typer

from streamclust_connectors.cli.options import examples

app = typer.Typer()

SHOWN_PACKAGES = (
    "streamclust",
    "numpy",
    "scipy",
    "numba",
    "river",
    "scikit-learn",
    "kafka-python",
    "msgspec",
)


def shown(asked: bool) -> None:
    """Print the version and end, if asked to."""
    if asked:
        from importlib import metadata

        typer.echo(f"streamclust {metadata.version('streamclust')}")
        raise typer.Exit


def shared(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=shown, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command(
    epilog=examples(
        "streamclust version --full",
    )
)
def version(
    full: Annotated[bool, typer.Option("--full", help="And of what it is built on.")] = False,
) -> None:
    """The version."""
    import platform
    from importlib import metadata

    typer.echo(f"streamclust {metadata.version('streamclust')}")
    if full:
        typer.echo(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
        for name in SHOWN_PACKAGES[1:]:
            try:
                typer.echo(f"{name} {metadata.version(name)}")
            except metadata.PackageNotFoundError:
                typer.echo(f"{name} is not installed")
