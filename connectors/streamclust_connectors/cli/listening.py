"""The HTTP server, for the commands that have one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from streamclust_connectors.service import Service
    from streamclust_connectors.settings import Settings

Http = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT", help="Serve the API and the dashboard there; 8080 is on this machine alone."
    ),
]


def listen(place: str | None) -> dict[str, Any]:
    """Settings of the HTTP server from [HOST:]PORT.

    >>> listen("0.0.0.0:80")
    {'http.enabled': True, 'http.port': '80', 'http.host': '0.0.0.0'}
    >>> listen("8081"), listen("[::1]:80")["http.host"]
    ({'http.enabled': True, 'http.port': '8081'}, '::1')
    """
    if place is None:
        return {}
    host, _, port = place.rpartition(":")
    if not port:
        raise typer.BadParameter(f"{place!r} has no port", param_hint="--http")
    found = {"http.enabled": True, "http.port": port}
    return found | {"http.host": host.removeprefix("[").removesuffix("]")} if host else found


def beside(running: Service, settings: Settings) -> AbstractContextManager[object]:
    """The HTTP server, if enabled."""
    if not settings.http.enabled:
        return nullcontext()
    try:
        from streamclust_connectors.http.server import serving
    except ImportError as error:
        raise ImportError(f"HTTP needs {error.name}: pip install 'streamclust[http]'") from None
    return serving(running, settings)
