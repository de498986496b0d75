"""Command warm: compiles kernels before the first start."""

from __future__ import annotations

from typing import Annotated

import typer

from streamclust_connectors.cli.options import examples, messages

app = typer.Typer()


@app.command(
    epilog=examples(
        "streamclust warm",
        "streamclust warm --all",
        "streamclust warm --portable",
    )
)
def warm(
    everything: Annotated[bool, typer.Option("--all", help="All families and kinds of refits.")] = False,
    portable: Annotated[
        bool,
        typer.Option(
            "--portable", help="All kernels, for any x86-64-v3 processor, into the installed package."
        ),
    ] = False,
) -> None:
    """Compile the kernels of streams in several processes, so that the first start is fast."""
    from streamclust.warm import ship
    from streamclust.warm import warm as compile_ahead

    with messages().status("compiling kernels: about 20 s on two processors"):
        if portable:
            typer.echo(f"{ship()} compiled kernels were added to the package")
        else:
            compile_ahead(everything)
