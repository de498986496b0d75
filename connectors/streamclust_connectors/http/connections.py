"""Limits on the number of connections and on slow clients.

uvicorn waits for ever for the rest of a header or of a body, and takes every connection. Each holds a file handle, and
a process without any can neither write a checkpoint nor answer.
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
"""File handles that connections leave to the rest of the process: checkpoints, brokers, libraries."""
MIN_CONNECTIONS = 8
LOG_EVERY_SECONDS = 10.0
"""The same message is logged no more often."""

Awaited = Literal["header", "body", "answer"]
"""What the server waits for: a request's header, its body, or the client reading the response."""


class Limits(NamedTuple):
    """Limits for clients."""

    max_connections: int
    seconds: dict[Awaited, float]
    """Time limit of each."""

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
    """A connection whose client has to be done in time.

    The time runs from when something is awaited until it is there whole: a byte now and then does not prolong it. Where
    there are too many connections, the one whose client has kept us waiting longest is closed.
    """

    def __init__(self, *args: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*args, **options)
        self.limits = limits
        self.awaited: Awaited | None = None
        self.since = 0.0
        """Start of the current wait, by the event loop's clock."""
        self._timer: asyncio.TimerHandle | None = None

    # ---------------------------------------------------------------- what uvicorn and asyncio call

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own has it
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
        """An answer has been written."""
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

    # ---------------------------------------------------------------- time

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
        self._dismiss(408, f"the {awaited} did not come within {seconds:g} s (http.{awaited}_seconds)")

    # ---------------------------------------------------------------- number

    def _make_room(self) -> None:
        """Close the connection that has been idle longest; this one if no other is idle."""
        idle = [c for c in self.connections if isinstance(c, BoundedConnection) and c.awaited is not None]
        longest = min(idle, key=lambda connection: connection.since, default=self)
        longest._dismiss(503, f"there are {self.limits.max_connections} connections (http.max_connections)")

    def _dismiss(self, status: int, why: str) -> None:
        """Close the connection, after an error response if a request is pending."""
        if not self._nobody_asked():
            self.transport.write(written(status, why))
        self.transport.close()
        if self.transport.get_write_buffer_size():  # which nobody takes
            self.transport.abort()
        self._await(None)

    def _nobody_asked(self) -> bool:
        """Whether there is no pending request, or its response has already begun."""
        match self.awaited:
            case "header":
                return not self.conn.trailing_data[0]
            case "body":
                return bool(self.cycle.response_started)
            case "answer":
                return True
            case _:
                return False


def written(status: int, why: str) -> bytes:
    r"""Bytes of an HTTP error response that closes the connection.

    >>> written(503, "no").split(b"\r\n")[0]
    b'HTTP/1.1 503 Service Unavailable'
    """
    response = answer(status, why, {"Connection": "close", "Retry-After": "1"})
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
    headers = [b"%b: %b" % header for header in response.raw_headers]
    return b"\r\n".join([first, *headers, b"", bytes(response.body)])


# -------------------------------------------------------------------- what is said of it


class Throttle(logging.Filter):
    """Lets the same message through once in a while, with how often it was left out since.

    Clients, and a machine without file handles, can bring about thousands a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[object, float] = {}
        self._left_out: Counter[object] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this one is logged."""
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
    """Let these loggers repeat themselves only once in a while."""
    throttle = Throttle()
    for name in names:
        logging.getLogger(name).addFilter(throttle)
    try:
        yield
    finally:
        for name in names:
            logging.getLogger(name).removeFilter(throttle)
