"""Continuity: whether clusters are parts of the way of one source that wanders.

Events of two sources are as far apart when one follows the other as at any other time. A source that wanders passes
from one part of its way to the next in a small step, however few independent events its way is worth. So where steps
between two cells are much smaller than their distance, along the direction that tells them apart, these are one
cluster. Feature by feature, one of many would be large by chance, or the one that jumps would be outvoted.
"""

from __future__ import annotations

import numpy as np

from streamclust._kernels.engine.continuity import crossings
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.tuning import TUNING
from streamclust.utils.late import connected_components


def continuous_pairs(cell: Ints, points: Floats, n_cells: int) -> Bools:
    """Which pairs of cells a source passes between in small steps, given its events in their order.

    >>> way = np.cumsum(np.random.default_rng(0).normal(size=(400, 2)), axis=0)
    >>> cell = (np.arange(400) >= 200).astype(np.int64)
    >>> mixed = np.random.default_rng(0).permutation(way)
    >>> bool(continuous_pairs(cell, way, 2)[0, 1]), bool(continuous_pairs(cell, mixed, 2)[0, 1])
    (True, False)
    """
    inside = cell < n_cells
    mean, variance = np.zeros((2, n_cells, points.shape[1]))
    count = np.maximum(np.bincount(cell[inside], minlength=n_cells), 1)[:, None]
    np.add.at(mean, cell[inside], points[inside])
    mean /= count
    np.add.at(variance, cell[inside], (points[inside] - mean[cell[inside]]) ** 2)
    variance /= count
    apart, within = mean[:, None] - mean, variance[:, None] + variance
    usual = apart**2 + within
    direction = np.divide(apart, usual, out=np.zeros_like(usual), where=usual > 0)
    number, squares = crossings(cell, np.ascontiguousarray(points), direction)
    expected = (direction * apart).sum(axis=2) ** 2 + (direction**2 * within).sum(axis=2)
    return np.asarray((number > 0) & (squares < TUNING.major_share * number * expected))


def sources(sequences: list[tuple[Ints, Floats]], n_cells: int) -> Ints:
    """The source of each cell, numbered from 0: cells that are continuous in any of these sequences have one."""
    linked = np.zeros((n_cells, n_cells), dtype=bool)
    for cell, points in sequences:
        if len(points):
            linked |= continuous_pairs(cell, points, n_cells)
    return np.asarray(connected_components(linked, directed=False)[1], dtype=np.int64)
