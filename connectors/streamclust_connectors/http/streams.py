"""Server-sent events: the status every second, and new lifecycle events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec
from starlette.concurrency import run_in_threadpool

from streamclust_connectors.http.backend import Backend
from streamclust_connectors.http.problems import HttpProblem
from streamclust_connectors.service.fair_lock import LockTimeout

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 1.0
"""Seconds between samples."""


class EventStreams:
    """Samples the service every second, and feeds the clients of the event stream."""

    def __init__(self, backend: Backend, limit: int) -> None:
        self.backend, self.limit = backend, limit
        self.followers = 0
        self.closed = False
        self._tick = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Take a sample every second and wake all clients, until cancelled."""
        loop = self._loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SAMPLE_SECONDS
            try:
                await run_in_threadpool(self.backend.sample)
            except LockTimeout:
                pass
            except Exception:
                log.exception("sampling the service failed")
            self._wake()
            await asyncio.sleep(max(0.0, due - loop.time()))

    def close(self) -> None:
        """End all streams. Must be called on the application's event loop."""
        self.closed = True
        self._wake()

    def close_soon(self) -> None:
        """`close`, from another thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.close)

    def _wake(self) -> None:
        tick, self._tick = self._tick, asyncio.Event()
        tick.set()

    def follow(self, after: int) -> AsyncIterator[bytes]:
        """Event stream of one client, from a journal entry on; HttpProblem if there are too many clients."""
        if self.followers >= self.limit:
            raise HttpProblem(
                503, f"there are already {self.limit} event streams (http.max_streams)", {"Retry-After": "10"}
            )
        self.followers += 1
        return self._following(after)

    async def _following(self, after: int) -> AsyncIterator[bytes]:
        try:
            while not self.closed:
                tick = self._tick
                for event in self.backend.journal.after(after):
                    after = event["seq"]
                    yield message("lifecycle", event, after)
                yield message("status", self.backend.status())
                await tick.wait()
        finally:
            self.followers -= 1


def message(kind: str, content: object, number: int | None = None) -> bytes:
    r"""One server-sent event.

    >>> message("status", {"ready": True})
    b'event: status\ndata: {"ready":true}\n\n'
    """
    number_line = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: %s\ndata: %s\n\n" % (number_line, kind.encode(), msgspec.json.encode(content))
