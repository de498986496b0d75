"""Schedule of looks, refits and publications, by event counts: never by clocks or calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from streamclust.engine.tuning import TUNING

NEVER = sys.maxsize
"""Event count of something that is not due."""
MAX_GAP_EVENTS = 2**52
"""Events between two refits, at most: a bound for event counts that fit into files."""


class RefitRequest(NamedTuple):
    """A refit that a look asks for."""

    lag: int
    """Events after which it is published."""
    search: bool = False
    """Whether it also searches from nothing."""


def first_refit(n_features: int) -> int:
    """The event count of the first refit, unless `warmup` says otherwise.

    >>> first_refit(1), first_refit(8), first_refit(1000)
    (20, 64, 100)
    """
    return min(max(TUNING.min_refit_events, int(TUNING.min_sample) * n_features), TUNING.max_first_events)


def quiet(n: int, n_clusters: int, ids_changed: bool) -> bool:
    """Whether clusters have come to rest: the last refit has changed none of several. Of one, few events say little."""
    return n >= TUNING.settled_events and n_clusters > 1 and not ids_changed


def next_refit(
    n: int, evidence: float, warmup: int, every: int, quiet: bool = False, full: bool = False
) -> int:
    """The event count of the refit after one at n, where `evidence` is the (decayed) weight of what was learnt.

    The first at `warmup`; then at twice the count each time (four times where clusters are `quiet`), up to `every`
    events apart; and no sooner than the evidence can have grown by half. Of quiet clusters whose summary's sample is
    `full` a refit sees little that the last did not: it comes at four times the evidence. Until then they learn at
    looks, and what changes, a look sees.

    >>> next_refit(80_000, 80_000.0, warmup=20, every=20_000, quiet=True)
    120000
    >>> next_refit(80_000, 80_000.0, warmup=20, every=20_000, quiet=True, full=True)
    320000
    """
    if n < warmup:
        return warmup
    growth = TUNING.quiet_growth if quiet else TUNING.clear_factor
    more = TUNING.quiet_growth - 1 if quiet and full else TUNING.major_share
    # heavy weights are much evidence, whose growth may be further away than any count of events
    return n + max(min((growth - 1) * n, every), int(min(more * evidence, MAX_GAP_EVENTS)))


def next_transform(n: int, due: int) -> int:
    """Event count of the next decision about transforms after n, at four times that of the last; or never.

    >>> next_transform(100, 128), next_transform(600, 128), next_transform(2048, 2048) == NEVER
    (128, 2048, True)
    """
    while due <= n:
        due *= 4
    return due if due <= TUNING.window_events else NEVER


def lag(n: int, following: int) -> int:
    """Events until a refit that starts at n is published: half of those until the following refit, or n/2."""
    return 0 if n < TUNING.settled_events else min(following - n, n) // 2


def lag_of_change(n: int, span: int) -> int:
    """Events until a refit is published that starts at n because the stream has changed, `span` events ago."""
    return (
        0
        if n < TUNING.settled_events
        else min(n // 8, TUNING.look_events, max(TUNING.look_sample_events, span // 2))
    )


def next_gap(n: int, gap: int, span: int | None) -> int:
    """Events from the look at n, `gap` after the last, to the next: few after a change, many when quiet.

    >>> next_gap(100_000, 256, span=None), next_gap(100_000, 2048, span=None), next_gap(100_000, 2048, span=4096)
    (512, 2048, 1024)
    """
    if span is not None:
        return min(max(span // 4, TUNING.look_sample_events), TUNING.look_events)
    return min(2 * gap, TUNING.look_events // 2 if n < TUNING.settled_events else TUNING.look_events)


def next_feature_search(n: int, gap: int) -> tuple[int, int] | None:
    """Event count and gap of the next search for clusters that new features tell apart, `gap` events after the last.

    None if it is left to the refits that come anyway: early, or once events with the features are a fair share.

    >>> next_feature_search(50_000, 0), next_feature_search(51_024, 1024), next_feature_search(55_120, 4096)
    ((51024, 1024), (55120, 4096), None)
    """
    gap = max(TUNING.quiet_growth * gap, TUNING.min_search_events)
    return (n + gap, gap) if gap * TUNING.settled_events <= n * TUNING.min_search_events else None


def thorough(n: int, gap: int) -> bool:
    """Whether the look at n, `gap` events after the last, reads all watched events: one in eight does."""
    return n % (8 * TUNING.look_events) < gap


def wait_after_change(span: int, fits: bool) -> int:
    """Events from a change, seen in `span` events, to its refit: more if clusters that have moved still fit."""
    return 4 * span if span > TUNING.look_events and fits else span


def challenged(evidence: float, last: float, quiet: bool = False, settled: bool = False) -> bool:
    """Whether a refit is challenged by one from nothing: warm ones never leave their optimum, right or wrong.

    A challenger that lost is no reason to wait longer for the next: few events often confirm too few clusters. It is
    where clusters are `quiet`, and more so where they are `settled`: the summary's sample is full, so that the next
    would see no more events than it did.
    """
    growth = (
        TUNING.clear_factor * TUNING.quiet_growth
        if settled
        else TUNING.quiet_growth
        if quiet
        else TUNING.clear_factor
    )
    return evidence >= growth * last


def runs(n: int, until_due: Callable[[int], int]) -> Iterator[slice]:
    """Slices of the next n events, each up to the event at which something is due; learn one before the next.

    `until_due` is called with the number of events learnt.

    >>> due = iter([3, 10])
    >>> list(runs(5, lambda done: next(due)))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    done = 0
    while done < n:
        end = min(n, done + max(1, until_due(done)))
        yield slice(done, end)
        done = end
