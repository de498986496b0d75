"""Counters of the service, for logs, metrics and tests."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from streamclust_connectors.interfaces import Partition
from streamclust_connectors.service.latency import LatencyHistogram

RATE_SECONDS = 15.0
"""Seconds over which rates are averaged."""


STUCK_SECONDS = 10.0
"""Age of the loop's last iteration above which the service is not ready."""


@dataclass
class Stats:
    """Counters since the start of the process, and its current state. Written by the loop, read from any thread."""

    clock: Callable[[], float] = time.monotonic
    messages: int = 0
    """Records received."""
    events: int = 0
    """Events learnt."""
    dead_letters: int = 0
    refused: int = 0
    """Events sent by HTTP that could not be learnt."""
    tombstones: int = 0
    skipped: int = 0
    """Records received again after they had been learnt."""
    replayed: int = 0
    """Events learnt again after a restart, whose outputs were already sent."""
    assignments: int = 0
    lifecycle: int = 0
    snapshots: int = 0
    checkpoints: int = 0
    checkpoint_failures: int = 0
    """Checkpoints that could not be written."""
    commits: int = 0
    dropped: int = 0
    """Outputs that were too large to send."""
    retries: int = 0
    """Failures that were retried."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time spent in each stage of the loop: poll, decode, learn, assign, emit, commit, checkpoint, snapshot."""
    positions: dict[Partition, int] = field(default_factory=dict)
    waiting: dict[Partition, str] = field(default_factory=dict)
    """Assigned partitions that are not read yet, and why the last attempt to begin them failed."""
    stopped: dict[Partition, str] = field(default_factory=dict)
    """Assigned partitions that are not read, and why: their state or their records cannot be used."""
    lag: dict[Partition, int] = field(default_factory=dict)
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    """Time from the timestamps of records to their outputs."""
    trouble: str = "the service is starting"
    """Reason why it is not ready; empty if partitions are assigned and every one of them is read."""
    heartbeat: float = 0.0
    """Time of the last iteration of the loop, by `clock`."""
    last_checkpoint: float | None = None
    """Time at which a checkpoint last held everything learnt, by `clock`."""
    checkpoint_error: str = ""
    """Reason why the latest checkpoint failed; empty if it was written."""
    last_error: str = ""
    _history: deque[tuple[float, int]] = field(default_factory=deque, repr=False)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time spent in the block to a stage."""
        start = self.clock()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + self.clock() - start

    def beat(self) -> None:
        """Record an iteration of the loop."""
        self.heartbeat = now = self.clock()
        history = self._history
        if not history or now - history[-1][0] >= 1.0:
            history.append((now, self.events))
            while now - history[0][0] > RATE_SECONDS:
                history.popleft()

    @property
    def not_ready(self) -> str:
        """Reason why it is not ready, or empty. A loop that waits for long, for a broker perhaps, reads nothing."""
        if not self.trouble and self.heartbeat_age > STUCK_SECONDS:
            return f"the service has not read anything for {self.heartbeat_age:.0f} s: it waits for a broker, or learns"
        return self.trouble

    @property
    def ready(self) -> bool:
        """Whether partitions are assigned, and every one of them is read."""
        return not self.not_ready

    @property
    def heartbeat_age(self) -> float:
        """Seconds since the last iteration of the loop."""
        return self.clock() - self.heartbeat

    @property
    def checkpoint_age(self) -> float | None:
        """Seconds since a checkpoint held everything learnt; None before the first."""
        return None if self.last_checkpoint is None else self.clock() - self.last_checkpoint

    @property
    def rate(self) -> float:
        """Events learnt per second, over the last RATE_SECONDS."""
        history = list(self._history)
        if not history or self.clock() <= history[0][0]:
            return 0.0
        return (self.events - history[0][1]) / (self.clock() - history[0][0])
