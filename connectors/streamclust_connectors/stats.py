"""What the service counts, for whoever wants to know: a log line, a metrics page, a test."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from streamclust_connectors.ports import Partition

WINDOW = 15.0
"""Seconds over which rates are taken."""


@dataclass
class Stats:
    """Counters since the process began, and a few facts of now. Written by the loop, read by anyone."""

    clock: Callable[[], float] = time.monotonic
    messages: int = 0
    """Records that came, whatever was in them."""
    events: int = 0
    """Events learnt."""
    dead_letters: int = 0
    refused: int = 0
    """Events brought by request that could not be learnt."""
    tombstones: int = 0
    skipped: int = 0
    """Records that came again and had been learnt before."""
    replayed: int = 0
    """Events learnt again after a restart whose outputs were out already."""
    assignments: int = 0
    lifecycle: int = 0
    snapshots: int = 0
    checkpoints: int = 0
    commits: int = 0
    dropped: int = 0
    """Outputs that were too large to send."""
    retries: int = 0
    """Failures that passed, or are hoped to."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time spent in each stage of the loop: poll, decode, learn, assign, emit, commit, checkpoint, snapshot."""
    positions: dict[Partition, int] = field(default_factory=dict)
    lag: dict[Partition, int] = field(default_factory=dict)
    ready: bool = False
    """Whether partitions are assigned and their state is loaded."""
    heartbeat: float = 0.0
    """When the loop last turned, by `clock`."""
    last_checkpoint: float | None = None
    last_error: str = ""
    _history: deque[tuple[float, int]] = field(default_factory=deque, repr=False)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time that something takes to its stage."""
        start = self.clock()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + self.clock() - start

    def beat(self) -> None:
        """The loop turns."""
        self.heartbeat = now = self.clock()
        history = self._history
        if not history or now - history[-1][0] >= 1.0:
            history.append((now, self.events))
            while now - history[0][0] > WINDOW:
                history.popleft()

    @property
    def age(self) -> float:
        """Seconds since the loop last turned."""
        return self.clock() - self.heartbeat

    @property
    def rate(self) -> float:
        """Events learnt a second, over the last few seconds."""
        history = list(self._history)
        if not history or self.clock() <= history[0][0]:
            return 0.0
        return (self.events - history[0][1]) / (self.clock() - history[0][0])
