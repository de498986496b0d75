"""Command version, and the option --version."""

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


def print_version(given: bool) -> None:
    """Print the version and exit, if the option is given."""
    if given:
        from importlib import metadata

        typer.echo(f"streamclust {metadata.version('streamclust')}")
        raise typer.Exit


def shared(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Handle the options before a command."""


@app.command(
    epilog=examples(
        "streamclust version --full",
    )
)
def version(
    full: Annotated[
        bool, typer.Option("--full", help="Also print the versions of Python and the main dependencies.")
    ] = False,
) -> None:
    """Print the version."""
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
