"""Runs the HTTP server (uvicorn) in a thread beside the service loop."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil

import uvicorn
from fastapi import FastAPI

from streamclust_connectors.http.app import create_app
from streamclust_connectors.http.backend import Backend
from streamclust_connectors.http.connections import BoundedConnection, Limits, throttled
from streamclust_connectors.http.security import is_loopback
from streamclust_connectors.service import Service
from streamclust_connectors.settings import Settings
from streamclust_connectors.settings.sections import HttpSection

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE = 16
"""Connections that asyncio accepts at once, before they are counted: the limit may be exceeded by this number."""
QUEUED_CONNECTIONS = 512
"""Length of the system's queue of connections not yet accepted."""
LOGGERS = "asyncio", "uvicorn.error"
"""Loggers whose messages clients or a lack of file handles can repeat endlessly."""
SHUTDOWN_SECONDS = 5
"""Seconds that open requests have to finish at shutdown."""


@contextmanager
def serving(service: Service, settings: Settings) -> Iterator[str]:
    """Serve the API and the dashboard within the block; yields the address."""
    backend = Backend(service, settings.source_kind, settings.http, vector=settings.decode.vector)
    with running(create_app(backend, settings), settings.http) as url:
        yield url


@contextmanager
def running(app: FastAPI, http: HttpSection) -> Iterator[str]:
    """Run an application in a thread."""
    with listening(http.host, http.port) as listener:
        url = address(http.host, listener.getsockname()[1])
        if http.token is None and not is_loopback(http.host):
            log.warning(
                "anyone who can reach %s may read and train the model; set STREAMCLUST_HTTP__TOKEN to require a token",
                url,
            )
        limits = Limits.of(http)
        if limits.max_connections < http.max_connections:
            log.info(
                "at most %d connections, because of the limit on open files (ulimit -n)",
                limits.max_connections,
            )
        server = Server(
            uvicorn.Config(
                app,
                http=partial(BoundedConnection, limits=limits),  # type: ignore[arg-type]  # called like a class
                ws="none",
                backlog=ACCEPTED_AT_ONCE,
                timeout_keep_alive=ceil(http.header_seconds),
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
        )
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="streamclust-http", daemon=True
        )
        thread.start()
        log.info("listening", extra={"url": url})
        try:
            with throttled(*LOGGERS):
                yield url
        finally:
            if (streams := getattr(app.state, "streams", None)) is not None:
                streams.close_soon()
            server.should_exit = True
            thread.join(2 * SHUTDOWN_SECONDS)


class Server(uvicorn.Server):
    """A server that accepts a few connections at a time; the others wait in the system's queue."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(QUEUED_CONNECTIONS)  # asyncio has shortened the queue to ACCEPTED_AT_ONCE


def listening(host: str, port: int) -> socket.socket:
    """A listening socket; an OSError names the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given; without it a response may be delayed by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(QUEUED_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror or str(error), f"{host}:{port}") from None
    return listener


def address(host: str, port: int) -> str:
    """URL of the server for a browser on this machine.

    >>> address("0.0.0.0", 8080), address("::1", 80)
    ('http://127.0.0.1:8080', 'http://[::1]:80')
    """
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
