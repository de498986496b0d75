"""When things happen, by event count: never by clocks or calls."""

from __future__ import annotations

LOOK = 2048
"""Events between two looks at whether the stream still fits the model."""
SETTLED = 2 * LOOK
"""Before so many events refits come often enough to need no looks, and are too quick to run beside the stream."""
EARLY = 3
"""Until refits are `every` events apart, each comes at so many times the count of the one before."""
GROWTH = 0.5
"""A refit can find what the one before could not once there is so much more evidence."""
CHALLENGE = 64
"""A refit begins from nothing, too, where there is so many times the evidence of the last that did."""


def next_refit(n: int, evidence: float, warmup: int, every: int) -> int:
    """The event count of the refit after one at n, where `evidence` is the (decayed) weight of what was learnt.

    The first at `warmup`; then at three times the count each time, up to `every` events apart; and no sooner than
    the evidence can have grown by half. What changes before that, a look sees.
    """
    if n < warmup:
        return warmup
    return n + max(min((EARLY - 1) * n, every), int(GROWTH * evidence))


def lag(n: int, following: int) -> int:
    """How many events after n a refit takes effect, given the count of the one that follows: half the gap."""
    return 0 if n < SETTLED else (following - n) // 2


def next_look(n: int) -> int:
    """The event count of the look after n."""
    return max(SETTLED, (n // LOOK + 1) * LOOK)


def thorough(n: int) -> bool:
    """Whether the look at n goes over all watched events: every eighth does."""
    return n % (8 * LOOK) < LOOK


def challenged(evidence: float, last: float) -> bool:
    """Whether a refit is challenged by one from nothing: warm ones never leave their optimum, right or wrong."""
    return evidence >= CHALLENGE * last
