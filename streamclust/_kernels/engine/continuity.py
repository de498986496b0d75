"""Steps from one cell to another in a sequence of events."""

import numpy as np

from streamclust._kernels.compile import kernel
from streamclust._kernels.types import Floats, Ints


@kernel
def crossings(cell: Ints, points: Floats, n_cells: int) -> tuple[Ints, Floats]:
    """For each pair of cells a < b, among the events of both alone: steps from one to the other, and their squares.

    The squares are those of the difference of each feature, summed over the steps: (cells, cells, D).
    """
    n, d = points.shape
    number = np.zeros((n_cells, n_cells), dtype=np.int64)
    squares = np.zeros((n_cells, n_cells, d))
    last = np.full(n_cells, -1)
    for p in range(n):
        b = cell[p]
        if b >= n_cells:
            continue
        for a in range(n_cells):
            if a != b and last[a] > last[b]:
                low, high = min(a, b), max(a, b)
                number[low, high] += 1
                for j in range(d):
                    step = points[p, j] - points[last[a], j]
                    squares[low, high, j] += step * step
        last[b] = p
    return number, squares
