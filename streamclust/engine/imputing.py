"""Missing values drawn from a model: neither atoms nor lines, as filling in the likeliest value would make.

An event's cluster is drawn in proportion to its probability given the features that the event has, and the missing
values from the cluster's distribution given these. So means and covariances of a cluster stay as they would be without
gaps. The draws of an event depend on the seed and on its number alone, not on how events are batched.
"""

from __future__ import annotations

import numpy as np

from streamclust._kernels.engine.imputing import draw_counts, draw_gaussians
from streamclust._kernels.hashing import splitmix64
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.model import Model, point_parameters, reach
from streamclust.families.discrete import BernoulliParameters, MultinomialParameters, PoissonParameters

MIN_PROBABILITY = 1e-12
"""Probabilities and rates below this are raised to it before their logarithm is taken."""


def imputed(model: Model, rows: Floats, missing: Bools, number: Ints, seed: int) -> Floats:
    """Rows with their missing values drawn from the model; `number` is that of each event in the stream.

    Rows have the model's features.
    """
    filled = np.array(rows, dtype=float)
    order = grouped(missing)
    uniform = uniforms(number, seed, rows.shape[1] + 1)
    if model.whitened_features:
        near = np.sqrt([0.0, *(2 * reach(n) for n in range(1, rows.shape[1] + 1))])
        draw_gaussians(filled, missing, order, uniform, *model.gaussians, near)
        return filled
    share = np.log(model.shown.clusters.weight / model.shown.clusters.weight.sum())
    found = point_parameters(model.shown)
    if isinstance(found, BernoulliParameters):
        p = np.clip(found.probability, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        parts = np.log(p) - np.log1p(-p), np.log1p(-p), p
    elif isinstance(found, MultinomialParameters):
        p = np.maximum(found.probability, MIN_PROBABILITY)
        parts = np.log(p), np.zeros_like(p), p
    else:
        assert isinstance(found, PoissonParameters)
        rate = np.maximum(found.rate, MIN_PROBABILITY)
        parts = np.log(rate), -rate, rate
    shared, binary = isinstance(found, MultinomialParameters), isinstance(found, BernoulliParameters)
    draw_counts(filled, missing, order, uniform, share, *parts, shared, binary)
    return filled


def grouped(missing: Bools) -> Ints:
    """The rows that lack features; those that lack the same ones follow each other.

    >>> grouped(np.array([[True, False], [False, False], [False, True], [True, False]]))
    array([2, 0, 3])
    """
    rows = np.flatnonzero(missing.any(axis=1))
    return rows[np.lexsort(np.packbits(missing[rows], axis=1).T)]


def uniforms(number: Ints, seed: int, n: int) -> Floats:
    """(events, n, 2): numbers from 0 to 1 for each event, the same whenever they are asked for."""
    own = splitmix64(number + 1) ^ splitmix64(np.array([seed + 1], dtype=np.uint64))
    bits = splitmix64(own[:, None] + np.arange(1, 2 * n + 1, dtype=np.uint64))
    return (bits >> np.uint64(11)).astype(float).reshape(len(number), n, 2) * 2.0**-53
