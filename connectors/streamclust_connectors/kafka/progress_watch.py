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
        self._failures: dict[Partition, str] = {}
        """Why the last question about a partition failed."""
        self._positions: dict[Partition, int] = {}
        """Next offset to deliver of each partition."""
        self._moved: dict[Partition, float] = {}
        """When the next offset of each partition last changed."""
        self._behind: dict[Partition, tuple[int, float]] = {}
        """Next offset to deliver of partitions that have more records, and since when it is that."""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def update(self, positions: Mapping[Partition, int]) -> None:
        """Tell the next offset to deliver of each partition that should be delivered; called at each poll."""
        now, before = self._clock(), self._positions
        self._moved = {
            name: self._moved[name] if before.get(name) == at else now for name, at in positions.items()
        }
        self._positions = dict(positions)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="streamclust-watch", daemon=True)
            self._thread.start()

    def reset(self) -> None:
        """Begin anew: the consumer was replaced."""
        self._positions, self._moved, self._behind, self._failures = {}, {}, {}, {}

    def end(self, partition: Partition) -> int | None:
        """The end of a partition as last asked for."""
        asked = self.asked.get(partition)
        return None if asked is None else asked.end

    def unread(self) -> dict[Partition, str]:
        """Partitions that have delivered nothing for long though they have records, or whose brokers are silent."""
        return self._silent() | self._standing(UNREAD_SECONDS)

    @property
    def stalled(self) -> dict[Partition, str]:
        """Partitions of which a consumer has delivered nothing for longer, though brokers answer for them."""
        silent = self._silent()
        return {name: why for name, why in self._standing(STALLED_SECONDS).items() if name not in silent}

    def _silent(self) -> dict[Partition, str]:
        """Partitions that have neither delivered records nor had an answer about their end for UNREAD_SECONDS."""
        now, found = self._clock(), {}
        for name, moved in dict(self._moved).items():
            asked = self.asked.get(name)
            seconds = now - max(moved, -1.0 if asked is None else asked.at)
            if seconds > UNREAD_SECONDS:
                why = f" ({reason})" if (reason := self._failures.get(name)) else ""
                found[name] = f"its brokers have not answered for {seconds:.0f} s{why}"
        return found

    def _standing(self, seconds: float) -> dict[Partition, str]:
        """Partitions that have had undelivered records for so long, without delivering any."""
        now, found = self._clock(), {}
        for name, at in dict(self._positions).items():
            stuck_at, since = self._behind.get(name, (-1, now))
            if stuck_at == at and now - since > seconds:
                behind = self.asked[name].end - at
                found[name] = f"it has delivered nothing for {now - since:.0f} s, {behind} records behind"
        return found

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
        try:
            end = self.inquiries.end(name, ASK_SECONDS)
        except Exception as error:  # of any kind: this thread must go on
            self._failures[name] = (
                str(error) if isinstance(error, Transient) else f"{type(error).__name__}: {error}"
            )
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
