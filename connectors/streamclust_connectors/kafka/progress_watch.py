"""Watches beside a consumer whether it delivers the records that the brokers have.

A client that has lost track of the brokers delivers nothing, and says nothing. So a second client asks for the end of
each partition: a partition that has records and does not deliver them is unread, and a consumer that does not deliver
for long, though brokers answer, is replaced.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from streamclust_connectors.interfaces import Partition, Transient

WATCH_SECONDS = 5.0
"""Time between two questions for the ends of partitions."""
ASK_SECONDS = 3.0
"""Time limit of a question."""
UNREAD_SECONDS = 10.0
"""Time without any delivered record after which a partition that has some is reported as unread."""
STALLED_SECONDS = 30.0
"""Time after which a consumer that delivers nothing of such a partition is replaced."""


class Asked(NamedTuple):
    """An answer of a broker: the end offset of a partition, and when it came."""

    end: int
    at: float


class EndInquiries(Protocol):
    """A client that asks for the ends of partitions; may raise any error."""

    def end(self, partition: Partition, seconds: float) -> int:
        """End offset of a partition."""

    def close(self) -> None:
        """Close the client."""


class ProgressWatch:
    """Ends of partitions, asked for in a thread; and which of them the consumer does not deliver."""

    def __init__(self, inquiries: EndInquiries, clock: Callable[[], float] = time.monotonic) -> None:
        self.inquiries, self._clock = inquiries, clock
        self.asked: dict[Partition, Asked] = {}
        self._failures: dict[Partition, tuple[float, str]] = {}
        """Since when there was no answer about a partition, and why."""
        self._positions: dict[Partition, int] = {}
        """Next offset to deliver of each partition."""
        self._behind: dict[Partition, tuple[int, float]] = {}
        """Next offset to deliver of partitions that have more records, and since when it is that."""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def update(self, positions: Mapping[Partition, int]) -> None:
        """Tell the next offset to deliver of each partition that should be delivered; called at each poll."""
        self._positions = dict(positions)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="streamclust-watch", daemon=True)
            self._thread.start()

    def reset(self) -> None:
        """Begin anew: the consumer was replaced."""
        self._positions, self._behind, self._failures = {}, {}, {}

    def end(self, partition: Partition) -> int | None:
        """The end of a partition as last asked for."""
        asked = self.asked.get(partition)
        return None if asked is None else asked.end

    def unread(self, seconds: float = UNREAD_SECONDS) -> dict[Partition, str]:
        """Partitions that have delivered nothing for so long though they have records, or whose broker is silent."""
        now, found = self._clock(), {}
        for name, at in dict(self._positions).items():
            failure, (stuck_at, since) = self._failures.get(name), self._behind.get(name, (-1, now))
            if failure is not None and now - failure[0] > seconds:
                found[name] = f"its brokers have not answered for {now - failure[0]:.0f} s ({failure[1]})"
            elif stuck_at == at and now - since > seconds:
                behind = self.asked[name].end - at
                found[name] = f"it has delivered nothing for {now - since:.0f} s, {behind} records behind"
        return found

    @property
    def stalled(self) -> dict[Partition, str]:
        """Partitions of which a consumer has delivered nothing for long, though brokers answer for them."""
        return {name: why for name, why in self.unread(STALLED_SECONDS).items() if name not in self._failures}

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        while not self._closed.wait(WATCH_SECONDS):
            self.ask()
        self.inquiries.close()

    def ask(self) -> None:
        """Ask for the end of each partition."""
        for name in list(self._positions):
            if not self._closed.is_set():
                self._ask(name)

    def _ask(self, name: Partition) -> None:
        asked = self.asked.get(name)
        began = self._clock()
        try:
            end = self.inquiries.end(name, ASK_SECONDS)
        except Exception as error:  # of any kind: this thread must go on
            reason = str(error) if isinstance(error, Transient) else f"{type(error).__name__}: {error}"
            self._failures.setdefault(name, (began if asked is None else asked.at, reason))
            return
        now = self._clock()
        self.asked[name] = Asked(end, now)
        self._failures.pop(name, None)
        self._note(name, end, now)

    def _note(self, name: Partition, end: int, now: float) -> None:
        """Note whether a partition has records that were not delivered, and since when it stands still."""
        at = self._positions.get(name)
        if at is None or end <= at:
            self._behind.pop(name, None)
        elif self._behind.get(name, (-1, 0.0))[0] != at:
            self._behind[name] = at, now

    def close(self) -> None:
        """End the thread; it closes its client."""
        self._closed.set()
