"""Whether the events of two components are two bells or one plateau, for many pairs of components."""

import math

import numpy as np

from streamclust._kernels.compile import kernel
from streamclust._kernels.shapes.bells import two_bells
from streamclust._kernels.shapes.gaps import clearest_gap
from streamclust._kernels.shapes.line import BINS, FINE, histograms
from streamclust._kernels.shapes.plateau import best_plateau
from streamclust._kernels.types import Floats, Ints

CHOSEN = 1.0
"""Nats that two bells are charged in all: where one ends and the other begins was chosen by the refit, from the same
events. That is one parameter more than those of the fit [Akaike 1974]."""


@kernel
def judge_edges(
    points: Floats,
    weight: Floats,
    owned: Ints,
    start: Ints,
    edges: Ints,
    mean: Floats,
    direction: Floats,
    places: Floats,
    slopes: Floats,
    rises: Floats,
    tilts: Floats,
    log_totals: Floats,
) -> Floats:
    """For each edge: height, its standard error, peaks of the two bells, events in the clearest gap and beside it.

    Component c owns the points owned[start[c]:start[c + 1]]. `direction` (edges, D) is the line of each edge. The
    height is infinite where the events of one component alone are in the histogram.
    """
    out = np.zeros((edges.shape[0], 6))
    bells = np.empty(BINS)
    plateau, seen = np.empty(BINS), np.empty(BINS)
    for e in range(edges.shape[0]):
        i, j = edges[e, 0], edges[e, 1]
        coarse, fine, at_i, at_j = histograms(
            points,
            weight,
            owned[start[i] : start[i + 1]],
            owned[start[j] : start[j + 1]],
            mean[i],
            direction[e],
        )
        out[e, 2], out[e, 3] = two_bells(coarse, bells)
        if out[e, 2] == 0.0:
            out[e, 0] = np.inf
            continue
        n = 0.0
        for b in range(BINS):
            seen[b] = coarse[0, b] + coarse[1, b]
            n += seen[b]
        best_plateau(seen, places, slopes, rises, tilts, log_totals, plateau)
        height = 0.0
        for b in range(BINS):
            height += seen[b] / n * (bells[b] - plateau[b])
        variance = 0.0
        for b in range(BINS):
            variance += seen[b] / n * (bells[b] - plateau[b] - height) ** 2
        out[e, 0] = height - CHOSEN / n
        out[e, 1] = math.sqrt(variance / n)
        low = max(math.ceil(at_i), 0)
        high = min(math.floor(at_j), FINE)
        out[e, 4], out[e, 5] = clearest_gap(fine, low, high)
    return out
