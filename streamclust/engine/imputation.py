"""Missing values drawn from a model: neither atoms nor lines, as filling in the likeliest value would make.

An event's cluster is drawn in proportion to its probability given the features that the event has, and the missing
values from the cluster's distribution given these. So means and covariances of a cluster stay as they would be without
gaps. The draws of an event depend on the seed and on its number alone, not on how events are batched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamclust._kernels.engine.imputing import draw_counts, draw_gaussians
from streamclust._kernels.hashing import splitmix64
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.model import Model
from streamclust.engine.results import point_parameters, reach
from streamclust.engine.tuning import TUNING
from streamclust.families.discrete import BernoulliParameters, MultinomialParameters, PoissonParameters
from streamclust.families.mixed import Mixed, MixedParameters
from streamclust.refit.partition import Partition
from streamclust.utils.blas import weighted_sum

MIN_PROBABILITY = 1e-12
"""Probabilities and rates below this are raised to it before their logarithm is taken."""
NO_JOINT: Floats = np.empty((0, 0))


class Gaps(NamedTuple):
    """Events of a stream that lacks some values: rows with those filled in, which values, and the events' weights."""

    rows: Floats
    missing: Bools
    weight: Floats


def imputed(
    model: Model, rows: Floats, missing: Bools, number: Ints, seed: int, log_share: Floats | None = None
) -> Floats:
    """Rows of the model's features, with their missing values drawn from the model.

    number     of each event in the stream
    log_share  of each active component; None: by their weights
    """
    filled = np.array(rows, dtype=float)
    share = model.log_share if log_share is None else log_share
    _draw(
        model, filled, missing, grouped(missing), uniforms(number, seed, rows.shape[1] + 1), share, NO_JOINT
    )
    return filled


def supported(model: Model, events: Gaps) -> Bools:
    """Which active components the known values of events support: all, but the one that they support least, if any.

    Without a supported component the known values are less likely by more than its parameters cost (BIC). Values that
    were filled in confirm the component that they were drawn from: they must not count.
    """
    joint, share = known_joint(model, events)
    each = np.exp(joint - joint.max(axis=1, keepdims=True) - model.log_share + share)
    total = each.sum(axis=1)
    others = np.maximum(total[:, None] - each, np.finfo(float).eps * total[:, None])
    gain = weighted_sum(events.weight, np.log(total[:, None] / others))
    excess = gain - n_parameters(model) / 2 * np.log(max(float(events.weight.sum()), 1.0))
    kept = np.ones(len(share), dtype=bool)
    if len(share) > 1:
        kept[excess.argmin()] = excess.min() > 0
    return kept


def n_parameters(model: Model) -> int:
    """Number of parameters of a component, its share among them."""
    if model.is_mixed:
        n = model.whitened_features
        return 1 + n + n * (n + 1) // 2 + model.n_coordinates - n
    d = model.n_coordinates
    return {"full": 1 + d + d * (d + 1) // 2, "diagonal": 1 + 2 * d, "scalar": 2 + d, "none": 1 + d}[
        model.active.clusters.kind
    ]


def fitted_shares(model: Model, events: Gaps) -> Floats:
    """Log shares of the active components under which the known values of events are likeliest.

    A component's weight counts values that were filled in, drawn from it, too: so a component that only such values
    support would never vanish.
    """
    return known_joint(model, events)[1]


def known_joint(model: Model, events: Gaps) -> tuple[Floats, Floats]:
    """log p(known values, component) by the components' weights, but for constants; and the fitted log shares."""
    known = slice(0, model.n_coordinates)
    rows, missing, weight = events.rows[:, known].copy(), events.missing[:, known], events.weight
    joint = np.empty((len(rows), len(model.log_share)))
    everyone = np.lexsort(np.packbits(missing, axis=1).T)
    uniform = np.zeros((len(rows), rows.shape[1] + 1, 2))
    _draw(model, rows, missing, everyone, uniform, model.log_share, joint)
    density = np.exp(joint - joint.max(axis=1, keepdims=True) - model.log_share)
    share = np.exp(model.log_share)
    for _ in range(TUNING.share_rounds):
        each = density * share
        share = weighted_sum(weight / each.sum(axis=1), each) / weight.sum()
    with np.errstate(divide="ignore"):
        return joint, np.log(share)


def _draw(
    model: Model, rows: Floats, missing: Bools, order: Ints, uniform: Floats, share: Floats, joint: Floats
) -> None:
    """Draw the missing values in place, and set `joint`, if it has rows: see `draw_gaussians`."""
    missing = np.ascontiguousarray(missing)
    if model.is_mixed:
        _draw_mixed(model, rows, missing, order, uniform, share, joint)
        return
    if model.whitened_features:
        near = np.sqrt([0.0, *(2 * reach(n) for n in range(1, rows.shape[1] + 1))])
        draw_gaussians(rows, missing, order, uniform, share, *model.gaussians, near, joint)
        return
    found = point_parameters(model.active)
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
    draw_counts(rows, missing, order, uniform, share, *parts, shared, binary, joint)


def _draw_mixed(
    model: Model, rows: Floats, missing: Bools, order: Ints, uniform: Floats, share: Floats, joint: Floats
) -> None:
    """`_draw` where events have categories, which are never missing: they tell how probable each component is."""
    found = point_parameters(model.active)
    assert isinstance(model.active, Partition)
    assert isinstance(model.active.family, Mixed)
    assert isinstance(found, MixedParameters)
    family, columns = model.active.family, model.active.family.layout.numbers
    known = np.ones(rows.shape[1], dtype=bool)
    known[columns] = False
    each = np.zeros((len(rows), len(share))) + share
    if found.groups:
        each += family.log_density_of(found, rows[:, known], known)
    if found.numbers is None:
        if len(joint):
            joint[:] = each
        return
    numbers, gaps = np.ascontiguousarray(rows[:, columns]), np.ascontiguousarray(missing[:, columns])
    near = np.sqrt([0.0, *(2 * reach(n) for n in range(1, len(columns) + 1))])
    for row in order.tolist():
        one = np.array([row])
        draw_gaussians(numbers, gaps, one, uniform, each[row], *model.gaussians, near, joint)
    rows[:, columns] = numbers


def grouped(missing: Bools) -> Ints:
    """The rows that lack features; those that lack the same ones follow each other.

    >>> grouped(np.array([[True, False], [False, False], [False, True], [True, False]]))
    array([2, 0, 3])
    """
    rows = np.flatnonzero(missing.any(axis=1))
    return rows[np.lexsort(np.packbits(missing[rows], axis=1).T)]


def uniforms(number: Ints, seed: int, n: int) -> Floats:
    """(events, n, 2): numbers from 0 to 1 for each event, the same whenever they are asked for."""
    own = splitmix64(number + 1) ^ splitmix64(np.array([seed]) + 1)
    bits = splitmix64(own.view(np.int64)[:, None] + np.arange(1, 2 * n + 1))
    return (bits >> np.uint64(11)).astype(float).reshape(len(number), n, 2) * 2.0**-53
