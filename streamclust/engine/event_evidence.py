"""Evidence of an event about the number of clusters, where its coordinates are not as independent as the model says."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.engine.model import Model
from streamclust.engine.tuning import TUNING
from streamclust.families.cost_form import Quadratic
from streamclust.families.priors import spread_indices


def event_evidence(model: Model, points: Floats, weight: Floats) -> float:
    """Evidence of one event: 1, or less if distances from the clusters' means vary more than the model says.

    In D independent coordinates, in units of their deviations, squared distances have mean D and variance 2 D. Where
    coordinates depend on each other or have long tails the variance is φ times as large, and a log-likelihood counts
    1/φ [quasi-likelihood, McCullagh and Nelder 1989, section 9.2]. For clusters of diagonal covariance.
    """
    form = model.form
    assert isinstance(form, Quadratic)
    some = spread_indices(len(points), min(len(points), TUNING.look_events))
    points, share = points[some], weight[some] / weight[some].sum()
    own = model.nearest(points).component
    gap = points - form.centre[own]
    squares = np.einsum("kii->ki", form.root)[own] ** 2 * gap**2
    distance = squares.sum(axis=1)
    mean = float(share @ distance)
    variance = float(share @ (distance - mean) ** 2)
    return min(1.0, 2.0 * mean**2 / (points.shape[1] * variance)) if variance > 0.0 else 1.0
