"""A lock that a waiting thread gets next, even if the thread that released it asks for it again at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Busy(Exception):  # noqa: N818
    """The lock could not be acquired in time."""


class HandedLock:
    """A lock that a busy loop cannot starve others of: with a plain one it would acquire it again before they wake up.

    >>> lock = HandedLock()
    >>> with lock:
    ...     pass
    >>> with lock, lock.within(0.01):
    ...     pass
    Traceback (most recent call last):
        ...
    streamclust_connectors.handing.Busy: nothing could be read within 0.01 s: the loop is at work
    """

    def __init__(self) -> None:
        self._next = threading.Lock()  # held by the one who waits
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._next:
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Acquire the lock, or raise Busy after so many seconds."""
        if not self._acquire(seconds):
            raise Busy(f"nothing could be read within {seconds:g} s: the loop is at work")
        try:
            yield
        finally:
            self._lock.release()

    def _acquire(self, seconds: float) -> bool:
        if not self._next.acquire(timeout=seconds):
            return False
        try:
            return self._lock.acquire(timeout=seconds)
        finally:
            self._next.release()
