"""Moments of what each cluster owns, from nodes of a tree and single points."""

import numpy as np

from streamclust._kernels.compile import kernel
from streamclust._kernels.tree.costs import spliced
from streamclust._kernels.types import Floats, Ints


@kernel
def gather(
    owned: Ints, owner: Ints, single: Ints, single_owner: Ints,
    node_weight: Floats, node_mean: Floats, node_scatter: Floats, points: Floats, mass: Floats, origin: Floats,
    reference: Floats, dims: tuple[int, ...], widths: tuple[int, ...],
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """Moments of each cluster, summed about a row of `reference` (K, D) each.

    Where a reference turns out to be far from the mean, compared with the spread, digits cancel: then all is
    summed once more, about the means just found. `widths` is to the scatter's width what `dims` is to D.
    """
    d = len(dims) if len(dims) > 0 else origin.size
    width = len(widths) if len(dims) > 0 else node_scatter.shape[1]
    n_clusters = reference.shape[0]
    about, deviation = np.empty((n_clusters, d)), np.empty(d)
    weight, mean, scatter = np.empty(n_clusters), np.empty((n_clusters, d)), np.empty((n_clusters, width))
    for c in range(n_clusters):
        for j in range(d):
            about[c, j] = reference[c, j] - origin[j]
    for _ in range(2):
        weight[:] = 0.0
        mean[:] = 0.0
        scatter[:] = 0.0
        for k in range(owned.size):
            node, c = owned[k], owner[k]
            weight[c] += node_weight[node]
            for j in range(d):
                deviation[j] = node_mean[node, j] - about[c, j]
            for j in range(width):
                scatter[c, j] += node_scatter[node, j]
            add_deviation(mean, scatter, c, deviation, node_weight[node], d, width)
        for k in range(single.size):
            p, c = single[k], single_owner[k]
            weight[c] += mass[p]
            for j in range(d):
                deviation[j] = (points[p, j] - origin[j]) - about[c, j]
            add_deviation(mean, scatter, c, deviation, mass[p], d, width)
        if not centre(about, d, width, weight, mean, scatter):
            break
        about[:] = mean
    for c in range(n_clusters):
        for j in range(d):
            mean[c, j] += origin[j]
    return weight, mean, scatter


@spliced
def add_deviation(
    mean: Floats, scatter: Floats, c: int, deviation: Floats, w: float, d: int, width: int
) -> None:
    """Add w · deviation to the mean, and of w · deviation deviationᵀ what the scatter keeps."""
    for j in range(d):
        mean[c, j] += w * deviation[j]
    if width == d * d:
        for i in range(d):
            for j in range(d):
                scatter[c, i * d + j] += w * deviation[i] * deviation[j]
    elif width == d:
        for i in range(d):
            scatter[c, i] += w * deviation[i] * deviation[i]
    elif width == 1:
        for i in range(d):
            scatter[c, 0] += w * deviation[i] * deviation[i]


MANY_DIGITS = 100.0
"""Ratio of a sum of squares to what is left of it from which it has lost two digits, and is summed again."""


@spliced
def centre(about: Floats, d: int, width: int, weight: Floats, mean: Floats, scatter: Floats) -> bool:
    """Turn sums about the references into means and centred scatter; whether too many digits cancelled."""
    step = d + 1 if width == d * d else 1
    cancelled = False
    shift, nothing = np.empty(d), np.zeros((weight.size, d))
    for c in range(weight.size):
        if weight[c] > 0.0:
            total = 0.0
            for j in range(d):
                shift[j] = mean[c, j] / weight[c]
                mean[c, j] = about[c, j] + shift[j]
                total += shift[j] * shift[j]
            add_deviation(nothing, scatter, c, shift, -weight[c], d, width)
            for k in range(0, width, step):
                lost = total if width == 1 else shift[k // step] * shift[k // step]
                cancelled = cancelled or weight[c] * lost > MANY_DIGITS * scatter[c, k]
                scatter[c, k] = max(scatter[c, k], 0.0)
    return cancelled
