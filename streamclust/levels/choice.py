"""Which level to show: the one that persists longest beside its neighbours, or what was asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.levels.path import Path
from streamclust.levels.tuning import TUNING
from streamclust.parameters import Detail, NumberOfClusters


class Level(NamedTuple):
    """A level of a path."""

    n_clusters: int
    persistence: float
    """Log of the factor in ζ over which it holds; infinite for one cluster."""
    zeta: float
    """Evidence per event below which it gives way to the next coarser level."""
    shown: bool
    """Whether it is on show."""
    probability: float
    """Probability of this number of clusters among the levels; more than the finest are not judged."""


def levels_of(path: Path, shown: int) -> tuple[Level, ...]:
    """All levels, the finest first."""
    return tuple(
        Level(
            k,
            float(path.persistence[k - 1]),
            float(path.bounds[k - 1]),
            k == shown,
            float(path.probability[k - 1]),
        )
        for k in range(path.n_finest, 0, -1)
    )


def prominence(path: Path) -> Floats:
    """(K,): how much each level of 1, ..., K clusters stands out; 0 for one cluster, which holds for ever.

    The log of ζ that a level lasts, times the merges that are left. Where merges have no preferred scale (their losses
    are draws of one power law), these are independent draws of one exponential distribution, whatever the level [Rényi
    1953]: of many levels each lasts the shorter. So they compare.

    A level coarser than the finest that would hold above ζ = 1 as well contradicts the refit, which told more clusters
    apart at ζ = 1. Nothing is known of finer levels then, so it counts only if it lasts by itself: over a factor of
    `min_factor` in ζ.
    """
    left = np.arange(path.n_finest)
    contradicts = (path.bounds[1:] >= 1.0) & (np.arange(1, path.n_finest + 1) < path.n_finest)
    left = np.where(contradicts & (path.persistence < np.log(TUNING.min_factor)), 0, left)
    return np.asarray(np.where(left > 0, left * np.where(left > 0, path.persistence, 0.0), 0.0))


def default_level(path: Path, least: int = 2, most: int | None = None) -> int:
    """The level that stands out most, of those with `least` to `most` clusters; the finer of equals.

    One cluster is the answer only where the refit found one.
    """
    most = path.n_finest if most is None else min(most, path.n_finest)
    least = min(max(least, 2), most)
    allowed = prominence(path)[least - 1 : most]
    return most - int(allowed[::-1].argmax())


def chosen_level(path: Path, detail: Detail = "auto", n_clusters: NumberOfClusters = None) -> int:
    """The number of clusters to show, as asked for; the finest level if more are asked for than there are."""
    if n_clusters is not None:
        if isinstance(n_clusters, tuple):
            return default_level(path, *n_clusters)
        return min(n_clusters, path.n_finest)
    if detail == "fine":
        return path.n_finest
    if not isinstance(detail, str):
        return path.at(min(detail / path.n_events, 1.0))
    auto = default_level(path)
    return auto if detail == "auto" or auto <= 2 else default_level(path, most=auto - 1)
