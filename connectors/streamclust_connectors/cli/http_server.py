"""The option --http, the HTTP server of run and serve, and what they send to a collector."""

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
        metavar="[HOST:]PORT",
        help="Serve the API and the dashboard at this address; without HOST on this machine only.",
    ),
]


def http_flags(address: str | None) -> dict[str, Any]:
    """Settings of the HTTP server from [HOST:]PORT.

    >>> http_flags("0.0.0.0:80")
    {'http.enabled': True, 'http.port': '80', 'http.host': '0.0.0.0'}
    >>> http_flags("8081"), http_flags("[::1]:80")["http.host"]
    ({'http.enabled': True, 'http.port': '8081'}, '::1')
    """
    if address is None:
        return {}
    host, _, port = address.rpartition(":")
    if not port:
        raise typer.BadParameter(f"{address!r} has no port; give [HOST:]PORT", param_hint="--http")
    found = {"http.enabled": True, "http.port": port}
    return found | {"http.host": host.removeprefix("[").removesuffix("]")} if host else found


def http_server(service: Service, settings: Settings) -> AbstractContextManager[object]:
    """The HTTP server as a context manager, if enabled."""
    if not settings.http.enabled:
        return nullcontext()
    try:
        from streamclust_connectors.http.server import serving
    except ImportError as error:
        raise ImportError(f"HTTP needs {error.name}; run: pip install 'streamclust[http]'") from None
    return serving(service, settings)


def telemetry(service: Service, settings: Settings) -> AbstractContextManager[object]:
    """Sending of spans and metrics as a context manager, if enabled."""
    if not settings.telemetry.enabled:
        return nullcontext()
    try:
        from streamclust_connectors.telemetry.sending import sending
    except ImportError as error:
        raise ImportError(f"telemetry needs {error.name}; run: pip install 'streamclust[otel]'") from None
    from streamclust_connectors.cli.service_factory import member_name

    chosen = settings.telemetry
    return sending(
        service,
        settings.source_kind,
        chosen.endpoint,
        chosen.service_name,
        chosen.metrics_seconds,
        member_name(settings),
    )
