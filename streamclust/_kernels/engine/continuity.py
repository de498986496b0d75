"""Steps from one cell to another in a sequence of events."""

import numpy as np

from streamclust._kernels.compile import kernel
from streamclust._kernels.types import Floats, Ints


@kernel
def crossings(cell: Ints, points: Floats, direction: Floats) -> tuple[Ints, Floats]:
    """For each pair of cells a < b, among the events of both alone: steps from one to the other, and their squares.

    The squares are those of the steps along `direction` (cells, cells, D), summed.
    """
    n, d = points.shape
    n_cells = len(direction)
    number = np.zeros((n_cells, n_cells), dtype=np.int64)
    squares = np.zeros((n_cells, n_cells))
    last = np.full(n_cells, -1)
    for p in range(n):
        b = cell[p]
        if b >= n_cells:
            continue
        for a in range(n_cells):
            if a != b and last[a] > last[b]:
                low, high = min(a, b), max(a, b)
                step = 0.0
                for j in range(d):
                    step += direction[low, high, j] * (points[p, j] - points[last[a], j])
                number[low, high] += 1
                squares[low, high] += step * step
        last[b] = p
    return number, squares
