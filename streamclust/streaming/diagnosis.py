"""Diagnosis: what in the data or the result looks wrong, each with advice."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, overload

import numpy as np

from streamclust._kernels.types import Floats

Trouble = Literal[
    "one cluster", "many clusters", "constant", "id", "skew", "copy", "missing", "dependence", "refused"
]

MIN_EVENTS = 200
"""Number of events from which data are judged."""
MAX_SHARE = 0.95
"""Share of the events from which a cluster holds almost all of them."""
MIN_EVENTS_PER_CLUSTER = 20.0
"""Independent events for each cluster, on average, below which there are too many clusters."""
MIN_SKEWNESS = 3.0
"""Skewness from which a feature is told, if its logarithm has less than a third of it. An exponential has 2."""
MIN_CORRELATION = 0.9999
"""Correlation from which two features say the same."""
MAX_MISSING = 0.5
"""Part of the events that may lack a feature."""
MIN_WORTH = 0.2
"""Independent events that one event is worth below which dependence is told."""
MAX_REFUSED = 0.01
"""Part of the events that may be refused."""
MAX_NAMED = 5
"""Features named in a sentence."""


class DataHint(UserWarning):
    """Something in the data looks wrong; `model.diagnose()` lists all of it."""


class Inspected(NamedTuple):
    """Figures of a stream, and some of its recent events."""

    family: str
    names: tuple[Hashable, ...]
    rows: Floats
    """Recent events in the order in which they came, NaN for missing values."""
    share: Floats
    """Of each cluster."""
    n_seen: int
    effective: float
    """Number of independent events that they are worth."""
    n_refused: int
    last_refusal: str
    n_shards: int
    categories: frozenset[int] = frozenset()
    """Columns that are values of categories."""
    transformed: frozenset[int] = frozenset()
    """Columns that are compared by their logarithm already."""


@dataclass(frozen=True)
class Finding:
    """Something that looks wrong, and what to do."""

    kind: Trouble
    words: str
    advice: str
    features: tuple[Hashable, ...] = ()

    def __str__(self) -> str:
        return f"{self.words}. {self.advice}"


class Diagnosis(Sequence[Finding]):
    """All findings, each a line when printed.

    >>> print(Diagnosis([]))
    nothing looks wrong
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._findings = tuple(findings)

    @overload
    def __getitem__(self, place: int) -> Finding: ...
    @overload
    def __getitem__(self, place: slice) -> Diagnosis: ...
    def __getitem__(self, place: int | slice) -> Finding | Diagnosis:
        return Diagnosis(self._findings[place]) if isinstance(place, slice) else self._findings[place]

    def __len__(self) -> int:
        return len(self._findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self._findings)) or "nothing looks wrong"

    __repr__ = __str__


def diagnose(seen: Inspected) -> Diagnosis:
    """Everything that looks wrong; nothing before there are enough events."""
    if seen.n_seen < MIN_EVENTS:
        return Diagnosis([])
    checks: list[Callable[[Inspected], Finding | None]] = [one_cluster, many_clusters]
    if seen.family not in ("multinomial", "bernoulli", "poisson") and len(seen.rows) >= MIN_EVENTS:
        checks += [constant, ids, skew, copies]
    checks += [missing, dependence, refused]
    return Diagnosis(found for check in checks if (found := check(seen)) is not None)


def listed(names: Sequence[Hashable]) -> str:
    """Some names as text.

    >>> listed(["x"]), listed(list("abcdefg"))
    ('x', 'a, b, c, d, e and 2 more')
    """
    more = len(names) - MAX_NAMED
    return ", ".join(map(str, names[:MAX_NAMED])) + (f" and {more} more" if more > 0 else "")


def worth(seen: Inspected) -> str:
    """Number of independent events, at least one."""
    return f"{max(1.0, seen.effective):,.0f}"


# -------------------------------------------------------------------- clusters


def one_cluster(seen: Inspected) -> Finding | None:
    """One cluster of almost everything."""
    if not len(seen.share) or seen.share.max() < MAX_SHARE:
        return None
    return Finding(
        "one cluster",
        f"one cluster holds {seen.share.max():.0%} of the events",
        "If you expect more, look at finer levels (`model.levels`, detail='fine'), leave out features that do not tell "
        "groups apart, or use shape='any' for crescents and rings; data without groups are one cluster",
    )


def many_clusters(seen: Inspected) -> Finding | None:
    """Hardly more events than clusters."""
    k = len(seen.share)
    if k < 3 or seen.effective >= MIN_EVENTS_PER_CLUSTER * k:
        return None
    return Finding(
        "many clusters",
        f"there are {k} clusters of {seen.n_seen:,} events, which are worth {worth(seen)} independent ones",
        "Ask for fewer (detail='coarse', or n_clusters=(1, 10)), and leave out ids and times",
    )


# -------------------------------------------------------------------- features


def _told(seen: Inspected, of: Iterable[int]) -> tuple[Hashable, ...]:
    return tuple(seen.names[j] for j in of)


def numbers(seen: Inspected) -> list[int]:
    """Columns that are no categories."""
    return [j for j in range(min(seen.rows.shape[1], len(seen.names))) if j not in seen.categories]


def columns(seen: Inspected) -> Iterator[tuple[int, Floats]]:
    """Features with enough values, and those; no categories."""
    for j in numbers(seen):
        values = seen.rows[:, j]
        known = values[~np.isnan(values)]
        if len(known) >= MIN_EVENTS:
            yield j, known


