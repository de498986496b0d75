"""uvicorn in a thread beside the loop."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from streamclust_connectors.http.app import create_app
from streamclust_connectors.http.backend import Backend
from streamclust_connectors.http.security import is_loopback
from streamclust_connectors.service import Service
from streamclust_connectors.settings import Settings
from streamclust_connectors.settings.sections import Http

log = logging.getLogger(__name__)

GRACE = 5
"""Seconds that requests have to end when the service does."""


@contextmanager
def serving(service: Service, settings: Settings) -> Iterator[str]:
    """Serve a service's API and dashboard as long as this lasts; gives the address."""
    backend = Backend(service, settings.source_kind, settings.http)
    with running(create_app(backend, settings), settings.http) as url:
        yield url


@contextmanager
def running(app: FastAPI, http: Http) -> Iterator[str]:
    """Run an application in a thread."""
    with listening(http.host, http.port) as listener:
        url = address(http.host, listener.getsockname()[1])
        if http.token is None and not is_loopback(http.host):
            log.warning("anyone who reaches %s may ask and teach: set STREAMCLUST_HTTP__TOKEN", url)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE,
            )
        )
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="streamclust-http", daemon=True
        )
        thread.start()
        log.info("listening", extra={"url": url})
        try:
            yield url
        finally:
            app.state.streams.close_soon()
            server.should_exit = True
            thread.join(2 * GRACE)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; what is wrong is an OSError that names the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) where it is told that this is TCP, else an answer may wait for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror or str(error), f"{host}:{port}") from None
    return listener


def address(host: str, port: int) -> str:
    """Where a browser finds it.

    >>> address("0.0.0.0", 8080), address("::1", 80)
    ('http://127.0.0.1:8080', 'http://[::1]:80')
    """
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
