"""The path of a stream's model, and the weight of young clusters in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.results import Result, point_parameters
from streamclust.families.gaussian import GaussianParameters
from streamclust.levels import Path, path_of_counts, path_of_gaussians
from streamclust.refit.partition import Partition
from streamclust.shapes import gaussian_components


class Opened(NamedTuple):
    """A cluster that was opened between refits."""

    cluster: int
    at: int
    """Event count at which it was opened."""
    each: float
    """Weight of an event then."""


def fed_from_the_start(ids: Sequence[int], weight: Floats, opened: Sequence[Opened], n_seen: int) -> Floats:
    """Weights that the clusters would have, had each always had the share of events that it has had since it opened.

    Else a cluster that was opened a moment ago would be lighter than any other, whatever its share of the stream is.

    >>> fed_from_the_start((0, 1), np.array([1000.0, 50.0]), [Opened(1, 950, 1.0)], n_seen=1050)
    array([1000.,  525.])
    """
    found, total = weight.astype(float), float(weight.sum())
    since = {one.cluster: max((n_seen - one.at) * one.each, one.each) for one in opened}
    for k, cluster in enumerate(ids):
        if cluster in since:
            found[k] *= total / min(max(since[cluster], found[k]), total) if found[k] > 0 else 1.0
    return found


def path_of_result(
    active: Result,
    owner: Ints,
    plateaus: Ints,
    weight: Floats | None = None,
    together: Ints | None = None,
) -> Path:
    """The path from the components of active clusters.

    `weight` is what each cluster counts for, if not its own; `together` says which are on show as one.
    """
    if weight is not None:
        own = np.bincount(owner, active.clusters.weight)
        factor = np.where(own > 0, weight / np.where(own > 0, own, 1.0), 1.0)[owner]
    fitted = point_parameters(active)
    n_events = active.n_effective if isinstance(active, Partition) else active.total
    observed = active.clusters if weight is None else active.clusters.scale(factor)
    if isinstance(active, Partition) and not isinstance(fitted, GaussianParameters):
        return path_of_counts(active.family, active.mixture, observed, owner, n_events, together)
    assert isinstance(fitted, GaussianParameters)
    components = gaussian_components(observed.weight, fitted.mean, fitted.covariance)
    return path_of_gaussians(components, owner, plateaus, n_events, observed, together)