def constant(seen: Inspected) -> Finding | None:
    """Features that have one value."""
    names = _told(seen, [j for j, values in columns(seen) if np.ptp(values) == 0.0])
    if not names:
        return None
    return Finding(
        "constant",
        f"the same value in all recent events: {listed(names)}",
        "Leave it out: it tells nothing",
        names,
    )


def ids(seen: Inspected) -> Finding | None:
    """Features that number the events, or never repeat a whole number."""
    names = _told(seen, [j for j, values in columns(seen) if looks_like_id(values, seen.n_shards == 1)])
    if not names:
        return None
    return Finding(
        "id",
        f"never repeated, like an id or a time: {listed(names)}",
        "Leave it out: clusters would be told by when they came",
        names,
    )


def looks_like_id(values: Floats, in_order: bool) -> bool:
    """Whether values only ever grow (if they are in order), or are whole numbers of which none comes twice.

    >>> rng = np.random.default_rng(0)
    >>> looks_like_id(np.arange(500.0), True), looks_like_id(rng.integers(10**9, size=500) + 0.0, True)
    (True, True)
    >>> looks_like_id(rng.normal(size=500), True), looks_like_id(rng.integers(99, size=500) + 0.0, True)
    (False, False)
    """
    if in_order and (np.diff(values) > 0).all():
        return True
    return bool((values == np.round(values)).all()) and len(np.unique(values)) == len(values)


def skew(seen: Inspected) -> Finding | None:
    """Features whose logarithm is nearly symmetric, and they themselves are not."""
    skewed = [j for j, values in columns(seen) if j not in seen.transformed and wants_logarithm(values)]
    names = _told(seen, skewed)
    if not names:
        return None
    return Finding(
        "skew",
        f"many small values and a long tail of large ones: {listed(names)}",
        'Compare them by their logarithm (`transforms={name: "log"}`): a tail is split into clusters that mean nothing',
        names,
    )


def wants_logarithm(values: Floats) -> bool:
    """Whether the logarithm takes away most of the skewness.

    >>> rng = np.random.default_rng(0)
    >>> wants_logarithm(rng.lognormal(sigma=1.5, size=2000)), wants_logarithm(rng.normal(50.0, size=2000))
    (True, False)
    >>> wants_logarithm(np.append(rng.normal(50.0, size=2000), np.full(40, 500.0)))
    False
    """
    if values.min() < 0.0:
        return False
    own = skewness(values)
    least = values[values > 0].min() if (values > 0).any() else 1.0
    return own >= MIN_SKEWNESS and abs(skewness(np.log(np.maximum(values, least)))) < own / 3


def skewness(values: Floats) -> float:
    """Third standardised moment; 0 for a constant."""
    gap = (values - values.mean()) / max(float(np.ptp(values)), 1e-300)  # of any size
    spread = float(gap.std())
    return 0.0 if spread == 0.0 else float((gap**3).mean() / spread**3)


def copies(seen: Inspected) -> Finding | None:
    """Features that are another one, scaled and shifted."""
    of = numbers(seen)
    rows = seen.rows[:, of]
    rows = rows[~np.isnan(rows).any(axis=1)]
    if len(rows) < MIN_EVENTS:
        return None
    gap = rows - rows.mean(axis=0)
    size = np.abs(gap).max(axis=0)
    gap = gap / np.where(size > 0, size, 1.0)
    norm = np.sqrt(np.square(gap).sum(axis=0))
    gap = gap / np.where(norm > 0, norm, 1.0)
    alike = np.abs(gap.T @ gap) >= MIN_CORRELATION
    names = _told(seen, np.array(of)[np.triu(alike, 1).any(axis=0)].tolist())
    if not names:
        return None
    return Finding(
        "copy",
        f"the same as another feature but for scale: {listed(names)}",
        "Leave it out: what it measures would count twice",
        names,
    )


# -------------------------------------------------------------------- events


def missing(seen: Inspected) -> Finding | None:
    """Features that most events lack."""
    part = np.isnan(seen.rows).mean(axis=0) if len(seen.rows) else np.zeros(0)
    names = _told(seen, np.flatnonzero(part[: len(seen.names)] > MAX_MISSING).tolist())
    if not names:
        return None
    return Finding(
        "missing",
        f"missing in more than half of the recent events: {listed(names)}",
        "Leave it out, or use missing='zero' if a missing value means 0",
        names,
    )


def dependence(seen: Inspected) -> Finding | None:
    """Events that repeat what others said."""
    if seen.effective >= MIN_WORTH * seen.n_seen:
        return None
    return Finding(
        "dependence",
        f"{seen.n_seen:,} events are worth {worth(seen)} independent ones: they repeat, or follow each other slowly",
        "Clusters are decided by the smaller number; remove duplicates, or learn every tenth event",
    )


def refused(seen: Inspected) -> Finding | None:
    """Events that could not be learnt."""
    total = seen.n_seen + seen.n_refused
    if seen.n_refused <= MAX_REFUSED * total:
        return None
    return Finding(
        "refused",
        f"{seen.n_refused:,} of {total:,} events were refused; the latest: {seen.last_refusal}",
        "Mend them where they come from, or pass invalid='raise' to see the first",
    )
