"""Sequences of events within cells: how the means of blocks of them vary."""

import numpy as np

from streamclust._kernels.compile import kernel
from streamclust._kernels.types import Floats, Ints


@kernel
def block_bends(
    cell: Ints, whitened: Floats, n_cells: int, levels: int
) -> tuple[Floats, Floats, float, float]:
    """Second differences of the means of blocks of 1, 2, 4, ... events of one cell.

    Returns for each length Σ|m₁ - 2 m₂ + m₃|² / 6D over neighbouring blocks and their number, the variance of events
    within cells, and the number of events in the cell of an average event. The last block of a cell ends with its last
    event. Events in the cell `n_cells` are left out.
    """
    n, d = whitened.shape
    count = np.zeros(n_cells + 1, dtype=np.int64)
    for p in range(n):
        if cell[p] < n_cells:
            count[cell[p] + 1] += 1
    start = np.cumsum(count)
    rows = np.empty((start[n_cells], d))
    mean = np.zeros((n_cells, d))
    place = start[:n_cells].copy()
    for p in range(n):
        c = cell[p]
        if c < n_cells:
            for i in range(d):
                rows[place[c], i] = whitened[p, i]
                mean[c, i] += whitened[p, i] / count[c + 1]
            place[c] += 1
    bend, number = np.zeros(levels), np.zeros(levels)
    squares, free, own = 0.0, 0.0, 0.0
    for c in range(n_cells):
        first, last = start[c], start[c + 1]
        if last == first:
            continue
        free += last - first - 1
        own += (last - first) ** 2 / start[n_cells]
        for j in range(first, last):
            for i in range(d):
                squares += (rows[j, i] - mean[c, i]) ** 2
        for level in range(levels):
            size = last - first
            if size < 3:
                break
            for j in range(first + 1, last - 1):
                for i in range(d):
                    turn = rows[j - 1, i] - 2.0 * rows[j, i] + rows[j + 1, i]
                    bend[level] += turn * turn / (6.0 * d)
            number[level] += size - 2
            odd = first + size % 2  # the oldest has no partner
            for j in range(size // 2):
                for i in range(d):
                    rows[first + j, i] = 0.5 * (rows[odd + 2 * j, i] + rows[odd + 2 * j + 1, i])
            last = first + size // 2
    return bend, number, squares / max(free * d, 1.0), own
