"""A fair lock: a waiting thread gets it next, even if the releasing thread asks for it again at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class LockTimeout(Exception):  # noqa: N818
    """The lock could not be acquired in time."""


class FairLock:
    """A lock that a busy loop cannot keep from other threads.

    A loop that releases a plain lock acquires it again before a waiting thread wakes up.

    >>> lock = FairLock()
    >>> with lock:
    ...     pass
    >>> with lock, lock.within(0.01):
    ...     pass
    Traceback (most recent call last):
        ...
    streamclust_connectors.service.fair_lock.LockTimeout: the service loop was busy for more than 0.01 s; try again
    """

    def __init__(self) -> None:
        self._next = threading.Lock()  # held by the thread that waits for _lock
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._next:
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Acquire the lock; raise LockTimeout if that takes longer than `seconds`."""
        if not self._acquire(seconds):
            raise LockTimeout(f"the service loop was busy for more than {seconds:g} s; try again")
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
