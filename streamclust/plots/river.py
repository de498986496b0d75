"""The river chart of a lineage: each cluster's share of the stream over time, as arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.lineage import Change, Lineage

OTHERS = -1
"""Id of the band of all clusters without a band of their own."""
MAX_BANDS = 64
"""Number of clusters with a band: those with the largest maximal share."""
SMOOTHING_SHARE = 0.02
"""Width of the smoothing window as a part of the stream: a single step has only some hundred events."""


class River(NamedTuple):
    """Bands of shares along a stream.

    at      (columns,)  event counts, from left to right; two columns at the same count are before and after a change
    ids     (bands,)    from the bottom to the top; a band lies beside the one it split from or merges into
    share   (bands, columns)  of the events then; a column sums to 1
    """

    at: Ints
    ids: Ints
    share: Floats

    @property
    def above(self) -> Floats:
        """The upper edge of each band, bands x columns, where they lie upon each other."""
        return np.asarray(np.cumsum(self.share, axis=0))

    @property
    def below(self) -> Floats:
        """The lower edge of each band."""
        return self.above - self.share

    @property
    def middle(self) -> Floats:
        """The middle of each band."""
        return self.above - self.share / 2


def river(lineage: Lineage) -> River:
    """The bands of a lineage's clusters, from its history and its log.

    >>> lineage = Lineage()
    >>> _ = lineage.born(1, 0, 1.0)
    >>> lineage.history.add(100, {0: 100.0})
    >>> _ = lineage.born(150, 1, 50.0)
    >>> lineage.history.add(200, {0: 50.0, 1: 50.0})
    >>> bands = river(lineage)
    >>> bands.at.tolist(), bands.share[1].tolist()
    ([1, 100, 150, 150, 200], [0.0, 0.0, 0.0, 0.5, 0.5])
    """
    steps = list(lineage.history)
    if not steps:
        raise ValueError("there is nothing to draw: the history is empty; learn some events first")
    changes = sorted(lineage, key=lambda change: change.at)
    ids = order(changes, prominent(lineage))
    changes = [c for c in changes if not (c.parents.keys() | c.children.keys()).isdisjoint(ids)]
    ends, total = np.array([step.at for step in steps]), np.array([step.total for step in steps])
    weight = np.array([[step.weight.get(i, 0.0) for step in steps] for i in ids]).reshape(len(ids), -1)
    rest = np.maximum(total - weight.sum(axis=0), 0.0)
    if (rest > 1e-9 * total).any():
        ids, weight = [*ids, OTHERS], np.vstack([weight, rest])
    at, after = columns(ends, np.unique(np.array([c.at for c in changes], dtype=np.int64)))
    share = np.array([band(i, changes, ends, w, total, at, after) for i, w in zip(ids, weight, strict=True)])
    alive = ~np.isnan(share)
    share = np.nan_to_num(share)
    unseen = share.sum(axis=0) == 0  # alive clusters that had no event
    share[:, unseen] = alive[:, unseen]
    return River(at, np.array(ids), share / np.maximum(share.sum(axis=0), 1e-300))


def prominent(lineage: Lineage) -> set[int]:
    """The ids that have bands: of those known the ones whose share was the largest at some time."""
    peak = {i: 0.0 for change in lineage for i in (*change.parents, *change.children)}
    for step in lineage.history:
        for i, share in step.shares.items():
            peak[i] = max(peak.get(i, 0.0), share)
    return set(sorted(peak, key=lambda i: (-peak[i], i))[:MAX_BANDS])


def order(changes: list[Change], ids: set[int]) -> list[int]:
    """The order of the bands: a child above its parent, one that will merge above its heir, any other on top."""
    heir = {i: next(iter(c.children)) for c in changes if c.kind == "merged" for i in leaving(c)}
    placed = sorted(ids - {i for change in changes for i in entering(change)})
    for change in changes:
        for i in sorted(entering(change) & ids - set(placed)):  # one that returns has its band
            beside = next(iter(change.parents), heir.get(i))
            placed.insert(placed.index(beside) + 1 if beside in placed else len(placed), i)
    return placed


def entering(change: Change) -> set[int]:
    """The ids that a change brings."""
    return change.children.keys() - change.parents.keys()


def leaving(change: Change) -> set[int]:
    """The ids that a change ends."""
    return change.parents.keys() - change.children.keys()


def columns(ends: Ints, moments: Ints) -> tuple[Ints, Bools]:
    """Where a river is measured: at the ends of steps, and before and after every change but the first."""
    afters = np.union1d(ends, moments)
    before = moments[moments > afters[0]]
    at = np.concatenate([before, afters])
    after = np.repeat([False, True], [len(before), len(afters)])
    sequence = np.lexsort([after, at])
    return at[sequence], after[sequence]


def band(
    cluster: int, changes: list[Change], ends: Ints, weight: Floats, total: Floats, at: Ints, after: Bools
) -> Floats:
    """A cluster's share at each column, smoothed between the changes it had a part in; NaN while it is not alive."""
    own = [c for c in changes if cluster in c.parents or cluster in c.children]
    turns = np.array([c.at for c in own], dtype=np.int64)
    living = [not own or cluster not in entering(own[0]), *(cluster not in leaving(c) for c in own)]
    epoch = np.where(after, np.searchsorted(turns, at, "right"), np.searchsorted(turns, at, "left"))
    of_step = np.searchsorted(turns, ends, "right")
    found = np.full(len(at), np.nan)
    reach = SMOOTHING_SHARE * int(ends[-1])
    for e in np.unique(epoch):
        if not living[e]:
            continue
        here, inside = epoch == e, np.flatnonzero(of_step == e)
        if not len(inside):  # too short-lived for a step: what the nearest says
            inside = np.array([np.abs(ends - at[here][-1]).argmin()])
        low = np.minimum(np.searchsorted(ends[inside], at[here] - reach), len(inside) - 1)
        high = np.maximum(np.searchsorted(ends[inside], at[here] + reach, "right"), low + 1)
        counted, all_counted = (np.append(0.0, np.cumsum(part[inside])) for part in (weight, total))
        found[here] = (counted[high] - counted[low]) / (all_counted[high] - all_counted[low])
    return found
