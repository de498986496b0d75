"""Sketches that suit the events: few directions with full covariances or, where those tell too little, many without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.rare_clusters import owners
from streamclust.engine.tuning import TUNING
from streamclust.refit.bkm.fit import fit_points
from streamclust.sketch import MAX_DIRECTIONS, Rows, Sketch, learn_sketch

FEW_EVENTS = 256
"""Events below which two halves tell nothing about each other."""


def suitable_sketch(rows: Rows, weight: Floats | None, unit: bool) -> Sketch:
    """The sketch of events: of few directions if clusters are told apart in those, else of all above the noise.

    Covariances of many directions have more numbers than clusters have events, and cost their square: clusters have
    independent coordinates then. Only events compared by angle are asked: sentence embeddings overlap so.
    """
    few = learn_sketch(rows, weight, MAX_DIRECTIONS, unit)
    if not unit or few.n_directions < MAX_DIRECTIONS or rows.shape[0] < FEW_EVENTS:
        return few
    if agreement(*halves(few.project(rows))) >= TUNING.min_agreement:
        return few
    return replace(learn_sketch(rows, weight, TUNING.max_directions, unit), independent=True)


def halves(points: Floats) -> tuple[Ints, Ints]:
    """Labels of all points by the clusters of every other one, and by those of the rest."""
    one, other = (owners(fit_points("gaussian", points[i::2], search="quick"), points) for i in (0, 1))
    return one, other


def agreement(one: Ints, other: Ints) -> float:
    """How far two labellings agree about which points are together, above chance: 1 at most [Hubert and Arabie 1985].

    >>> agreement(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    >>> round(agreement(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])), 6)
    -0.5
    """
    table = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(table, (one, other), 1.0)

    def pairs(n: Floats) -> float:
        return float((n * (n - 1.0) / 2.0).sum())

    both, first, second = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = first * second / pairs(table.sum(keepdims=True))
    most = (first + second) / 2.0
    return 1.0 if most == chance else (both - chance) / (most - chance)
