"""A first event that lacks features: events wait until the others have brought values for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamclust._kernels.types import Bools, Floats
from streamclust.engine.event_rows import first_width, under_each_other

MAX_WAITING_EVENTS = 256
"""Number of events that wait at most; a feature that none of them has is then 0 in the first."""


def until_known(parts: Sequence[Floats]) -> tuple[int, bool]:
    """Number of events up to the one from which the gaps of the first can be filled, and whether it has come.

    >>> until_known([np.array([[np.nan, 1.0, np.nan], [np.nan, 2.0, 3.0], [4.0, np.nan, np.nan], [5.0, 6.0, 7.0]])])
    (3, True)
    """
    rows = under_each_other(parts)
    known = np.logical_or.accumulate(has_value(rows), axis=0).all(axis=1)
    if known.any():
        return int(known.argmax()) + 1, True
    return min(len(rows), MAX_WAITING_EVENTS), len(rows) >= MAX_WAITING_EVENTS


def first_completed(parts: Sequence[Floats]) -> Floats:
    """The first event, with the first values of others in its gaps; 0 where no event has one.

    Features after its last one are no gaps: they are new ones of later events.

    >>> first_completed([np.array([[np.nan, 1.0, np.nan], [4.0, 2.0, 3.0]]), np.array([[5.0, 1.0, 9.0]])])
    array([ 4.,  1., nan])
    """
    rows = under_each_other(parts)
    filled = rows[0].copy()
    gaps = np.flatnonzero(np.isnan(rows[0, : first_width(rows)]))
    column = rows[:, gaps]
    first = column[np.isnan(column).argmin(axis=0), np.arange(len(gaps))]
    filled[gaps] = np.nan_to_num(first)
    return np.asarray(filled)


def has_value(rows: Floats) -> Bools:
    """Which rows have a value for each gap of the first."""
    gaps = np.isnan(rows[0, : first_width(rows)])
    return np.asarray(~np.isnan(rows[:, : len(gaps)][:, gaps]))
