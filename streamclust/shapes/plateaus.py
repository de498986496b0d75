"""The grid of plateaus that a fit starts from."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from streamclust._kernels.shapes.line import BINS, MARGIN, SPAN
from streamclust._kernels.types import Floats
from streamclust.utils.late import log_ndtr, logsumexp

PLACES = (-0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Where a plateau rises, in units of the inner range of the events; it falls at 1 less the same."""
SLOPES = (0.02, 0.05, 0.1, 0.2, 0.3)
"""Deviations of the normal distribution that it rises and falls by."""
TILTS = (-2.0, -1.0, 0.0, 1.0, 2.0)
"""Growth of its logarithm."""


class PlateauGrid(NamedTuple):
    """Rises (R, BINS) with their places and slopes, tilts (T,), and the log totals of all curves (R, R T)."""

    places: Floats
    slopes: Floats
    rises: Floats
    tilts: Floats
    log_totals: Floats


@cache
def plateau_grid() -> PlateauGrid:
    """The grid, worked out once."""
    places, slopes = (part.ravel() for part in np.meshgrid(PLACES, SLOPES, indexing="ij"))
    y = (np.arange(BINS) + 0.5) * SPAN / BINS - MARGIN
    rises = log_ndtr((y - places[:, None]) / slopes[:, None])
    tilts = np.array(TILTS)
    both = rises[:, None] + rises[None, :, ::-1]
    totals = np.stack([logsumexp(both + tilt * y, axis=2) for tilt in TILTS], axis=2)
    return PlateauGrid(places, slopes, rises, tilts, totals.reshape(len(places), -1))
