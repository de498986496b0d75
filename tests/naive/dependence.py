"""Second differences of block means, by the definition."""

import numpy as np


def block_bends(cell, whitened, n_cells, levels):
    bend, number = np.zeros(levels), np.zeros(levels)
    for level in range(levels):
        for c in range(n_cells):
            rows = whitened[cell == c]
            for _ in range(level):
                rows = rows[len(rows) % 2 :].reshape(-1, 2, whitened.shape[1]).mean(axis=1)
            if len(rows) >= 7:
                turns = ((rows[:-2] - 2 * rows[1:-1] + rows[2:]) ** 2).mean(axis=1) / 6
                typical = np.median(turns) / (1 - 2 / (9 * whitened.shape[1])) ** 3
                bend[level] += turns.sum() if level == 0 else len(turns) * typical
                number[level] += len(turns)
    return bend, number
