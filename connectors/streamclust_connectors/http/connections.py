"""Limits on the number of connections and on slow clients.

uvicorn has no time limit for a request's header and body, and accepts every connection. Each connection holds a file
handle, and a process that has none left can neither write a checkpoint nor respond.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Literal, NamedTuple

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamclust_connectors.http.problems import answer
from streamclust_connectors.settings.sections import HttpSection

RESERVED_FILES = 96
"""File handles reserved for the rest of the process: checkpoints, brokers, libraries."""
MIN_CONNECTIONS = 8
LOG_EVERY_SECONDS = 10.0
"""Minimal time between two identical log messages."""

Awaited = Literal["header", "body", "answer"]
"""Reason for which the server waits: a request's header, its body, or the client reading the response."""


class Limits(NamedTuple):
    """Limits for clients."""

    max_connections: int
    seconds: dict[Awaited, float]
    """Time limit of each kind of wait."""

    @classmethod
    def of(cls, http: HttpSection) -> Limits:
        """Limits from the settings; the number of connections is also bounded by the available file handles."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = max(MIN_CONNECTIONS, files - RESERVED_FILES)
        return cls(
            http.max_connections if files == resource.RLIM_INFINITY else min(http.max_connections, most),
            {"header": http.header_seconds, "body": http.body_seconds, "answer": http.body_seconds},
        )


class BoundedConnection(H11Protocol):
    """A connection with time limits for the client.

    A time limit covers the whole header, body or response; single bytes do not prolong it. If there are too many
    connections, the one that has waited longest for its client is closed.
    """

    def __init__(self, *args: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*args, **options)
        self.limits = limits
        self.awaited: Awaited | None = None
        self.since = 0.0
        """Start of the current wait, by the event loop's clock."""
        self._timer: asyncio.TimerHandle | None = None

    # ---------------------------------------------------------------- called by uvicorn and asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._make_room()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Bytes were received."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """A response has been written."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """The write buffer is full: the client reads too slowly."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """The write buffer has drained."""
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._await(None)
        super().connection_lost(exc)

    # ---------------------------------------------------------------- time limits

    def _watch(self) -> None:
        """Update what the server waits for, and its timer."""
        if self.transport.is_closing():
            self._await(None)
        elif self.flow.write_paused:
            self._await("answer")
        elif self.conn.their_state is h11.SEND_BODY:
            self._await("body")
        elif self.conn.their_state is h11.IDLE:
            self._await("header")
        else:
            self._await(None)

    def _await(self, awaited: Awaited | None) -> None:
        if awaited == self.awaited:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.awaited, self.since, self._timer = awaited, self.loop.time(), None
        if awaited is not None:
            self._timer = self.loop.call_later(self.limits.seconds[awaited], self._too_late, awaited)

    def _too_late(self, awaited: Awaited) -> None:
        seconds = self.limits.seconds[awaited]
        self._close(408, f"the {awaited} did not arrive within {seconds:g} s (http.{awaited}_seconds)")

    # ---------------------------------------------------------------- number of connections

    def _make_room(self) -> None:
        """Close the connection that has been idle longest; this one if no other is idle."""
        idle = [c for c in self.connections if isinstance(c, BoundedConnection) and c.awaited is not None]
        longest = min(idle, key=lambda connection: connection.since, default=self)
        longest._close(
            503, f"there are already {self.limits.max_connections} connections (http.max_connections)"
        )

    def _close(self, status: int, why: str) -> None:
        """Close the connection, after an error response if a request is pending."""
        if not self._cannot_answer():
            self.transport.write(error_bytes(status, why))
        self.transport.close()
        if self.transport.get_write_buffer_size():  # the client does not read
            self.transport.abort()
        self._await(None)

    def _cannot_answer(self) -> bool:
        """Whether no error response can be sent: no request is pending, or its response has begun."""
        match self.awaited:
            case "header":
                return not self.conn.trailing_data[0]
            case "body":
                return bool(self.cycle.response_started)
            case "answer":
                return True
            case _:
                return False


def error_bytes(status: int, why: str) -> bytes:
    r"""Bytes of an HTTP error response that closes the connection.

    >>> error_bytes(503, "no").split(b"\r\n")[0]
    b'HTTP/1.1 503 Service Unavailable'
    """
    response = answer(status, why, {"Connection": "close", "Retry-After": "1"})
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
    headers = [b"%b: %b" % header for header in response.raw_headers]
    return b"\r\n".join([first, *headers, b"", bytes(response.body)])


# -------------------------------------------------------------------- logging


class Throttle(logging.Filter):
    """Logs identical messages once per LOG_EVERY_SECONDS, with the number of those left out.

    Clients, or a lack of file handles, can cause thousands of messages per second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[object, float] = {}
        self._left_out: Counter[object] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record."""
        now, said = time.monotonic(), record.msg
        if now - self._last.get(said, -LOG_EVERY_SECONDS) < LOG_EVERY_SECONDS:
            self._left_out[said] += 1
            return False
        if len(self._last) > 1000:
            self._last.clear()
        self._last[said] = now
        if left_out := self._left_out.pop(said, 0):
            record.left_out = left_out
        return True


@contextmanager
def throttled(*names: str) -> Iterator[None]:
    """Throttle repeated messages of these loggers within the block."""
    throttle = Throttle()
    for name in names:
        logging.getLogger(name).addFilter(throttle)
    try:
        yield
    finally:
        for name in names:
            logging.getLogger(name).removeFilter(throttle)
