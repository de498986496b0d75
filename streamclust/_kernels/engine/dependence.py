"""Sequences of events within cells: how the means of blocks of them vary."""

import numpy as np

from streamclust._kernels.compile import kernel
from streamclust._kernels.types import Floats, Ints

MIN_CELL_BENDS = 5
"""Second differences of a cell's blocks from which it is judged: of fewer, one jump could be most."""


@kernel
def block_bends(
    cell: Ints, whitened: Floats, n_cells: int, levels: int
) -> tuple[Floats, Floats, float, float]:
    """Second differences of the means of blocks of 1, 2, 4, ... events of one cell.

    Returns for each length the sum of |m₁ - 2 m₂ + m₃|² / 6D over neighbouring blocks and their number, the variance of
    events within cells, and the number of events in the cell of an average event. Beyond single events the sum of a
    cell is estimated from its median, as that of a χ² variate of D degrees of freedom [Wilson and Hilferty]: so a jump
    counts for nothing. The last block of a cell ends with its last event. Events in the cell `n_cells` are left out.
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
    turns = np.empty(start[n_cells])
    median = (1.0 - 2.0 / (9.0 * d)) ** 3
    for c in range(n_cells):
        first, size = start[c], start[c + 1] - start[c]
        if size == 0:
            continue
        free += size - 1
        own += size * (size / start[n_cells])
        for j in range(first, first + size):
            for i in range(d):
                squares += (rows[j, i] - mean[c, i]) ** 2
        for level in range(levels):
            if size < MIN_CELL_BENDS + 2:
                break
            total = 0.0
            for j in range(size - 2):
                turns[j] = 0.0
                for i in range(d):
                    turn = rows[first + j, i] - 2.0 * rows[first + j + 1, i] + rows[first + j + 2, i]
                    turns[j] += turn * turn / (6.0 * d)
                total += turns[j]
            bend[level] += total if level == 0 else np.median(turns[: size - 2]) * ((size - 2) / median)
            number[level] += size - 2
            odd = first + size % 2  # the oldest has no partner
            size //= 2
            for j in range(size):
                for i in range(d):
                    rows[first + j, i] = 0.5 * (rows[odd + 2 * j, i] + rows[odd + 2 * j + 1, i])
    return bend, number, squares / max(free * d, 1.0), own
