"""Finds where to begin assigned partitions, beside the loop: it goes on polling while brokers do not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import NamedTuple

from streamclust.checkpoint import State
from streamclust_connectors.interfaces import Extent, Partition, SavedPosition, Transient

RETRY_SECONDS = 1.0
"""Time from a failed lookup to the next of the same partition."""


class FoundState(NamedTuple):
    """Everything needed to begin a partition."""

    saved: tuple[SavedPosition, State] | None
    """Position and summary saved by another process."""
    extent: Extent
    committed: int | None
    """Offset committed with the outputs, if they are sent in transactions."""


class Lookups:
    """Looks up partitions: at once or, if `background`, in threads, one lookup at a time.

    >>> lookups = Lookups(lambda partition: FoundState(None, Extent(0, 5), None))
    >>> lookups.result(("events", 0)).extent.end
    5
    """

    def __init__(self, look_up: Callable[[Partition], FoundState], background: bool = False) -> None:
        self._look_up, self.background = look_up, background
        self._futures: dict[Partition, Future[FoundState]] = {}
        self._turn, self._closed = threading.Lock(), threading.Event()

    def result(self, partition: Partition) -> FoundState | None:
        """The result of a lookup, which this starts if necessary; None while it is under way. May raise its error."""
        if not self.background:
            return self._look_up(partition)
        future = self._futures.get(partition)
        if future is None:
            future = self._futures[partition] = Future()
            threading.Thread(target=self._run, args=(partition, future), daemon=True).start()
        if not future.done():
            return None
        del self._futures[partition]
        return future.result()

    def _run(self, partition: Partition, future: Future[FoundState]) -> None:
        with self._turn:
            if self._closed.is_set() or self._futures.get(partition) is not future:
                return
            try:
                future.set_result(self._look_up(partition))
                return
            except Transient as error:
                failure: BaseException = error
            except BaseException as error:  # raised in the loop
                future.set_exception(error)
                return
        self._closed.wait(RETRY_SECONDS)
        future.set_exception(failure)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Drop lookups under way, and their results."""
        for partition in partitions:
            self._futures.pop(partition, None)

    def close(self) -> None:
        """Start no more lookups."""
        self._closed.set()
        self._futures.clear()
