"""warm: compile ahead of the first start."""

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
    everything: Annotated[bool, typer.Option("--all", help="Every family and kind of refit.")] = False,
    portable: Annotated[
        bool,
        typer.Option("--portable", help="All, for any x86-64-v3 processor, into the installed package."),
    ] = False,
) -> None:
    """Compile ahead what a stream needs, in several processes, so that its first start is fast."""
    from streamclust.warm import ship
    from streamclust.warm import warm as compile_ahead

    with messages().status("compiling, once: some 20 s of two processors"):
        if portable:
            typer.echo(f"{ship()} compiled kernels come with the package")
        else:
            compile_ahead(everything)
