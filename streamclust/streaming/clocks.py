"""The time of each shard, and the detection of events with wrong times."""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from streamclust._kernels.types import Floats

MAX_STEP_HALF_LIVES = 4.0
"""Default limit on how far one event may advance the time; what was learnt then weighs a sixteenth."""
MAX_VOTES = 32
"""Number of events that always suffice to move a clock."""


class WrongTimeError(ValueError):
    """An event's time is so far ahead that accepting it would forget everything learnt."""


@dataclass
class Clock:
    """The latest time of a shard.

    A time more than `step` ahead of it is refused; one before it is late, and is learnt at what it weighs by now. Each
    time that is further away than a step, ahead or behind, is a vote against the clock, and each event in time takes
    one back. The clock moves once there are more votes than events that have agreed with it, MAX_VOTES at most: to
    their median. A step that was confirmed so is allowed from then on.

    >>> clock = Clock(step=10.0)
    >>> [clock.tell(t) for t in (0.0, 1.0, 2.0)]
    [0.0, 0.0, 0.0]
    >>> clock.tell(5000.0)
    Traceback (most recent call last):
        ...
    streamclust.streaming.clocks.WrongTimeError: time 5000 is 4998 ahead of the latest, 2, and one event may carry \
time forward by 10 (max_time_step): it would outweigh everything learnt before. Once 4 events agree, time has moved
    >>> clock.tell(3.0)
    0.0
    """

    step: float
    now: float | None = None
    agreed: int = 0
    """Number of events that agreed with the clock, at most MAX_VOTES."""
    ahead: list[float] = field(default_factory=list)
    """Refused times ahead of the clock that were not outvoted."""
    behind: list[float] = field(default_factory=list)
    """Times more than a step late that were not outvoted."""
    timed: bool | None = None
    """Whether events come with times; None before the first."""

    def tell(self, t: float | None, elsewhere: float = -np.inf) -> float:
        """Take the next event's time, or raise; returns by how much (negative) the clock was turned back before it.

        `elsewhere` is the latest time of all other shards: a shard may always catch up with them.
        """
        self.check_kind(t is not None)
        self.timed = t is not None
        if t is None:
            return 0.0
        latest = max(elsewhere, -np.inf if self.now is None else self.now)
        if t > latest + self.step and latest > -np.inf:
            self.ahead.append(t)
            if len(self.ahead) < self._votes_needed:
                raise self._refusal(t, latest)
            moved = self._middle(self.ahead)
            self.step = max(self.step, moved - latest)
            self._move(moved, len(self.ahead))
            return self.tell(t, elsewhere)
        if self.now is not None and t < self.now - self.step:
            self.behind.append(t)
            if len(self.behind) < self._votes_needed:
                return 0.0
            back = self._middle(self.behind) - self.now
            self._move(self.now + back, len(self.behind))
            return back
        self._agree(t, 1)
        return 0.0

    def all_in_time(self, times: Floats, elsewhere: float = -np.inf) -> bool:
        """Take the times of many events if none is too far ahead or behind; else nothing changes."""
        if not len(times):
            return True
        start = times[0] if self.now is None else self.now
        before = np.maximum.accumulate(np.append(start, times[:-1]))
        ahead = times > np.maximum(before, elsewhere) + self.step
        if self.timed is False or ahead.any() or (times < before - self.step).any():
            return False
        if self.now is None and times[0] > elsewhere + self.step > -np.inf:
            return False
        self.timed = True
        self._agree(float(times.max()), len(times))
        return True

    def check_kind(self, timed: bool) -> None:
        """Raise ValueError for an event with a time among events without, or the other way round."""
        if self.timed is not None and timed != self.timed:
            kind = "event times" if self.timed else "event counts"
            raise ValueError(f"this stream forgets by {kind}: give every event a time, or none")

    @property
    def _votes_needed(self) -> int:
        return min(self.agreed + 1, MAX_VOTES)

    @staticmethod
    def _middle(times: list[float]) -> float:
        return sorted(times)[(len(times) - 1) // 2]

    def _agree(self, t: float, n: int) -> None:
        self.now = t if self.now is None else max(self.now, t)
        self.agreed = min(self.agreed + n, MAX_VOTES)
        del self.ahead[:n], self.behind[:n]

    def _move(self, to: float, votes: int) -> None:
        self.now, self.agreed = to, votes
        self.ahead, self.behind = [], []

    def _refusal(self, t: float, latest: float) -> WrongTimeError:
        return WrongTimeError(
            f"time {t:.15g} is {t - latest:.6g} ahead of the latest, {latest:.15g}, and one event may carry time "
            f"forward by {self.step:.6g} (max_time_step): it would outweigh everything learnt before. Once "
            f"{self._votes_needed} events agree, time has moved"
        )


class Clocks(dict[Hashable, Clock]):
    """A clock for each shard, set by the shard's first event."""

    def __init__(self, half_life: float | None, max_step: float | None = None) -> None:
        super().__init__()
        self.forgets = half_life is not None
        self.step = MAX_STEP_HALF_LIVES * (half_life or 0.0) if max_step is None else max_step

    def __missing__(self, shard: Hashable) -> Clock:
        # A new shard has no say against what all the others have agreed on.
        self[shard] = Clock(self.step, agreed=max((clock.agreed for clock in self.values()), default=0))
        return self[shard]

    def copy(self) -> Clocks:
        """Clocks of the same times, to try events on."""
        twin = copy(self)
        twin.update({shard: replace(c, ahead=c.ahead[:], behind=c.behind[:]) for shard, c in self.items()})
        return twin

    def tell(self, shard: Hashable, t: float | None) -> float:
        """Take the time of a shard's next event, or raise; returns by how much the clock was turned back before it."""
        if t is not None and not self.forgets:
            raise ValueError("times are only used for forgetting: set half_life, or leave out the times")
        return self[shard].tell(t, self._elsewhere(shard)) if self.forgets else 0.0

    def all_in_time(self, shard: Hashable, times: Floats | None) -> bool:
        """Take the times of many events if none would be refused or turn the clock back; else nothing changes."""
        if not self.forgets:
            return times is None
        if times is None:
            clock = self[shard]
            if clock.timed:
                return False
            clock.timed = False
            return True
        return self[shard].all_in_time(times, self._elsewhere(shard))

    def _elsewhere(self, shard: Hashable) -> float:
        if len(self) < 2:
            return -np.inf
        others = (clock.now for key, clock in self.items() if key != shard)
        return max((now for now in others if now is not None), default=-np.inf)

    # ---------------------------------------------------------------- saving

    def to_list(self) -> list[dict[str, Any]]:
        """All clocks as JSON can hold them."""
        return [{"shard": shard, "clock": asdict(clock)} for shard, clock in self.items()]

    def update_from(self, kept: list[dict[str, Any]]) -> None:
        """Set the clocks that `to_list` gave."""
        for each in kept:
            shard = tuple(each["shard"]) if isinstance(each["shard"], list) else each["shard"]
            self[shard] = checked_clock(Clock(**each["clock"]))


def checked_clock(clock: Clock) -> Clock:
    """A clock that was saved; ValueError if it is none."""
    if not isinstance(clock.ahead, list) or not isinstance(clock.behind, list):
        raise ValueError(f"a clock needs lists of times, got {clock}")
    numbers = [
        clock.step,
        clock.agreed,
        *clock.ahead,
        *clock.behind,
        *([] if clock.now is None else [clock.now]),
    ]
    if not all(isinstance(n, (int, float)) and np.isfinite(n) for n in numbers) or clock.step <= 0:
        raise ValueError(f"a clock needs finite numbers and a positive step, got {clock}")
    if clock.timed not in (None, False, True):
        raise ValueError(f"timed of a clock must be true, false or null, got {clock.timed!r}")
    return clock
