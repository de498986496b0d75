"""Visits: how long each cluster has stayed away before, by which a long absence is told from an end.

A source that comes in runs, or a shift that alternates with another, is away most of the time. Its cluster has died
only if it stays away longer than ever before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from streamclust._kernels.types import Floats, Ints

PATIENCE = 3
"""Multiple of its longest absence that a cluster must stay away to be gone; or number of visits, as long as its
longest, that its share lets expect meanwhile. Absences of random length exceed the former once or twice in the life of
a source, and the first ones at that."""
VISIT_SHARE = 0.1
"""A cluster is there if it has this part of its usual share of the events: less may be events of its neighbours."""


class Visit(NamedTuple):
    """Visits of one cluster, in event counts."""

    last: int
    """The latest event of it."""
    absence: int = 0
    """The most events between two of its events."""
    run: int = 0
    """The most events in a row that were all its own."""


class Visits(NamedTuple):
    """Records of all clusters by their ids; immutable.

    >>> visits = Visits().after(np.arange(100), np.repeat([0, 1], 50), {0: 0.5, 1: 0.5})
    >>> visits.records[0], visits.absence([0, 1], 300), visits.patience([0, 1], np.array([0.5, 0.5]))
    (Visit(last=49, absence=0, run=49), array([251, 201]), array([294., 294.]))
    """

    records: Mapping[int, Visit] = {}
    seen: int = 0
    """Number of the first event that was not looked at."""
    run_of: int = -1
    """The cluster of the latest event."""
    run_since: int = 0
    """Number of the first event of the run of its events that goes on."""

    def after(self, at: Ints, cluster: Ints, share: Mapping[int, float]) -> Visits:
        """With a sample of later events, in their order, by their numbers and clusters' ids; -1: outside all.

        `share` has the usual share of each cluster there is. Others are forgotten.
        """
        inside = cluster >= 0
        numbers, labels = at[inside], cluster[inside]
        names, place = np.unique(labels, return_inverse=True)
        first, last = (np.zeros(len(names), dtype=np.int64) for _ in range(2))
        first[place[::-1]], last[place] = numbers[::-1], numbers
        longest = np.zeros(len(names), dtype=np.int64)
        run_of, run_since = self.run_of, self.run_since
        if len(labels):
            starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
            since = numbers[starts]
            if labels[0] == run_of:
                since[0] = run_since
            ends = np.append(starts[1:] - 1, len(labels) - 1)
            np.maximum.at(longest, place[starts], numbers[ends] - since)
            run_of, run_since = int(labels[-1]), int(since[-1])
        count = np.bincount(place, minlength=len(names))
        found = {
            name: (n, Visit(end, run=most), begin)
            for name, n, begin, end, most in zip(
                *(part.tolist() for part in (names, count, first, last, longest)), strict=True
            )
        }
        records: dict[int, Visit] = {}
        for name, usual in share.items():
            before = self.records.get(name)
            n, record, begin = found.get(name, (0, Visit(int(at[0])), 0))
            if before is None:
                records[name] = record
            elif n and n >= VISIT_SHARE * usual * len(labels):
                away = max(begin - before.last, 0)
                records[name] = Visit(record.last, max(before.absence, away), max(before.run, record.run))
            else:
                records[name] = before
        return Visits(records, int(at[-1]) + 1, run_of, run_since)

    def returned(self, name: int, at: int) -> Visits:
        """With a visit of a cluster after an absence, noticed at this event count."""
        before = self.records.get(name, Visit(at))
        record = before._replace(last=at, absence=max(before.absence, at - before.last))
        return self._replace(records={**self.records, name: record})

    def absence(self, ids: Iterable[int], n_seen: int) -> Ints:
        """Events since the last visit of each cluster; 0 if nothing is known of it."""
        return np.array([n_seen - self.records.get(name, Visit(n_seen)).last for name in ids], dtype=np.int64)

    def patience(self, ids: Iterable[int], share: Floats) -> Floats:
        """Events that each cluster, of this share of the events, must stay away, at least, to be gone."""
        found = [self.records.get(name, Visit(0)) for name in ids]
        absence, run = (
            np.array(part, dtype=float) for part in zip(*((r.absence, r.run) for r in found), strict=True)
        )
        return np.asarray(PATIENCE * np.maximum(absence, run / share))

    def restarted(self, n_seen: int) -> Visits:
        """Where event numbers have changed: as if all clusters had just been seen, their longest absences kept."""
        records = {name: record._replace(last=n_seen) for name, record in self.records.items()}
        return Visits(records, n_seen)

    def to_list(self) -> list[Any]:
        """Convert to types of JSON."""
        return [[[name, *record] for name, record in self.records.items()], *self[1:]]

    @classmethod
    def from_list(cls, state: Iterable[Any]) -> Visits:
        """Read what `to_list` wrote."""
        records, *rest = state
        return cls({int(name): Visit(*map(int, record)) for name, *record in records}, *map(int, rest))


def shares(ids: Iterable[int], weight: Floats) -> dict[int, float]:
    """Each cluster's share of the weight."""
    return dict(zip(ids, (weight / weight.sum()).tolist(), strict=True))
