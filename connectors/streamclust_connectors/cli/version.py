"""version: what is installed."""

from __future__ import annotations

from typing import Annotated

import typer

from streamclust_connectors.cli.options import examples

app = typer.Typer()

SHOWN = ("streamclust", "numpy", "scipy", "numba", "river", "scikit-learn", "kafka-python", "msgspec")


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
        for name in SHOWN[1:]:
            try:
                typer.echo(f"{name} {metadata.version(name)}")
            except metadata.PackageNotFoundError:
                typer.echo(f"{name} is not installed")
